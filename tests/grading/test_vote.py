"""Voting by equivalence classes: what counts as one answer, ties, and maj@k against enumeration of all subsets."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meml_mel.grading.grader import grade
from meml_mel.grading.pool import GradingPool
from meml_mel.grading.verdict import Grade
from meml_mel.grading.vote import ballot, ballots, majority_at_k, same_answers, vote_of


@pytest.fixture(scope="module")
def pool():
    with GradingPool(workers=1) as made:
        yield made


def classes(pool, answers, kind="math"):
    """The answers grouped, in order of appearance."""
    (found,) = same_answers([(answers, kind)], pool)
    groups = {}
    for answer in dict.fromkeys(answers):
        if answer in found:
            groups.setdefault(found[answer], []).append(answer)
    return list(groups.values())


def test_one_answer_in_many_spellings_is_one_class(pool):
    assert classes(pool, ["1/2", "3", r"\frac12", "0.5", "3.0", r"\frac{2}{4}"]) == [
        ["1/2", r"\frac12", "0.5", r"\frac{2}{4}"],
        ["3", "3.0"],
    ]
    assert classes(pool, ["x^2-1", "(x-1)(x+1)", "x^2+1"]) == [["x^2-1", "(x-1)(x+1)"], ["x^2+1"]]
    assert classes(pool, ["(1,2)", "(2,1)", r"\{1,2\}", r"\{2,1\}"])[0][0] == "(1,2)"


def test_other_kinds_are_voted_on_by_their_own_rules(pool):
    assert classes(pool, ["B", "C", "B"], "choice") == [["B"], ["C"]]
    assert classes(pool, ["yes", "no"], "boolean") == [["yes"], ["no"]]


def test_classes_do_not_depend_on_the_order(pool):
    answers = ["x = 5", "5", "x + y = 5", "1/3", "0.3333", "0.33", "7"]
    expected = {frozenset(group) for group in classes(pool, answers)}
    for seed in range(5):
        shuffled = random.Random(seed).sample(answers, len(answers))
        assert {frozenset(group) for group in classes(pool, shuffled)} == expected


@pytest.mark.parametrize("answers", [["m + n = 113", "113"], ["113", "m + n = 113"]])
def test_answers_are_the_same_where_either_accepts_the_other(pool, answers):
    """A gold 113 accepts "m + n = 113", which as a gold does not accept 113 (docs/grading.md, names)."""
    assert [grade("113", "m + n = 113").right, grade("m + n = 113", "113").right] == [True, False]
    assert classes(pool, answers) == [answers]


def test_an_answer_that_could_not_be_a_gold_is_in_no_class(pool):
    prose = "the number of apples that remain in the basket"
    assert grade(prose, "5").verdict == "ungradable"
    assert classes(pool, ["5", prose, ""]) == [["5"]]


def test_an_answer_that_hangs_the_comparison_costs_its_own_vote_alone(pool):
    hanging = "9^{9^{9^{9}}}"
    assert classes(pool, ["5", "5.0", hanging])[0] == ["5", "5.0"]


def test_who_has_a_vote():
    assert vote_of(Grade("right", None, "5")) == "5"
    assert vote_of(Grade("wrong", "different", "6")) == "6"
    assert vote_of(Grade("wrong", "no_answer")) is None
    assert vote_of(Grade("wrong", "truncated", "5")) is None


def test_the_largest_class_wins_over_its_spellings(pool):
    """2 x 3, and 1/2 in three spellings: exact strings would elect 3."""
    answers = ["3", "1/2", "0.5", "3", r"\frac12"]
    grades = [grade("1/2", answer) for answer in answers]
    (vote,) = ballots([(grades, "math")], pool)
    assert vote.value == 1.0
    (winner,) = vote.winners
    assert (winner.answer, winner.members, winner.right) == ("1/2", (1, 2, 4), True)


def test_a_tie_is_worth_the_share_of_its_right_classes():
    votes = ["a", "b", "c", "a", "b", None]
    right = [True, False, False, True, False, False]
    found = ballot(votes, right, {"a": 0, "b": 1, "c": 2})
    assert found.value == 0.5
    assert [c.answer for c in found.winners] == ["a", "b"]


def test_without_votes_nothing_wins():
    found = ballot([None, None], [False, False], {})
    assert (found.value, found.winners, found.at(1)) == (0.0, (), 0.0)


def test_a_class_is_as_right_as_its_most_used_spelling():
    votes, right = ["0.33", "1/3", "1/3"], [False, True, True]
    assert ballot(votes, right, {"0.33": 0, "1/3": 0}).value == 1.0
    votes, right = ["0.33", "1/3", "0.33"], [False, True, False]
    assert ballot(votes, right, {"0.33": 0, "1/3": 0}).value == 0.0


def brute(votes, right, k):
    """The mean over all subsets of k of the share of right classes among the largest."""
    values = []
    for subset in itertools.combinations(range(len(votes)), k):
        counts = {}
        for i in subset:
            if votes[i] is not None:
                counts[votes[i]] = counts.get(votes[i], 0) + 1
        top = [v for v, count in counts.items() if count == max(counts.values())]
        values.append(sum(right[v] for v in top) / len(top) if top else 0.0)
    return sum(values) / len(values)


@given(st.lists(st.sampled_from([None, 0, 1, 2, 3]), min_size=1, max_size=8), st.data())
def test_maj_at_k_is_the_mean_over_all_subsets(votes, data):
    k = data.draw(st.integers(1, len(votes)))
    right = {v: data.draw(st.booleans()) for v in range(4)}
    held = sorted({v for v in votes if v is not None})
    found = majority_at_k([votes.count(v) for v in held], [right[v] for v in held], len(votes), k)
    assert found == pytest.approx(brute(votes, right, k), abs=1e-12)


def test_maj_at_k_by_hand():
    """Votes R R W of three: pairs RR, RW, RW are worth 1, 1/2, 1/2; all three elect R; one is right 2 times in 3."""
    assert majority_at_k([2, 1], [True, False], 3, 2) == pytest.approx(2 / 3)
    assert majority_at_k([2, 1], [True, False], 3, 3) == 1.0
    assert majority_at_k([2, 1], [True, False], 3, 1) == pytest.approx(2 / 3)


def test_maj_at_n_is_the_vote_itself():
    votes, right = ["a", "b", "b", "a", "c"], [True, False, False, True, False]
    found = ballot(votes, right, {"a": 0, "b": 1, "c": 2})
    assert found.at(5) == found.value == 0.5


def test_maj_at_k_of_many_samples_is_quick_and_bounded():
    sizes = [40, 30, 20, *[1] * 20]
    value = majority_at_k(sizes, [True, *[False] * 22], 128, 64)
    assert 0.5 < value < 1
    # more voters, surer the plurality
    assert value > majority_at_k(sizes, [True, *[False] * 22], 128, 16)


@pytest.mark.parametrize(
    "sizes, n, k, named", [([2], 3, 4, "maj@4 of n=3"), ([2], 3, 0, "maj@0"), ([4], 3, 2, "do not fit")]
)
def test_maj_at_k_outside_its_range_is_an_error(sizes, n, k, named):
    with pytest.raises(ValueError, match=named):
        majority_at_k(sizes, [True] * len(sizes), n, k)
