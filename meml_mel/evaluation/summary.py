"""From graded responses to numbers: the metric functions that every evaluation shares. Knows no model.

summary = summarise(questions, experts, answers, pool)

docs/metrics.md defines each number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..data.question import Question
from ..grading.pool import GradingPool
from ..grading.verdict import Grade
from ..grading.vote import Ballot, ballots
from .stats import Estimate, estimate, pass_at_k

Phase = Literal["greedy", "sampled"]
ALL = "(all)"  # every expert's rows together
VOTE = "(vote)"  # the experts' answers to a question, voted over


@dataclass(frozen=True, slots=True)
class Answer:
    """One graded response to one question under one expert's prompt."""

    question_id: str
    expert: str
    phase: Phase
    sample: int  # 0 .. n-1 within (question, expert, phase)
    text: str
    tokens: int
    finish: Literal["stop", "length", "prompt_too_long"]
    grade: Grade

    @property
    def reason(self) -> str | None:
        """The grade's reason; a prompt that left no room to answer has its own."""
        return "prompt_too_long" if self.finish == "prompt_too_long" else self.grade.reason


@dataclass(frozen=True, slots=True)
class Cell:
    """One number: `measure` (pass@1, avg@8, ...) of `expert`, with its count and interval."""

    expert: str
    phase: Phase
    measure: str
    estimate: Estimate

    def as_dict(self) -> dict[str, Any]:
        facts = asdict(self.estimate)
        return {"expert": self.expert, "phase": self.phase, "measure": self.measure, **facts}


@dataclass(frozen=True, slots=True)
class Rates:
    """Over one expert's responses of one phase: how they ended, as counts, and their mean length in tokens."""

    expert: str
    phase: Phase
    responses: int
    truncated: int
    no_answer: int
    timeout: int
    prompt_too_long: int
    mean_tokens: float  # of responses that were made

    def as_dict(self) -> dict[str, Any]:
        shares = {f"{name}_rate": getattr(self, name) / self.responses for name in ("truncated", "no_answer")}
        return {**asdict(self), **shares}


@dataclass(frozen=True)
class Summary:
    """All numbers. `ungradable` lists questions whose gold the grader cannot use: they are in no count."""

    questions: int
    experts: tuple[str, ...]
    samples: int
    cells: tuple[Cell, ...]
    rates: tuple[Rates, ...]
    ungradable: tuple[str, ...]
    too_long: Mapping[str, tuple[str, ...]]  # expert -> ids of questions whose prompt left no room

    def cell(self, measure: str, expert: str | None = None) -> Cell:
        """The cell of a measure for an expert; without one, over all (with one expert: that one's).

        Raises KeyError naming the measures there are.
        """
        wanted = expert if expert is not None else ALL if len(self.experts) > 1 else self.experts[0]
        for cell in self.cells:
            if cell.measure == measure and cell.expert == wanted:
                return cell
        known = sorted({f"{c.measure} of {c.expert or 'the nameless expert'}" for c in self.cells})
        raise KeyError(f"no {measure!r} of {wanted!r}: there are {', '.join(known)}")


def summarise(
    questions: Sequence[Question],
    experts: Sequence[str],
    answers: Sequence[Answer],
    pool: GradingPool,
    seed: int = 0,
) -> Summary:
    """Every number over `answers`, which hold one greedy response and n samples per (question, expert).

    A prompt that left no room counts as a wrong answer, so that the number of questions never depends on the
    model. Raises ValueError where a row lacks responses.
    """
    ungradable = {a.question_id for a in answers if a.grade.verdict == "ungradable"}
    kept = [q for q in questions if q.id not in ungradable]
    groups: dict[tuple[str, str, Phase], list[Answer]] = {}
    for answer in answers:
        groups.setdefault((answer.question_id, answer.expert, answer.phase), []).append(answer)
    samples = max((len(g) for (_, _, phase), g in groups.items() if phase == "sampled"), default=0)
    table = _Table(kept, tuple(experts), groups, samples, seed)
    cells = table.greedy_cells(pool) + (table.sampled_cells(pool) if samples else [])
    too_long = {
        expert: tuple(
            a.question_id
            for a in answers
            if a.expert == expert and a.phase == "greedy" and a.finish == "prompt_too_long"
        )
        for expert in experts
    }
    return Summary(
        len(kept),
        tuple(experts),
        samples,
        tuple(cells),
        tuple(table.rates()),
        tuple(q.id for q in questions if q.id in ungradable),
        {expert: ids for expert, ids in too_long.items() if ids},
    )


@dataclass(frozen=True)
class _Table:
    """Answers by (question, expert, phase); every question has every expert's."""

    questions: Sequence[Question]
    experts: tuple[str, ...]
    groups: Mapping[tuple[str, str, Phase], list[Answer]]
    samples: int
    seed: int

    def group(self, question: Question, expert: str, phase: Phase) -> list[Answer]:
        found = self.groups.get((question.id, expert, phase), [])
        if len(found) != (1 if phase == "greedy" else self.samples):
            raise ValueError(
                f"question {question.id!r}, expert {expert!r}: {len(found)} {phase} responses, "
                f"{1 if phase == 'greedy' else self.samples} were expected"
            )
        return found

    def right(self, question: Question, expert: str, phase: Phase) -> int:
        return sum(answer.grade.right for answer in self.group(question, expert, phase))

    def _cell(
        self,
        expert: str,
        phase: Phase,
        measure: str,
        totals: Sequence[float],
        counts: Sequence[int] | None = None,
    ) -> list[Cell]:
        found = estimate(totals, counts, seed=self.seed)
        return [] if found is None else [Cell(expert, phase, measure, found)]

    def _mean_cells(self, phase: Phase, measure: str, value: Any, per_row: int = 1) -> list[Cell]:
        """`value(question, expert)` is a row's total over `per_row` responses: per expert, then over all."""
        cells = []
        for expert in self.experts:
            totals = [value(q, expert) for q in self.questions]
            counts = [per_row] * len(totals)
            cells += self._cell(expert, phase, measure, totals, counts)
        if len(self.experts) > 1:
            totals = [sum(value(q, e) for e in self.experts) for q in self.questions]
            counts = [per_row * len(self.experts)] * len(totals)
            cells += self._cell(ALL, phase, measure, totals, counts)
        return cells

    def greedy_cells(self, pool: GradingPool) -> list[Cell]:
        cells = self._mean_cells("greedy", "pass@1", lambda q, e: self.right(q, e, "greedy"))
        if len(self.experts) > 1:
            votes = self._ballots("greedy", pool)
            cells += self._cell(VOTE, "greedy", f"vote@{len(self.experts)}", [b.value for b in votes])
        return cells

    def sampled_cells(self, pool: GradingPool) -> list[Cell]:
        n = self.samples
        cells = self._mean_cells("sampled", f"avg@{n}", lambda q, e: self.right(q, e, "sampled"), per_row=n)
        for k in _powers(n):
            if k > 1:  # pass@1 of samples is avg
                cells += self._mean_cells(
                    "sampled", f"pass@{k}", lambda q, e, k=k: pass_at_k(n, self.right(q, e, "sampled"), k)
                )
        by_row = self._row_ballots(pool)
        for k in _powers(n):
            if k > 1:
                cells += self._mean_cells("sampled", f"maj@{k}", lambda q, e, k=k: by_row[q.id, e].at(k))
        if len(self.experts) > 1:
            votes = self._ballots("sampled", pool)
            cells += self._cell(VOTE, "sampled", f"maj@{n * len(self.experts)}", [b.value for b in votes])
        return cells

    def _ballots(self, phase: Phase, pool: GradingPool) -> list[Ballot]:
        """One ballot a question, over all experts' responses."""
        grades = [
            ([a.grade for e in self.experts for a in self.group(q, e, phase)], q.kind) for q in self.questions
        ]
        return ballots(grades, pool)

    def _row_ballots(self, pool: GradingPool) -> dict[tuple[str, str], Ballot]:
        rows = [(q, e) for q in self.questions for e in self.experts]
        found = ballots([([a.grade for a in self.group(q, e, "sampled")], q.kind) for q, e in rows], pool)
        return {(q.id, e): b for (q, e), b in zip(rows, found, strict=True)}

    def rates(self) -> list[Rates]:
        phases: list[Phase] = ["greedy", *(["sampled"] if self.samples else [])]  # type: ignore[list-item]
        found = []
        for phase in phases:
            for expert in self.experts:
                mine = [a for q in self.questions for a in self.group(q, expert, phase)]
                if mine:
                    found.append(_rates(expert, phase, mine))
        return found


def _rates(expert: str, phase: Phase, answers: Sequence[Answer]) -> Rates:
    reasons = Counter(answer.reason for answer in answers)
    made = [answer.tokens for answer in answers if answer.finish != "prompt_too_long"]
    return Rates(
        expert,
        phase,
        len(answers),
        reasons["truncated"],
        reasons["no_answer"],
        reasons["timeout"],
        reasons["prompt_too_long"],
        sum(made) / len(made) if made else 0.0,
    )


def _powers(n: int) -> list[int]:
    """1, 2, 4, ... below n, and n."""
    return sorted({*(2**i for i in range(n.bit_length()) if 2**i <= n), n})
