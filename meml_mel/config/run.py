"""A run's whole configuration: one YAML plus overrides, typed, checked, and written out again in full.

config = load_config("smollm2-135m/meml_mel", ["--learning_rate", "1e-5"], stage="rl")
GRPOConfig(**config.trl)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..data.source import DataSource
from ..meml.experts import Expert
from ..resources import find_recipe
from .checks import check_run
from .coerce import ConfigError, Plain, build, coerce, is_null, parsed
from .command_line import apply_overrides, parse_overrides
from .fields import flat_keys, unknown
from .sections import (
    OWN_TYPES,
    SECTIONS,
    AlgorithmConfig,
    DecontaminateConfig,
    GradingConfig,
    PromptsConfig,
    SamplingConfig,
    SftConfig,
    Stage,
    SupervisedConfig,
    build_objectives,
)
from .yaml_io import read_mapping, to_yaml

ANALYSIS_TOKENS = 2048  # our choice: the paper names no limit (docs/mel.md)
# Keys that may change between a run and its resumption: they decide where and what is told, not what is learnt.
NOT_IN_DIGEST = frozenset(
    [
        "output_dir",
        "resume_from_checkpoint",
        "run_name",
        "project",
        "report_to",
        "disable_tqdm",
        "log_level",
        "log_level_replica",
        "logging_steps",
        "logging_strategy",
        "logging_first_step",
        "log_on_each_node",
        "save_total_limit",
        "log_completions",
        "num_completions_to_print",
        "log_unique_prompts",
    ]
)
SECRET_KEYS = ("hub_token", "token", "use_auth_token", "api_key", "password")
HUB_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{16,}")


@dataclass(frozen=True)
class RunConfig:
    """Everything a run is told.

    `trl` holds every field of TRL's config class for the stage (GRPOConfig or SFTConfig), `model` every field
    of ModelConfig, typed, defaults included, so `GRPOConfig(**config.trl)` is what the file says. Sections of
    the other stage have their defaults and are not written out. `given` are the flat keys that the user wrote.
    """

    stage: Stage
    model: dict[str, Any]
    trl: dict[str, Any]
    data: DataSource | None = None
    experts: tuple[Expert, ...] = ()
    objectives: dict[str, Any] = field(default_factory=dict)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    prompts: PromptsConfig = field(default_factory=PromptsConfig)
    grading: GradingConfig = field(default_factory=GradingConfig)
    decontaminate: DecontaminateConfig = field(default_factory=DecontaminateConfig)
    supervised: SupervisedConfig = field(default_factory=SupervisedConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    given: frozenset[str] = field(default=frozenset(), compare=False)

    def resolved(self) -> dict[str, Any]:
        """Plain values of every key that the stage reads, defaults included, in a stable order."""
        sections = {name: _plain(getattr(self, name)) for name in SECTIONS if self.stage in SECTIONS[name]}
        trl = {name: value for name, value in self.trl.items() if name not in self.model}
        return {**_plain(self.model), **sections, **_plain(trl)}

    def dump(self, path: Path | str) -> None:
        """Write `resolved()` as YAML that `load_config` reads back to an equal config."""
        resolved = self.resolved()
        groups = {
            "model (TRL's ModelConfig)": [name for name in resolved if name in self.model],
            "sections (docs/configuration.md)": [name for name in resolved if name in SECTIONS],
            "training (TRL's config)": [
                name for name in resolved if name in self.trl and name not in self.model
            ],
        }
        text = "\n".join(
            f"# {title}\n{to_yaml({n: resolved[n] for n in names})}" for title, names in groups.items()
        )
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".tmp")
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)

    def digest(self) -> str:
        """sha256 over what decides the result; keys of `NOT_IN_DIGEST` (places and logs) are left out."""
        kept = {name: value for name, value in self.resolved().items() if name not in NOT_IN_DIGEST}
        return hashlib.sha256(json.dumps([self.stage, kept], sort_keys=True).encode()).hexdigest()


def load_config(source: str | Path, overrides: Sequence[str] = (), stage: Stage = "rl") -> RunConfig:
    """Read a YAML file (or a shipped recipe's name), set the overrides, type and check everything.

    Needs no model, no GPU and no network. Raises ConfigError: unknown keys name the nearest, wrong types name
    key, value and expected type, contradictions name the way out.
    """
    path = find_recipe(str(source))
    raw = apply_overrides(read_mapping(path), parse_overrides(overrides))
    return from_mapping(raw, stage)


def from_mapping(raw: Mapping[str, Any], stage: Stage = "rl") -> RunConfig:
    """The same from a mapping already read; its scalars may be typed or `Plain`."""
    refuse_secrets(raw)
    keys = flat_keys(stage)
    sections: dict[str, Any] = {}
    flat: dict[str, Any] = {}
    for name, value in raw.items():
        if name in SECTIONS and stage in SECTIONS[name]:
            sections[name] = value
        elif name in keys:
            flat[name] = keys[name].coerce(value)
        else:
            raise unknown(name, stage)
    values = {name: flat.get(name, key.default) for name, key in keys.items()}
    config = RunConfig(
        stage=stage,
        model={name: values[name] for name, key in keys.items() if key.in_model},
        trl={name: values[name] for name, key in keys.items() if key.in_trl and name != "hub_token"},
        given=frozenset(flat),
        **_build_sections(sections),
    )
    config = _fill(config)
    check_run(config)
    return config


def refuse_secrets(raw: Any, where: str = "") -> None:
    """A token in a config would be saved with every run and pushed with it: refuse it, unseen."""
    if isinstance(raw, str) and raw[:1] in ("{", "["):
        raw = parsed(Plain(raw))  # TRL reads JSON text for its mappings
    if isinstance(raw, Mapping):
        for name, value in raw.items():
            key = f"{where}.{name}" if where else str(name)
            if name in SECRET_KEYS and str(value).lower() not in ("", "null", "none", "~"):
                raise ConfigError(f"{key}: {_SECRET_ADVICE}")
            refuse_secrets(value, key)
    elif isinstance(raw, list | tuple):
        for index, value in enumerate(raw):
            refuse_secrets(value, f"{where}.{index}")
    elif isinstance(raw, str) and HUB_TOKEN.search(raw):
        raise ConfigError(f"{where}: this looks like a Hub token: {_SECRET_ADVICE}")


_SECRET_ADVICE = (
    "a config is saved with the run and must hold no secret; take it out, and log in with "
    "`hf auth login` or set the environment variable HF_TOKEN (revoke a token that was in a shared file)"
)


def _build_sections(raw: Mapping[str, Any]) -> dict[str, Any]:
    built: dict[str, Any] = {}
    for name, value in raw.items():
        if name == "objectives":
            built[name] = build_objectives(value)
        elif name == "experts":
            built[name] = coerce(value, tuple[Expert, ...] | None, name) or ()
        elif is_null(value) and name != "data":
            continue  # a section without keys has its defaults
        else:
            built[name] = build(DataSource if name == "data" else OWN_TYPES[name], value, name)
    return built


def _fill(config: RunConfig) -> RunConfig:
    """Write down the defaults that depend on other keys."""
    if config.stage != "rl":
        return config
    sampling, trl = config.sampling, dict(config.trl)
    if sampling.analysis.max_tokens is None:
        analysis = dataclasses.replace(sampling.analysis, max_tokens=ANALYSIS_TOKENS)
        sampling = dataclasses.replace(sampling, analysis=analysis)
    if sampling.replay.max_tokens is None:
        replay = dataclasses.replace(sampling.replay, max_tokens=trl["max_completion_length"])
        sampling = dataclasses.replace(sampling, replay=replay)
    if config.algorithm.advantage != "grpo" and "scale_rewards" not in config.given:
        from ..rlvr.advantages import MATCHING_SCALE

        trl["scale_rewards"] = MATCHING_SCALE[config.algorithm.advantage]
    return dataclasses.replace(config, sampling=sampling, trl=trl)


def _plain(value: Any) -> Any:
    """Dataclasses, tuples and paths as what YAML and JSON hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    return getattr(value, "value", value) if not isinstance(value, str | int | float | bool) else value
