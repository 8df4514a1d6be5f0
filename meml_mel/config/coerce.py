"""From raw configuration values to typed ones: one function, `coerce`, driven by type hints.

A scalar written without quotes (in a file, or on the command line) arrives as `Plain` text, so that the key's
type decides what it is: `1e-1` is a float for a float key and the text `1e-1` for a text key.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import enum
import math
import re
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, Union

TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off")
# The YAML 1.2 core schema, for values whose key has no type of its own.
NULL = re.compile(r"(~|null|Null|NULL)?\Z")
INT = re.compile(r"[-+]?[0-9]+\Z")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
SPECIAL_FLOAT = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")


class ConfigError(ValueError):
    """A configuration that cannot run; the message names the key, the value and the way out."""


class Plain(str):
    """A scalar as it was written, without quotes: its type is the key's to decide."""

    __slots__ = ()


def nearest(name: str, known: Collection[str]) -> str:
    """`did you mean 'x'?`, for an error about an unknown name."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    if not close:
        return "nothing is known here"
    if difflib.SequenceMatcher(None, name, close[0]).ratio() >= 0.5:
        return f"did you mean {close[0]!r}?"
    listed = f" (known: {', '.join(sorted(known))})" if len(known) <= 12 else ""
    return f"the nearest known is {close[0]!r}{listed}"


def unknown_key(key: str, known: Collection[str], where: str = "") -> ConfigError:
    """The error for an unknown key; `where` is the dotted path of the section, "" at the top."""
    return ConfigError(f"unknown key {join(where, key)!r}: {nearest(key, known)}")


def join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def show(value: Any) -> str:
    """A value for an error message: short, one line."""
    text = repr(str(value) if isinstance(value, Plain) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def is_null(value: Any) -> bool:
    """No value, as YAML writes it: `null`, `~`, or nothing after the colon."""
    return value is None or (isinstance(value, Plain) and NULL.match(value) is not None)


def untyped(value: Any) -> Any:
    """A raw value without a target type: `Plain` scalars by YAML's 1.2 core schema, containers inside out."""
    if isinstance(value, Plain):
        text = str(value)
        if NULL.match(text):
            return None
        if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return text.lower() == "true"
        if INT.match(text):
            return int(text)
        if FLOAT.match(text):
            return float(text)
        if SPECIAL_FLOAT.match(text):
            return float(text.replace(".", ""))
        inner = parsed(value)
        return text if inner is value else untyped(inner)
    if isinstance(value, Mapping):
        return {str(k): untyped(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [untyped(v) for v in value]
    return value


def parsed(value: Any) -> Any:
    """A `[...]` or `{...}` text from the command line as a list or mapping; everything else unchanged."""
    if isinstance(value, Plain) and value[:1] in ("[", "{"):
        from .yaml_io import read_yaml

        try:
            return read_yaml(str(value), "the command line")
        except ConfigError:
            return value
    return value


def coerce(value: Any, hint: Any, key: str, choices: Collection[Any] = ()) -> Any:
    """`value` as `hint` asks, or ConfigError naming `key`, the value and the expected type.

    Handles the scalar types, Literal, enums, unions, lists, tuples, mappings and (nested) dataclasses.
    """
    result = _coerce(value, hint, key)
    if choices and result is not None and result not in choices:
        raise ConfigError(f"{key}: {show(value)} is not one of {_listed(choices)}{_near(result, choices)}")
    return result


def build(cls: Any, raw: Any, key: str) -> Any:
    """A dataclass from a mapping: unknown and missing keys are errors, so is what its own checks refuse."""
    raw = parsed(raw)
    if isinstance(raw, cls):
        return raw
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{key}: expected a mapping with {cls.__name__}'s keys, got {show(raw)}")
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls) if f.init}
    values = {}
    for name, item in raw.items():
        if name not in known:
            raise unknown_key(str(name), known, key)
        choices = known[name].metadata.get("choices", ())
        values[name] = coerce(item, hints[name], join(key, name), choices)
    missing = [name for name, f in known.items() if name not in values and _required(f)]
    if missing:
        raise ConfigError(f"{key}: {', '.join(repr(m) for m in missing)} must be given")
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from error


def _required(f: dataclasses.Field) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING


def _coerce(value: Any, hint: Any, key: str) -> Any:
    origin = typing.get_origin(hint)
    if hint is Any or hint is object:
        return untyped(value)
    if origin in (Union, types.UnionType):
        return _union(value, typing.get_args(hint), hint, key)
    if origin is Literal:
        return _literal(value, typing.get_args(hint), key)
    if hint is None or hint is type(None):
        if is_null(value):
            return None
        raise _wrong(value, "null", key)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hasattr(hint, "__dataclass_fields__"):
        if not dataclasses.fields(hint):
            raise _wrong(value, _name(hint), key)
        return build(hint, value, key)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _literal(value, tuple(member.value for member in hint), key)
    if hint in SCALARS:
        return SCALARS[hint](value, key)
    container = origin or hint
    if container in (list, tuple, set, frozenset, collections.abc.Sequence):
        return _sequence(value, container, typing.get_args(hint), key)
    if container in (dict, collections.abc.Mapping):
        return _mapping(value, typing.get_args(hint), key)
    raise ConfigError(f"{key}: {_name(hint)} cannot be written in a config; leave it out")


def _bool(value: Any, key: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in TRUE + FALSE:
        return value.lower() in TRUE
    raise _wrong(value, "true or false", key)


def _int(value: Any, key: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            number = float(value) if FLOAT.match(value) else None
    if isinstance(number, float) and math.isfinite(number) and number == int(number):
        return int(number)  # 1e3
    raise _wrong(value, "a whole number", key)


def _float(value: Any, key: str) -> float:
    if isinstance(value, str) and SPECIAL_FLOAT.match(value):
        value = value.replace(".", "")
    elif isinstance(value, bool) or not (isinstance(value, int | float) or FLOAT.match(str(value))):
        raise _wrong(value, "a number", key)
    number = float(value)
    if math.isnan(number):
        raise _wrong(value, "a number", key)
    return number


def _str(value: Any, key: str) -> str:
    if isinstance(value, str):
        if isinstance(value, Plain) and value == "":
            raise ConfigError(f"{key}: no value is written; use '' for an empty text, or leave the key out")
        return str(value)
    raise _wrong(value, "text", key)


def _path(value: Any, key: str) -> Path:
    return value if isinstance(value, Path) else Path(_str(value, key))


SCALARS: dict[Any, Any] = {bool: _bool, int: _int, float: _float, str: _str, Path: _path}


def _union(value: Any, members: tuple[Any, ...], hint: Any, key: str) -> Any:
    if type(None) in members and is_null(value):
        return None
    members = tuple(m for m in members if m is not type(None))
    if len(members) == 1:
        try:
            return _coerce(value, members[0], key)
        except ConfigError as error:
            if members[0] in SCALARS:
                raise ConfigError(f"{error} or null") from None
            raise
    enums = [m for m in members if isinstance(m, type) and issubclass(m, enum.Enum)]
    if enums and str in members and isinstance(value, str):  # transformers writes `IntervalStrategy | str`
        return _literal(value, tuple(member.value for member in enums[0]), key)
    value = parsed(value)
    for member in sorted(members, key=_specificity):
        if member is bool and str in members and str(value).lower() not in ("true", "false"):
            continue  # `no` is text where text is possible
        if isinstance(value, str) and str in members and typing.get_origin(member) is list:
            continue  # a lone word stays a word
        try:
            return _coerce(value, member, key)
        except ConfigError as error:
            if dataclasses.is_dataclass(member) and isinstance(value, Mapping):
                raise error
    raise _wrong(value, _name(hint), key)


def _specificity(member: Any) -> int:
    order: list[Any] = [bool, int, float]
    if member in order:
        return order.index(member)
    return 9 if member is str else 5


def _literal(value: Any, allowed: tuple[Any, ...], key: str) -> Any:
    for option in allowed:
        if type(option) is type(value) and option == value:
            return option
    candidate = str(value) if isinstance(value, str) else untyped(value)
    for option in allowed:
        if isinstance(value, str) and isinstance(option, str) and option == candidate:
            return option
        if not isinstance(option, str) and isinstance(value, str):
            plain = untyped(Plain(value))
            if type(plain) is type(option) and plain == option:
                return option
    raise ConfigError(f"{key}: {show(value)} is not one of {_listed(allowed)}{_near(candidate, allowed)}")


def _sequence(value: Any, container: Any, args: tuple[Any, ...], key: str) -> Any:
    value = parsed(value)
    if isinstance(value, str) and not (isinstance(value, Plain) and value == ""):
        value = [value]  # one word for a list of words, as TRL's own command line takes it
    if not isinstance(value, list | tuple | set | frozenset):
        raise _wrong(value, "a list", key)
    item = args[0] if args else Any
    if container is tuple and args and Ellipsis not in args:
        if len(args) != len(value):
            raise _wrong(value, f"a list of {len(args)}", key)
        return tuple(
            _coerce(v, a, join(key, str(i))) for i, (v, a) in enumerate(zip(value, args, strict=True))
        )
    items = [_coerce(v, item, join(key, str(i))) for i, v in enumerate(value)]
    return items if container is collections.abc.Sequence else container(items)


def _mapping(value: Any, args: tuple[Any, ...], key: str) -> dict[str, Any]:
    value = parsed(value)
    if not isinstance(value, Mapping):
        raise _wrong(value, "a mapping", key)
    item = args[1] if len(args) == 2 else Any
    return {str(k): _coerce(v, item, join(key, str(k))) for k, v in value.items()}


def _wrong(value: Any, expected: str, key: str) -> ConfigError:
    kind = "" if isinstance(value, Plain) else f" ({'null' if value is None else type(value).__name__})"
    return ConfigError(f"{key}: {show(value)}{kind} is not {expected}")


def _near(value: Any, allowed: Collection[Any]) -> str:
    close = difflib.get_close_matches(str(value), [str(option) for option in allowed], n=1, cutoff=0.5)
    return f": did you mean {close[0]!r}?" if close else ""


def _listed(allowed: Collection[Any]) -> str:
    return ", ".join(repr(option) for option in allowed)


def _name(hint: Any) -> str:
    """A type in the words of a config's reader."""
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}
    if hint in words:
        return words[hint]
    if typing.get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_name(member) for member in typing.get_args(hint))
    container = typing.get_origin(hint) or hint
    if container in (list, tuple, collections.abc.Sequence):
        return "a list"
    if container in (dict, collections.abc.Mapping):
        return "a mapping"
    if container is Literal:
        return _listed(typing.get_args(hint))
    return getattr(hint, "__name__", str(hint))
