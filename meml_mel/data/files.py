"""A source's data files on this machine: local ones in place, a Hub repository's in the Hub's cache.

Which files make up a config and a split is the `datasets` library's decision (the repository card's configs, file
names such as `test.jsonl`), so a source means here what it means there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import hub
from .source import DataError, DataSource, nearest

# What a single file's ending says about how to read it; `.gz` may follow.
ENDINGS = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet"}


@dataclass(frozen=True)
class DataFiles:
    """The files of one split, in order."""

    paths: tuple[str, ...]
    format: str  # `json`, `parquet`, or another of the `datasets` library's formats
    label: str  # how reports name the source: a Hub id, or a file's or folder's own name
    revision: str | None = None  # the commit they were read at, for a Hub id


def is_local(path: str) -> bool:
    """Whether `path` means this machine's disk: it exists there, or cannot be a Hub id."""
    p = Path(path).expanduser()
    looks_local = path.startswith((".", "/", "~")) or path.count("/") > 1 or "\\" in path
    return p.exists() or looks_local or format_of(p) is not None


def format_of(path: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return ENDINGS.get(suffixes[-1]) if suffixes else None


def find_files(source: DataSource) -> DataFiles:
    """The files of `source.split`. Raises DataError where there are none, naming what there is."""
    if not is_local(source.path):
        found = hub.download(source)
        label = source.path + (f" ({source.name})" if source.name else "")
        return DataFiles(found.paths, found.format, label, found.commit)
    path = Path(source.path).expanduser()
    if source.revision is not None:
        raise DataError(
            f"data.revision is {source.revision!r} and data.path {source.path!r} is local: a revision belongs to a "
            "Hub id; leave it out"
        )
    if path.is_file():
        return _single_file(source, path)
    if not path.is_dir():
        raise DataError(_not_found(source.path, path))
    return _folder(source, path)


def _single_file(source: DataSource, path: Path) -> DataFiles:
    format = format_of(path)
    if format is None:
        raise DataError(
            f"{source.path}: the ending {path.suffix!r} is not one that can be read ({', '.join(ENDINGS)}, each "
            "also with .gz): convert it to JSON lines, one object a line"
        )
    for field in ("name", "data_files"):
        if getattr(source, field) is not None:
            raise DataError(
                f"data.{field} is set and data.path {source.path!r} is a single file: leave it out"
            )
    if source.split != "train":
        raise DataError(
            f"split {source.split!r} does not exist in {source.path}: a single file has one split, 'train'; leave "
            "split out, and use start and stop for a range of rows"
        )
    return DataFiles((str(path),), format, path.name)


def _folder(source: DataSource, path: Path) -> DataFiles:
    from datasets import load_dataset_builder

    try:
        builder: Any = load_dataset_builder(str(path), source.name, data_files=source.data_files)
    except RuntimeError as error:
        raise hub.script_error(source, error) from error
    except FileNotFoundError as error:  # datasets' EmptyDatasetError and DataFilesNotFoundError are ones
        raise _no_data_files(source, path) from error
    except ValueError as error:
        raise hub.config_error(source, error) from error
    format = hub.format_name(builder)
    if format not in hub.FORMATS:  # datasets reads a folder of notes or pictures as one, too
        raise _no_data_files(source, path)
    return DataFiles(split_files(source, builder.config.data_files), format, path.resolve().name)


def _no_data_files(source: DataSource, path: Path) -> DataError:
    held = sorted(p.name for p in path.iterdir())[:10]
    wanted = f" matching data_files {source.data_files!r}" if source.data_files else ""
    return DataError(
        f"{source.path} has no data files{wanted} (it holds: {', '.join(held) or 'nothing'}): put JSONL, JSON or "
        "Parquet files there, or set data_files to the ones to read"
    )


def split_files(source: DataSource, by_split: Mapping[str, Any]) -> tuple[str, ...]:
    """The wanted split's files; raises DataError listing the splits where it is not among them."""
    splits = {str(split): files for split, files in (by_split or {}).items()}
    if source.split not in splits:
        raise DataError(
            f"split {source.split!r} does not exist in {source.path}{nearest(source.split, splits)} "
            f"Splits: {', '.join(splits) or 'none'}; start and stop take a range of rows"
        )
    return tuple(map(str, splits[source.split]))


def _not_found(value: str, path: Path) -> str:
    parent = path.parent
    if not parent.is_dir():
        return f"data.path {value!r} does not exist, nor does its folder {str(parent)!r}: check the path"
    names = [p.name for p in parent.iterdir()]
    return (
        f"data.path {value!r} does not exist{nearest(path.name, names)} (paths are relative to where you run)"
    )
