"""Levels of the looks of a group-sequential test: how much of the error rate each look may spend.

Lan and DeMets (Biometrika 70, 1983) with a spending function whose boundaries are nearly those of O'Brien and Fleming:
hardly anything at first, most of it at the end. It is theirs for both sides together, of which each side has half. The
level of a look follows from the joint distribution of the statistics at the looks so far, by recursive numerical
integration (Armitage, McPherson and Rowe, J. R. Stat. Soc. A 132, 1969; Jennison and Turnbull, Group Sequential
Methods, 2000, chapter 19). The looks are known in advance: they are the batches.
"""

import math
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from core.domain.comparisons.play_order import batch_sizes

Floats = NDArray[np.float64]

_NORMAL = NormalDist()
#: Points of the integration at each look, an odd number, and its ends in standard deviations.
POINTS, DEVIATIONS = 401, 8.5
#: An increase of the spent error rate below this is none: the look cannot decide.
NOTHING = 1e-12


def spent(fraction: float, level: float) -> float:
    """Return how much of a one-sided ``level`` may be spent once this fraction of all pairs was played."""
    return _NORMAL.cdf(_NORMAL.inv_cdf(level) / math.sqrt(fraction))


@lru_cache(maxsize=256)
def look_levels(looks: tuple[int, ...], level: float) -> tuple[float, ...]:
    """Return the one-sided level of the p-value at each look; ``looks``: pairs played at each, the last one all.

    ``level``: one-sided error rate of all looks together. A look at which nothing may be spent has level 0.
    """
    fractions = [count / looks[-1] for count in looks]
    if len(looks) == 1:
        return (level,)
    levels: list[float] = []
    points, density, before, already = np.zeros(1), np.ones(1), 0.0, 0.0  # of the statistic so far, all of it at 0
    for fraction in fractions:
        allowed = spent(fraction, level) - already
        deviation = math.sqrt(fraction - before)
        if allowed < NOTHING:
            boundary = DEVIATIONS * math.sqrt(fraction)
            levels.append(0.0)
        else:
            boundary = _boundary(points, density, deviation, allowed, DEVIATIONS * math.sqrt(fraction))
            levels.append(_NORMAL.cdf(-boundary / math.sqrt(fraction)))
            already += allowed
        following = np.linspace(-DEVIATIONS * math.sqrt(fraction), boundary, POINTS)
        kernel = np.exp(-0.5 * ((following[:, None] - points) / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))
        points, density, before = following, (kernel @ density) * _weights(following), fraction
    return tuple(levels)


def _boundary(points: Floats, density: Floats, deviation: float, allowed: float, highest: float) -> float:
    """Return the value that the statistic exceeds for the first time with the probability ``allowed``."""
    low, high = 0.0, highest
    for _ in range(50):
        middle = (low + high) / 2
        beyond = float(_upper_tails((middle - points) / deviation) @ density)
        low, high = (middle, high) if beyond > allowed else (low, middle)
    return high


def _upper_tails(values: Floats) -> Floats:
    return np.array([0.5 * math.erfc(value / math.sqrt(2)) for value in values.tolist()])


def _weights(points: Floats) -> Floats:
    """Return the weights of Simpson's rule."""
    weights = np.ones(len(points))
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    weights *= (points[1] - points[0]) / 3
    return weights


def looks_of(pairs: int) -> tuple[int, ...]:
    """Return how many pairs were played at each look of a comparison of this many pairs: the ends of its batches."""
    return tuple(accumulate(batch_sizes(pairs)))
