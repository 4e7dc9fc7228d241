"""What a comparison can show: smallest difference, smallest margin, both with 80 % power, and pairs for a margin.

The test at the last look is projected from the differences so far: their distribution is kept, their number is that of
all scenarios, and their mean is moved to 0. A difference is shown with 80 % power if it exceeds the half-width of that
interval by 0.84 standard errors; equal models are shown to be equivalent if the margin exceeds it by 1.28, since both
sides have to be shown. For the any-time sequence by itself, `core/domain/smallest_difference.py` has the formula.
"""

import math
from dataclasses import dataclass

import numpy as np

from core.domain import student_t
from core.domain.bounded_mean import lower_bound
from core.domain.claims import Design, Method
from core.domain.fixed_design import NORMAL, POWER
from core.domain.paired_test import PairedTest
from core.domain.smallest_difference import smallest_difference

#: Quantiles of one side that has to hold, and of two that have to hold at once.
ONE_SIDE, TWO_SIDES = NORMAL.inv_cdf(POWER), NORMAL.inv_cdf((1 + POWER) / 2)
#: Most scenarios that are named as those that would do.
MOST = 10_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Detectable:
    """What all scenarios would show, in the metric's unit; None if nothing would, or if it is not known yet.

    ``difference``: the smallest that would have been shown. ``margin``: the smallest at which equal models would end
    equivalent. ``scenarios``: how many would do that at the margin of the comparison.
    """

    difference: float | None
    margin: float | None
    scenarios: int | None


NOTHING = Detectable(difference=None, margin=None, scenarios=None)


def detectable(test: PairedTest) -> Detectable:
    """Return what the test can show once all scenarios are played."""
    plan = test.plan
    if test.count < 2 or plan.design is Design.EXACT:
        return NOTHING
    if plan.method is Method.ANYTIME:
        return _by_bets(test)
    pairs = plan.scenarios
    difference, margin = _needed(test, pairs, ONE_SIDE), _needed(test, pairs, TWO_SIDES)
    return Detectable(
        difference=None if difference > 1 else plan.bound * difference,
        margin=None if margin > 1 else plan.bound * margin,
        scenarios=_scenarios(test) if plan.margin else None,
    )


def _needed(test: PairedTest, pairs: int, quantile: float) -> float:
    """Return the difference or margin, as a share of the bound, that this many pairs show with the power."""
    plan = test.plan
    level = plan.last_level
    spread = test.std / plan.bound
    error = spread / math.sqrt(pairs)
    if plan.design is Design.LIST and test.repeated:
        error = math.sqrt(test.within / test.count / pairs)
        return (student_t.quantile(level, pairs) + quantile) * error
    if plan.method is Method.NORMAL:
        return (student_t.quantile(level, max(1, pairs - 1)) + quantile) * error
    values, counts = test.neutral.sample()
    centred = np.clip(values - float(counts @ values) / test.count, -1.0, 1.0)
    scaled = counts * (pairs / test.count)
    half = max(-lower_bound(side, -1.0, level, scaled) for side in (centred, -centred))
    return half + quantile * error


def _scenarios(test: PairedTest) -> int | None:
    """Return how many scenarios would show equal models to be equivalent at the margin."""
    margin = test.plan.share

    def enough(pairs: int) -> bool:
        return _needed(test, pairs, TWO_SIDES) <= margin

    few, many = 1, 2
    while not enough(many):
        few, many = many, 2 * many
        if many > MOST:
            return None
    while many - few > max(1, many // 50):
        middle = (few + many) // 2
        few, many = (few, middle) if enough(middle) else (middle, many)
    return many


def _by_bets(test: PairedTest) -> Detectable:
    """Return what the any-time sequence alone would show with the scenarios so far."""
    plan, threshold = test.plan, test.sequence.plan.log_threshold
    spread = test.std / plan.bound
    difference = smallest_difference(test.count, spread, log_threshold=threshold)
    margin = smallest_difference(test.count, spread, log_threshold=threshold, power=(1 + POWER) / 2)
    return Detectable(
        difference=None if difference is None else plan.bound * difference,
        margin=None if margin is None else plan.bound * margin,
        scenarios=None,
    )
