"""`load_questions`: a `DataSource` to clean questions and a report of what was read and left out.

from meml_mel.data.load import DataSource, load_questions

loaded = load_questions(DataSource("openai/gsm8k", name="main", mapping="gsm8k"))
print(loaded.report.description())
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ..grading.pool import PROBE, GradeItem, GradingPool
from .clean import Cleaner, Conflict, Gradable, Rejection, content_hash, count_reasons, with_ids
from .columns import MissingColumn, RowRejected
from .files import DataFiles, find_files
from .mappings import NAMED, QUESTION, Draft, Mapper, Need, columns_mapper, guess, missing_column
from .question import Question
from .rows import read_rows
from .source import DataError, DataSource

__all__ = ["DataError", "DataReport", "DataSource", "LoadedQuestions", "load_questions", "open_rows"]

logger = logging.getLogger(__name__)
# CPU seconds to read one gold: the reward's own limit, under which no answer to it could be right.
GOLD_SECONDS = 5.0
# What parses at once and may take for ever to evaluate: such a gold is compared with a number, too.
_COSTLY = ("\\sum", "\\prod", "\\int", "\\lim", "\\binom", "!")
_CHUNK = 512  # rows whose golds are asked about together
Mapped = tuple[
    int, dict[str, Any], Draft | RowRejected | MissingColumn
]  # number, row, what the mapping made of it


@dataclass(frozen=True)
class DataReport:
    """What was read and what became of it: `rows = questions + duplicates + rejected + left_out`."""

    source: str
    split: str
    revision: str | None  # the commit read, for a Hub id
    mapping: str  # in words; says where it was guessed
    gold_check: str  # what judged the golds
    rows: int
    questions: int
    duplicates: int
    conflicts: tuple[Conflict, ...]
    rejected: tuple[Rejection, ...]
    renamed_ids: int
    left_out: int  # clean questions that ids_file or max_questions left out
    content_hash: str
    licence: str | None = None

    def description(self, examples: int = 3) -> str:
        """A few lines for a log: counts, then up to `examples` of each kind of loss."""
        at = f" at {self.revision}" if self.revision else ""
        lines = [
            f"{self.source}{at}, split {self.split}: {self.rows} rows, {self.questions} questions "
            f"({self.duplicates} duplicates removed, {len(self.rejected)} rejected, {self.left_out} left out)",
            f"  mapping {self.mapping}; golds checked by {self.gold_check}; content sha256 {self.content_hash}",
        ]
        for reason, count in count_reasons(self.rejected).items():
            some = [f"{r.id} ({r.value!r})" for r in self.rejected if r.reason == reason][:examples]
            lines.append(f"  rejected, {reason}: {count}, e.g. {', '.join(some)}")
        if self.conflicts:
            some = [f"{c.id}: {' | '.join(c.answers)}" for c in self.conflicts[:examples]]
            lines.append(
                f"  same question, different answers (first kept): {len(self.conflicts)}, e.g. {'; '.join(some)}"
            )
        if self.renamed_ids:
            lines.append(f"  ids that another question had, made unique: {self.renamed_ids}")
        return "\n".join(lines)


@dataclass(frozen=True)
class LoadedQuestions:
    """Clean questions in the source's order (or the ids file's), and their report."""

    questions: tuple[Question, ...]
    report: DataReport


def load_questions(source: DataSource, gradable: Gradable | None = None) -> LoadedQuestions:
    """Read, map and clean one source.

    `gradable(gold, kind)` says whether the grader can use a gold (True), or why it cannot; by default the package's
    grader is asked, under a time limit. With `max_questions` and no `ids_file`, reading stops when that many are
    found, and the report covers the rows read until then. Raises DataError for everything that can be wrong with
    the source.
    """
    if gradable is not None:
        return _load(source, gradable, "the caller")
    # It starts its processes only where a gold needs the computer algebra; numbers and words are read in this one.
    with closing(GradingPool(workers=1, timeout=GOLD_SECONDS)) as pool:
        return _load(source, GoldCheck(pool), "the grader")


def _load(source: DataSource, gradable: Gradable, gold_check: str) -> LoadedQuestions:
    rows, mapper, mapping, files = open_rows(source)
    cleaner = Cleaner(gradable, files.label)
    enough = source.max_questions if source.ids_file is None else None
    mapped = _mapped(enumerate(rows, source.start), mapper)
    for number, row, draft in gradable.ahead(mapped) if isinstance(gradable, GoldCheck) else mapped:
        if isinstance(draft, RowRejected):
            cleaner.reject(number, draft)
        elif isinstance(draft, MissingColumn):
            if cleaner.rows == 0:
                raise missing_column(draft.field, draft.tried, row, f"mapping {mapping}")
            cleaner.reject(number, RowRejected(f"no {draft.field} column", ", ".join(row)))
        else:
            cleaner.add(number, draft)
        if enough is not None and len(cleaner) == enough:
            break
    cleaned = cleaner.result()
    questions = cleaned.questions
    if source.ids_file is not None:
        questions = _only_ids(questions, source.ids_file)[: source.max_questions]
    report = DataReport(
        source=files.label,
        split=source.split,
        revision=files.revision,
        mapping=mapping,
        gold_check=gold_check,
        rows=cleaned.rows,
        questions=len(questions),
        duplicates=cleaned.duplicates,
        conflicts=cleaned.conflicts,
        rejected=cleaned.rejected,
        renamed_ids=cleaned.renamed_ids,
        left_out=len(cleaned.questions) - len(questions),
        content_hash=content_hash(questions),
        licence=source.licence,
    )
    if not questions:
        raise DataError(_nothing_left(source, report))
    return LoadedQuestions(questions, report)


def open_rows(
    source: DataSource, mapping: str | dict[str, str] | None = None, need: Need = QUESTION
) -> tuple[Iterator[dict[str, Any]], Mapper, str, DataFiles]:
    """(rows start:stop, the mapper for them, the mapping in words, the files).

    The mapping is `mapping`, else the source's own, else guessed from the first row, and a warning says so.
    """
    files = find_files(source)
    rows = read_rows(files, source.start, source.stop)
    first = next(rows, None)
    if first is None:
        raise DataError(_no_rows(source, files))
    mapping, words = mapping or source.mapping, ""
    if mapping is None:
        mapping, guessed = guess(first, need)
        words = f"{_in_words(mapping)} (guessed)" if guessed else _in_words(mapping)
        if guessed:
            logger.warning(
                "%s: mapping guessed: %s; set data.mapping to fix it", files.label, _in_words(mapping)
            )
    if isinstance(mapping, str):
        mapper = NAMED[mapping]
        if source.kind is not None:
            mapper = _with_kind(mapper, source.kind)
    else:
        mapper = columns_mapper(mapping, source.kind, need)
    return _chain(first, rows), mapper, words or _in_words(mapping), files


def _with_kind(mapper: Mapper, kind: str) -> Mapper:
    def to_draft(row: Mapping[str, Any]) -> Any:
        draft = mapper(row)
        draft.kind = kind
        return draft

    return to_draft


def _chain(first: dict[str, Any], rest: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield first
    yield from rest


def _in_words(mapping: str | Mapping[str, str]) -> str:
    if isinstance(mapping, str):
        return mapping
    told = {f: column for f, column in mapping.items() if f in QUESTION or f != column}
    return ", ".join(f"{field}: {column}" for field, column in told.items())


def _mapped(rows: Iterable[tuple[int, dict[str, Any]]], mapper: Mapper) -> Iterator[Mapped]:
    for number, row in rows:
        try:
            yield number, row, mapper(row)
        except (RowRejected, MissingColumn) as refused:
            yield number, row, refused


class GoldCheck:
    """Can the grader use a gold? Graded against no answer at all, only the gold is looked at.

    Golds are asked about by the chunk, each once, in processes that can be killed: a data file must not hang a start.
    """

    def __init__(self, pool: GradingPool) -> None:
        self._pool = pool
        self._known: dict[tuple[str, str], bool | str] = {}

    def ahead(self, mapped: Iterator[Mapped]) -> Iterator[Mapped]:
        """The rows as they come, a chunk behind the golds that were asked about."""
        while chunk := list(islice(mapped, _CHUNK)):
            drafts = [draft for _, _, draft in chunk if isinstance(draft, Draft) and draft.answer]
            self._ask({(d.answer, d.kind): None for d in drafts})
            yield from chunk

    def _ask(self, golds: Iterable[tuple[str, str]]) -> None:
        new = [gold for gold in golds if gold not in self._known]
        answers = [PROBE if any(sign in gold for sign in _COSTLY) else "" for gold, _ in new]
        # the mappings checked the kinds
        items = [GradeItem(g, answer, k) for (g, k), answer in zip(new, answers)]  # type: ignore[arg-type]
        grades = self._pool.grade(items)
        for gold, grade in zip(new, grades, strict=True):
            unusable = "timed out" if grade.reason == "timeout" else False
            self._known[gold] = unusable if grade.verdict == "ungradable" else True

    def __call__(self, gold: str, kind: str) -> bool | str:
        """True, or why it can't be used ("timed out", or False: it can't be parsed)."""
        if (gold, kind) not in self._known:
            self._ask([(gold, kind)])
        return self._known[gold, kind]


def _only_ids(questions: tuple[Question, ...], ids_file: str) -> tuple[Question, ...]:
    path = Path(ids_file).expanduser()
    if not path.is_file():
        raise DataError(
            f"data.ids_file {ids_file!r} does not exist: write one question id a line, or leave it out"
        )
    ids = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    twice = [id for id, count in Counter(ids).items() if count > 1]
    if twice:
        raise DataError(
            f"{ids_file} names {len(twice)} ids more than once ({', '.join(twice[:5])}): keep one line each"
        )
    found, missing = with_ids(questions, ids)
    if missing:
        some = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        like = f" The data has ids like {questions[0].id!r}." if questions else ""
        raise DataError(
            f"{ids_file}: {len(missing)} of {len(ids)} ids are not in the data: {some}.{like} A duplicate goes by "
            "its first copy's id, and rejected rows have none: see the data report"
        )
    return found


def _no_rows(source: DataSource, files: DataFiles) -> str:
    if source.start:
        return f"{files.label} has no row {source.start} in split {source.split!r}: lower data.start"
    return f"{files.label} has no rows in split {source.split!r}: check data.path, data.split and data.data_files"


def _nothing_left(source: DataSource, report: DataReport) -> str:
    return (
        f"{report.source}: none of {report.rows} rows is left as a question. Check data.mapping and data.kind.\n"
        f"{report.description()}"
    )
