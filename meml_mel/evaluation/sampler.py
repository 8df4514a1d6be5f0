"""Responses from a transformers model on one device: batched by memory, finished rows leave the batch.

    sampler = Sampler(model, tokenizer, ends=end_token_ids(tokenizer, model.config, model.generation_config))
    responses = sampler([SampleRequest(ids, key=(0,))], max_tokens=256, temperature=0.0)

A loop of its own and not `model.generate`: that applies whatever generation config came with the model, runs
every batch until its longest response ends, and draws from one generator, so that a sample depends on its
neighbours. Here a row's random numbers come from its own key.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .cache import roomy_cache
from .responses import Response, read_response

MEMORY_BYTES = 1 << 30  # for a batch's cache and logits, on a CPU
GPU_SHARE = 0.5  # of the device's free memory, for the same
SHRINK = 0.75  # rows still running, as a share of the batch, at which the finished ones are taken out
MAX_ROWS = 1024
_STOP_EVERY = 8  # steps between looks for stop strings


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """A prompt's token ids, and the words that key its random numbers."""

    ids: tuple[int, ...]
    key: tuple[Any, ...] = ()


Progress = Callable[[int, int], None]  # (responses done, of how many)


class Sampler:
    """Greedy or sampled responses of one model.

    Args:
        ends: ids that end a response.
        context: the model's longest sequence in tokens, None where it has no limit.
        memory_bytes: for one batch's cache and logits; None: 1 GiB on a CPU, half of what is free on a GPU.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        ends: Sequence[int],
        context: int | None = None,
        memory_bytes: int | None = None,
    ):
        self.model, self.tokenizer, self.ends, self.context = model, tokenizer, list(ends), context
        self.device = model.device
        self._memory = memory_bytes or _memory(self.device)
        self._token_bytes, self._row_bytes = _footprint(model)
        parameters = inspect.signature(model.forward).parameters
        self._positions = "position_ids" in parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"  # its name before 5.24
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}

    def __call__(
        self,
        requests: Sequence[SampleRequest],
        max_tokens: int,
        temperature: float = 0.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int = 0,
        progress: Progress | None = None,
    ) -> list[Response]:
        """One response a request, in order; temperature 0 is greedy.

        A response may take what the context leaves after its prompt, at most `max_tokens`; where that is nothing
        it is answered `prompt_too_long`. Text stops before a stop string.
        """
        responses = [Response("", 0, "prompt_too_long")] * len(requests)
        room = [
            max_tokens if self.context is None else min(max_tokens, self.context - len(r.ids))
            for r in requests
        ]
        answerable = [i for i, request in enumerate(requests) if room[i] > 0 and request.ids]
        done = len(requests) - len(answerable)
        was_training = self.model.training
        self.model.eval()
        try:
            for batch in self._batches(answerable, requests, room):
                found = self._run(
                    [requests[i] for i in batch], [room[i] for i in batch], temperature, top_p, stop, seed
                )
                for i, response in zip(batch, found, strict=True):
                    responses[i] = response
                done += len(batch)
                if progress is not None:
                    progress(done, len(requests))
        finally:
            self.model.train(was_training)
        return responses

    def _batches(
        self, indices: Sequence[int], requests: Sequence[SampleRequest], room: Sequence[int]
    ) -> list[list[int]]:
        """Longest first, so that what does not fit shows at once; alike in length, so that little is padding."""
        order = sorted(indices, key=lambda i: (-len(requests[i].ids), i))
        batches: list[list[int]] = []
        for i in order:
            if batches:
                first = batches[-1][0]
                tokens = len(requests[first].ids) + max(room[first], room[i])
                rows = len(batches[-1]) + 1
                if rows <= MAX_ROWS and rows * (tokens * self._token_bytes + self._row_bytes) <= self._memory:
                    batches[-1].append(i)
                    continue
            batches.append([i])
        return batches

    @torch.inference_mode()
    def _run(
        self,
        requests: Sequence[SampleRequest],
        room: Sequence[int],
        temperature: float,
        top_p: float,
        stop: Sequence[str],
        seed: int,
    ) -> list[Response]:
        """Prefill once, then a token a step for the `live` rows, which are those that the tensors hold."""
        ids, mask = self._padded([request.ids for request in requests])
        steps = max(room)
        limit = torch.tensor(room, device=self.device)
        uniform = _uniforms([r.key for r in requests], steps, seed) if temperature else None
        ends = torch.tensor(self.ends, device=self.device)
        out = torch.full((len(requests), steps), -1, device=self.device)  # -1: nothing was written
        live = torch.arange(len(requests), device=self.device)
        running = torch.ones_like(live, dtype=torch.bool)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        cache: Any = roomy_cache(self.model.config)
        for step in range(steps):
            logits = self._forward(ids, mask, positions, cache)
            row_uniform = None if uniform is None else uniform[live.cpu().numpy(), step]
            token = _choose(logits, temperature, top_p, row_uniform)
            out[live[running], step] = token[running]
            running = running & ~torch.isin(token, ends) & (limit > step + 1)
            if stop and step % _STOP_EVERY == _STOP_EVERY - 1:
                running = running & ~self._at_stop(out[live], running, step, stop)
            count = int(running.sum())
            if count == 0:
                break
            if count <= SHRINK * len(live):
                cache.batch_select_indices(running.nonzero().squeeze(1))
                live, mask, positions, limit = (
                    live[running],
                    mask[running],
                    positions[running],
                    limit[running],
                )
                token, running = token[running], running[running]
            ids = token[:, None]
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            positions = positions[:, -1:] + 1
            if self.context is not None:  # of rows that have ended and are still held
                positions = positions.clamp(max=self.context - 1)
        rows = ([t for t in row if t >= 0] for row in out.tolist())
        return [read_response(row, self.ends, stop, self._decode) for row in rows]

    def _padded(self, prompts: Sequence[tuple[int, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
        """(rows, width) ids, padded on the left, and their mask."""
        width = max(map(len, prompts))
        pad = self.tokenizer.pad_token_id
        pad = self.ends[0] if pad is None else pad
        ids = [[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return torch.tensor(ids, device=self.device), torch.tensor(mask, device=self.device)

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any
    ) -> torch.Tensor:
        """The next token's logits (rows, vocabulary), float32."""
        more = {"position_ids": positions} if self._positions else {}
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            use_cache=True,
            **{self._cache_name: cache},
            **more,
            **self._last_only,
        )
        return output.logits[:, -1].float()

    def _at_stop(
        self, held: torch.Tensor, running: torch.Tensor, step: int, stop: Sequence[str]
    ) -> torch.Tensor:
        """Which rows have written a stop string lately. A token is at least a byte, so the tail is long enough."""
        tail = _STOP_EVERY + max(len(s.encode()) for s in stop)
        rows = held[:, max(0, step + 1 - tail) : step + 1].tolist()
        at_stop = [
            going and any(s in self.tokenizer.decode([t for t in row if t >= 0]) for s in stop)
            for row, going in zip(rows, running.tolist(), strict=True)
        ]
        return torch.tensor(at_stop, dtype=torch.bool, device=running.device)

    def _decode(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True)


def _choose(
    logits: torch.Tensor, temperature: float, top_p: float, uniform: np.ndarray | None
) -> torch.Tensor:
    """A token a row from (rows, vocabulary) logits: the largest, or by inverting the cumulated probabilities at
    `uniform` (rows,) in float64."""
    if uniform is None:
        return logits.argmax(-1)
    probabilities = (logits / temperature).softmax(-1, dtype=torch.float64)
    order = None
    if top_p < 1:
        probabilities, order = probabilities.sort(stable=True, dim=-1, descending=True)
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= top_p, 0.0)  # the first is always kept
    cumulated = probabilities.cumsum(-1)
    point = torch.from_numpy(uniform).to(logits.device)[:, None] * cumulated[:, -1:]
    token = torch.searchsorted(cumulated, point, right=True)  # right: an entry of probability 0 is never met
    last = (probabilities > 0).cumsum(-1).argmax(-1, keepdim=True)  # rounding can lead past the end
    token = torch.minimum(token, last)
    return (token if order is None else order.gather(-1, token)).squeeze(-1)


def _uniforms(keys: Sequence[tuple[Any, ...]], steps: int, seed: int) -> np.ndarray:
    """(rows, steps) numbers in [0, 1), each row's from the seed and its key alone."""
    rows = []
    for key in keys:
        digest = hashlib.sha256(repr((seed, *key)).encode()).digest()
        rows.append(np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little"))).random(steps))
    return np.stack(rows)


def _memory(device: torch.device) -> int:
    return int(torch.cuda.mem_get_info(device)[0] * GPU_SHARE) if device.type == "cuda" else MEMORY_BYTES


def _footprint(model: Any) -> tuple[int, int]:
    """Bytes of a token (cache, and activations while the prompt is read) and of a row (logits, float64 copies)."""
    config = model.config.get_text_config()
    width = torch.finfo(model.dtype).bits // 8
    heads = getattr(config, "num_attention_heads", None) or 1
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    cache = 2 * config.num_hidden_layers * kv_heads * head_dim * width
    activations = 3 * (getattr(config, "intermediate_size", None) or 4 * config.hidden_size) * width
    return cache + activations, config.vocab_size * 32
