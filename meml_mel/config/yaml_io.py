"""YAML in and out. Reading keeps plain scalars as text and refuses a key given twice; writing quotes what any
reader could take for something else.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from .coerce import ConfigError, Plain


class _Loader(yaml.SafeLoader):
    """Plain scalars become `Plain`: YAML 1.1's `no` -> false and `1e-1` -> text never happen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[str, int] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"line {key_node.start_mark.line + 1}: a key must be a word")
            name, line = key_node.value, key_node.start_mark.line + 1
            if name in seen and key_node.tag != "tag:yaml.org,2002:merge":
                raise ConfigError(f"line {line}: key {name!r} is given twice, first on line {seen[name]}")
            seen[name] = line
        self.flatten_mapping(node)
        return {str(k.value): self.construct_object(v, deep=True) for k, v in node.value}


# `<<: *anchor` still merges.
_Loader.yaml_implicit_resolvers = {"<": [("tag:yaml.org,2002:merge", re.compile(r"^<<$"))]}


def _construct_scalar(loader: _Loader, node: yaml.ScalarNode) -> str:
    return Plain(node.value) if node.style is None else node.value


def _construct_map(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    return loader.construct_mapping(node, deep=True)


def _construct_list(loader: _Loader, node: yaml.SequenceNode) -> list[Any]:
    return loader.construct_sequence(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:str", _construct_scalar)
_Loader.add_constructor("tag:yaml.org,2002:map", _construct_map)
_Loader.add_constructor("tag:yaml.org,2002:seq", _construct_list)


def read_yaml(text: str, source: str) -> Any:
    """Parse YAML text; ConfigError names `source` and the line."""
    try:
        return yaml.load(text, Loader=_Loader)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"{source}: {line}not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid YAML: {error}") from None


def read_mapping(path: Path) -> dict[str, Any]:
    """A YAML file's mapping; {} for an empty file."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    data = read_yaml(text, str(path))
    if data is None or data == "":
        return {}
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path}: expected `key: value` lines, got {type(data).__name__.lower()}")
    return dict(data)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


# YAML 1.2 reads `1e-1` as a number and 1.1 does not: text that looks so is quoted for both.
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if any(separator in text for separator in "\x85\u2028\u2029"):
        style = '"'  # PyYAML takes them for line breaks in every other style
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def to_yaml(data: Mapping[str, Any]) -> str:
    """YAML text in the mapping's own order."""
    return yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=110
    )
