"""Advantage estimators: pure functions from rewards (Q, E, G) to advantages (Q, E, G).

Rewards are those of the global batch: Q questions x E experts x G rollouts over all ranks; a group is one
(question, expert). NaN marks an ungradable rollout: its advantage is 0 and it enters no statistic. Formulas,
divisors and sources: docs/advantages.md.

With `advantage: grpo` the trainer leaves TRL's own advantages untouched; `grpo` here states the same formula
for tests and for ports to other frameworks.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from typing import Literal

import torch

NegativeAdvantages = Literal["keep", "drop"]
RftDivisor = Literal["rollouts", "right"]

EPSILON = 1e-4  # TRL's, added to a standard deviation before dividing

GROUP = 2  # the dimension of a group's G rollouts
BATCH = (0, 1, 2)


def grpo(rewards: torch.Tensor) -> torch.Tensor:
    """(r - mean) / (std + 1e-4) over the group, std with Bessel's correction (GRPO).

    A group with fewer than two gradable rollouts has no standard deviation: advantage 0, as in TRL.
    """
    _check(rewards)
    return _nan_to_zero(_centred(rewards, GROUP) / (_std(rewards, GROUP) + EPSILON))


def dr_grpo(rewards: torch.Tensor) -> torch.Tensor:
    """r - mean over the group, no division (Dr.GRPO)."""
    _check(rewards)
    return _nan_to_zero(_centred(rewards, GROUP))


def rloo(rewards: torch.Tensor) -> torch.Tensor:
    """r_i - mean of the group's other gradable rollouts; 0 where there is no other (RLOO)."""
    _check(rewards)
    count = _count(rewards, GROUP)
    # r_i - (S - r_i) / (n - 1) = (r_i - mean) * n / (n - 1)
    advantages = _centred(rewards, GROUP) * count / (count - 1).clamp(min=1)
    return _nan_to_zero(advantages)


def reinforce_pp(rewards: torch.Tensor) -> torch.Tensor:
    """(r - mean) / (std + 1e-4) over the global batch, no group mean (REINFORCE++; MEL 4.4)."""
    _check(rewards)
    return _normalised(rewards)


def reinforce_pp_baseline(rewards: torch.Tensor) -> torch.Tensor:
    """r - group mean, then normalised over the global batch (REINFORCE++-baseline).

    The standard deviation is that of the centred rewards, unlike TRL's `scale_rewards: batch`, which divides
    by the standard deviation of the rewards themselves.
    """
    _check(rewards)
    return _normalised(_centred(rewards, GROUP))


def rft(rewards: torch.Tensor, divisor: RftDivisor = "rollouts") -> torch.Tensor:
    """1 on right responses (reward 1), 0 elsewhere: NLL on each batch's right responses (RFT; MEL 4.4).

    With one update per generation the ratio is 1, so the gradient of -A * ratio is that of -A * log pi. The
    divisor over tokens and sequences is the loss type's; for `grpo` the loss is then the mean over *all*
    rollouts of A * token-mean NLL. `divisor="right"` scales the advantage by rollouts / right over the global
    batch (ungradable rollouts counted, as TRL's mean counts them), which makes that a mean over the right
    responses. Log-probabilities are TRL's, at the sampling temperature.
    """
    _check(rewards)
    right = (rewards == 1.0).to(rewards.dtype)
    if divisor == "rollouts":
        return right
    if divisor == "right":
        return right * (rewards.numel() / right.sum().clamp(min=1.0))
    raise ValueError(_unknown("rft_divisor", divisor, ("rollouts", "right")))


ADVANTAGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "rft": rft,
}


def apply_negative(advantages: torch.Tensor, negative_advantages: NegativeAdvantages) -> torch.Tensor:
    """`drop` replaces negative advantages by 0 (MEML's printed max(A, 0)); `keep` changes nothing."""
    if negative_advantages == "keep":
        return advantages
    if negative_advantages == "drop":
        return advantages.clamp(min=0.0)
    raise ValueError(_unknown("negative_advantages", negative_advantages, ("keep", "drop")))


def estimate(
    advantage: str,
    rewards: torch.Tensor,
    *,
    negative_advantages: NegativeAdvantages = "keep",
    rft_divisor: RftDivisor = "rollouts",
) -> torch.Tensor:
    """Advantages (Q, E, G) of rewards (Q, E, G) by the named estimator; ValueError on an unknown name."""
    if advantage not in ADVANTAGES:
        raise ValueError(_unknown("advantage", advantage, ADVANTAGES))
    advantages = rft(rewards, rft_divisor) if advantage == "rft" else ADVANTAGES[advantage](rewards)
    return apply_negative(advantages, negative_advantages)


# TRL's `scale_rewards` that says the same as the estimator. `grpo` is TRL's own and takes any.
MATCHING_SCALE = {
    "dr_grpo": "none",
    "rloo": "none",
    "reinforce_pp": "batch",
    "reinforce_pp_baseline": "batch",
    "rft": "none",
}
LOSS_TYPES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo")
TOKEN_DIVISOR = ("dapo", "bnpo", "cispo", "vespo")  # divide by a count of tokens, not of rollouts


def validate(
    advantage: str,
    scale_rewards: str | bool | None,
    loss_type: str,
    *,
    negative_advantages: str = "keep",
    rft_divisor: str = "rollouts",
    updates_per_generation: int = 1,
) -> None:
    """Refuse settings that contradict each other (docs/advantages.md has the table), before any model loads.

    `scale_rewards`: what the user wrote, None where nothing was written, since TRL's default ("group") can't
    be told from a written one afterwards. `updates_per_generation`: optimizer steps that one generation
    serves, times `num_iterations`. Raises ValueError that names the values and the combination that is meant.
    """
    if advantage not in ADVANTAGES:
        raise ValueError(_unknown("advantage", advantage, ADVANTAGES))
    if loss_type not in LOSS_TYPES:
        raise ValueError(_unknown("loss_type", loss_type, LOSS_TYPES))
    apply_negative(torch.zeros(1), negative_advantages)  # type: ignore[arg-type]
    rft(torch.zeros(1, 1, 1), rft_divisor)  # type: ignore[arg-type]

    if rft_divisor != "rollouts" and advantage != "rft":
        raise ValueError(
            f"rft_divisor {rft_divisor!r} has no effect with advantage {advantage!r}: drop rft_divisor, or "
            "set advantage to 'rft'"
        )
    if scale_rewards is not None:
        scale = {"True": "group", "False": "none"}.get(str(scale_rewards), scale_rewards)  # TRL takes both
        if scale not in ("group", "batch", "none"):
            raise ValueError(_unknown("scale_rewards", str(scale_rewards), ("group", "batch", "none")))
        if advantage != "grpo" and scale != MATCHING_SCALE[advantage]:
            raise ValueError(
                f"scale_rewards {scale_rewards!r} contradicts advantage {advantage!r}, which replaces TRL's "
                f"advantages: drop scale_rewards or set it to {MATCHING_SCALE[advantage]!r}; if TRL's "
                f"scaling is meant, set advantage to 'grpo' and keep scale_rewards {scale_rewards!r}"
            )
    if advantage == "rft" and updates_per_generation != 1:
        raise ValueError(
            f"advantage 'rft' needs one update per generation, got {updates_per_generation}: from the second "
            "on the ratio is not 1 and is clipped, so the loss is no NLL. Set num_iterations to 1 and "
            "steps_per_generation to gradient_accumulation_steps"
        )
    if rft_divisor == "right" and loss_type in TOKEN_DIVISOR:
        raise ValueError(
            f"rft_divisor 'right' contradicts loss_type {loss_type!r}, which divides by tokens: set "
            "loss_type to 'grpo' for a mean over right responses, or rft_divisor to 'rollouts'"
        )


def _check(rewards: torch.Tensor) -> None:
    if rewards.dim() != 3 or not rewards.is_floating_point():
        raise ValueError(
            f"rewards must be a floating (questions, experts, samples) tensor, got {rewards.dtype} of shape "
            f"{tuple(rewards.shape)}"
        )


def _count(values: torch.Tensor, dim: int | tuple[int, ...]) -> torch.Tensor:
    return (~torch.isnan(values)).sum(dim=dim, keepdim=True).to(values.dtype)


def _centred(values: torch.Tensor, dim: int | tuple[int, ...]) -> torch.Tensor:
    """values - their mean over `dim`, NaN left out and NaN kept."""
    return values - torch.nanmean(values, dim=dim, keepdim=True)


def _std(values: torch.Tensor, dim: int | tuple[int, ...]) -> torch.Tensor:
    """Standard deviation over `dim` with Bessel's correction, NaN where fewer than two values are there."""
    count = _count(values, dim)
    squares = torch.nansum(_centred(values, dim) ** 2, dim=dim, keepdim=True)
    return torch.where(count > 1, torch.sqrt(squares / (count - 1).clamp(min=1)), torch.nan)


def _normalised(values: torch.Tensor) -> torch.Tensor:
    return _nan_to_zero(_centred(values, BATCH) / (_std(values, BATCH) + EPSILON))


def _nan_to_zero(advantages: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isnan(advantages), torch.zeros_like(advantages), advantages)


def _unknown(key: str, value: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(str(value), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{key} {value!r} is not known: it is one of {', '.join(known)}{hint}"
