"""Solutions of questions from somewhere: the ground truth, or a column of any file that `data` can read.

solutions: {ground_truth: true}                                            # the questions' own solutions
solutions: {column: experts.gpt-4o.response, correct_column: experts.gpt-4o.correct}   # same rows as `data`
solutions: {path: my/r1_traces.jsonl, column: response}                    # another source
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from .clean import normal_problem
from .columns import MISSING, MissingColumn, RowRejected, lookup, prose_of, text_of
from .files import DataFiles
from .load import open_rows
from .mappings import Mapper
from .question import Question
from .source import DataError, DataSource, check_mapping

_TRUE, _FALSE = ("true", "yes", "1", "right", "correct"), ("false", "no", "0", "wrong", "incorrect")


@dataclass(frozen=True)
class SolutionSource:
    """Where an expert's solutions come from. Exactly one of `ground_truth` and `column` is needed for SFT."""

    ground_truth: bool = False  # the questions' own solutions, right by definition
    column: str | None = None  # dotted path; keys in it may hold dots and slashes
    correct_column: str | None = None  # dotted path to true/false; without it solutions are graded
    # Appended to solutions that are right; `{answer}` is the question's gold, e.g. "\nThe answer is \\boxed{{answer}}."
    ending: str | None = None
    path: str | None = None  # as in `data`; None: the same rows as the questions
    name: str | None = None
    split: str = "train"
    data_files: str | list[str] | dict[str, Any] | None = None
    revision: str | None = None
    mapping: str | dict[str, str] | None = None  # finds the rows' problem, or their id
    match: Literal["problem", "id"] = "problem"  # how rows are matched with questions

    def __post_init__(self) -> None:
        if self.ground_truth and (self.column or self.path):
            extra = "column" if self.column else "path"
            raise DataError(
                f"solutions.ground_truth is true and solutions.{extra} is set: keep one of the two"
            )
        if self.ending is not None and "{answer}" not in self.ending:
            raise DataError(
                f"solutions.ending {self.ending!r} has no {{answer}}: it says where the gold goes"
            )
        check_mapping(self.mapping, need=(self.match,))
        if self.path is None:
            for extra in ("name", "data_files", "revision", "mapping"):
                if getattr(self, extra) is not None:
                    raise DataError(
                        f"solutions.{extra} is set and solutions.path is not: set path, or leave it out"
                    )

    def open(self, data: DataSource | None) -> tuple[Iterator[dict[str, Any]], Mapper, str, DataFiles]:
        """The rows to read, as `open_rows` gives them: `path`'s own, or those of the questions' source `data`."""
        if self.path is None:
            if data is None:
                raise DataError(
                    "solutions.path is not set and the questions' own source is not known: set it"
                )
            # All of the split: cuts by row or id are the questions' business.
            return open_rows(replace(data, start=0, stop=None, ids_file=None, max_questions=None))
        source = DataSource(
            self.path, self.name, split=self.split, data_files=self.data_files, revision=self.revision
        )
        return open_rows(source, mapping=self.mapping, need=(self.match,))


@dataclass(frozen=True, slots=True)
class Solution:
    """One solution's text, and whether it is right where the source says so."""

    text: str
    correct: bool | None = None


def load_solutions(
    source: SolutionSource,
    questions: Sequence[Question],
    data: DataSource | None = None,
    who: str = "the expert",
) -> dict[str, Solution]:
    """Solutions by question id, for the questions that have one.

    Rows are matched with questions by the problem's text (spacing aside) or, with `match: id`, by the id. Of
    several solutions to a question the first that the source calls correct is taken, else the first.
    `data` is the questions' own source, read again where `path` is None; `who` names the owner in errors.
    Raises DataError where the column is missing, holds nothing for any question, or cannot be read.
    """
    if source.ground_truth:
        own = {q.id: Solution(q.solution, True) for q in questions if q.solution}
        if not own:
            raise DataError(
                f"{who}: solutions.ground_truth is true and none of the {len(questions)} questions has a solution: "
                "map a solution column (mapping: {..., solution: <column>}) or name solutions.column"
            )
        return own
    if source.column is None:
        raise DataError(f"{who} has no solutions column: add solutions.column or solutions.ground_truth")
    rows, mapper, mapping, files = source.open(data)
    wanted: dict[str, list[str]] = {}
    for q in questions:
        wanted.setdefault(q.id if source.match == "id" else normal_problem(q.problem), []).append(q.id)
    solutions: dict[str, Solution] = {}
    read = matched = with_column = with_verdict = 0
    last: Mapping[str, Any] = {}
    for row in rows:
        read, last = read + 1, row
        found = lookup(row, source.column)
        with_column += found is not MISSING
        try:
            draft = mapper(row)
        except (RowRejected, MissingColumn):
            continue
        ids = wanted.get((draft.id or "") if source.match == "id" else normal_problem(draft.problem), ())
        matched += bool(ids)
        text = _text(found, source.column, who) if ids else None
        if text is None:
            continue
        correct = None
        if source.correct_column is not None:
            judged = lookup(row, source.correct_column)
            with_verdict += judged is not MISSING
            correct = _truth(judged, source.correct_column, who)
        for id in ids:
            held = solutions.get(id)
            if held is None or (correct and not held.correct):
                solutions[id] = Solution(text, correct)
    if not solutions:
        raise DataError(
            _nothing(source, files.label, mapping, who, last, questions, (read, with_column, matched))
        )
    if source.correct_column is not None and not with_verdict:
        raise DataError(
            f"{who}: no row of {files.label} has the column {source.correct_column!r} (solutions.correct_column). "
            f"{_nearby(last, source.correct_column)}"
        )
    return solutions


def _text(value: Any, column: str, who: str) -> str | None:
    try:
        return prose_of(value)
    except RowRejected as error:
        raise DataError(
            f"{who}: solutions.column {column!r}: {error.reason} (found: {error.value})"
        ) from error


def _truth(value: Any, column: str, who: str) -> bool | None:
    if value is None or value is MISSING:
        return None
    word = text_of(value).lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise DataError(
        f"{who}: {column} holds {value!r}, which is neither true nor false: use a column of true/false"
    )


def _nothing(
    source: SolutionSource,
    label: str,
    mapping: str,
    who: str,
    row: Mapping[str, Any],
    questions: Sequence[Question],
    counts: tuple[int, int, int],
) -> str:
    """Why no question got a solution, in the order in which things go wrong."""
    read, with_column, matched = counts
    column = source.column or ""
    if not with_column:
        return f"{who}: no row of {label} has the column {column!r}. {_nearby(row, column)}"
    if not matched:
        return (
            f"{who}: none of the {read} rows of {label} is one of the {len(questions)} questions by {source.match} "
            f"(mapping {mapping}; a question here: {questions[0].id!r}, {questions[0].problem[:60]!r}): set "
            "solutions.mapping, or solutions.match to 'id' or 'problem'"
        )
    return f"{who}: the column {column!r} of {label} is empty for all {matched} questions found there: name another"


def _nearby(row: Mapping[str, Any], column: str) -> str:
    """The keys at the place where the path leaves the row."""
    cut = len(column)
    while (cut := column.rfind(".", 0, cut)) > 0:
        inside = lookup(row, column[:cut])
        if isinstance(inside, Mapping):
            return f"{column[:cut]!r} holds: {', '.join(map(str, inside))}"
    return f"The rows have: {', '.join(map(str, row))}"
