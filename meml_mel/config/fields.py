"""The flat keys: names, types and defaults of TRL's own config dataclasses, which are never built here.

Building GRPOConfig would refuse bf16 on a CPU and divide by this process's world size; its fields alone tell
what may be written, so a laptop can check a recipe for eight GPUs.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from dataclasses import dataclass
from typing import Any

from .coerce import ConfigError, coerce, is_null, unknown_key
from .sections import SECTIONS, Stage

# Keys of TRL users' files that are something else here.
ELSEWHERE = {
    "dataset_name": "the data are named under `data:` (data.path)",
    "dataset_config": "the data are named under `data:` (data.name)",
    "dataset_train_split": "the data are named under `data:` (data.split)",
    "dataset_test_split": "there is no evaluation during training yet: evaluate saved checkpoints",
    "datasets": "the data are named under `data:` (data.path)",
    "reward_funcs": "the reward is the grader's verdict; its settings are under `grading:`",
    "reward_model_name_or_path": "the reward is the grader's verdict; its settings are under `grading:`",
    "env": "set environment variables in the shell: a config is saved with the run and holds no secrets",
    "max_prompt_length": "TRL 1.16 has no such key; prompts that leave no room for a response are left out",
    "warmup_ratio": "transformers 5 has no such key; a `warmup_steps` below 1 is a fraction of the run",
}


@dataclass(frozen=True)
class FlatKey:
    """One flat key: its type and default, and whether it goes to ModelConfig, TRL's config, or both."""

    name: str
    hint: Any
    default: Any
    choices: tuple[Any, ...]
    in_model: bool
    in_trl: bool

    def coerce(self, value: Any) -> Any:
        if self.name == "model_revision" and is_null(value):
            return self.default  # `meml-mel pin` fills a null in; until then it is the branch
        return coerce(value, self.hint, self.name, self.choices)


@functools.lru_cache
def flat_keys(stage: Stage) -> dict[str, FlatKey]:
    """Every flat key of the stage, ModelConfig's first, in the dataclasses' order. Imports trl (seconds)."""
    from trl.trainer.model_config import ModelConfig

    if stage == "rl":
        from trl.trainer.grpo_config import GRPOConfig as Trainer
    else:
        from trl.trainer.sft_config import SFTConfig as Trainer  # type: ignore[assignment]
    model, trainer = _fields(ModelConfig), _fields(Trainer)
    return {
        name: dataclasses.replace(
            model.get(name) or trainer[name], in_model=name in model, in_trl=name in trainer
        )
        for name in {**model, **trainer}
    }


def _fields(cls: Any) -> dict[str, FlatKey]:
    hints = typing.get_type_hints(cls)
    keys = {}
    for f in dataclasses.fields(cls):
        if not f.init:
            continue
        default = f.default
        if f.default_factory is not dataclasses.MISSING:
            default = f.default_factory()
        key = FlatKey(f.name, hints[f.name], default, tuple(f.metadata.get("choices") or ()), False, False)
        # `logging_steps: float = 10`: typed like a written value, so that a dumped config has the same digest.
        keys[f.name] = dataclasses.replace(key, default=key.coerce(default))
    return keys


def unknown(key: str, stage: Stage) -> ConfigError:
    """The error for a key that is neither a section nor a flat key of this stage."""
    if key in ELSEWHERE:
        return ConfigError(f"unknown key {key!r}: {ELSEWHERE[key]}")
    if key in SECTIONS:
        stages = " and ".join(SECTIONS[key])
        return ConfigError(f"section {key!r} belongs to the {stages} stage; this is the {stage} stage")
    known = set(flat_keys(stage)) | {name for name, stages in SECTIONS.items() if stage in stages}
    other: Stage = "sft" if stage == "rl" else "rl"
    if key in flat_keys(other):
        return ConfigError(f"unknown key {key!r}: it belongs to the {other} stage; this is the {stage} stage")
    return unknown_key(key, known - {"hub_token"})
