"""Smallest true difference that a sequential test would have shown with 80 % power, from the pairs that it has.

For a bet f, the logarithm of the capital is a sum of log(1 + f y), to second order f y - f² y² / 2. For differences
y of mean d and deviation s it is normal after n pairs, with mean n (f d - f² (s² + d²) / 2) and deviation f s sqrt(n).
The test has shown d with 80 % power if that mean, less 0.84 deviations, reaches the threshold and the log 4 that a
mixture of four bets costs at most. For each bet that is a quadratic equation in d; the smallest solution counts.

In a list of N, the mean of the rest and the null's move apart while pairs are drawn: the mean gain is N / (N - t) times
as large at the t-th draw, N / n log(N / (N - n)) times on average.

Neighbours of the best bet, which the formula leaves out, help: the power is 80 to 90 % (simulated in
tests/unit/test_smallest_difference.py).
"""

import math

from core.domain.comparisons.fixed_design import NORMAL, POWER
from core.domain.comparisons.one_sided_bets import FRACTIONS


def smallest_difference(
    count: int, std: float, *, log_threshold: float, pairs: int | None = None, power: float = POWER
) -> float | None:
    """Return the smallest mean difference that this many pairs with this deviation would have shown.

    ``std`` and the result: shares of the bound. ``log_threshold``: the logarithm of the e-value that counts as shown.
    ``pairs``: length of the list, None for a population. None if even the largest difference would not have been shown.
    """
    if pairs is not None and count == pairs:
        return 0.0
    if count < 2:
        return None
    growth = 1.0 if pairs is None else pairs / count * math.log(pairs / (pairs - count))
    cost = log_threshold + math.log(len(FRACTIONS))
    solutions = []
    for fraction in FRACTIONS:
        noise = fraction * std * (fraction * std / 2 + NORMAL.inv_cdf(power) / math.sqrt(count))
        if (discriminant := 1 - 2 * (cost / count + noise)) >= 0:
            solutions.append((1 - math.sqrt(discriminant)) / fraction / growth)
    smallest = min(solutions, default=math.inf)
    return smallest if smallest <= 1 else None
