"""The dry run: what a configuration means in numbers, before any model loads and without a GPU.

report = dry_run(load_config("recipe", stage="rl"), num_processes=8)
print(render(report))
"""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config.coerce import ConfigError, untyped
from ..config.run import RunConfig
from ..config.yaml_io import read_mapping
from ..prompts.library import Prompts
from .batches import BatchPlan, batch_plan
from .footprint import Memory, ModelFacts, Sharding, estimate_memory, model_facts

QUESTION_TOKENS = 512  # allowance for one question where the data are not at hand
CHARACTERS_PER_TOKEN = 3  # on the safe side for English instructions
WIDTH = 80


@dataclass(frozen=True)
class Launch:
    """What the launcher brings: the number of processes, and whether it shards the model over them."""

    processes: int = 1
    sharding: Sharding = "none"
    source: str = "one process"


@dataclass(frozen=True)
class Phase:
    """One kind of sequence: its parts in tokens at their largest, and the room the context leaves."""

    name: str
    parts: tuple[tuple[str, int], ...]
    limit: int | None

    @property
    def total(self) -> int:
        return sum(tokens for _, tokens in self.parts)

    @property
    def over(self) -> int:
        """Tokens beyond the limit at the largest; 0 where it fits or the limit is unknown."""
        return max(0, self.total - self.limit) if self.limit is not None else 0


@dataclass(frozen=True)
class Report:
    """Everything the dry run tells. `problems` stop a run; `notes` do not."""

    stage: str
    launch: Launch
    batches: BatchPlan
    facts: ModelFacts
    phases: tuple[Phase, ...]
    memory: Memory | None
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    def check(self) -> None:
        """Raise ConfigError with all problems."""
        if self.problems:
            raise ConfigError("\n".join(self.problems))


def read_launch(path: str | Path) -> Launch:
    """The processes and the sharding that an accelerate config file (YAML) asks for."""
    raw = untyped(read_mapping(Path(path)))
    kind = str(raw.get("distributed_type", "NO")).upper()
    count = raw.get("num_processes", 1)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"{path}: num_processes {count!r} is not a whole number of at least 1")
    sharding: Sharding = "none"
    if kind == "FSDP":
        sharding = "full"
    elif kind == "DEEPSPEED":
        stage = (raw.get("deepspeed_config") or {}).get("zero_stage", 2)
        by_stage: dict[Any, Sharding] = {1: "zero1", 2: "zero2", 3: "full"}
        sharding = by_stage.get(stage, "none")
    return Launch(count, sharding, str(path))


def dry_run(
    config: RunConfig,
    *,
    num_processes: int | None = None,
    accelerate_config: str | None = None,
    questions: int | None = None,
) -> Report:
    """The report for a run elsewhere: `--num-processes` wins over the accelerate file; else one process."""
    launch = read_launch(accelerate_config) if accelerate_config else Launch()
    if num_processes is not None:
        launch = replace(launch, processes=num_processes, source="--num-processes")
    facts = model_facts(config.model["model_name_or_path"], config.model["model_revision"])
    return make_report(config, launch, facts, questions)


def make_report(
    config: RunConfig,
    launch: Launch,
    facts: ModelFacts,
    questions: int | None = None,
    question_tokens: int | None = None,
) -> Report:
    """All numbers of one run.

    Args:
        questions: size of the data set (SFT: its rows); None where not known.
        question_tokens: the longest question's; None where not known: `QUESTION_TOKENS` are allowed for.
    """
    if questions is None and config.data is not None:
        questions = config.data.max_questions
    trl = config.trl
    if config.stage == "sft":
        return _sft_report(config, launch, facts, questions)
    batches = batch_plan(
        trl,
        experts=len(config.experts),
        processes=launch.processes,
        objectives=bool(config.objectives),
        questions=questions,
    )
    phases = length_budget(config, facts, question_tokens)
    completion, rollout = trl["max_completion_length"], phases[0].total
    # The longest example still runs alone when it is longer than the budget.
    supervised = max(p.total for p in phases if p.name != "replay")
    supervised = max(config.supervised.token_budget, supervised) if config.objectives else 0
    in_vllm = trl["use_vllm"]
    rows = batches.micro_batch * batches.steps_per_generation
    memory = estimate_memory(
        facts,
        config.model,
        trl,
        train_tokens=max(batches.micro_batch * rollout, supervised),
        kl_tokens=completion if getattr(config.objectives.get("mutual_learning"), "form", "") == "kl" else 0,
        cache_tokens=0 if in_vllm else max(rows * rollout, _extra_generation(config)),
        processes=launch.processes,
        sharding=launch.sharding,
    )
    problems, notes = list(batches.problems), list(batches.notes)
    _judge_lengths(config, phases, problems, notes)
    if "mutual_learning" in config.objectives and batches.experts < 2:
        notes.append("mutual_learning never fires with one expert: add experts or turn it off")
    return Report("rl", launch, batches, facts, phases, memory, tuple(problems), tuple(notes))


def _extra_generation(config: RunConfig) -> int:
    return config.supervised.generation_token_budget if "meta_experience" in config.objectives else 0


def length_budget(
    config: RunConfig, facts: ModelFacts, question_tokens: int | None = None
) -> tuple[Phase, ...]:
    """The largest sequence of each phase, in the order they run (MEL 3.1-3.3)."""
    trl, sampling = config.trl, config.sampling
    limit = facts.context
    if trl["use_vllm"] and trl["vllm_max_model_length"]:
        limit = min(trl["vllm_max_model_length"], limit or trl["vllm_max_model_length"])
    prompts = Prompts.load(config.prompts.templates())
    solve = _tokens(prompts.solve_template.source)
    question = ("question", QUESTION_TOKENS if question_tokens is None else question_tokens)
    expert = max((_tokens(e.system_prompt or "") for e in config.experts), default=0)
    completion = trl["max_completion_length"]
    phases = [Phase("rollout", (("instructions", solve + expert), question, ("response", completion)), limit)]
    if "meta_experience" in config.objectives:
        analysis = sampling.analysis.max_tokens or 0
        parts = (
            ("instructions", _tokens(prompts.analyse_template.source)),
            question,
            ("two solutions", 2 * completion),
            ("analysis", analysis),
        )
        phases.append(Phase("analysis", parts, limit))
        parts = (
            ("instructions", _tokens(prompts.replay_template.source) + solve + expert),
            question,
            ("meta-experience", analysis),
            ("response", sampling.replay.max_tokens or 0),
        )
        phases.append(Phase("replay", parts, limit))
    return tuple(phases)


def _tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _judge_lengths(config: RunConfig, phases: Sequence[Phase], problems: list[str], notes: list[str]) -> None:
    """A response that alone fills the context stops the run; a worst case that does not fit is told."""
    for phase in phases:
        limit = phase.limit
        if limit is None or not phase.over:
            continue
        response = phase.parts[-1][1]
        key = {
            "rollout": "max_completion_length",
            "analysis": "sampling.analysis.max_tokens",
            "replay": "sampling.replay.max_tokens",
            "sft": "max_length",
        }[phase.name]
        if response >= limit:
            problems.append(
                f"{phase.name}: {key} {response} leaves no room for a prompt in the model's {limit} tokens; "
                f"set it below {limit}"
            )
            continue
        left = limit - response - sum(n for label, n in phase.parts[:-1] if label != "two solutions")
        if phase.name == "analysis":
            room = f"pairs whose two solutions have more than about {max(0, left)} tokens together"
        else:
            room = f"prompts of more than {limit - response} tokens"
        notes.append(f"{phase.name}: {phase.total} tokens at most, {limit} there are: {room} are left out")


def _sft_report(config: RunConfig, launch: Launch, facts: ModelFacts, rows: int | None) -> Report:
    """Stage 1: a row is one (question, expert) solution."""
    trl = config.trl
    micro, accumulation = trl["per_device_train_batch_size"], trl["gradient_accumulation_steps"]
    fixed = trl["max_steps"] if trl["max_steps"] > 0 else None
    steps = None
    if rows is not None:
        micro_steps = math.ceil(math.ceil(rows / launch.processes) / micro)
        steps = max(1, math.ceil(micro_steps / accumulation))
    total = fixed or (None if steps is None else math.ceil(trl["num_train_epochs"] * steps))
    batches = BatchPlan(1, 1, launch.processes, micro, accumulation, accumulation, 1, rows, total, steps)
    length = trl["max_length"] or facts.context
    phases = (Phase("sft", (("prompt and solution", length),), facts.context),) if length else ()
    problems: list[str] = []
    notes: list[str] = []
    if length and facts.context is not None and length > facts.context:
        problems.append(f"max_length {length} is more than the model's {facts.context} tokens")
    tokens = micro * (length or 0)
    memory = estimate_memory(
        facts,
        config.model,
        trl,
        train_tokens=tokens,
        cache_tokens=0,
        processes=launch.processes,
        sharding=launch.sharding,
    )
    return Report("sft", launch, batches, facts, phases, memory, tuple(problems), tuple(notes))


def refuse_silent_data_parallel(
    visible_gpus: int, environment: Mapping[str, str], stage: str, argv: Sequence[str]
) -> None:
    """Raise ConfigError where several GPUs are visible and no launcher started this process.

    transformers would wrap the model in torch's DataParallel, which the objectives do not survive and which
    nobody asked for. A launcher sets LOCAL_RANK for each process.
    """
    launched = environment.get("LOCAL_RANK", "-1") not in ("", "-1")
    if visible_gpus < 2 or launched:
        return
    line = shlex.join(
        ["accelerate", "launch", "--num_processes", str(visible_gpus), "-m", f"meml_mel.train.{stage}", *argv]
    )
    raise ConfigError(
        f"{visible_gpus} GPUs are visible and no launcher started this process. Use all of them:\n"
        f"  {line}\nor one of them: CUDA_VISIBLE_DEVICES=0 in front of the same command"
    )


def render(report: Report) -> str:
    """The report for a terminal of 80 columns."""
    b = report.batches
    lines = [
        f"Plan of the run ({report.stage}) for {_count(b.processes, 'process')} ({report.launch.source})",
        "",
    ]
    if report.stage == "rl":
        lines += _rl_lines(b)
    else:
        lines += _row(
            "rows per optimizer step",
            b.completions_per_step,
            f"{b.micro_batch} per device x {b.accumulation} accumulated x {_count(b.processes, 'process')}",
        )
    known = "not known before the data are loaded" if b.questions is None else str(b.questions)
    lines += _row("questions in the data" if report.stage == "rl" else "rows in the data", known)
    steps = "not known" if b.total_steps is None else str(b.total_steps)
    lines += _row("optimizer steps", steps, f"{b.steps_per_epoch} an epoch" if b.steps_per_epoch else "")
    lines += ["", *_length_lines(report), "", *_memory_lines(report)]
    for title, texts in (("Notes", report.notes), ("Problems", report.problems)):
        if texts:
            lines += ["", title]
            for text in texts:
                lines += textwrap.wrap(text, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    return "\n".join(lines)


def _rl_lines(b: BatchPlan) -> list[str]:
    lines = _row(
        "questions per optimizer step, Q",
        f"{b.questions_per_step:g}",
        f"{b.completions_per_step} completions / {b.rollouts_per_question} per question",
    )
    lines += _row("experts, E", b.experts)
    lines += _row("rollouts per question and expert, G", b.generations)
    lines += _row(
        "completions per optimizer step",
        b.completions_per_step,
        f"{b.micro_batch} per device x {b.accumulation} accumulated x {_count(b.processes, 'process')}",
    )
    lines += _row(
        "completions per generation",
        b.completions_per_generation,
        f"{b.micro_batch * b.steps_per_generation} rows per device; serves "
        f"{b.steps_per_generation_served:g} optimizer steps",
    )
    lines += _row("whole questions on one process", "yes" if b.whole_questions_on_ranks else "no")
    return lines


def _row(label: str, value: Any, remark: str = "") -> list[str]:
    text = f"{label:<37}{value}"
    if remark and len(text) + len(remark) + 4 > WIDTH:
        return [text, *textwrap.wrap(f"({remark})", WIDTH, initial_indent="    ", subsequent_indent="     ")]
    return [f"{text}  ({remark})" if remark else text]


def _length_lines(report: Report) -> list[str]:
    context = report.facts.context
    known = f"{context} ({report.facts.source})" if context else f"unknown: {report.facts.source}"
    lines = textwrap.wrap(f"Tokens at most; the model's context: {known}", WIDTH, subsequent_indent="  ")
    for phase in report.phases:
        parts = " + ".join(f"{label} {tokens}" for label, tokens in phase.parts)
        verdict = "" if phase.limit is None else " fits" if not phase.over else f" {phase.over} too many"
        text = f"  {phase.name:<9}{phase.total:>7}{verdict} = {parts}"
        lines += textwrap.wrap(text, WIDTH, subsequent_indent=" " * 19)
    return lines


def _memory_lines(report: Report) -> list[str]:
    if report.memory is None:
        return ["Memory per device: unknown, the model's sizes are not on this disk"]
    count = report.facts.parameters() or 0
    lines = [
        f"Memory per device, roughly: {_gib(report.memory.peak)} for {count / 1e6:.0f}M parameters"
        f" (sharding: {report.launch.sharding})"
    ]
    parts = [f"{label} {_gib(size)}" for label, size in report.memory.parts.items() if size]
    lines += textwrap.wrap(", ".join(parts), WIDTH, initial_indent="  ", subsequent_indent="  ")
    for note in report.memory.notes:
        lines += textwrap.wrap(note, WIDTH, initial_indent="  ", subsequent_indent="  ")
    return lines


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}es"


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.0f} MiB"
