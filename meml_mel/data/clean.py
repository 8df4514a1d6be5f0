"""Cleaning: duplicates out, bad golds out by name, identifiers unique, and a hash over what is left.

Rows pass one by one, so time is linear and memory holds the questions kept, a 16-byte digest per problem and
what the report says. Every row ends as exactly one of: a question, a duplicate, a rejected row.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .columns import RowRejected
from .mappings import Draft
from .question import Question

Gradable = Callable[[str, str], bool | str]  # (gold, kind) -> can the grader use it? A text says why not


@dataclass(frozen=True, slots=True)
class Conflict:
    """One question that came with several golds; the first gradable one was kept."""

    id: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rejection:
    """One row that made no question."""

    row: int  # counted from 0 in the split
    id: str
    reason: str
    value: str


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What cleaning left, and what it took: `rows = len(questions) + duplicates + len(rejected)`."""

    questions: tuple[Question, ...]
    rows: int
    duplicates: int
    conflicts: tuple[Conflict, ...]
    rejected: tuple[Rejection, ...]
    renamed_ids: int


class Cleaner:
    """Takes drafts row by row; `result` gives the questions in the order of their first good row."""

    def __init__(self, gradable: Gradable, label: str | None = None) -> None:
        self._gradable = lru_cache(maxsize=1 << 16)(gradable)  # a gold such as `12` comes thousands of times
        self._label = label
        self._questions: list[Question] = []
        self._seen: dict[
            bytes, int
        ] = {}  # problem digest -> index of its question, or -1 - index of rejection
        self._golds: dict[
            bytes, dict[str, str]
        ] = {}  # of problems with more than one gold: normalised -> as written
        self._ids: set[str] = set()
        self._rejected: list[Rejection] = []
        self._duplicates = self._renamed = self.rows = 0

    def __len__(self) -> int:
        return len(self._questions)

    def reject(self, row: int, refused: RowRejected, id: str | None = None) -> None:
        self.rows += 1
        self._rejected.append(Rejection(row, id or f"row {row}", refused.reason, refused.value))

    def add(self, row: int, draft: Draft) -> None:
        """Take one draft: keep it, count it as a duplicate, or reject it by name."""
        if not draft.problem:
            return self.reject(row, RowRejected("empty problem"), draft.id)
        key = problem_key(draft.problem, draft.kind)
        known = self._seen.get(key)
        if known is not None and self._is_copy(key, known, draft.answer):
            self.rows += 1
            self._duplicates += 1
            return None
        refused = self._fault(draft)
        if refused is not None:
            self.reject(row, refused, draft.id)
            self._seen.setdefault(key, -len(self._rejected))
            return None
        self._seen[key] = len(self._questions)
        self.rows += 1
        self._questions.append(
            Question(
                id=self._unique_id(draft.id, key),
                problem=draft.problem,
                answer=draft.answer,
                kind=draft.kind,  # type: ignore[arg-type]  # checked by the mappings
                solution=draft.solution,
                source=draft.source or self._label,
            )
        )
        return None

    def _is_copy(self, key: bytes, known: int, answer: str) -> bool:
        """Note a gold that differs; only a question whose earlier gold was rejected gets another chance."""
        held = self._questions[known].answer if known >= 0 else self._rejected[-1 - known].value
        if held == answer:
            return True
        golds = self._golds.get(key, {normal_gold(held): held})
        normal = normal_gold(answer)
        if normal in golds:
            return True
        self._golds[key] = golds | {normal: answer}
        return known >= 0

    def _fault(self, draft: Draft) -> RowRejected | None:
        if not draft.answer:
            return RowRejected("empty answer", draft.answer)
        verdict = self._gradable(draft.answer, draft.kind)
        if verdict is True:
            return None
        return RowRejected(
            f"ungradable {draft.kind} answer{f' ({verdict})' if verdict else ''}", draft.answer
        )

    def _unique_id(self, wanted: str | None, key: bytes) -> str:
        """The row's own id; one made of the problem's digest where it has none or another question has it."""
        digest = key.hex()[:16]
        if wanted and wanted in self._ids:
            self._renamed += 1
            wanted = f"{wanted}-{digest[:8]}"
        id = wanted or f"q{digest}"
        while id in self._ids:
            id += "x"
        self._ids.add(id)
        return id

    def result(self) -> Cleaned:
        conflicts = []
        for key, golds in self._golds.items():
            known = self._seen[key]
            id = self._questions[known].id if known >= 0 else self._rejected[-1 - known].id
            written = tuple(answer for normal, answer in golds.items() if normal)
            if len(written) > 1:
                conflicts.append(Conflict(id, written))
        return Cleaned(
            questions=tuple(self._questions),
            rows=self.rows,
            duplicates=self._duplicates,
            conflicts=tuple(conflicts),
            rejected=tuple(self._rejected),
            renamed_ids=self._renamed,
        )


def normal_problem(problem: str) -> str:
    """The text by which problems are the same: canonical Unicode, single spaces. Case counts: x is not X."""
    return " ".join(unicodedata.normalize("NFC", problem).split())


def problem_key(problem: str, kind: str = "") -> bytes:
    """16 bytes that stand for a problem of a kind."""
    return hashlib.blake2b(
        f"{kind}\0{normal_problem(problem)}".encode(errors="replace"), digest_size=16
    ).digest()


def normal_gold(answer: str) -> str:
    """The text by which golds of one question are the same: no spaces, no dollar signs."""
    return "".join(answer.replace("$", "").split())


def content_hash(questions: Iterable[Question]) -> str:
    """sha256 over id, problem, answer, kind and solution of each question, in order.

    The source label is left out: the same questions hash the same from a file and from the Hub.
    """
    digest = hashlib.sha256()
    for q in questions:
        line: list[Any] = [q.id, q.problem, q.answer, q.kind, q.solution]
        digest.update(json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def count_reasons(rejected: Iterable[Rejection]) -> dict[str, int]:
    """Rejected rows by reason, the most frequent first."""
    return dict(Counter(r.reason for r in rejected).most_common())


def with_ids(questions: tuple[Question, ...], ids: Iterable[str]) -> tuple[tuple[Question, ...], list[str]]:
    """The questions with these ids in this order, and the ids that no question has."""
    by_id = {q.id: q for q in questions}
    wanted = list(ids)
    return tuple(by_id[i] for i in wanted if i in by_id), [i for i in wanted if i not in by_id]
