"""Peers of the sequential test, each for many repetitions at once: when they decide, of differences in play order.

Differences have the shape (repetitions, pairs) and are shares of their bound. Each peer returns, for each repetition,
the sign of its decision (0 without one) and the pairs after which it was taken.
"""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Decisions = tuple[NDArray[np.int64], NDArray[np.int64]]

#: Critical value of O'Brien and Fleming for five looks at 5 % (Jennison and Turnbull 2000, table 2.3).
LOOKS, OBRIEN_FLEMING = 5, 2.040
#: Standard deviation of the mixture over true differences, as a share of the bound, and pairs before its first look.
MIXTURE, BURN_IN = 0.1, 20


def first_crossing(better: NDArray[np.bool_], worse: NDArray[np.bool_]) -> Decisions:
    """Return the first decision of each repetition; both arguments: whether it would be taken after each pair."""
    either = better | worse
    at = np.where(either.any(axis=1), either.argmax(axis=1), either.shape[1] - 1)
    rows = np.arange(len(either))
    return better[rows, at].astype(np.int64) - worse[rows, at], at + 1


def bernstein_bounds(values: Floats, error_rate: float = 0.05) -> tuple[Floats, Floats]:
    """Return the empirical-Bernstein confidence sequence of Waudby-Smith and Ramdas (2024, theorem 2), at every pair.

    ``values`` in [0, 1]; not intersected over time.
    """
    pairs = np.arange(1, values.shape[1] + 1)
    means = (0.5 + np.cumsum(values, axis=1)) / (pairs + 1)
    variances = (0.25 + np.cumsum((values - means) ** 2, axis=1)) / (pairs + 1)
    start = np.ones((len(values), 1))
    means, variances = (np.hstack((first * start, v[:, :-1])) for first, v in ((0.5, means), (0.25, variances)))
    log_threshold = math.log(2 / error_rate)
    bets = np.minimum(np.sqrt(2 * log_threshold / (variances * pairs * np.log(pairs + 1))), 0.5)
    penalties = (values - means) ** 2 * (-np.log1p(-bets) - bets)
    total = np.cumsum(bets, axis=1)
    centre = np.cumsum(bets * values, axis=1) / total
    half = (log_threshold + np.cumsum(penalties, axis=1)) / total
    return centre - half, centre + half


def bernstein(differences: Floats) -> Decisions:
    """Decide when the empirical-Bernstein confidence sequence excludes a difference of 0."""
    low, high = bernstein_bounds((differences + 1) / 2)
    return first_crossing(low > 0.5, high < 0.5)


def plug_in_betting(differences: Floats, error_rate: float = 0.05) -> Decisions:
    """Decide by capital with the predictable plug-in bets of the same paper, at most 3/4 of the capital."""
    values = (differences + 1) / 2
    pairs = np.arange(1, values.shape[1] + 1)
    means = (0.5 + np.cumsum(values, axis=1)) / (pairs + 1)
    variances = (0.25 + np.cumsum((values - means) ** 2, axis=1)) / (pairs + 1)
    variances = np.hstack((np.full((len(values), 1), 0.25), variances[:, :-1]))
    log_threshold = math.log(2 / error_rate)
    bets = np.minimum(np.sqrt(2 * log_threshold / (variances * pairs * np.log(pairs + 1))), 1.5)
    better, worse = (np.cumsum(np.log1p(sign * bets * (values - 0.5)), axis=1) for sign in (1, -1))
    return first_crossing(better >= log_threshold, worse >= log_threshold)


def mixture_sprt(differences: Floats, error_rate: float = 0.05) -> Decisions:
    """Decide by the mixture SPRT with the variance estimated so far (Johari, Koomen, Pekelis and Walsh, 2022).

    It holds asymptotically: for normal differences, or for many.
    """
    pairs = np.arange(1, differences.shape[1] + 1)
    means = np.cumsum(differences, axis=1) / pairs
    variances = np.maximum(np.cumsum(differences**2, axis=1) / pairs - means**2, 1e-12)
    prior = MIXTURE * MIXTURE
    spread = variances + pairs * prior
    ratio = 0.5 * np.log(variances / spread) + pairs**2 * prior * means**2 / (2 * variances * spread)
    decided = (ratio >= -math.log(error_rate)) & (pairs >= BURN_IN)
    return first_crossing(decided & (means > 0), decided & (means < 0))


def group_sequential(differences: Floats) -> Decisions:
    """Decide by O'Brien's and Fleming's boundaries at five looks, whose number and places are chosen before."""
    count = differences.shape[1]
    statistic = np.zeros(differences.shape)
    for look in range(1, LOOKS + 1):
        pairs = count * look // LOOKS
        seen = differences[:, :pairs]
        z = seen.mean(axis=1) / np.maximum(seen.std(axis=1, ddof=1), 1e-12) * math.sqrt(pairs)
        statistic[:, pairs - 1] = z / math.sqrt(LOOKS / look)
    return first_crossing(statistic >= OBRIEN_FLEMING, statistic <= -OBRIEN_FLEMING)


def fixed(differences: Floats) -> Decisions:
    """Decide once, by a t-test of all pairs in its normal approximation."""
    count = differences.shape[1]
    z = differences.mean(axis=1) / np.maximum(differences.std(axis=1, ddof=1), 1e-12) * math.sqrt(count)
    signs = np.where(np.abs(z) >= 1.959963984540054, np.sign(z), 0).astype(np.int64)
    return signs, np.full(len(differences), count)
