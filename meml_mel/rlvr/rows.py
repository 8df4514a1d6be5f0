"""The rows a trainer gets, and what must hold of them and of the settings before anything is generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trl import GRPOConfig

from ..data.question import Question
from . import advantages
from .objective import Objective
from .options import AlgorithmConfig
from .rollouts import Message
from .trl_adapter import check_skip


@dataclass(frozen=True, slots=True)
class Row:
    """One (question, expert) with its solve prompt as messages; `expert` is "" where there is only one."""

    question: Question
    expert: str
    prompt: tuple[Message, ...]


def experts_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """The experts of the first question; every other question must have the same, in the same order."""
    if not rows:
        raise ValueError("no rows to train on: every question was left out, see the data report")
    first = rows[0].question.id
    experts = []
    for row in rows:
        if row.question.id != first:
            break
        experts.append(row.expert)
    if len(set(experts)) != len(experts):
        raise ValueError(f"question {first!r} has an expert twice: {experts}")
    for start in range(0, len(rows), len(experts)):
        group = rows[start : start + len(experts)]
        if [r.expert for r in group] != experts or len({r.question.id for r in group}) != 1:
            raise ValueError(
                f"rows must be question-major with experts {experts} for every question; question "
                f"{group[0].question.id!r} has {[r.expert for r in group]}"
            )
    if len({r.question.id for r in rows}) != len(rows) // len(experts):
        raise ValueError("question ids are not unique: two questions share one")
    return tuple(experts)


def check_settings(
    args: GRPOConfig, algorithm: AlgorithmConfig, objectives: Sequence[Objective], experts: int
) -> None:
    """Refuse contradictory settings before compute is spent."""
    # What the user wrote for scale_rewards is checked by the configuration; here TRL's default can't be told from it.
    advantages.validate(
        algorithm.advantage,
        None,
        args.loss_type,
        negative_advantages=algorithm.negative_advantages,
        rft_divisor=algorithm.rft_divisor,
        updates_per_generation=max(1, args.steps_per_generation // args.gradient_accumulation_steps)
        * args.num_iterations,
    )
    if algorithm.skip_zero_advantage_rows:
        check_skip(args)
    groups = args.generation_batch_size // args.num_generations
    if groups % experts:
        raise ValueError(
            f"one generation holds {groups} groups of {args.num_generations}, not a multiple of {experts} experts: "
            f"make per_device_train_batch_size x processes x steps_per_generation a multiple of "
            f"{experts * args.num_generations}"
        )
    if objectives and args.steps_per_generation != args.gradient_accumulation_steps:
        raise ValueError(
            f"with objectives one generation serves one optimizer step: steps_per_generation="
            f"{args.steps_per_generation} must equal gradient_accumulation_steps={args.gradient_accumulation_steps} "
            "(leave steps_per_generation unset)"
        )
    serves = args.steps_per_generation * args.num_iterations
    if args.save_strategy == "steps" and (int(args.save_steps) * args.gradient_accumulation_steps) % serves:
        raise ValueError(
            f"save_steps={args.save_steps} falls inside a generation, which serves "
            f"{serves / args.gradient_accumulation_steps:g} optimizer steps: make it a multiple of that"
        )
    names = [objective.name for objective in objectives]
    if len(set(names)) != len(names):
        raise ValueError(f"an objective is given twice: {names}")
