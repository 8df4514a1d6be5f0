"""Training questions that share text with evaluation sets: the 8-gram rule, and exact matches.

Stock phrases ("find the number of ordered pairs of positive integers ...") share 8-grams without being the same
question, so `report` lists and keeps, and `remove` drops.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .clean import normal_problem
from .question import Question
from .source import DataError

Mode = Literal["report", "remove"]
# A Chinese, Japanese or Korean character is a word of its own: such text has no spaces to split at.
_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_CJK}]|(?:(?![{_CJK}])[^\W_])+")
# LaTeX that only sets the layout: copies of a problem differ in it.
_LAYOUT = re.compile(r"\\(?:text[a-z]*|math(?:rm|bf|it|sf)|left|right|displaystyle|q?quad|[,;:! ])(?![a-z])")
_FRACTION = re.compile(r"\\[dt]frac(?![a-z])")


@dataclass(frozen=True, slots=True)
class Overlap:
    """One training question that shares an n-gram with an evaluation question: the first one found."""

    id: str
    evaluation_set: str
    evaluation_id: str
    gram: str


@dataclass(frozen=True)
class DecontaminationReport:
    """Which training questions overlap, against which sets, and whether they were removed."""

    mode: Mode
    n: int
    questions: int  # before
    evaluation_sets: tuple[str, ...]
    overlaps: tuple[Overlap, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(overlap.id for overlap in self.overlaps)

    def description(self, examples: int = 5) -> str:
        """A few lines for a log."""
        did = "removed" if self.mode == "remove" else "reported and kept"
        lines = [
            f"{self.n}-gram overlap with {', '.join(self.evaluation_sets)}: {len(self.overlaps)} of "
            f"{self.questions} questions ({did})"
        ]
        for o in self.overlaps[:examples]:
            lines.append(f"  {o.id} ~ {o.evaluation_set}/{o.evaluation_id}: {o.gram!r}")
        return "\n".join(lines)


def decontaminate(
    questions: Sequence[Question],
    evaluation: Mapping[str, Sequence[Question]],
    mode: Mode = "report",
    n: int = 8,
) -> tuple[tuple[Question, ...], DecontaminationReport]:
    """The questions to train on, and what overlaps with `evaluation` (set name -> its questions).

    A question overlaps where any `n` words in a row of its problem stand in a row in an evaluation problem, words
    being compared in lower case without punctuation and LaTeX's backslashes and braces (`words`).
    A problem of fewer than `n` words has one gram, all of its words: it overlaps only with an evaluation problem of
    exactly those words. A short problem inside a longer one does not count, since "what is 2 + 3" stands in many.

    Time and memory are linear in the words; only the evaluation sets' grams are held.
    """
    if mode not in ("report", "remove"):
        raise DataError(f"decontamination mode {mode!r} is unknown: use 'report' or 'remove'")
    if n < 1:
        raise DataError(f"decontamination n is {n}: use at least 1 word (8 is usual)")
    known: dict[str, tuple[str, str]] = {}
    for name, held in evaluation.items():
        for q in held:
            for gram in grams(q.problem, n):
                known.setdefault(gram, (name, q.id))
    overlaps = []
    for q in questions:
        hit = next((gram for gram in grams(q.problem, n) if gram in known), None)
        if hit is not None:
            overlaps.append(Overlap(q.id, *known[hit], hit))
    report = DecontaminationReport(mode, n, len(questions), tuple(evaluation), tuple(overlaps))
    if mode == "report":
        return tuple(questions), report
    gone = set(report.ids)
    return tuple(q for q in questions if q.id not in gone), report


def words(text: str) -> list[str]:
    """Lower-case words and numbers without punctuation or layout: `\\dfrac{1}{2} of X` is frac, 1, 2, of, x."""
    text = _FRACTION.sub("frac", _LAYOUT.sub(" ", unicodedata.normalize("NFKC", text)))
    return _WORD.findall(text.lower())


def grams(text: str, n: int) -> list[str]:
    """Every run of `n` words, space-joined; all the words where there are fewer; [] where there are none."""
    w = words(text)
    if len(w) < n:
        return [" ".join(w)] if w else []
    return [" ".join(w[i : i + n]) for i in range(len(w) - n + 1)]


def overlap(questions: Sequence[Question], evaluation_questions: Sequence[Question]) -> tuple[str, ...]:
    """Ids of the questions whose problem is exactly an evaluation problem (spacing aside): a sure leak."""
    held = {normal_problem(q.problem) for q in evaluation_questions}
    return tuple(q.id for q in questions if normal_problem(q.problem) in held)
