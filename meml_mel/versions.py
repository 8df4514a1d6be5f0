"""Versions of installed packages, as run.json and results.json record them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata


def installed(names: Iterable[str]) -> dict[str, str]:
    """Name -> version of those of the packages that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
