"""Rows out of data files, one after another: memory does not grow with the file.

JSON is read by Python's own parser rather than the `datasets` library's Arrow one, which infers one type a
column: there a gold `2020-01-01` becomes a time stamp and a column of 72 and 2.5 becomes floats.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from .files import DataFiles
from .source import DataError

_HOLDERS = ("data", "rows", "examples", "instances", "questions")  # keys of a document that hold its rows
_BATCH = 1000  # rows decoded at a time from columnar files


def read_rows(files: DataFiles, start: int = 0, stop: int | None = None) -> Iterator[dict[str, Any]]:
    """Rows `start:stop` over all the files. Raises DataError, with file and line, where one cannot be read."""
    return itertools.islice(_all_rows(files), start, stop)


def _all_rows(files: DataFiles) -> Iterator[dict[str, Any]]:
    if files.format == "json":
        for path in files.paths:
            yield from _json_rows(path)
    elif files.format == "parquet":
        for path in files.paths:
            yield from _parquet_rows(path)
    else:
        yield from _other_rows(files)


def _json_rows(path: str) -> Iterator[dict[str, Any]]:
    """JSON lines; one list of objects; or one object that holds such a list under `data`, `rows`, ..."""
    try:
        yield from _lines(path) if _is_lines(path) else _document(path)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error}): convert it, e.g. with iconv") from error
    except gzip.BadGzipFile as error:
        raise DataError(f"{path} is not gzip data ({error}): rename or compress it") from error


def _is_lines(path: str) -> bool:
    """Whether each line is a JSON value of its own."""
    whole = ".json" in Path(path).suffixes  # may be a document, even on one line
    with _open(path) as file:
        lines = [line.strip() for line in itertools.islice((x for x in file if x.strip()), 2)]
    if not lines or _is_object(lines[0]):
        return len(lines) == 2 or not whole
    return not whole and lines[0] != "{" and not lines[0].startswith("[")


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _lines(path: str) -> Iterator[dict[str, Any]]:
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(
                    f"{path} line {number} is not JSON ({error}): each line holds one object; mend or delete it"
                ) from error
            if not isinstance(row, dict):
                raise DataError(
                    f"{path} line {number} holds a {type(row).__name__}, not an object with columns"
                )
            yield row


def _document(path: str) -> Iterator[dict[str, Any]]:
    with _open(path) as file:
        text = file.read()
    if not text.strip():
        return
    try:
        value = json.loads(text)
    except ValueError as error:
        raise DataError(
            f"{path} is not JSON ({error}): use one object a line, or a list of objects"
        ) from error
    if isinstance(value, dict):
        value = next((value[key] for key in _HOLDERS if isinstance(value.get(key), list)), [value])
    for position, row in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(row, dict):
            raise DataError(f"{path} entry {position} is a {type(row).__name__}, not an object with columns")
        yield row


def _open(path: str) -> TextIO:
    if path.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return open(path, encoding="utf-8-sig")


def _parquet_rows(path: str) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Without a buffer size a whole row group, often a million rows, is read at once.
        file = pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
        for batch in file.iter_batches(batch_size=_BATCH):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from error


def _other_rows(files: DataFiles) -> Iterator[dict[str, Any]]:
    from datasets import load_dataset

    yield from load_dataset(files.format, data_files=list(files.paths), split="train", streaming=True)
