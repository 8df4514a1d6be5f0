"""Contrastive pairs: P_x = Y+ x Y-, distinct, without replacement, across experts (MEL 3.2)."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meml_mel.mel.pairs import Pair, all_pairs, cap_pairs, make_pairs
from tests.mel.mel_batches import scored


def named(pairs):
    return [(f"{p.right.expert}{p.right.sample}", f"{p.wrong.expert}{p.wrong.sample}") for p in pairs]


def draw(question, count="all", choice="random", seed=0, **options):
    return make_pairs(question, count, choice, random.Random(seed), **options)


def test_all_pairs_are_the_product_of_right_and_wrong():
    question = scored("q", e="RWRT")
    expected = {("e0", "e1"), ("e0", "e3"), ("e2", "e1"), ("e2", "e3")}
    assert set(named(draw(question))) == expected and len(draw(question)) == 4


@pytest.mark.parametrize("letters", ["RRRR", "WWTW", "UUUU", "UURR"])
def test_a_question_without_both_has_none(letters):
    assert draw(scored("q", e=letters)) == []


def test_an_ungradable_rollout_is_neither_right_nor_wrong():
    assert named(draw(scored("q", e="RUW"))) == [("e0", "e2")]


def test_a_question_that_one_expert_always_and_another_never_solves_yields_pairs_across_them():
    question = scored("q", good="RR", bad="WT")
    assert set(named(draw(question))) == {
        ("good0", "bad0"), ("good0", "bad1"), ("good1", "bad0"), ("good1", "bad1"),
    }  # fmt: skip
    assert draw(question, across_experts=False) == []
    assert named(draw(scored("q", good="RW", bad="WW"), across_experts=False)) == [("good0", "good1")]


@given(
    letters=st.text(alphabet="RWTU", min_size=1, max_size=8),
    count=st.one_of(st.just("all"), st.integers(1, 70)),
    choice=st.sampled_from(["random", "exclude_truncated", "shortest"]),
    seed=st.integers(0, 99),
)
def test_pairs_are_distinct_and_as_many_as_asked_for_or_there_are(letters, count, choice, seed):
    question = scored("q", e=letters)
    wrong = letters.count("W") + (letters.count("T") if choice != "exclude_truncated" else 0)
    there = letters.count("R") * wrong
    pairs = draw(question, count, choice, seed)
    assert len(pairs) == (there if count == "all" else min(count, there)) == len(set(named(pairs)))
    assert all(p.right.grade.verdict == "right" and p.wrong.grade.verdict == "wrong" for p in pairs)


def test_the_same_tokens_sampled_twice_make_one_pair():
    question = scored("q", e="RRW")
    first, second, wrong = question.groups[0]
    twice = replace(question, groups=((first, replace(second, completion_ids=first.completion_ids), wrong),))
    assert all_pairs(twice) == [Pair(first, wrong)]


def test_random_draws_every_pair_alike():
    question = scored("q", e="RRWW")
    drawn = Counter(named(draw(question, 1, seed=seed))[0] for seed in range(4000))
    assert len(drawn) == 4 and all(850 < count < 1150 for count in drawn.values())  # 1000 +- 5 sigma


def test_exclude_truncated_leaves_out_rollouts_cut_at_the_limit():
    assert named(draw(scored("q", e="RTWT"), choice="exclude_truncated")) == [("e0", "e2")]
    assert draw(scored("q", e="RTT"), choice="exclude_truncated") == []


def test_shortest_takes_the_fewest_tokens_together():
    """Rollout s has s + 2 tokens: pairs have 0+3, 1+2 -> 7 each, then 1+3 -> 8; ties in the batch's order."""
    question = scored("q", e="RRWW")
    assert named(draw(question, choice="shortest")) == [
        ("e0", "e2"),
        ("e0", "e3"),
        ("e1", "e2"),
        ("e1", "e3"),
    ]
    assert named(draw(question, 1, "shortest")) == [("e0", "e2")]


@pytest.mark.parametrize(("count", "choice"), [(0, "random"), (-1, "random"), (1, "longest")])
def test_a_senseless_choice_is_refused(count, choice):
    with pytest.raises(ValueError, match=str(count) if count < 1 else choice):
        draw(scored("q", e="RW"), count, choice)


PRIORITY = {"a": 0.3, "b": 0.1, "c": 0.2}


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (0, {"a": 0, "b": 0, "c": 0}),
        (1, {"a": 0, "b": 1, "c": 0}),
        (2, {"a": 0, "b": 1, "c": 1}),
        (3, {"a": 1, "b": 1, "c": 1}),
        (4, {"a": 1, "b": 2, "c": 1}),  # c has one pair only
        (5, {"a": 2, "b": 2, "c": 1}),
        (9, {"a": 3, "b": 2, "c": 1}),
    ],
)
def test_a_cap_goes_round_the_questions_by_priority(limit, kept):
    drawn = {name: [None] * count for name, count in (("a", 3), ("b", 2), ("c", 1))}
    assert cap_pairs(drawn, limit, PRIORITY.__getitem__) == kept
    backwards = dict(reversed(drawn.items()))
    assert cap_pairs(backwards, limit, PRIORITY.__getitem__) == kept
