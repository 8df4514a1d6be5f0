"""A question: what every stage of the package passes around."""

from __future__ import annotations

from dataclasses import dataclass

from ..grading.verdict import Kind


@dataclass(frozen=True, slots=True)
class Question:
    """One question with its gold answer.

    `problem` is what the model reads (choices included, where there are any); `answer` is the gold as the
    grader takes it; `solution` is the ground-truth solution text, where the source has one.
    """

    id: str
    problem: str
    answer: str
    kind: Kind = "math"
    solution: str | None = None
    source: str | None = None
