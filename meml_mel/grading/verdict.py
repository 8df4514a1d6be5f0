"""What a grade is. Pure data: no grader is needed to read one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["math", "choice", "boolean"]
Verdict = Literal["right", "wrong", "ungradable"]
# Why an answer is wrong; an ungradable gold says `unparsable_gold`, or `timeout` where reading it never ends.
Reason = Literal["no_answer", "truncated", "timeout", "different", "unparsable_gold"]


@dataclass(frozen=True, slots=True)
class Grade:
    """The verdict on one response.

    `ungradable` is about the *gold* alone: it could not be parsed, so there is no reward and the question is
    left out. A missing, truncated, unparsable or timed-out answer is `wrong`: hanging never beats being wrong.
    """

    verdict: Verdict
    reason: Reason | None = None
    extracted: str | None = None

    @property
    def reward(self) -> float | None:
        """1.0, 0.0, or None where there is no reward (MEL Eq. 1)."""
        return None if self.verdict == "ungradable" else float(self.verdict == "right")

    @property
    def right(self) -> bool:
        return self.verdict == "right"
