"""The command line of a training run: `--config X`, the launcher's few switches, and overrides.

TrlParser (TRL 1.16) takes flat keys only, accepts abbreviations and ignores `--config=x`; so this is our own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .coerce import ConfigError, Plain, parsed

# Switch -> does it take a value. Everything else after `--` is an override of a config key.
SWITCHES = {
    "config": True,
    "num-processes": True,
    "accelerate-config": True,
    "dry-run": False,
    "allow-changed-config": False,
    "debug": False,
    "help": False,
}
USAGE = """\
usage: accelerate launch -m meml_mel.train.{stage} --config CONFIG [switches] [--KEY VALUE ...]

  --config CONFIG            a YAML file, or the name of a shipped recipe
  --dry-run                  print the run's arithmetic, memory and length budgets, and stop
  --num-processes N          dry run: plan for N processes (GPUs)
  --accelerate-config FILE   dry run: take the number of processes from an accelerate config
  --allow-changed-config     resume although the resolved config differs from the checkpoint's
  --debug                    show the traceback of a configuration error
  --help                     this text

Any key of the config can be set: --learning_rate 1e-5 --objectives.meta_experience.coefficient 0.5
--experts.0.name x --report_to '[wandb, tensorboard]'. docs/configuration.md lists the keys.
"""


@dataclass(frozen=True)
class CommandLine:
    """What was asked for; `overrides` are left as they were written, for `load_config`."""

    config: str | None = None
    num_processes: int | None = None
    accelerate_config: str | None = None
    dry_run: bool = False
    allow_changed_config: bool = False
    debug: bool = False
    help: bool = False
    overrides: tuple[str, ...] = field(default=())


def parse_command_line(argv: Sequence[str]) -> CommandLine:
    """Split switches from overrides. ConfigError on a stray word, a missing value or a repeated switch."""
    values: dict[str, Any] = {}
    overrides: list[str] = []
    for name, words, text in _options(argv):
        switch = "help" if name == "h" else name.replace("_", "-")
        if switch not in SWITCHES:
            overrides += text
            continue
        attribute = switch.replace("-", "_")
        if attribute in values:
            raise ConfigError(f"--{switch} is given twice: {values[attribute]!r} and {' '.join(words)!r}")
        if SWITCHES[switch] and len(words) != 1:
            raise ConfigError(f"--{switch} takes one value, got {len(words)}")
        if not SWITCHES[switch] and words:
            raise ConfigError(f"--{switch} takes no value, got {' '.join(words)!r}")
        values[attribute] = words[0] if words else True
    if "num_processes" in values:
        count = values["num_processes"]
        if not re.fullmatch(r"[0-9]+", count) or int(count) < 1:
            raise ConfigError(f"--num-processes: {count!r} is not a whole number of at least 1")
        values["num_processes"] = int(count)
    return CommandLine(**values, overrides=tuple(overrides))


def parse_overrides(words: Sequence[str]) -> list[tuple[str, Any]]:
    """`--a.b 1 --c=2 --flag --names x y` as [("a.b", Plain), ("c", ...), ("flag", true), ("names", list)]."""
    result = []
    for name, values, _ in _options(words):
        if name == "config":
            raise ConfigError("--config is no override: it names the file")
        raw: Any = [Plain(v) for v in values]
        result.append((name, Plain("true") if not raw else raw[0] if len(raw) == 1 else raw))
    return result


def _options(argv: Sequence[str]) -> list[tuple[str, list[str], list[str]]]:
    """(name, values, the words as written) of each `--name value ...` or `--name=value`."""
    options: list[tuple[str, list[str], list[str]]] = []
    closed = True
    for word in argv:
        if word == "-h":
            word = "--help"
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            options.append((name, [value] if equals else [], [word]))
            closed = bool(equals)
        elif not options or closed:
            raise ConfigError(f"unexpected {word!r}: settings are written --key value or --key=value")
        else:
            options[-1][1].append(word)
            options[-1][2].append(word)
    return options


def apply_overrides(raw: dict[str, Any], overrides: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The raw config with each dotted key set; a later override wins. `raw` is not changed."""
    for key, value in overrides:
        raw = _set(raw, key.split("."), value, key)
    return raw


def _set(node: Any, path: list[str], value: Any, key: str) -> Any:
    if not path:
        return value
    head, rest = path[0], path[1:]
    if not head:
        raise ConfigError(f"--{key}: a part of the dotted key is empty")
    node = parsed(node)
    if isinstance(node, list) and head.isdigit():
        index = int(head)
        if index > len(node):
            raise ConfigError(f"--{key}: the list has {len(node)} entries; the next is number {len(node)}")
        old = node[index] if index < len(node) else None
        return [*node[:index], _set(old, rest, value, key), *node[index + 1 :]]
    if isinstance(node, list):
        raise ConfigError(f"--{key}: {head!r} is no number of a list entry (0 to {len(node)})")
    if node is None or (isinstance(node, Plain) and node in ("", "null", "~")):
        node = [] if head == "0" else {}
        return _set(node, path, value, key)
    if isinstance(node, dict):
        return {**node, head: _set(node.get(head), rest, value, key)}
    raise ConfigError(f"--{key}: {head!r} is set inside {str(node)!r}, which is no section")
