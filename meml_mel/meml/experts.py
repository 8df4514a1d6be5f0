"""Experts: names, system prompts, question x expert rows, and the rows of multi-expert SFT (MEML-GRPO, stage 1).

    experts:
      - {name: E0, solutions: {ground_truth: true}}
      - {name: r1, system_prompt: "You think step by step.", solutions: {path: r1.jsonl, column: response}}

An expert is one model under one system prompt; each is conditioned in SFT on the solutions of its own source.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..data.question import Question
from ..data.solutions import Solution, SolutionSource
from ..grading.verdict import Grade

__all__ = [
    "NAMELESS",
    "Expert",
    "SFTReport",
    "SFTRow",
    "Solution",
    "SolutionSource",
    "check_experts",
    "question_expert_rows",
    "require_solutions",
    "sft_rows",
]

GradeAnswer = Callable[[str, str, str], Grade]  # (gold, answer, kind) -> grade
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


@dataclass(frozen=True)
class Expert:
    """One expert. An empty system prompt stands for the name-only identity of the prompt template `expert` [O]."""

    name: str
    system_prompt: str = ""
    solutions: SolutionSource | None = None  # needed for SFT alone

    def __post_init__(self) -> None:
        if self.name and not _NAME.match(self.name):
            raise ValueError(
                f"expert name {self.name!r} cannot stand in file names and metrics: use 1 to 64 letters, digits, "
                "dots, dashes or underscores, beginning with a letter or digit"
            )


NAMELESS = Expert("")  # the one expert of a run without experts: plain GRPO


@dataclass(frozen=True, slots=True)
class SFTRow:
    """One supervised row: the expert's prompt with the question, and its solution as the response."""

    question: Question
    expert: Expert
    response: str
    correct: bool | None  # None: neither the source nor a grader says


@dataclass(frozen=True)
class SFTReport:
    """Rows kept and dropped, by expert. Reasons: `no solution`, `wrong`, `ungraded`."""

    questions: int
    kept: Mapping[str, int]
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def description(self) -> str:
        """One line per expert."""
        lines = [f"multi-expert SFT: {sum(self.kept.values())} rows of {self.questions} questions"]
        for name, kept in self.kept.items():
            lost = ", ".join(f"{count} {reason}" for reason, count in self.dropped[name].items())
            lines.append(f"  {name}: {kept} rows" + (f" (dropped: {lost})" if lost else ""))
        return "\n".join(lines)


def check_experts(experts: Sequence[Expert]) -> None:
    """Raise ValueError for an empty or a repeated name (also one that differs in case alone)."""
    seen: set[str] = set()
    for position, expert in enumerate(experts):
        if not expert.name:
            raise ValueError(f"expert {position} has an empty name: give each expert one")
        if expert.name.lower() in seen:
            raise ValueError(
                f"two experts are named {expert.name!r} (upper and lower case are one): names tell their rows, "
                "metrics and files apart"
            )
        seen.add(expert.name.lower())


def require_solutions(experts: Sequence[Expert]) -> None:
    """Raise ValueError where the SFT stage has no experts, or one without solutions."""
    if not experts:
        raise ValueError(
            "the SFT stage has no experts: add one, e.g. {name: E0, solutions: {ground_truth: true}}"
        )
    for expert in experts:
        source = expert.solutions
        if source is None or not (source.ground_truth or source.column):
            raise ValueError(
                f"expert {expert.name!r} has no solutions column: add solutions.column or drop it from the experts "
                "of the SFT stage"
            )


def question_expert_rows(
    questions: Sequence[Question], experts: Sequence[Expert] = ()
) -> list[tuple[Question, Expert]]:
    """Q x E rows, question-major: row `q * E + e`. Without experts each question has the one nameless expert."""
    check_experts(experts)
    return [(question, expert) for question in questions for expert in (experts or (NAMELESS,))]


def sft_rows(
    questions: Sequence[Question],
    experts: Sequence[Expert],
    solutions: Mapping[str, Mapping[str, Solution]],
    keep_only_correct: bool = True,
    grade: GradeAnswer | None = None,
) -> tuple[list[SFTRow], SFTReport]:
    """Rows of multi-expert SFT, question-major, and what was dropped and why (docs/meml-grpo.md).

    `solutions[expert name][question id]` comes from `load_solutions`, one call per expert. A solution is right where
    its source says so, else where `grade(gold, solution, kind)` does. With `keep_only_correct` [O] wrong ones are
    dropped, and so are those that nobody can judge (`ungraded`); without it all are kept, with what is known.
    Right solutions get the source's `ending`. Raises ValueError where an expert has no solutions at all.
    """
    check_experts(experts)
    require_solutions(experts)
    for expert in experts:
        if not solutions.get(expert.name):
            raise ValueError(
                f"expert {expert.name!r} has no loaded solutions: load_solutions(expert.solutions, questions) does it"
            )
    rows: list[SFTRow] = []
    kept = Counter({expert.name: 0 for expert in experts})
    dropped: dict[str, Counter[str]] = {expert.name: Counter() for expert in experts}
    for question, expert in question_expert_rows(questions, experts):
        solution = solutions[expert.name].get(question.id)
        if solution is None:
            dropped[expert.name]["no solution"] += 1
            continue
        correct = solution.correct
        if correct is None and grade is not None:
            verdict = grade(question.answer, solution.text, question.kind).verdict
            correct = None if verdict == "ungradable" else verdict == "right"
        if keep_only_correct and not correct:
            dropped[expert.name]["ungraded" if correct is None else "wrong"] += 1
            continue
        ending = expert.solutions.ending if expert.solutions and correct else None
        text = solution.text + (ending.replace("{answer}", question.answer) if ending else "")
        rows.append(SFTRow(question, expert, text, correct))
        kept[expert.name] += 1
    report = SFTReport(len(questions), dict(kept), {name: dict(c) for name, c in dropped.items()})
    return rows, report
