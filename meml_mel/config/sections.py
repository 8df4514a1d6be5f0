"""The typed sections of a run's YAML: what the package adds to TRL's flat keys.

`data`, `experts` and the objectives have their dataclasses beside their code; the others are here.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Literal

from ..data.source import DataSource
from ..prompts.library import PromptsConfig as TemplateNames
from ..rlvr.options import AlgorithmConfig, PhaseSampling, SupervisedConfig
from .coerce import ConfigError, build, is_null, parsed, unknown_key

Stage = Literal["rl", "sft"]
_SHIPPED = TemplateNames()


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """Sampling parameters of MEL's two extra phases.

    Args:
        analysis: writing the meta-experience (MEL Eq. 2-5).
        replay: answering again with it (MEL Eq. 6).
    """

    analysis: PhaseSampling = field(default_factory=PhaseSampling)
    replay: PhaseSampling = field(default_factory=PhaseSampling)


@dataclass(frozen=True, slots=True)
class PromptsConfig:
    """Which templates are used: a shipped template's name, or the path of a .jinja file.

    Args:
        solve: the question as the policy reads it.
        analyse: the contrastive analysis (MEL 3.2).
        replay: the question with a meta-experience ahead of it (MEL 3.3).
        expert: an expert's system prompt where it has none of its own.
        format: `chat` uses the tokenizer's chat template, `plain` does not; `auto` decides by the model and
            prints what it decided.
    """

    solve: str = _SHIPPED.solve
    analyse: str = _SHIPPED.analyse
    replay: str = _SHIPPED.replay
    expert: str = _SHIPPED.expert
    format: Literal["auto", "chat", "plain"] = "auto"

    def templates(self) -> TemplateNames:
        """The names alone, as `Prompts.load` takes them."""
        return TemplateNames(self.solve, self.analyse, self.replay, self.expert)


@dataclass(frozen=True, slots=True)
class GradingConfig:
    """The grader's worker processes.

    Args:
        workers: processes on each machine's rank.
        timeout: seconds for one answer, after which its worker is killed and the answer is wrong.
    """

    workers: int = 2
    timeout: float = 5.0

    def __post_init__(self) -> None:
        _at_least("workers", self.workers, 1)
        if not self.timeout > 0:
            raise ValueError(f"timeout {self.timeout} must be above 0 seconds")


@dataclass(frozen=True, slots=True)
class DecontaminateConfig:
    """8-gram overlap of the training questions with evaluation sets.

    Args:
        mode: `report` lists the ids, `remove` leaves them out, `off` does not look.
        against: the evaluation sets, written like `data`.
    """

    mode: Literal["report", "remove", "off"] = "report"
    against: tuple[DataSource, ...] = ()


@dataclass(frozen=True, slots=True)
class SftConfig:
    """Stage 1, multi-expert SFT (MEML-GRPO).

    Args:
        keep_only_correct: train only on solutions that the grader finds right [O].
        extra_rows: files of ready prompt/response rows to add, written like `data`.
        over_long: what becomes of a row longer than max_length: left out and counted, or an error. None is cut.
    """

    keep_only_correct: bool = True
    extra_rows: tuple[DataSource, ...] = ()
    over_long: Literal["drop", "refuse"] = "drop"


# Objective name -> (module, config class). Absent from the config: off.
OBJECTIVES = {
    "mutual_learning": ("meml_mel.meml.mutual_learning", "MutualLearningConfig"),
    "hard_examples": ("meml_mel.meml.hard_examples", "HardExamplesConfig"),
    "meta_experience": ("meml_mel.mel.objective", "MetaExperienceConfig"),
}
# Section -> the stages that read it, in the order of a written config.
SECTIONS: dict[str, tuple[Stage, ...]] = {
    "data": ("rl", "sft"),
    "experts": ("rl", "sft"),
    "objectives": ("rl",),
    "algorithm": ("rl",),
    "sampling": ("rl",),
    "prompts": ("rl", "sft"),
    "grading": ("rl", "sft"),
    "decontaminate": ("rl", "sft"),
    "supervised": ("rl",),
    "sft": ("sft",),
}
OWN_TYPES: dict[str, Any] = {
    "algorithm": AlgorithmConfig,
    "sampling": SamplingConfig,
    "prompts": PromptsConfig,
    "grading": GradingConfig,
    "decontaminate": DecontaminateConfig,
    "supervised": SupervisedConfig,
    "sft": SftConfig,
}


def section_types() -> dict[str, Any]:
    """Section -> its dataclass (`experts`: that of one expert); `objectives` has `objective_types`."""
    return {
        "data": DataSource,
        "experts": _load("meml_mel.meml.experts", "Expert"),
        **OWN_TYPES,
    }


def objective_types() -> dict[str, Any]:
    return {name: _load(module, cls) for name, (module, cls) in OBJECTIVES.items()}


def build_objectives(raw: Any) -> dict[str, Any]:
    """Objective name -> its config, in the order of `OBJECTIVES`; null turns one off."""
    raw = parsed(raw)
    if is_null(raw) or raw == "":
        return {}
    if not isinstance(raw, dict):
        raise ConfigError(f"objectives: expected a mapping of {', '.join(OBJECTIVES)}, got {raw!r}")
    for name in raw:
        if name not in OBJECTIVES:
            raise unknown_key(name, OBJECTIVES, "objectives")
    types, built = objective_types(), {}
    for name in OBJECTIVES:
        value = raw.get(name)
        if name not in raw:
            continue
        if isinstance(value, str) and value in ("", "true"):
            raise ConfigError(
                f"objectives.{name}: write {{}} for its defaults, its keys for others, null to turn it off"
            )
        if is_null(value):
            continue
        built[name] = build(types[name], value, f"objectives.{name}")
    return built


def _load(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _at_least(name: str, value: int, bound: int) -> None:
    if value < bound:
        raise ValueError(f"{name} {value} must be at least {bound}")
