"""One YAML per run: TRL's flat keys and the package's typed sections. `load_config` is the way in.

What needs the trainer's libraries is imported on first use: reading a command line must not load them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .coerce import ConfigError
from .command_line import CommandLine, parse_command_line

if TYPE_CHECKING:
    from .run import RunConfig, from_mapping, load_config

__all__ = ["CommandLine", "ConfigError", "RunConfig", "from_mapping", "load_config", "parse_command_line"]


def __getattr__(name: str) -> Any:
    if name not in ("RunConfig", "from_mapping", "load_config"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(".run", __name__), name)
