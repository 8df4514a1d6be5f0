"""A Hub repository's data files, at one commit, in the Hub's own cache.

The `datasets` library says which files a config and split are made of; `huggingface_hub` downloads those and no
others. They are then read like local files: no second copy in Arrow form, values exactly as written, and memory
that does not grow with the size of a Parquet row group. What a request resolved to is remembered beside the
cache, so a second run with the same pinned revision, or without a network, reads the same files or says that it
cannot; it never falls back to another revision.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from .source import DataError, DataSource, nearest

_URL = re.compile(r"hf://datasets/(?P<repo>.+?)@(?P<commit>[^/]+)/(?P<file>.+)\Z")
COMMIT = re.compile(r"[0-9a-f]{40}\Z")
OFFLINE_VARIABLE = "HF_HUB_OFFLINE"
FORMATS = (
    "json",
    "parquet",
    "csv",
    "arrow",
)  # of the datasets library's formats, those that hold rows of columns

logger = logging.getLogger(__name__)


class Found(NamedTuple):
    """One split's files on this machine, how to read them, and the commit they belong to."""

    paths: tuple[str, ...]
    format: str
    commit: str


def download(source: DataSource) -> Found:
    """The files of `source.split`. Raises DataError for whatever stands in the way."""
    remembered = _remembered(source)
    if remembered and COMMIT.match(source.revision or ""):
        return remembered
    try:
        return _remember(source, _download(source))
    except ConnectionError as error:  # the datasets library's, for offline mode and unreachable hosts alike
        if remembered is None:
            raise offline_error(source, error) from error
        logger.warning("%s: no network; reading commit %s from the cache", source.path, remembered.commit)
        return remembered


def _download(source: DataSource) -> Found:
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    from huggingface_hub.utils import httpx  # httpx2 since 2.0, under the same name

    try:
        return _resolve(source)
    except DataError:
        raise
    except DatasetNotFoundError as error:
        raise DataError(
            f"data.path {source.path!r}: {error} There is no local file or folder of that name either. For a "
            "private or gated one, log in with `hf auth login`"
        ) from error
    except HFValidationError as error:
        raise DataError(
            f"data.path {source.path!r} is neither a local file or folder nor a Hub id: {error}"
        ) from error
    except (httpx.TransportError, LocalEntryNotFoundError) as error:
        raise ConnectionError(str(error)) from error
    except HfHubHTTPError as error:
        raise DataError(f"data.path {source.path!r}: the Hub answered {error}") from error
    except FileNotFoundError as error:
        raise DataError(
            f"data.path {source.path!r} has no data files to read on the Hub ({error}): check data_files and the "
            "repository's file list"
        ) from error
    except RuntimeError as error:
        raise script_error(source, error) from error
    except ValueError as error:
        raise config_error(source, error) from error


def _resolve(source: DataSource) -> Found:
    from datasets import load_dataset_builder
    from huggingface_hub import hf_hub_download

    from .files import split_files

    builder: Any = load_dataset_builder(
        source.path, source.name, data_files=source.data_files, revision=source.revision
    )
    if not builder.config.data_files:  # datasets found no network and offers whatever it had cached
        raise ConnectionError(f"{source.path} could not be reached")
    format, paths, commit = format_name(builder), [], ""
    if format not in FORMATS:
        raise DataError(
            f"data.path {source.path!r} holds {format} data, not JSONL, JSON or Parquet: name data_files inside it"
        )
    for url in split_files(source, builder.config.data_files):
        match = _URL.match(url)
        if match is None:
            raise DataError(
                f"{source.path}: its file {url!r} is not in a Hub data set; name data_files inside it"
            )
        commit = match["commit"]
        paths.append(hf_hub_download(match["repo"], match["file"], repo_type="dataset", revision=commit))
    return Found(tuple(paths), format, commit)


def format_name(builder: Any) -> str:
    """`json`, `parquet`, `csv`, ...: the packaged module that reads the builder's files."""
    return type(builder).__module__.rsplit(".", 1)[-1]


def offline_error(source: DataSource, error: Exception) -> DataError:
    set_here = os.environ.get(OFFLINE_VARIABLE, "")
    if set_here.upper() in ("1", "ON", "YES", "TRUE"):
        why, first = f"{OFFLINE_VARIABLE}={set_here} is set", f"unset {OFFLINE_VARIABLE} and run"
    else:
        why, first = f"the Hub could not be reached ({error})", "run"
    return DataError(
        f"data.path {source.path!r} is a Hub id, {why}, and the files of split {source.split!r} at revision "
        f"{source.revision or 'main'!r} are not in the cache. Either {first} once with a network (after that the "
        f"cache is enough, with {OFFLINE_VARIABLE}=1 at once), or name local files: path: <file or folder>. There "
        "is no local file or folder of that name"
    )


def script_error(source: DataSource, error: Exception) -> DataError:
    """For repositories that are a loading script (MathQA's is one) and other refusals of the library."""
    if "scripts are no longer supported" not in str(error):
        return DataError(f"data.path {source.path!r}: {error}")
    mirror = " For MathQA: path: regisss/math_qa." if "math_qa" in source.path.lower() else ""
    return DataError(
        f"data.path {source.path!r} is a loading script, and scripts are not run. Name data files instead: "
        "download them and set path to that file or folder, or try revision: refs/convert/parquet (the Hub's own "
        f"Parquet copy, where it has one).{mirror}"
    )


def config_error(source: DataSource, error: Exception) -> DataError:
    """For the library's ValueErrors about a missing or unknown config name."""
    text = str(error)
    known = re.search(r"(?:pick one among the available configs|Available):\s*\[([^\]]*)\]", text)
    if not known:
        return DataError(f"data.path {source.path!r}: {text}")
    names = [name.strip(" '\"") for name in known[1].split(",")]
    if source.name is None:
        return DataError(
            f"data.path {source.path!r} has several configs: set data.name to one of {', '.join(names)}"
        )
    return DataError(
        f"data.name {source.name!r} is not a config of {source.path}{nearest(source.name, names)} "
        f"Configs: {', '.join(names)}"
    )


def _note(source: DataSource) -> Path:
    from huggingface_hub import constants

    asked = [source.path, source.name, source.split, source.data_files, source.revision]
    key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]
    return Path(constants.HF_HOME) / "meml_mel" / f"{key}.json"


def _remember(source: DataSource, found: Found) -> Found:
    note = _note(source)
    note.parent.mkdir(parents=True, exist_ok=True)
    whole = note.with_suffix(f".{os.getpid()}")
    whole.write_text(json.dumps(found._asdict()), encoding="utf-8")
    whole.replace(note)  # ranks of one run write the same note at the same time
    return found


def _remembered(source: DataSource) -> Found | None:
    note = _note(source)
    if not note.is_file():
        return None
    held = json.loads(note.read_text(encoding="utf-8"))
    if not all(Path(path).is_file() for path in held["paths"]):
        return None
    return Found(tuple(held["paths"]), held["format"], held["commit"])
