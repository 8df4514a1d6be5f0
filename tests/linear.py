"""Is the work linear in the size of the input? A ratio of two CPU times, so that a busy machine fails nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

TRIES = 4  # a measurement that something else disturbed is taken again
_TIMER = 0.05  # CPU seconds: below it nothing is told apart


def is_linear(work: Callable[[str], object], text_of: Callable[[int], str], size: int = 20_000) -> bool:
    """Does `work` on `text_of(4 * size)` cost about 4 times what it costs on `text_of(size)`?

    Work that grows with the square would cost 16 times as much; the bound lies between, at 9.
    """

    def cost(characters: int) -> float:
        text = text_of(characters)
        before = time.process_time()
        work(text)
        return time.process_time() - before

    return any(cost(4 * size) < 9 * cost(size) + _TIMER for _ in range(TRIES))


def repeated(unit: str, end: str = "") -> Callable[[int], str]:
    """`unit` again and again, up to a number of characters, and then `end`."""
    return lambda characters: unit * (characters // len(unit)) + end
