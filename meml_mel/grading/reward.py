"""The grader as a TRL reward function: `GRPOTrainer(reward_funcs=VerifiableReward(), ...)`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from .pool import GradeItem, GradingPool
from .verdict import Grade


class VerifiableReward:
    """1.0 for a right completion, 0.0 for a wrong one, None where the gold cannot be parsed (MEL Eq. 1).

    Reads the data set's `answer` column and, where there is one, `kind` ("math", "choice", "boolean").
    `end_token_ids`: with them, a completion that does not end with one of them was cut at its length limit and
    is wrong, whatever it holds. The grades of the last call are kept in `grades`.
    """

    __name__ = "verifiable_reward"  # what TRL logs it under

    def __init__(self, workers: int = 2, timeout: float = 5.0, end_token_ids: Collection[int] | None = None):
        self.pool = GradingPool(workers=workers, timeout=timeout)
        self.end_token_ids = None if end_token_ids is None else frozenset(end_token_ids)
        self.grades: list[Grade] = []

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        answer: Sequence[Any] | None = None,
        kind: Sequence[Any] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """One reward per completion. Raises ValueError when the data set has no `answer` column."""
        if answer is None:
            raise ValueError("the data set has no 'answer' column: rename its gold column to 'answer'")
        kinds = kind or [None] * len(completions)
        items = [
            GradeItem(
                gold if isinstance(gold, str | list | tuple) else "",
                completion_text(completion),
                row_kind or "math",
                cut,
            )
            for gold, completion, row_kind, cut in zip(
                answer, completions, kinds, self._cut(completions, completion_ids), strict=True
            )
        ]
        self.grades = self.pool.grade(items)
        if log_metric is not None and self.grades:
            for outcome, count in Counter(g.reason or "right" for g in self.grades).items():
                log_metric(f"grade/{outcome}", count / len(self.grades))
        return [g.reward for g in self.grades]

    def _cut(self, completions: Sequence[Any], ids: Sequence[Sequence[int]] | None) -> list[bool]:
        if self.end_token_ids is None or ids is None:
            return [False] * len(completions)
        return [not row or row[-1] not in self.end_token_ids for row in ids]

    def close(self) -> None:
        """End the worker processes."""
        self.pool.close()


def completion_text(completion: Any) -> str:
    """The text of a completion, plain or conversational (its last message; text parts are joined)."""
    if isinstance(completion, str):
        return completion
    if not completion:
        return ""
    content = completion[-1].get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
