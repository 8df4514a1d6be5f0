"""A response out of its tokens: where it ended, and the text up to there. One rule for every engine."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Response:
    """One response. `tokens` counts the end token; `finish` "prompt_too_long": there was no room to answer."""

    text: str
    tokens: int
    finish: Literal["stop", "length", "prompt_too_long"]


def read_response(
    tokens: Sequence[int],
    ends: Collection[int],
    stop: Sequence[str],
    decode: Callable[[Sequence[int]], str],
) -> Response:
    """The response in `tokens`: up to its first end token, and before the first stop string of its text.

    What follows an end token is padding or run-on text and does not count. Without an end token or a stop string
    it was cut ("length"). `decode` turns ids into text without special tokens.
    """
    end = next((i for i, token in enumerate(tokens) if token in ends), None)
    tokens = tokens if end is None else tokens[: end + 1]
    text = decode(tokens if end is None else tokens[:-1])
    found = [at for at in (text.find(s) for s in stop) if at >= 0]
    if not found:
        return Response(text, len(tokens), "length" if end is None else "stop")
    written = bisect.bisect_left(
        range(len(tokens)), True, key=lambda n: any(s in decode(tokens[:n]) for s in stop)
    )
    return Response(text[: min(found)], written, "stop")
