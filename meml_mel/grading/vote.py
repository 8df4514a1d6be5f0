r"""Majority voting by equivalence classes: `\frac12`, `0.5` and `1/2` are one vote each for the same answer.

    ballot = count_votes(["1/2", "0.5", None, "3"], same_answers([["1/2", "0.5", "3"]])[0])
    majority([ballot_right...])

Rules (docs/metrics.md, "Voting"):

- A response votes for the answer that was read from it. One without an answer, and one cut at its length limit
  (which the grader calls wrong whatever it holds), has no vote; nor has an answer that the grader could not use as
  a gold (prose, what cannot be parsed or evaluated).
- Two answers are the same when the grader takes either as an answer to the other as the gold. The grader's
  comparison is not symmetric, and with its tolerances not transitive; classes are what is connected by it, so they
  depend on no order.
- A class is right when the spelling that most of its members use (the first of them on a tie) is.
- Tie: the winner is drawn from the tied classes with equal chances, so the vote is worth the share of the tied
  classes that are right. No random number is drawn: that expectation is the value. Without any vote it is 0.
- maj@k of n > k responses: the expectation over all C(n, k) subsets of k, by counting. The first k would do, too, and
  are unbiased, but throw the other n - k away.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from .grader import Claim
from .pool import GradingPool
from .verdict import Grade, Kind

Classes = Mapping[str, int]  # answer -> number of its class; an answer that is in none cannot vote


@dataclass(frozen=True, slots=True)
class VoteClass:
    """Answers that count as one: its most used spelling, the responses that voted for it, and whether it is right."""

    answer: str
    members: tuple[int, ...]  # positions among the responses
    right: bool


@dataclass(frozen=True, slots=True)
class Ballot:
    """One question's votes. `classes` are ordered by size, then by their first member."""

    responses: int
    classes: tuple[VoteClass, ...]

    @property
    def winners(self) -> tuple[VoteClass, ...]:
        """The largest classes: several on a tie, none without a vote."""
        return tuple(c for c in self.classes if len(c.members) == len(self.classes[0].members))

    @property
    def value(self) -> float:
        """The chance that the winner is right: the share of right classes among the tied ones; 0 without votes."""
        winners = self.winners
        return sum(c.right for c in winners) / len(winners) if winners else 0.0

    def at(self, k: int) -> float:
        """maj@k: the expected value of the vote over all subsets of k responses. ValueError for k outside 1..n."""
        sizes = [len(c.members) for c in self.classes]
        return majority_at_k(sizes, [c.right for c in self.classes], self.responses, k)


def vote_of(grade: Grade) -> str | None:
    """The answer a graded response votes for; None where it has no vote."""
    return None if grade.reason in ("no_answer", "truncated") else grade.extracted


def ballots(questions: Sequence[tuple[Sequence[Grade], Kind]], pool: GradingPool) -> list[Ballot]:
    """One ballot per question: the grades of its n responses, and its kind. Compares in one go over all questions."""
    votes = [[vote_of(grade) for grade in grades] for grades, _ in questions]
    classes = same_answers(
        [([v for v in cast if v is not None], kind) for cast, (_, kind) in zip(votes, questions)], pool
    )
    return [
        ballot(cast, [grade.right for grade in grades], of)
        for cast, (grades, _), of in zip(votes, questions, classes)
    ]


def same_answers(sets: Sequence[tuple[Iterable[str], Kind]], pool: GradingPool) -> list[Classes]:
    """For each set of answers and their kind: answer -> class number. Each distinct pair is compared once each way.

    Answers that the grader cannot use as a gold are left out.
    """
    claims: list[Claim] = []
    distinct = [(list(dict.fromkeys(answers)), kind) for answers, kind in sets]
    for answers, kind in distinct:
        claims += [Claim((answer,), answer, kind) for answer in answers]
    usable = {
        (claim.extracted, claim.kind): grade.verdict != "ungradable"
        for claim, grade in zip(claims, pool.judge(claims))
    }
    voting = [([a for a in answers if usable[a, kind]], kind) for answers, kind in distinct]
    pairs = [
        Claim((one,), two, kind)
        for answers, kind in voting
        for left, right in combinations(answers, 2)
        for one, two in ((left, right), (right, left))
    ]
    same = {claim for claim, grade in zip(pairs, pool.judge(pairs)) if grade.right}
    return [_components(answers, kind, same) for answers, kind in voting]


def _components(answers: Sequence[str], kind: Kind, same: set[Claim]) -> dict[str, int]:
    """Connected components, numbered by their first answer."""
    number = {answer: i for i, answer in enumerate(answers)}
    for one, two in combinations(answers, 2):
        if Claim((one,), two, kind) in same or Claim((two,), one, kind) in same:
            kept, gone = sorted((number[one], number[two]))
            number = {answer: kept if i == gone else i for answer, i in number.items()}
    return number


def ballot(votes: Sequence[str | None], right: Sequence[bool], classes: Classes) -> Ballot:
    """Count: `votes[i]` and `right[i]` are response i's answer and verdict."""
    members: dict[int, list[int]] = defaultdict(list)
    for i, vote in enumerate(votes):
        if vote is not None and vote in classes:
            members[classes[vote]].append(i)
    found = []
    for positions in members.values():
        spellings = Counter(votes[i] for i in positions)  # most_common keeps the first on a tie
        answer = spellings.most_common(1)[0][0]
        assert answer is not None
        first = next(i for i in positions if votes[i] == answer)
        found.append(VoteClass(answer, tuple(positions), bool(right[first])))
    found.sort(key=lambda c: (-len(c.members), c.members[0]))
    return Ballot(len(votes), tuple(found))


def majority_at_k(sizes: Sequence[int], right: Sequence[bool], n: int, k: int) -> float:
    """Expected worth of a vote among k of n responses, drawn without replacement, with ties shared.

    Args:
        sizes: votes of each class; the n - sum(sizes) other responses have none.
        right: whether the class is right.

    E = sum over right classes j, votes c and ties t of C(s_j, c) N(c, t) / ((1 + t) C(n, k)), where N counts the ways
    to draw the other k - c responses so that no class has more than c votes and exactly t have c. Exact in
    integers. Raises ValueError for k outside 1..n or classes that hold more than n.
    """
    spare = n - sum(sizes)
    if spare < 0 or any(size < 1 for size in sizes) or len(sizes) != len(right):
        raise ValueError(
            f"class sizes {list(sizes)} of n={n} responses, {len(right)} verdicts: they do not fit"
        )
    if not 1 <= k <= n:
        raise ValueError(f"maj@{k} of n={n} responses is not defined: k must be between 1 and n; sample {k}")
    total = Fraction(0)
    for j, size in enumerate(sizes):
        if not right[j]:
            continue
        others = [s for i, s in enumerate(sizes) if i != j]
        for votes in range(1, min(size, k) + 1):
            ways = _ways(others, spare, k - votes, votes)
            won = sum((Fraction(count, 1 + ties) for ties, count in ways.items()), Fraction(0))
            total += math.comb(size, votes) * won
    return float(total / math.comb(n, k))


def _ways(sizes: Sequence[int], spare: int, draw: int, limit: int) -> dict[int, int]:
    """Ties -> ways to draw `draw` responses from the classes and the spare ones, at most `limit` from a class."""
    states: dict[tuple[int, int], int] = {(draw, 0): 1}
    for size in sizes:
        following: dict[tuple[int, int], int] = defaultdict(int)
        for (left, ties), ways in states.items():
            for votes in range(min(size, limit, left) + 1):
                following[left - votes, ties + (votes == limit)] += ways * math.comb(size, votes)
        states = following
    result: dict[int, int] = defaultdict(int)
    for (left, ties), ways in states.items():
        result[ties] += ways * math.comb(spare, left)
    return result
