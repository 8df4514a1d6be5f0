"""`meml-mel pin CONFIG`: write the commit of each Hub id into a config where it says `revision: null`.

Pinned are `revision: null` beside `path: <Hub data set>`, anywhere in the file, and `model_revision: null` beside
`model_name_or_path: <Hub model>`. Only those nulls change; comments and layout stay. All are looked up before
the file is touched, so it is either fully pinned or unchanged.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .files import is_local
from .hub import COMMIT, OFFLINE_VARIABLE
from .source import DataError

RepoType = Literal["dataset", "model"]
# revision key -> (key of the id beside it, type of repository)
_PAIRS: dict[str, tuple[str, RepoType]] = {
    "revision": ("path", "dataset"),
    "model_revision": ("model_name_or_path", "model"),
}


@dataclass(frozen=True, slots=True)
class Unpinned:
    """A null in a config's text that stands for a revision: characters `start:end`."""

    repo_id: str
    repo_type: RepoType
    where: str  # dotted path of the revision key
    start: int
    end: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="a YAML config; `revision: null` lines are filled in")


def run(args: argparse.Namespace) -> int:
    """0 when every Hub id is pinned afterwards, 1 when something could not be (the file is then unchanged)."""
    try:
        pinned = pin(args.config, latest_commit)
    except DataError as error:
        print(f"{error}\n{args.config} is unchanged", file=sys.stderr)
        return 1
    for found, commit in pinned:
        print(f"{found.where}: {found.repo_type} {found.repo_id} at {commit}")
    if not pinned:
        print(f"{args.config}: nothing to pin (no Hub id with `revision: null` or `model_revision: null`)")
    return 0


def pin(config: Path, commit_of: Callable[[str, RepoType], str]) -> list[tuple[Unpinned, str]]:
    """Fill in `config` and return what was filled in with its commit.

    Raises DataError, before the file is touched, where the config cannot be read or a commit not be found.
    """
    if not config.is_file():
        raise DataError(f"config {str(config)!r} does not exist: check the path")
    text = config.read_bytes().decode("utf-8")  # bytes: line endings stay as they are
    found = find_unpinned(text)
    commits: dict[tuple[str, RepoType], str] = {}
    failed = []
    for item in found:
        key = (item.repo_id, item.repo_type)
        if key in commits:
            continue
        try:
            commits[key] = commit_of(*key)
        except DataError as error:
            failed.append(f"{item.where}: {error}")
    if failed:
        raise DataError("\n".join(failed))
    pinned = [(item, commits[item.repo_id, item.repo_type]) for item in found]
    if pinned:
        whole = config.with_name(f".{config.name}.{os.getpid()}")
        whole.write_bytes(fill_in(text, pinned).encode("utf-8"))
        whole.chmod(config.stat().st_mode)
        whole.replace(config)
    return pinned


def find_unpinned(text: str) -> list[Unpinned]:
    """Every revision that is null beside a Hub id, in the order of the text."""
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise DataError(f"the config is not YAML: {error}") from error
    by_place = (
        {item.start: item for item in _walk(root, "")} if root else {}
    )  # an alias is met more than once
    return [by_place[start] for start in sorted(by_place)]


def fill_in(text: str, pinned: list[tuple[Unpinned, str]]) -> str:
    """The text with each null replaced by its commit."""
    for item, commit in sorted(pinned, key=lambda pair: pair[0].start, reverse=True):
        space = " " if text[item.start - 1 : item.start] == ":" else ""  # `revision:` with nothing behind it
        text = text[: item.start] + space + commit + text[item.end :]
    return text


def _walk(node: object, where: str) -> Iterator[Unpinned]:
    import yaml

    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _walk(child, f"{where}.{index}" if where else str(index))
    if not isinstance(node, yaml.MappingNode):
        return
    items = {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
    for key, value in items.items():
        here = f"{where}.{key}" if where else key
        yield from _walk(value, here)
        id_key, repo_type = _PAIRS.get(key, ("", "dataset"))
        repo = items.get(id_key)
        if (
            _is_null(value)
            and isinstance(repo, yaml.ScalarNode)
            and not _is_null(repo)
            and not is_local(repo.value)
        ):
            start, end = value.start_mark.index, value.end_mark.index
            yield Unpinned(repo.value, repo_type, here, start, end)


def _is_null(node: object) -> bool:
    import yaml

    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def latest_commit(repo_id: str, repo_type: RepoType) -> str:
    """The commit of the repository's main branch. Raises DataError, saying which of the ways it failed."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )
    from huggingface_hub.utils import httpx  # httpx2 since 2.0, under the same name

    what = f"{repo_type} {repo_id!r}"
    try:
        commit = HfApi().repo_info(repo_id, repo_type=repo_type, revision="main").sha
    except OfflineModeIsEnabled as error:
        raise DataError(
            f"offline: {OFFLINE_VARIABLE} is set, so {what} cannot be looked up; unset it"
        ) from error
    except GatedRepoError as error:
        raise DataError(f"{what} is gated: ask for access on its page, then `hf auth login`") from error
    except RepositoryNotFoundError as error:
        raise DataError(
            f"{what} is not on the Hub, or private: check the id, or `hf auth login`; for a local folder write ./"
        ) from error
    except HFValidationError as error:
        raise DataError(f"{what} is neither a local path nor a Hub id: {error}") from error
    except HfHubHTTPError as error:
        raise DataError(f"{what}: the Hub answered {error}") from error
    except (httpx.HTTPError, OSError) as error:
        raise DataError(
            f"offline: the Hub could not be reached for {what} ({error}); run this on a machine with a network"
        ) from error
    if commit is None or not COMMIT.match(commit):
        raise DataError(f"{what}: the Hub gave {commit!r}, not a commit of 40 hexadecimal digits")
    return commit
