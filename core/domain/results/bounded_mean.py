"""Mean of bounded values without an estimate of their variance: p-value and interval that know the range.

The lower bound is Gaffke's (Mathematical Methods of Statistics 14, 2005; Phan, Thomas and Learned-Miller, "Towards
practical mean bounds for small samples", ICML 2021): the mean of the values and of one value more, the worst that could
have been, with the weights of a uniform Dirichlet distribution. The p-value against a mean is the probability that this
weighted mean is at most that. It is proved for values that are the two ends of the range, where it is the test of
Clopper and Pearson; for others its error rate is a conjecture, which `benchmarks/verdict_errors.py` checks where a
verdict relies on it.

An estimated variance is not safe here. A sample without a crash has a small deviation, and says nothing about the crash
that a t-test of it then excludes; of n values without one, this p-value against a mean that is d below, as a share of
the range, is about (1 - d)^n.

A Dirichlet-weighted mean lies below a number when a sum of exponential variables, weighted with the distances to that
number, is below 0. The probability is exact if the worst value alone is below, else by the saddlepoint approximation
(Lugannani and Rice, Advances in Applied Probability 12, 1980).
"""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_NORMAL = NormalDist()
#: Halvings of the search for a bound, and most steps of that for the saddlepoint.
HALVINGS, STEPS = 32, 200


def lower_p_value(values: Floats, null: float, worst: float, weights: Floats | None = None) -> float:
    """Return the one-sided p-value against a mean of at most ``null``: small if the mean is above.

    ``values``: none is below ``worst``; shape (n,). ``weights``: how often each occurs, which may be a fraction; once
    each if left out.
    """
    distances = values - null
    counts = np.ones(len(values)) if weights is None else weights
    gap = null - worst
    above = distances > 0
    if gap <= 0:  # no mean is below the worst value; it is that only if all values are
        return 0.0 if above.any() else 1.0
    if not above.any():
        return 1.0
    least = float(distances.min())
    if least >= 0:
        return _exact(distances, counts, gap)
    # That against the least value is exact, and that against a larger mean no smaller.
    no_less = _exact(distances - least, counts, gap + least)
    return max(no_less, _saddlepoint(np.append(distances, -gap), np.append(counts, 1.0)))


def _exact(distances: Floats, counts: Floats, gap: float) -> float:
    """Return the probability of `_saddlepoint` if no distance but that of the worst value, ``-gap``, is below 0."""
    if gap <= 0:
        return 0.0
    with np.errstate(over="ignore"):
        ratios = np.minimum(distances / gap, np.finfo(np.float64).max)
    return math.exp(-float(counts @ np.log1p(ratios)))


def _saddlepoint(distances: Floats, counts: Floats) -> float:
    """Return P(sum of weighted exponential variables <= 0); some distances are above 0 and some below."""
    scale = float(np.abs(distances).max())
    distances = distances / scale
    root = _root(distances, counts)
    shares = 1.0 - root * distances
    log_moment = -float(counts @ np.log(shares))
    curvature = float(counts @ (distances / shares) ** 2)
    w = math.copysign(math.sqrt(max(0.0, -2.0 * log_moment)), root)
    u = root * math.sqrt(curvature)
    if abs(w) < 1e-4:  # the mean of the sum is 0: the limit of the formula
        skewness: float = 2.0 * float(counts @ distances**3) / float(counts @ distances**2) ** 1.5
        return min(1.0, max(0.0, 0.5 + skewness / (6.0 * math.sqrt(2.0 * math.pi))))
    return min(1.0, max(0.0, _NORMAL.cdf(w) + _NORMAL.pdf(w) * (1.0 / w - 1.0 / u)))


def _root(distances: Floats, counts: Floats) -> float:
    """Return the saddlepoint: where the derivative of the cumulant function is 0, between its two poles."""
    low, high = 1.0 / float(distances.min()), 1.0 / float(distances.max())
    at = 0.0
    for _ in range(STEPS):
        shares = distances / (1.0 - at * distances)
        slope = float(counts @ shares)
        if slope < 0:
            low = at
        else:
            high = at
        step = at - slope / float(counts @ shares**2)
        following = step if low < step < high else (low + high) / 2
        if abs(following - at) <= 1e-13 * max(1.0, abs(at)):
            break
        at = following
    return at


def lower_bound(values: Floats, worst: float, level: float, weights: Floats | None = None) -> float:
    """Return the largest mean that the values refute from above: each smaller one has a p-value of at most ``level``.

    It is ``worst`` if they refute none. ``level``: one-sided, below 0.5. Shapes as in `lower_p_value`.
    """
    counts = np.ones(len(values)) if weights is None else weights
    total = float(counts.sum())
    if not total:
        return worst
    refuted, kept = worst, float(counts @ values) / total
    width, of_refuted, of_kept, side = kept - worst, -50.0, _excess(values, kept, worst, level, counts), 0
    for step in range(HALVINGS):
        if of_kept <= 0 or kept - refuted <= 1e-10 * width:
            break
        # regula falsi with halved ends (Illinois) on the logarithm of the p-value, and a halving now and then
        middle = (of_kept * refuted - of_refuted * kept) / (of_kept - of_refuted)
        if step % 4 == 3 or not refuted < middle < kept:
            middle = (refuted + kept) / 2
        excess = _excess(values, middle, worst, level, counts)
        if excess <= 0:
            refuted, of_refuted, of_kept = middle, excess, of_kept / 2 if side < 0 else of_kept
            side = -1
            if excess > -1e-7:
                break
        else:
            kept, of_kept, of_refuted = middle, excess, of_refuted / 2 if side > 0 else of_refuted
            side = 1
    return refuted


def _excess(values: Floats, null: float, worst: float, level: float, weights: Floats) -> float:
    """Return the logarithm of the p-value over ``level``."""
    p_value = lower_p_value(values, null, worst, weights)
    return math.log(max(p_value, 1e-300) / level)


def bounded_interval(values: Floats, low: float, high: float, error_rate: float = 0.05) -> tuple[float, float]:
    """Return the interval of the mean of values between ``low`` and ``high``; half of the error rate for each end.

    It is the whole range without values. Shape (n,).
    """
    return weighted_interval(values, np.ones(len(values)), low, high, error_rate)


def weighted_interval(
    values: Floats, weights: Floats, low: float, high: float, error_rate: float = 0.05
) -> tuple[float, float]:
    """Return the interval of the mean of values that occur ``weights`` times each; shapes (n,)."""
    level = error_rate / 2
    return lower_bound(values, low, level, weights), -lower_bound(-values, -high, level, weights)
