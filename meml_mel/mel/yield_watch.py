"""A warning when hardly any analysis is well formed or survives its replay: it shows one that failed, and why.

A model too weak for the analysis prompt, or limits too short for it, leave the objective without examples while
the run looks healthy; one look at a failing text usually says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from .parse import FormatError
from .records import Candidate

Rate = Literal["valid", "retained"]
_SHOWN_CHARS = 1500
_WAYS_OUT = {
    "analysis_prompt_too_long": "shorten max_completion_length, or use a model with a longer context",
    "analysis_truncated": "raise the analysis phase's max_tokens",
    "analysis_run_on": "check the end tokens and the prompt format",
    "invalid_format": "change prompts.analyse, the prompt format, or use a stronger model",
    "leaked": "set drop_leaked to false",
    "replay_prompt_too_long": "lower the analysis phase's max_tokens or the replay's",
    "replay_wrong": "look at the replay's reason: truncated asks for a higher max_tokens of the replay phase",
}


class YieldWatch:
    """Counts over the last `after_steps` steps that had pairs; tells each of the two rates at most once.

    Args:
        below: the share of pairs under which to warn, for `valid` and for `retained`.
        after_steps: steps to look back on; nothing is told before there are that many.
    """

    def __init__(self, below: dict[Rate, float], after_steps: int):
        self.below = below
        self.after_steps = max(1, after_steps)
        self.window: list[list[int]] = []  # [pairs, valid, retained] a step
        self.told: list[str] = []

    def see(self, candidates: Sequence[tuple[str, Candidate]]) -> str | None:
        """Take in one step's (question id, candidate) pairs; the warning's text where there is one to give."""
        if not candidates:
            return None
        valid, retained = sum(c.valid for _, c in candidates), sum(c.retained for _, c in candidates)
        self.window = [*self.window, [len(candidates), valid, retained]][-self.after_steps :]
        if len(self.window) < self.after_steps:
            return None
        pairs = sum(counts[0] for counts in self.window)
        texts = [
            self._tell(
                "valid", sum(c[1] for c in self.window), pairs, [c for c in candidates if not c[1].valid]
            ),
            self._tell(
                "retained",
                sum(c[2] for c in self.window),
                pairs,
                [c for c in candidates if c[1].valid and not c[1].retained],
            ),
        ]
        return "\n".join(text for text in texts if text) or None

    def _tell(self, rate: Rate, count: int, pairs: int, failing: list[tuple[str, Candidate]]) -> str | None:
        if rate in self.told or count >= self.below[rate] * pairs or not failing:
            return None
        self.told.append(rate)
        question_id, candidate = failing[0]
        what = "a well-formed analysis" if rate == "valid" else "a meta-experience that its replay confirmed"
        return (
            f"only {count} of {pairs} pairs in the last {len(self.window)} steps gave {what} "
            f"(warn_below_{rate}: {self.below[rate]}). One that failed, question {question_id!r}: "
            f"{failure_reason(candidate)}. {_WAYS_OUT[str(candidate.exclusion)].capitalize()}.\n"
            f"----- its {'analysis' if rate == 'valid' else 'replay'}\n{_shown(candidate, rate)}\n-----"
        )

    def state_dict(self) -> dict[str, Any]:
        return {"window": self.window, "told": self.told}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.window, self.told = [list(counts) for counts in state["window"]], list(state["told"])


def failure_reason(candidate: Candidate) -> str:
    """Why a candidate was not kept, in words."""
    reason = str(candidate.exclusion)
    if isinstance(candidate.parsed, FormatError):
        return f"{reason}: {candidate.parsed.reason}"
    if candidate.exclusion == "replay_wrong" and candidate.replay and candidate.replay.grade:
        return f"{reason}: {candidate.replay.grade.reason}"
    return reason


def _shown(candidate: Candidate, rate: Rate) -> str:
    source = candidate.analysis if rate == "valid" else candidate.replay or candidate.analysis
    text = source.text
    return (
        text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}\n[... {len(text)} characters in all]"
    )
