"""The arithmetic of evaluation: pass@k, intervals, paired comparisons. Pure functions of counts and arrays.

Every interval is two-sided at `level`. docs/metrics.md says which one is used where, and why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

LEVEL = 0.95
RESAMPLES = 10_000
_CHUNK = 2_000_000  # drawn indices held at a time

Interval = tuple[float, float]


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that at least one of k responses, drawn without replacement from n of which c are right, is right.

    1 - C(n-c, k) / C(n, k), the unbiased estimate of Chen et al. 2021 (arXiv 2107.03374, Eq. 1), as a product of
    k factors below one, so that nothing overflows. Raises ValueError where it is not defined: k outside 1..n, or c
    outside 0..n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"c={c} right of n={n}: c must be between 0 and n")
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} of n={n} responses is not defined: k must be between 1 and n; sample {k}")
    missed = 1.0
    for i in range(k):
        missed *= max(0, n - c - i) / (n - i)
    return 1.0 - missed


def wilson(k: float, n: int, level: float = LEVEL) -> Interval:
    """Wilson's score interval for a share k/n of n independent trials (1927, Eq. 1, without continuity correction).

    Inside [0, 1], and not empty at k = 0 and k = n. Raises ValueError for n < 1 or k outside 0..n.
    """
    if n < 1 or not 0 <= k <= n:
        raise ValueError(f"k={k} of n={n}: at least one trial is needed, and k between 0 and n")
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share, shrink = k / n, 1 + z * z / n
    centre = (share + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # Rounding must not push the ends past the share itself where they touch it.
    return (0.0 if k == 0 else max(0.0, centre - half), 1.0 if k == n else min(1.0, centre + half))


def cluster_bootstrap(
    totals: Sequence[float] | np.ndarray,
    counts: Sequence[float] | np.ndarray | None = None,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Percentile interval of sum(totals) / sum(counts) when whole questions are drawn again with replacement.

    Args:
        totals: (Q,) a question's sum over its responses.
        counts: (Q,) how many responses that is; None for one each.

    The responses to one question are not independent, so questions are what is drawn. Where every question has
    the same share 0 or 1, drawing again can show no spread at all; there Wilson's interval with the Q questions as
    trials stands in. Raises ValueError without a question or with a count that is not positive.
    """
    sums = np.asarray(totals, dtype=np.float64)
    sizes = np.ones_like(sums) if counts is None else np.asarray(counts, dtype=np.float64)
    if sums.ndim != 1 or sums.shape != sizes.shape or not len(sums) or (sizes <= 0).any():
        raise ValueError(
            f"totals {sums.shape} and counts {sizes.shape}: one value a question, at least one question, and "
            "counts above 0"
        )
    if (sums == 0).all() or (sums == sizes).all():
        return wilson(len(sums) if sums[0] else 0, len(sums), level)
    drawn = _resampled(np.stack([sums, sizes]), resamples, seed)
    low, high = np.quantile(drawn[0] / drawn[1], [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _resampled(values: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """(V, Q) values -> (V, resamples) sums over Q questions drawn with replacement."""
    rng = np.random.default_rng(seed)
    questions = values.shape[1]
    chunk = max(1, _CHUNK // questions)
    parts = []
    for start in range(0, resamples, chunk):
        indices = rng.integers(0, questions, (min(chunk, resamples - start), questions))
        parts.append(np.stack([row[indices].sum(axis=1) for row in values]))
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its count: `k` of `n` (k need not be whole where each of the n values is a mean), and interval."""

    k: float
    n: int
    value: float
    interval: Interval
    method: str  # "wilson" or "bootstrap"


def estimate(
    totals: Sequence[float], counts: Sequence[int] | None = None, *, level: float = LEVEL, seed: int = 0
) -> Estimate | None:
    """Mean and interval over questions; None without a question.

    Wilson where each question has one value that is 0 or 1, or all are alike 0 or 1 (`cluster_bootstrap`); the
    bootstrap over questions otherwise.
    """
    if not len(totals):
        return None
    n = int(sum(counts)) if counts is not None else len(totals)
    k = math.fsum(totals)
    trials = n == len(totals) and all(total in (0, 1) for total in totals)
    if trials:
        return Estimate(k, n, k / n, wilson(k, n, level), "wilson")
    interval = cluster_bootstrap(totals, counts, level=level, seed=seed)
    return Estimate(k, n, k / n, interval, "wilson" if k in (0, n) else "bootstrap")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two systems on the same questions. `difference` is b - a; `better` counts questions on which b is."""

    n: int
    a: float
    b: float
    difference: float
    interval: Interval
    better: int
    worse: int
    p_value: float  # exact sign test; McNemar's where values are 0 and 1


def compare(
    a: Sequence[float],
    b: Sequence[float],
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Paired comparison: `a[q]` and `b[q]` are the two systems' values (0/1, or a mean in [0, 1]) on question q.

    The interval is the bootstrap's over questions. Where the systems never differ it would have no width; there
    the upper end of Wilson's interval for 0 of n differing questions bounds it on both sides.
    """
    if len(a) != len(b) or not len(a):
        raise ValueError(
            f"{len(a)} and {len(b)} values: a paired comparison needs the same questions, one or more"
        )
    one, two = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    differences = two - one
    n, better, worse = len(one), int((differences > 0).sum()), int((differences < 0).sum())
    if better + worse == 0:
        bound = wilson(0, n, level)[1]
        interval = (-bound, bound)
    else:
        means = _resampled(differences[None], resamples, seed)[0] / n
        low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
        interval = (float(low), float(high))
    return Comparison(
        n,
        float(one.mean()),
        float(two.mean()),
        float(differences.mean()),
        interval,
        better,
        worse,
        sign_test(better, worse),
    )


def sign_test(better: int, worse: int) -> float:
    """Two-sided exact p-value of `better` against `worse` under a fair coin: McNemar's exact test for 0/1 values.

    2 * P(X <= min(better, worse)), X ~ Binomial(better + worse, 1/2), at most 1; ties do not enter.
    """
    if better < 0 or worse < 0:
        raise ValueError(f"better={better}, worse={worse}: counts cannot be negative")
    n, low = better + worse, min(better, worse)
    tail = sum(math.comb(n, i) for i in range(low + 1))
    return min(1.0, 2 * tail / 2**n)
