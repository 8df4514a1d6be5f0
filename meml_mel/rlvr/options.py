"""The trainer's own options, as the configuration reads them: the algorithm, sampling per phase, token budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class AlgorithmConfig:
    """How rewards become the policy loss (docs/advantages.md, docs/training.md).

    Args:
        advantage: grpo (TRL's own, untouched), dr_grpo, rloo, reinforce_pp, reinforce_pp_baseline, rft.
        negative_advantages: `drop` sets negative advantages to 0, MEML-GRPO's printed form [2].
        rft_divisor: what `rft` averages over: all rollouts, or the right ones.
        dynamic_sampling: refill questions whose groups have equal rewards (DAPO).
        dynamic_sampling_max_rounds: at most this many rounds of refill a step.
        skip_zero_advantage_rows: leave rows of zero advantage out of the policy forward and backward; the
            denominators stay.
    """

    advantage: Literal["grpo", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "rft"] = "grpo"
    negative_advantages: Literal["keep", "drop"] = "keep"
    rft_divisor: Literal["rollouts", "right"] = "rollouts"
    dynamic_sampling: bool = False
    dynamic_sampling_max_rounds: int = 4
    skip_zero_advantage_rows: bool = False

    def __post_init__(self) -> None:
        _at_least("dynamic_sampling_max_rounds", self.dynamic_sampling_max_rounds, 1)


@dataclass(frozen=True, slots=True)
class PhaseSampling:
    """Sampling of one extra phase; the rollout phase has TRL's flat keys.

    Args:
        temperature: 1.0 for both phases [O].
        top_p: 1.0 is off.
        top_k: 0 is off.
        max_tokens: bound of the response in tokens. null: 2048 for the analysis, `max_completion_length` for
            the replay [O].
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature {self.temperature} must be 0 (greedy) or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p {self.top_p} must be above 0 and at most 1 (1 is off)")
        _at_least("top_k", self.top_k, 0)
        if self.max_tokens is not None:
            _at_least("max_tokens", self.max_tokens, 1)


@dataclass(frozen=True, slots=True)
class SupervisedConfig:
    """Sizes of the objectives' extra work; they change memory and speed, not the result.

    Args:
        token_budget: most padded tokens in one supervised sub-batch on one device.
        generation_token_budget: most padded prompt and response tokens in one generation call on one device.
    """

    token_budget: int = 8192
    generation_token_budget: int = 65536

    def __post_init__(self) -> None:
        _at_least("token_budget", self.token_budget, 1)
        _at_least("generation_token_budget", self.generation_token_budget, 1)


def _at_least(name: str, value: int, bound: int) -> None:
    if value < bound:
        raise ValueError(f"{name} {value} must be at least {bound}")
