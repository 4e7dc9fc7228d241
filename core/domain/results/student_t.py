"""Student's t distribution: upper tail and quantile, by the continued fraction of the incomplete beta function.

Abramowitz and Stegun, Handbook of Mathematical Functions, 26.5.8 and 26.7.1, evaluated by the algorithm of Lentz
(Applied Optics 15, 1976). SciPy has it too, and would take 110 MB of each installation for it.
"""

import math

#: Most terms of the continued fraction, and its relative error.
TERMS, ERROR = 10_000, 1e-15
_TINY = 1e-300


def upper_tail(t: float, degrees: float) -> float:
    """Return the probability of a value above ``t``; ``degrees``: of freedom, above 0."""
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    half = 0.5 * _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)
    return half if t >= 0 else 1.0 - half


def quantile(level: float, degrees: float) -> float:
    """Return the value that a share ``level`` of the distribution lies above, from 0 to 0.5, neither included."""
    low, high = 0.0, 1.0
    while upper_tail(high, degrees) > level:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, degrees) > level else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function; ``x``: from 0 to 1."""
    if x <= 0 or x >= 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):  # there the fraction of the complement converges
        return 1.0 - _incomplete_beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    fraction = d = 1.0 / _nonzero(1.0 - (a + b) * x / (a + 1))
    c = 1.0
    for term in range(1, TERMS):
        even = term * (b - term) * x / ((a + 2 * term - 1) * (a + 2 * term))
        odd = -(a + term) * (a + b + term) * x / ((a + 2 * term) * (a + 2 * term + 1))
        for coefficient in (even, odd):
            d = 1.0 / _nonzero(1.0 + coefficient * d)
            c = _nonzero(1.0 + coefficient / c)
            fraction *= d * c
        if abs(d * c - 1.0) < ERROR:
            break
    return math.exp(log_front) * fraction / a


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
