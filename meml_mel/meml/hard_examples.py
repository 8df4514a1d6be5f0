"""MEML-GRPO's hard-example buffer: ground-truth solutions of questions that the experts fail.

L_hard = (1/B) * sum over the B buffered examples of NLL(solution | P_expert, x) in the step in which the buffer
is full, 0 otherwise; then the buffer is emptied. The two triggers, their sources and the open choices:
docs/meml-grpo.md.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..data.question import Question
from ..rlvr.objective import Examination, Outcome, StepContext, SupervisedExample
from ..rlvr.rollouts import Message, ScoredBatch, ScoredQuestion

Trigger = Literal["all_experts", "expert"]
Flush = Literal["in_loss", "own_step"]
AppendAnswer = Literal["boxed", "none"]

RECORD_FIELDS = {
    "event": "string",  # "admitted" or "flushed"
    "step": "int64",
    "question_id": "string",
    "expert": "string",
    "admitted_step": "int64",
    "weight": "double",  # 0 on admission
    "target_text": "string",
}


@dataclass(frozen=True, slots=True)
class HardExamplesConfig:
    """Options of the buffer. [S] summary, [2] secondary accounts, [O] our choice: docs/meml-grpo.md.

    Args:
        coefficient: c_hard; no source gives one [O: 1].
        trigger: `all_experts`: no expert has a right response, one example per expert's prompt [S]; `expert`:
            more than `threshold` of an expert's G responses are wrong, one example under its prompt [2].
        capacity: B, the number of examples at which the buffer is flushed [2].
        threshold: K, of G = 8 responses; trigger `expert` only, which admits with probability K/G [2].
        admission_probability: of a question; trigger `all_experts` only [O: 1].
        flush: `in_loss`, beside the policy loss, or `own_step`, an optimizer step of its own after it [O].
        max_age_steps: older examples are dropped unused; null keeps them [O].
        append_answer: `boxed` ends a solution that boxes another answer, or none, with the boxed gold; `none`
            leaves it as it is [O].
    """

    coefficient: float = 1.0
    trigger: Trigger = "all_experts"
    capacity: int = 64
    threshold: int = 6
    admission_probability: float = 1.0
    flush: Flush = "in_loss"
    max_age_steps: int | None = None
    append_answer: AppendAnswer = "boxed"

    def __post_init__(self) -> None:
        limits = {
            "coefficient": (0 <= self.coefficient < float("inf"), "0 or more, and finite"),
            "capacity": (self.capacity >= 1, "1 or more"),
            "threshold": (self.threshold >= 0, "0 or more"),
            "admission_probability": (0 < self.admission_probability <= 1, "above 0 and at most 1"),
            "max_age_steps": (self.max_age_steps is None or self.max_age_steps >= 1, "1 or more, or null"),
        }
        for key, (holds, limit) in limits.items():
            if not holds:
                raise ValueError(f"{key} is {getattr(self, key)}: it must be {limit}")
        for key, choices in (("trigger", Trigger), ("flush", Flush), ("append_answer", AppendAnswer)):
            if getattr(self, key) not in get_args(choices):
                known = ", ".join(get_args(choices))
                raise ValueError(f"{key} is {getattr(self, key)!r}: it is one of {known}")

    def check_group_size(self, generations: int) -> None:
        """ValueError where trigger `expert` could never fire: G <= K."""
        if self.trigger == "expert" and generations <= self.threshold:
            raise ValueError(
                f"threshold is {self.threshold}, which no group of {generations} responses can "
                f"exceed: set it below {generations}, or raise num_generations above {self.threshold}"
            )


@dataclass(frozen=True, slots=True)
class Buffered:
    """One example in the buffer."""

    question_id: str
    expert: str
    prompt: tuple[Message, ...]  # the expert's solve prompt when it was admitted
    target_text: str
    step: int  # in which it was admitted


class HardExamplesObjective:
    """The objective `hard_examples` (protocol: `rlvr.objective.Objective`), with the buffer as its state.

    Args:
        target: a question to the text that an expert should learn to write; by default `solution_text` with
            the configuration's `append_answer`. Only called for questions with a solution.
    """

    name = "hard_examples"
    schema = RECORD_FIELDS

    def __init__(self, config: HardExamplesConfig, target: Callable[[Question], str] | None = None):
        self.config = config
        self.target = target or (lambda question: solution_text(question, config.append_answer))
        self.buffer: list[Buffered] = []
        self.flush_count = 0  # since the start of the run

    def examine(self, question: ScoredQuestion, context: StepContext) -> Examination:
        """The experts under whose prompts the question is hard; () where it is not."""
        return self._hard_for(question)
        yield  # a generator, as the protocol wants, that asks for nothing

    def _hard_for(self, question: ScoredQuestion) -> tuple[str, ...]:
        if self.config.trigger == "all_experts":
            return question.experts if question.wrong and not question.right else ()
        hard = []
        for expert, group in zip(question.experts, question.groups, strict=True):
            self.config.check_group_size(len(group))
            if sum(r.grade.verdict == "wrong" for r in group) > self.config.threshold:
                hard.append(expert)
        return tuple(hard)

    def reduce(
        self, batch: ScoredBatch, findings: Sequence[tuple[str, ...]], context: StepContext
    ) -> Outcome:
        """Drop what is too old, admit the step's hard questions, and flush if the buffer is full now.

        A flush takes all that is in the buffer, so B may exceed the capacity by what one step admits.
        """
        outcome = Outcome()
        count = dict.fromkeys(("triggered", "without_solution", "duplicates", "not_drawn", "admitted"), 0)
        expired = self._expire(context.step)
        for question, experts in zip(batch.questions, findings, strict=True):
            if not experts:
                continue
            count["triggered"] += 1
            if not (question.question.solution or "").strip():
                count["without_solution"] += 1
                continue
            for expert in experts:
                fate = self._admit(question, expert, context)
                count[fate] += 1
                if fate == "admitted":
                    outcome.records.append(_record("admitted", self.buffer[-1], context.step, 0.0))
        flushed = self._flush(outcome, context.step) if len(self.buffer) >= self.config.capacity else 0
        outcome.metrics = {
            **{key: float(value) for key, value in count.items()},
            "expired": float(expired),
            "flushed": float(flushed),
            "flush_count": float(self.flush_count),
            "buffer_size": float(len(self.buffer)),
        }
        return outcome

    def _expire(self, step: int) -> int:
        if self.config.max_age_steps is None:
            return 0
        before = len(self.buffer)
        self.buffer = [b for b in self.buffer if step - b.step <= self.config.max_age_steps]
        return before - len(self.buffer)

    def _admit(self, question: ScoredQuestion, expert: str, context: StepContext) -> str:
        """Put the example in the buffer unless it is there or the keyed draw says no; answers what happened."""
        question_id = question.question.id
        if any(b.question_id == question_id and b.expert == expert for b in self.buffer):
            return "duplicates"
        if (
            self.config.trigger == "all_experts"
        ):  # one draw admits the question under every expert, or under none
            probability = self.config.admission_probability
            draw = context.rng(self.name, question_id).random()
        else:
            probability = self.config.threshold / len(question.groups[question.experts.index(expert)])
            draw = context.rng(f"{self.name}/{expert}", question_id).random()
        if draw >= probability:
            return "not_drawn"
        self.buffer.append(
            Buffered(
                question_id, expert, question.prompt(expert), self.target(question.question), context.step
            )
        )
        return "admitted"

    def _flush(self, outcome: Outcome, step: int) -> int:
        """Turn the whole buffer into examples of weight c/B and empty it; answers B."""
        weight = self.config.coefficient / len(self.buffer)
        examples = [
            SupervisedExample(self.name, b.question_id, b.prompt, weight, target_text=b.target_text)
            for b in self.buffer
        ]
        (outcome.own_step if self.config.flush == "own_step" else outcome.examples).extend(examples)
        outcome.records.extend(_record("flushed", b, step, weight) for b in self.buffer)
        self.buffer = []
        self.flush_count += 1
        return len(examples)

    def state_dict(self) -> dict[str, Any]:
        """The buffer in full and the number of flushes, JSON-serialisable."""
        buffer = [
            {
                "question_id": b.question_id,
                "expert": b.expert,
                "prompt": [dict(message) for message in b.prompt],
                "target_text": b.target_text,
                "step": b.step,
            }
            for b in self.buffer
        ]
        return {"buffer": buffer, "flush_count": self.flush_count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a `state_dict`. Raises KeyError or TypeError on anything else."""
        self.buffer = [
            Buffered(**{**b, "prompt": tuple(dict(message) for message in b["prompt"])})
            for b in state["buffer"]
        ]
        self.flush_count = state["flush_count"]


def solution_text(question: Question, append_answer: AppendAnswer = "boxed") -> str:
    r"""The ground-truth solution as an expert is asked to answer: it ends with its answer in \boxed{}.

    `boxed`: a sentence with the boxed answer is appended unless the solution's last box holds just that
    answer (white space aside). The grader reads the last box; a GSM8K solution without its `####` line, say,
    ends with none. `none`: the solution as it is.
    """
    solution = (question.solution or "").strip()
    if append_answer == "none":
        return solution
    answer = _to_box(question)
    box = last_box(solution)
    if box is not None and _squeezed(box) == _squeezed(answer):
        return solution
    return f"{solution}\n\nThe answer is \\boxed{{{answer}}}."


def _to_box(question: Question) -> str:
    """The gold as it is written in a box: no dollars around it, a JSON list of golds in a row, yes or no."""
    answer = question.answer.strip()
    if answer.startswith('["') and answer.endswith('"]'):
        with contextlib.suppress(ValueError):
            answer = ", ".join(str(part) for part in json.loads(answer))
    if len(answer) > 2 and answer.startswith("$") and answer.endswith("$") and "$" not in answer[1:-1]:
        answer = answer[1:-1].strip()
    if question.kind == "boolean":
        answer = {"true": "yes", "false": "no"}.get(answer.lower(), answer)
    return answer


def last_box(text: str) -> str | None:
    r"""The content of the last \boxed{...} whose braces close, None where there is none."""
    for start in reversed([match.end() for match in re.finditer(r"\\boxed\s*\{", text)]):
        depth = 1
        for position in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                return text[start:position]
    return None


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _record(event: str, buffered: Buffered, step: int, weight: float) -> dict[str, Any]:
    return {
        "event": event,
        "step": step,
        "question_id": buffered.question_id,
        "expert": buffered.expert,
        "admitted_step": buffered.step,
        "weight": weight,
        "target_text": buffered.target_text,
    }
