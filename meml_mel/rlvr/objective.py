"""The protocol of an objective: what MEL's internalisation, mutual learning and the hard-example buffer share.

An objective looks at one question's graded rollouts and answers with supervised examples. It may ask for more
text on the way: `examine` is a generator that yields lists of `GenerationRequest` and receives lists of
`Completion`, so one scheduler can drive all questions in waves, and another can stream them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..data.question import Question
from ..grading.verdict import Grade
from .rollouts import Message, ScoredBatch, ScoredQuestion


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One response to sample. With `grade_for`, the completion comes back graded against that question."""

    phase: str  # names the sampling parameters: "analysis", "replay"
    prompt: tuple[Message, ...]
    grade_for: Question | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to a request, in the same order. `prompt_too_long`: left out before generation."""

    text: str
    token_ids: tuple[int, ...]  # as sampled, with the end token where it ended
    finish: Literal["stop", "length", "prompt_too_long"]
    grade: Grade | None = None


@dataclass(frozen=True, slots=True)
class SupervisedExample:
    """`weight * tokenmeanNLL(target | prompt)` over the global optimizer step (docs/training.md).

    The weight is final: coefficient, 1/Q and 1/n_q are inside; it may be negative (`form: printed`).
    Exactly one of `target_ids` (sampled ids that ended with their end token) and `target_text` (the engine
    appends the end token) is given. With `teacher_prompt` the loss is the token-mean KL from the detached
    distribution under that prompt to the one under `prompt`, along the target.
    """

    objective: str
    question_id: str
    prompt: tuple[Message, ...]
    weight: float
    target_ids: tuple[int, ...] | None = None
    target_text: str | None = None
    teacher_prompt: tuple[Message, ...] | None = None

    def __post_init__(self) -> None:
        if (self.target_ids is None) == (self.target_text is None):
            raise ValueError("a supervised example has either target_ids or target_text")


@dataclass(frozen=True, slots=True)
class StepContext:
    """What an objective may know about the step."""

    seed: int
    step: int
    questions: int  # Q of the whole-step equation: questions in the batch, all ranks

    def rng(self, objective: str, question_id: str = "") -> random.Random:
        """A generator keyed by (seed, step, question, objective): independent of call order and of ranks."""
        key = f"{self.seed}/{self.step}/{question_id}/{objective}".encode()
        return random.Random(int.from_bytes(hashlib.sha256(key).digest()[:8], "big"))


@dataclass(slots=True)
class Outcome:
    """What `reduce` answers for the step.

    `own_step` examples are trained in an optimizer step of their own after the RL one.
    `metrics` are named without the objective's prefix; `records` are flat dicts, one row each in the run's
    `records/<objective>` folder.
    """

    examples: list[SupervisedExample] = field(default_factory=list)
    own_step: list[SupervisedExample] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)


# What `examine` returns is the objective's own business: it is handed to its `reduce` unread.
Examination = Generator[Sequence[GenerationRequest], Sequence[Completion], Any]


class Objective(Protocol):
    """Runs on every rank with the same inputs and must answer the same on each. Never runs in evaluation.

    An objective that must see the whole batch before it examines questions (a cap per step) may also have
    `plan(batch, context) -> None`, which is called first.
    """

    name: str

    def examine(self, question: ScoredQuestion, context: StepContext) -> Examination:
        """One question's generator; its return value is this question's finding (anything)."""
        ...

    def reduce(self, batch: ScoredBatch, findings: Sequence[Any], context: StepContext) -> Outcome:
        """All findings, in the batch's order, to examples with final weights."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """JSON-serialisable state over steps (the buffer); {} where there is none."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def run_waves(
    objectives: Sequence[Objective],
    batch: ScoredBatch,
    context: StepContext,
    generate: Any,
) -> dict[str, Outcome]:
    """The wave scheduler: every question's next requests go out together, phase by phase, until all are done.

    `generate(requests) -> completions` answers a whole list in order. Questions that cannot be graded are not
    examined.
    """
    running: list[tuple[str, int, Examination, Sequence[GenerationRequest]]] = []
    findings: dict[str, list[Any]] = {}
    questions = [q for q in batch.questions if q.gradable]
    gradable = ScoredBatch(step=batch.step, questions=tuple(questions))
    for objective in objectives:
        if hasattr(objective, "plan"):
            objective.plan(gradable, context)
        findings[objective.name] = [None] * len(questions)
        for index, question in enumerate(questions):
            examination = objective.examine(question, context)
            try:
                running.append((objective.name, index, examination, next(examination)))
            except StopIteration as done:
                findings[objective.name][index] = done.value
    while running:
        requests = [request for *_, wanted in running for request in wanted]
        completions = list(generate(requests)) if requests else []
        following = []
        position = 0
        for name, index, examination, wanted in running:
            answers = completions[position : position + len(wanted)]
            position += len(wanted)
            try:
                following.append((name, index, examination, examination.send(answers)))
            except StopIteration as done:
                findings[name][index] = done.value
        running = following
    return {o.name: o.reduce(gradable, findings[o.name], context) for o in objectives}
