"""A key-value cache that grows in place. transformers' own copies everything it holds at every token."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

_STEP = 64  # tokens of room added at a time, at least


class RoomyLayer(DynamicLayer):
    """`DynamicLayer` with spare room behind what it holds: `keys` and `values` are views of larger tensors."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append along the length (rows, heads, length, size); answers all that is held."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.room: tuple[torch.Tensor, torch.Tensor] | None = None
        held = self.get_seq_length()
        length = held + key_states.shape[-2]
        if self.room is None or self.room[0].shape[-2] < length or self.room[0].shape[0] != len(key_states):
            old = (self.keys, self.values) if held else (None, None)
            spare = max(_STEP, held // 4)
            self.room = (
                _roomy(key_states, old[0], length + spare),
                _roomy(value_states, old[1], length + spare),
            )
        keys, values = self.room
        keys[..., held:length, :] = key_states
        values[..., held:length, :] = value_states
        self.keys, self.values = keys[..., :length, :], values[..., :length, :]
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these rows; their room is made anew at the next update."""
        super().batch_select_indices(indices)
        self.room = None


def _roomy(like: torch.Tensor, old: torch.Tensor | None, capacity: int) -> torch.Tensor:
    rows, heads, _, size = like.shape
    made = like.new_empty(rows, heads, capacity, size)
    if old is not None:
        made[..., : old.shape[-2], :] = old
    return made


def roomy_cache(config: Any) -> DynamicCache:
    """A cache for the model with this config; layers of other kinds (sliding windows, ...) stay transformers'."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    if getattr(cache, "layer_class_to_replicate", None) is DynamicLayer:  # layers made on first use
        cache.layer_class_to_replicate = RoomyLayer
    return cache
