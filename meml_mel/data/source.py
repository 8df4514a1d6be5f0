"""Where questions come from: the config section `data`, checked before anything is read.

data:
  path: openai/gsm8k          # a Hub id, or a local file or folder (JSONL, JSON, Parquet)
  name: main
  mapping: gsm8k              # a built-in name, or {problem: ..., answer: ...}, or left out
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from ..grading.verdict import Kind

KINDS: tuple[str, ...] = get_args(Kind)
# What a column mapping may name; `problem` and `answer` are needed.
MAPPING_FIELDS = ("problem", "answer", "solution", "id", "kind", "options", "source")
# The built-in mappings (mappings.py has the functions) and the kind each one fixes, where it fixes one.
NAMED_MAPPINGS: dict[str, str | None] = {
    "dapo_math_17k": None,
    "gsm8k": None,
    "mathqa": "choice",
    "strategyqa": "boolean",
    "math": None,
    "verl": None,
}


class DataError(ValueError):
    """The data cannot be used as asked; the message names the value, the limit and the way out."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or a full stop where nothing is close: the end of a sentence."""
    close = difflib.get_close_matches(str(word), [str(k) for k in known], n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else "."


@dataclass(frozen=True)
class DataSource:
    """Questions from one split of one source.

    Order of work: rows `start:stop` of the split are mapped, cleaned, then cut down to `ids_file`, then to the
    first `max_questions`. Raises DataError where a value cannot be right whatever the data holds.
    """

    path: str  # a Hub id, or a local file or folder
    name: str | None = None  # the Hub repository's config, e.g. `main`, `en`
    split: str = "train"
    data_files: str | list[str] | dict[str, Any] | None = None  # inside the repository or folder
    revision: str | None = None  # commit, tag or branch; `meml-mel pin` writes the commit
    mapping: str | dict[str, str] | None = None  # a built-in name, columns, or None: guessed and said so
    max_questions: int | None = None
    ids_file: str | None = None  # text file, one question id a line: kept in that order
    start: int = 0  # rows before it are not read
    stop: int | None = None  # nor is this row, nor any after it
    kind: str | None = None  # `math`, `choice` or `boolean` for every question
    licence: str | None = None  # for cards and reports; not interpreted

    def __post_init__(self) -> None:
        if not self.path:
            raise DataError("data.path is empty: name a Hub id, or a local file or folder")
        check_mapping(self.mapping, self.kind)
        if self.kind is not None and self.kind not in KINDS:
            raise DataError(f"data.kind {self.kind!r} is unknown: use one of {', '.join(KINDS)}")
        if self.start < 0:
            raise DataError(f"data.start is {self.start}: it counts rows from 0 and cannot be negative")
        if self.stop is not None and self.stop <= self.start:
            raise DataError(f"data.stop is {self.stop}, not above data.start {self.start}: no row is left")
        if self.max_questions is not None and self.max_questions < 1:
            raise DataError(f"data.max_questions is {self.max_questions}: use at least 1, or leave it out")


def check_mapping(
    mapping: str | dict[str, str] | None,
    kind: str | None = None,
    need: tuple[str, ...] = ("problem", "answer"),
) -> None:
    """Raise DataError for an unknown mapping name or field, a missing field, or a kind the mapping excludes."""
    if isinstance(mapping, str):
        if mapping not in NAMED_MAPPINGS:
            raise DataError(
                f"mapping {mapping!r} is not built in{nearest(mapping, NAMED_MAPPINGS)} "
                f"Built in: {', '.join(NAMED_MAPPINGS)}; or give columns: "
                "mapping: {problem: <column>, answer: <column>}"
            )
        fixed = NAMED_MAPPINGS[mapping]
        if kind is not None and fixed is not None and kind != fixed:
            raise DataError(
                f"mapping {mapping!r} makes questions of kind {fixed!r}, and kind is {kind!r}: leave kind out, or "
                "map the columns yourself"
            )
    elif mapping is not None:
        for field in mapping:
            if field not in MAPPING_FIELDS:
                raise DataError(
                    f"mapping has an unknown field {field!r}{nearest(field, MAPPING_FIELDS)} "
                    f"Fields: {', '.join(MAPPING_FIELDS)} (field: column)"
                )
        missing = [field for field in need if field not in mapping]
        if missing:
            raise DataError(f"mapping lacks {' and '.join(missing)}: add {missing[0]}: <column>")
