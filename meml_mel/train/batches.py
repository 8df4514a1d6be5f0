"""How completions, questions and optimizer steps divide: pure arithmetic on the raw configuration.

TRL counts in completions: a micro-step has `per_device_train_batch_size` of them on each process, a generation
`steps_per_generation` micro-steps, an optimizer step `gradient_accumulation_steps`. We count in questions, each
of E experts x G rollouts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..config.checks import save_alignment


@dataclass(frozen=True)
class BatchPlan:
    """One run's batches. `questions_per_step` is Q of the whole-step equation; a fraction says that questions
    are not whole within an optimizer step."""

    experts: int  # E
    generations: int  # G
    processes: int
    micro_batch: int  # completions a device sees in one backward
    accumulation: int
    steps_per_generation: int
    iterations: int
    questions: int | None  # in the data set
    total_steps: int | None
    steps_per_epoch: int | None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def rollouts_per_question(self) -> int:
        return self.experts * self.generations

    @property
    def completions_per_step(self) -> int:
        return self.micro_batch * self.accumulation * self.processes

    @property
    def completions_per_generation(self) -> int:
        return self.micro_batch * self.steps_per_generation * self.processes

    @property
    def questions_per_step(self) -> float:
        return self.completions_per_step / self.rollouts_per_question

    @property
    def questions_per_generation(self) -> float:
        return self.completions_per_generation / self.rollouts_per_question

    @property
    def steps_per_generation_served(self) -> float:
        """Optimizer steps that one generation serves."""
        return self.steps_per_generation * self.iterations / self.accumulation

    @property
    def whole_questions_on_ranks(self) -> bool:
        """All rollouts of a question are generated on one process."""
        return self.micro_batch * self.steps_per_generation % self.rollouts_per_question == 0


def batch_plan(
    trl: Mapping[str, Any],
    *,
    experts: int = 0,
    processes: int = 1,
    objectives: bool = False,
    questions: int | None = None,
) -> BatchPlan:
    """The batches of an RL run, with every rule that is broken and the nearest values that work.

    Args:
        trl: GRPOConfig's keys, raw.
        experts: number of experts; 0 is one nameless expert.
        questions: size of the data set, None where it is not known.
    """
    micro, accumulation = trl["per_device_train_batch_size"], trl["gradient_accumulation_steps"]
    generations, experts = trl["num_generations"], max(1, experts)
    problems, notes = [], []
    per_generation = trl.get("steps_per_generation") or accumulation
    asked = trl.get("generation_batch_size")
    if asked is not None:
        per_generation, rest = divmod(asked, micro * processes)
        if rest or not per_generation:
            near = _near(asked, micro * processes)
            problems.append(
                f"generation_batch_size {asked} is no multiple of per_device_train_batch_size {micro} x "
                f"{processes} processes = {micro * processes}. Nearest: {near}"
            )
        per_generation = max(1, per_generation)
        problems += save_alignment(dict(trl), per_generation)
    if objectives and per_generation != accumulation:
        problems.append(
            f"one generation has {per_generation} micro-steps and an optimizer step {accumulation}: with "
            "objectives on they must be equal; leave steps_per_generation and generation_batch_size out"
        )
    problems += _divisibility(trl, micro, per_generation, processes, experts, generations)
    plan = BatchPlan(
        experts, generations, processes, micro, accumulation, per_generation, trl["num_iterations"], questions,
        total_steps=None, steps_per_epoch=None,
    )  # fmt: skip
    if not plan.whole_questions_on_ranks and processes > 1:
        whole = math.lcm(micro, plan.rollouts_per_question) // micro
        notes.append(
            f"a question's {plan.rollouts_per_question} rollouts are spread over processes: each generates "
            f"{micro * per_generation}. Whole questions on one process need {whole} micro-steps a "
            "generation, or a multiple"
        )
    if per_generation > accumulation:
        notes.append(
            f"one generation serves {plan.steps_per_generation_served:g} optimizer steps and its rows are "
            "shuffled over them: a step holds parts of questions, and is off-policy after the first"
        )
    steps_per_epoch, total = _steps(trl, plan, problems, notes)
    return replace(
        plan, total_steps=total, steps_per_epoch=steps_per_epoch, problems=tuple(problems), notes=tuple(notes)
    )


def _divisibility(
    trl: Mapping[str, Any], micro: int, steps: int, processes: int, experts: int, generations: int
) -> list[str]:
    """A generation must hold whole questions: E * G completions each."""
    unit, total = experts * generations, micro * steps * processes
    if total % unit == 0:
        return []
    name = "steps_per_generation" if trl.get("steps_per_generation") else "gradient_accumulation_steps"
    if trl.get("generation_batch_size") is not None:
        ways = [f"generation_batch_size {_near(total, math.lcm(unit, micro * processes))}"]
    else:
        ways = [
            f"{name} {_near(steps, unit // math.gcd(unit, micro * processes))}",
            f"per_device_train_batch_size {_near(micro, unit // math.gcd(unit, steps * processes))}",
        ]
    each = f"{experts} experts x num_generations {generations}" if experts > 1 else "num_generations"
    return [
        f"a generation has per_device_train_batch_size {micro} x {steps} micro-steps x {processes} process(es) = "
        f"{total} completions, no multiple of {each} = {unit}, the rollouts of one question. "
        f"Nearest: {'; or '.join(ways)}"
    ]


def _near(value: int, unit: int) -> str:
    """The multiples of `unit` around `value`."""
    below = value // unit * unit
    return f"{below} or {below + unit}" if below else str(unit)


def _steps(
    trl: Mapping[str, Any], plan: BatchPlan, problems: list[str], notes: list[str]
) -> tuple[int | None, int | None]:
    """(optimizer steps per epoch, in all), as the Trainer counts them; an epoch's last incomplete generation is
    not drawn (TRL's RepeatSampler)."""
    fixed = trl["max_steps"] if trl["max_steps"] > 0 else None
    if plan.questions is None or problems:
        return None, fixed
    per_generation = plan.completions_per_generation // plan.rollouts_per_question
    drawn, left = divmod(plan.questions, per_generation)
    if not drawn:
        problems.append(
            f"the data have {plan.questions} questions, fewer than the {per_generation} of one generation: "
            "lower gradient_accumulation_steps or per_device_train_batch_size, or give more questions"
        )
        return None, fixed
    if left:
        which = "others each time" if trl.get("shuffle_dataset", True) else "always the last ones"
        notes.append(f"{left} of {plan.questions} questions are left out of each epoch, {which}")
    micro_steps = drawn * plan.iterations * plan.steps_per_generation
    if micro_steps % plan.accumulation:
        notes.append(f"an epoch's last optimizer step has {micro_steps % plan.accumulation} micro-steps only")
    per_epoch = math.ceil(micro_steps / plan.accumulation)
    return per_epoch, fixed or math.ceil(trl["num_train_epochs"] * per_epoch)
