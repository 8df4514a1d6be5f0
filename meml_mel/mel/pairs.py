"""Contrastive pairs: which right and wrong rollouts of a question are compared (MEL 3.2)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..rlvr.rollouts import Rollout, ScoredQuestion

PairChoice = Literal["random", "exclude_truncated", "shortest"]


@dataclass(frozen=True, slots=True)
class Pair:
    """(y+, y-): a right and a wrong rollout of the same question."""

    right: Rollout
    wrong: Rollout


def all_pairs(question: ScoredQuestion, across_experts: bool = True) -> list[Pair]:
    """P_x = Y+ x Y-, in the batch's order; with experts, y+ and y- may come from different ones.

    Y+ and Y- are sets: rollouts of the same tokens count once (the first of them stands for all), so that
    no meta-experience is asked for twice. Empty unless the question is mixed.
    """
    distinct: dict[tuple[object, ...], Pair] = {}
    for right in question.right:
        for wrong in question.wrong:
            if across_experts or right.expert == wrong.expert:
                distinct.setdefault((right.completion_ids, wrong.completion_ids), Pair(right, wrong))
    return list(distinct.values())


def make_pairs(
    question: ScoredQuestion,
    count: int | Literal["all"],
    choice: PairChoice,
    rng: random.Random,
    across_experts: bool = True,
) -> list[Pair]:
    """Up to `count` distinct pairs of the question, drawn without replacement.

    `random`: uniform over P_x. `exclude_truncated`: the same over pairs in which neither was cut at the
    length limit. `shortest`: fewest tokens together, ties in the batch's order. `all` with `random` is P_x in
    random order. Raises ValueError for a count below 1 or an unknown choice.
    """
    if count != "all" and count < 1:
        raise ValueError(f"pairs_per_question is {count}: it must be at least 1, or 'all'")
    pairs = all_pairs(question, across_experts)
    if choice == "exclude_truncated":
        pairs = [pair for pair in pairs if pair.right.finish == "stop" and pair.wrong.finish == "stop"]
    elif choice not in ("random", "shortest"):
        raise ValueError(f"pair_choice is {choice!r}: use random, exclude_truncated or shortest")
    wanted = len(pairs) if count == "all" else min(count, len(pairs))
    if choice == "shortest":
        return sorted(pairs, key=lambda p: len(p.right.completion_ids) + len(p.wrong.completion_ids))[:wanted]
    return rng.sample(pairs, wanted)


def cap_pairs(
    drawn: Mapping[str, Sequence[Pair]], limit: int, priority: Callable[[str], float]
) -> dict[str, int]:
    """How many of its drawn pairs each question keeps when the step may have `limit` pairs in all.

    Every question's first pair comes ahead of anyone's second, and so on; among equals the lower `priority`
    of the question's id goes first. The answer does not depend on the order of `drawn`.
    """
    places = [
        (rank, priority(question_id), question_id)
        for question_id in drawn
        for rank in range(len(drawn[question_id]))
    ]
    kept = dict.fromkeys(drawn, 0)
    for _, _, question_id in sorted(places)[:limit]:
        kept[question_id] += 1
    return kept
