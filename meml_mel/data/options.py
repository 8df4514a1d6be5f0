"""Golds that are not values: letters of multiple choice, yes and no."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .columns import RowRejected, text_of

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_IN_TEXT = re.compile(r"(?:^|[,\[])\s*['\"]?\s*([a-zA-Z])\s*\)\s*")
_LETTER = re.compile(r"\A\W*(?:option\s+)?([A-Za-z])\W*\Z")
_BOOLEAN = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}


def parse_options(value: Any) -> dict[str, str]:
    """Options by upper-case letter, from `{a: ..}`, a list, `{label: [..], text: [..]}` or `a ) 12 , b ) 16`."""
    if isinstance(value, Mapping) and {"label", "text"} <= value.keys():
        labels = [str(label) for label in value["label"]]
        lettered = all(len(label) == 1 and label.isalpha() for label in labels)
        value = dict(zip(labels if lettered else LETTERS, value["text"]))
    elif isinstance(value, (list, tuple)):
        value = dict(zip(LETTERS, value))
    elif isinstance(value, str):
        return _from_text(value)
    if not isinstance(value, Mapping):
        raise RowRejected("options are neither a list, a mapping nor lettered text", value)
    options = {str(letter).upper(): text_of(text) for letter, text in value.items() if text_of(text)}
    if len(options) < 2 or any(len(letter) != 1 for letter in options):
        raise RowRejected("fewer than two lettered options", value)
    return options


def _from_text(text: str) -> dict[str, str]:
    """`a ) 38 , b ) 27.675 , c ) 30`: the letters must run a, b, c ... so that `f ( a ) = 1` splits nothing."""
    starts: list[re.Match[str]] = []
    for match in _IN_TEXT.finditer(text):
        if match[1].upper() == LETTERS[len(starts)]:
            starts.append(match)
    if len(starts) < 2:
        raise RowRejected("the options text does not split into letters", text)
    ends = [match.start() for match in starts[1:]] + [len(text)]
    return {
        match[1].upper(): text[match.end() : end].strip().rstrip("]").strip(" ,'\"")
        for match, end in zip(starts, ends, strict=True)
    }


def with_options(problem: str, options: Mapping[str, str]) -> str:
    """The problem as the model reads it: one option a line below it."""
    listed = "\n".join(f"({letter}) {text}" for letter, text in options.items())
    return f"{problem}\n\nOptions:\n{listed}" if problem else ""


def choice_gold(value: Any, options: Mapping[str, str] | None) -> str:
    """The gold's upper-case letter: from a letter (`a`, `(A)`), an option's text, or an index from 0 (a number)."""
    if isinstance(value, int) and not isinstance(value, bool):
        letters = list(options or LETTERS)
        if 0 <= value < len(letters):
            return letters[value]
        raise RowRejected("the answer is not one of the options", value)
    text = text_of(value)
    if not text:
        return ""
    letter = _LETTER.match(text)
    if letter and (options is None or letter[1].upper() in options):
        return letter[1].upper()
    by_text = [key for key, option in (options or {}).items() if option == text]
    if len(by_text) == 1:
        return by_text[0]
    raise RowRejected("the answer is not one of the options", text)


def boolean_gold(value: Any) -> str:
    """`yes` or `no`, from a bool or from yes/no/true/false in any case."""
    text = text_of(value)
    found = _BOOLEAN.get(text.strip(" .!").lower(), "")
    if text and not found:
        raise RowRejected("the answer is neither yes nor no", text)
    return found
