"""Rollouts and the scored batch: pure data, the same on every rank.

A step's batch is questions x experts x G. Everything downstream (advantages, objectives, records) reads it
and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from ..data.question import Question
from ..grading.verdict import Grade

Message = dict[str, str]  # {"role": "system" | "user" | "assistant", "content": ...}
Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled response with its grade."""

    question_id: str
    expert: str
    sample: int  # 0 .. G-1 within its group
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]  # as sampled, with the end token where it ended
    text: str  # decoded, end token and special tokens left out
    finish: Finish  # "stop": ended with an end token; "length": cut at the limit
    grade: Grade

    @property
    def reward(self) -> float:
        """1.0, 0.0, or NaN for an ungradable question."""
        reward = self.grade.reward
        return float("nan") if reward is None else reward


@dataclass(frozen=True, slots=True)
class ScoredQuestion:
    """One question's rollouts under each expert: `groups[e][g]`, E experts x G samples."""

    question: Question
    experts: tuple[str, ...]
    prompts: tuple[tuple[Message, ...], ...]  # the solve prompt under each expert, as messages
    groups: tuple[tuple[Rollout, ...], ...]

    @property
    def rollouts(self) -> tuple[Rollout, ...]:
        """All E*G rollouts, expert-major."""
        return tuple(rollout for group in self.groups for rollout in group)

    @property
    def right(self) -> tuple[Rollout, ...]:
        return tuple(r for r in self.rollouts if r.grade.verdict == "right")

    @property
    def wrong(self) -> tuple[Rollout, ...]:
        return tuple(r for r in self.rollouts if r.grade.verdict == "wrong")

    @property
    def mixed(self) -> bool:
        """Both right and wrong rollouts, over all experts (MEL 3.2)."""
        return bool(self.right) and bool(self.wrong)

    @property
    def gradable(self) -> bool:
        return any(r.grade.verdict != "ungradable" for r in self.rollouts)

    def prompt(self, expert: str) -> tuple[Message, ...]:
        return self.prompts[self.experts.index(expert)]

    def mean_rewards(self) -> dict[str, float]:
        """Mean reward per expert over its gradable rollouts; NaN where there are none."""
        means = {}
        for expert, group in zip(self.experts, self.groups, strict=True):
            rewards = [r.reward for r in group if r.grade.verdict != "ungradable"]
            means[expert] = sum(rewards) / len(rewards) if rewards else float("nan")
        return means


@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """All questions of one generation over all ranks, in the sampler's order."""

    step: int  # the optimizer step that consumes it, from 0
    questions: tuple[ScoredQuestion, ...]

    def rewards(self) -> torch.Tensor:
        """Rewards (Q, E, G), float64, NaN where ungradable."""
        return torch.tensor(
            [[[r.reward for r in group] for group in q.groups] for q in self.questions], dtype=torch.float64
        )


def collect(
    step: int,
    questions: Mapping[str, Question],
    prompts: Mapping[tuple[str, str], Sequence[Message]],
    rollouts: Iterable[Rollout],
) -> ScoredBatch:
    """Group rollouts (question-major, then expert, then sample, as the sampler orders them) into a batch.

    Samples are numbered within their group in the order they come.

    Raises ValueError when a group is ragged: that would mean rows were lost or mixed up on the way.
    """
    grouped: dict[str, dict[str, list[Rollout]]] = {}
    for rollout in rollouts:
        group = grouped.setdefault(rollout.question_id, {}).setdefault(rollout.expert, [])
        group.append(replace(rollout, sample=len(group)))
    scored = []
    for question_id, by_expert in grouped.items():
        sizes = {len(group) for group in by_expert.values()}
        if len(sizes) != 1:
            raise ValueError(f"question {question_id!r} has groups of unequal size {sorted(sizes)}")
        experts = tuple(by_expert)
        scored.append(
            ScoredQuestion(
                question=questions[question_id],
                experts=experts,
                prompts=tuple(tuple(prompts[question_id, expert]) for expert in experts),
                groups=tuple(tuple(group) for group in by_expert.values()),
            )
        )
    return ScoredBatch(step=step, questions=tuple(scored))
