"""Values out of rows: dotted paths, and the text of whatever a column holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MISSING: Any = object()


class RowRejected(Exception):
    """This one row makes no question: `reason` is a class to count, `value` what was found."""

    def __init__(self, reason: str, value: Any = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.value = str(value)[:200]


class MissingColumn(Exception):
    """None of the columns that a mapping needs is in the row."""

    def __init__(self, field: str, tried: tuple[str, ...]) -> None:
        super().__init__(field)
        self.field = field
        self.tried = tried


def lookup(row: Any, path: str) -> Any:
    """The value at a dotted path, or MISSING.

    Keys may themselves hold dots and slashes (`experts.gpt-4o-2024.08.response`): the longest key that leads to
    a value wins. A number indexes a list.
    """
    if isinstance(row, dict):
        if path in row:
            return row[path]
        cut = path.rfind(".")
        while cut > 0:
            if path[:cut] in row:
                found = lookup(row[path[:cut]], path[cut + 1 :])
                if found is not MISSING:
                    return found
            cut = path.rfind(".", 0, cut)
    elif isinstance(row, list):
        head, _, rest = path.partition(".")
        if head.isdigit() and int(head) < len(row):
            return lookup(row[int(head)], rest) if rest else row[int(head)]
    return MISSING


def pick(row: Mapping[str, Any], field: str, *columns: str) -> Any:
    """The first of `columns` that the row has; raises MissingColumn where it has none."""
    found = pick_optional(row, *columns)
    if found is MISSING:
        raise MissingColumn(field, columns)
    return found


def pick_optional(row: Mapping[str, Any], *columns: str) -> Any:
    """The first of `columns` that the row has, or MISSING."""
    for column in columns:
        found = lookup(row, column)
        if found is not MISSING:
            return found
    return MISSING


def text_of(value: Any) -> str:
    """A column's value as text, stripped; "" for None and MISSING.

    Whole floats lose their `.0` (a float column turned 27 into 27.0), true and false become yes and no, and a
    list becomes one gold of several answers, `a, b`, as the grader takes them.
    Raises RowRejected for a mapping, NaN or infinity.
    """
    if value is None or value is MISSING:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RowRejected("not a finite number", value)
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(filter(None, map(text_of, value)))
    if isinstance(value, dict):
        raise RowRejected("a column holds a mapping: name a dotted path into it", sorted(map(str, value)))
    return str(value).strip()


def prose_of(value: Any) -> str | None:
    """A solution's text: list entries become paragraphs; None where there is none."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    return "\n\n".join(filter(None, map(text_of, parts))) or None


def last_user_message(messages: Any) -> str:
    """The text of the last user turn of a chat prompt; a plain string is returned as it is."""
    if isinstance(messages, str):
        return messages.strip()
    for message in reversed(messages or []):
        if isinstance(message, dict) and message.get("role") == "user":
            return text_of(message.get("content"))
    raise RowRejected("the prompt has no user message", messages)
