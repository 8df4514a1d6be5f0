"""pass@k, intervals and paired comparisons, against enumeration, closed forms, published values and scipy."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meml_mel.evaluation import stats


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(nck):
    n, c, k = nck
    right = [True] * c + [False] * (n - c)
    subsets = list(itertools.combinations(right, k))
    assert stats.pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_equals_the_binomial_formula_exactly_computed(nck):
    n, c, k = nck
    exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
    assert stats.pass_at_k(n, c, k) == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.parametrize("n, c, k", [(8, 1, 1), (8, 1, 8), (100_000, 3, 50_000), (200, 0, 200)])
def test_pass_at_k_at_its_ends_and_large(n, c, k):
    exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
    assert stats.pass_at_k(n, c, k) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize(
    "n, c, k, named", [(8, 3, 9, "pass@9 of n=8"), (8, 3, 0, "pass@0"), (8, 9, 1, "c=9")]
)
def test_pass_at_k_outside_its_range_is_an_error(n, c, k, named):
    with pytest.raises(ValueError, match=named):
        stats.pass_at_k(n, c, k)


@pytest.mark.parametrize(
    "k, n, low, high",
    [
        # Newcombe 1998 (Statistics in Medicine 17:857-872), Table I, method 3: the score interval.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_has_the_published_values(k, n, low, high):
    assert stats.wilson(k, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_where_the_score_test_is_just_passed(kn):
    """Its ends solve |k/n - p| = z sqrt(p (1 - p) / n)."""
    k, n = kn
    z = 1.959963984540054
    for end in stats.wilson(k, n):
        assert (k / n - end) ** 2 == pytest.approx(z * z * end * (1 - end) / n, abs=1e-9)
    low, high = stats.wilson(k, n)
    assert 0 <= low <= k / n <= high <= 1 and high > low


def test_wilson_agrees_with_scipy():
    scipy_stats = pytest.importorskip("scipy.stats")
    for k, n in [(0, 1), (1, 1), (3, 10), (41, 50), (1319, 1319), (700, 1319)]:
        for level in (0.9, 0.95, 0.99):
            theirs = scipy_stats.binomtest(k, n).proportion_ci(level, method="wilson")
            assert stats.wilson(k, n, level) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@pytest.mark.parametrize("k, n", [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_impossible_counts(k, n):
    with pytest.raises(ValueError, match=f"k={k} of n={n}"):
        stats.wilson(k, n)


def test_the_bootstrap_has_the_exact_distribution_of_three_questions():
    """Totals 0, 1, 2 of 2: the mean of three draws has 27 equally likely outcomes, k/6 with 1 3 6 7 6 3 1 of 27."""
    drawn = stats._resampled(np.array([[0.0, 1.0, 2.0]]), 270_000, seed=1)[0]
    shares = np.bincount(drawn.astype(int), minlength=7) / 270_000
    assert shares == pytest.approx(np.array([1, 3, 6, 7, 6, 3, 1]) / 27, abs=0.004)
    # the 2.5% and 97.5% points lie inside the outer masses of 1/27
    assert stats.cluster_bootstrap([0, 1, 2], [2, 2, 2], seed=1) == (0.0, 1.0)


def test_the_bootstrap_draws_questions_and_not_responses():
    """Eight equal responses a question carry no more than one: the interval is as wide as with one each."""
    rng = np.random.default_rng(0)
    right = rng.random(200) < 0.5
    low, high = stats.cluster_bootstrap(right * 8.0, np.full(200, 8))
    one = stats.cluster_bootstrap(right.astype(float))
    assert (low, high) == one
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(0.25 / 200), rel=0.05)


def test_the_bootstrap_weighs_questions_by_their_counts():
    """A ratio of sums, not a mean of means: 9 of 9 and 0 of 1."""
    low, high = stats.cluster_bootstrap([9, 0], [9, 1])
    assert (low, high) == (0.0, 1.0)
    drawn = stats._resampled(np.array([[9.0, 0.0], [9.0, 1.0]]), 1000, seed=0)
    assert set(np.round(drawn[0] / drawn[1], 6)) == {0.0, 0.9, 1.0}


def test_the_bootstrap_is_reproducible_and_seeded():
    values = np.linspace(0, 1, 30)
    assert stats.cluster_bootstrap(values, seed=3) == stats.cluster_bootstrap(values, seed=3)
    assert stats.cluster_bootstrap(values, seed=3) != stats.cluster_bootstrap(values, seed=4)


def test_questions_that_are_all_alike_still_have_an_interval():
    assert stats.cluster_bootstrap([8] * 20, [8] * 20) == stats.wilson(20, 20)
    assert stats.cluster_bootstrap([0] * 20, [8] * 20) == stats.wilson(0, 20)


@pytest.mark.parametrize("totals, counts", [([], None), ([1], [0]), ([1, 1], [1])])
def test_the_bootstrap_refuses_what_has_no_mean(totals, counts):
    with pytest.raises(ValueError, match="one value a question"):
        stats.cluster_bootstrap(totals, counts)


def test_bootstrap_memory_is_bounded():
    """More questions than a chunk holds: still the asked number of resamples."""
    assert stats._resampled(np.ones((1, stats._CHUNK + 1)), 2, seed=0).shape == (1, 2)


def test_an_estimate_names_its_method_and_count():
    greedy = stats.estimate([1, 0, 1, 1])
    assert (greedy.k, greedy.n, greedy.value, greedy.method) == (3, 4, 0.75, "wilson")
    sampled = stats.estimate([8, 0, 4], [8, 8, 8])
    assert (sampled.k, sampled.n, sampled.value, sampled.method) == (12, 24, 0.5, "bootstrap")
    tied = stats.estimate([1, 0.5])
    assert (tied.k, tied.n, tied.method) == (1.5, 2, "bootstrap")
    assert stats.estimate([]) is None


@pytest.mark.parametrize("better, worse, p", [(0, 0, 1.0), (5, 0, 1 / 16), (8, 2, 112 / 1024), (3, 3, 1.0)])
def test_the_sign_test_by_hand(better, worse, p):
    """5:0 gives 2/32; 8:2 gives 2 (1 + 10 + 45) / 1024."""
    assert stats.sign_test(better, worse) == pytest.approx(p, abs=1e-15)
    assert stats.sign_test(worse, better) == pytest.approx(p, abs=1e-15)


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_sign_test_is_scipys_binomial_test(better, worse):
    scipy_stats = pytest.importorskip("scipy.stats")
    if better + worse:
        theirs = scipy_stats.binomtest(better, better + worse, 0.5).pvalue
        assert stats.sign_test(better, worse) == pytest.approx(theirs, abs=1e-12)


def test_a_comparison_is_paired():
    """Same marginal shares, 50 and 60 of 100; the interval depends on how often they differ."""
    a = [1] * 50 + [0] * 50
    nested = [1] * 60 + [0] * 40  # right wherever a is
    crossed = [0] * 40 + [1] * 60
    one, two = stats.compare(a, nested), stats.compare(a, crossed)
    assert one.difference == two.difference == pytest.approx(0.1)
    assert (one.better, one.worse, two.better, two.worse) == (10, 0, 50, 40)
    assert one.p_value == pytest.approx(2 / 1024) and two.p_value > 0.3
    assert 0 < one.interval[0] < 0.1 < one.interval[1] < 0.2
    assert two.interval[0] < 0 < two.interval[1]
    # n = 100 differences of mean .1 and variance .09
    assert one.interval[1] - one.interval[0] == pytest.approx(2 * 1.96 * math.sqrt(0.09 / 100), rel=0.1)


def test_systems_that_never_differ_may_still_differ_a_little():
    same = stats.compare([1, 0] * 25, [1, 0] * 25)
    bound = stats.wilson(0, 50)[1]
    assert (same.difference, same.interval, same.p_value) == (0.0, (-bound, bound), 1.0)


def test_a_comparison_needs_the_same_questions():
    with pytest.raises(ValueError, match="3 and 2 values"):
        stats.compare([1, 0, 1], [1, 0])
