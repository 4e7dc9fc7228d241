"""What a comparison can show: smallest difference, smallest margin, both with 80 % power, and pairs for a margin.

The test at the last look is projected from the differences so far: their distribution is kept, their number is that of
all scenarios, and their mean is moved. A difference is shown with 80 % power if differences whose mean is 0.84 standard
errors less show it; equal models are equivalent if the margin exceeds the half-width of the interval around 0 by 1.28
standard errors, since both sides have to be shown. For the any-time sequence by itself,
`smallest_difference.py` has the formula.
"""

import math
from dataclasses import dataclass

import numpy as np

from core.domain.comparisons.claims import Design, Method
from core.domain.comparisons.difference_cells import HALF, Floats
from core.domain.comparisons.fixed_design import NORMAL, POWER
from core.domain.comparisons.paired_test import PairedTest
from core.domain.comparisons.smallest_difference import smallest_difference
from core.domain.results import student_t
from core.domain.results.bounded_mean import lower_bound, lower_p_value

#: Quantiles of one side that has to hold, and of two that have to hold at once.
ONE_SIDE, TWO_SIDES = NORMAL.inv_cdf(POWER), NORMAL.inv_cdf((1 + POWER) / 2)
#: Most scenarios that are named as those that would do.
MOST = 10_000_000
#: Share of the error rate of all looks that the last one has at least, up to MANY scenarios, and with more. The exact
#: share, .62 to .81 at error rates up to a tenth, needs an integration over all looks for each number of scenarios.
LEAST_SHARE, MANY, LEAST_OF_MANY = 0.6, 20_000, 0.4


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
    return Detectable(
        difference=_in_unit(_difference(test), plan.bound),
        margin=_in_unit(_margin(test, plan.scenarios), plan.bound),
        scenarios=_scenarios(test) if plan.margin else None,
    )


def _in_unit(share: float, bound: float) -> float | None:
    """Return a share of the bound in the metric's unit, rounded up to what is read; None beyond the bound."""
    return None if share > 1 else rounded_up(share * bound)


def rounded_up(value: float) -> float:
    """Return the next number of three significant digits: asking for it gives at least what was needed."""
    if value <= 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / step - 1e-9) * step:.3g}")


@dataclass(frozen=True, slots=True)
class _Look:
    """The last look of a test of ``pairs`` scenarios whose differences are as those so far."""

    test: PairedTest
    pairs: int

    @property
    def level(self) -> float:
        """Return its one-sided level; of another number of scenarios than the plan's one that it has at least."""
        plan = self.test.plan
        if plan.standing or self.pairs == plan.scenarios:
            return plan.last_level
        return (LEAST_SHARE if self.pairs <= MANY else LEAST_OF_MANY) * plan.look_rate / 2

    @property
    def error(self) -> float:
        """Return the standard error of the mean difference, as a share of the bound."""
        test = self.test
        if test.plan.design is Design.LIST and test.repeated:
            return math.sqrt(test.within / test.count / self.pairs)
        return test.std / test.plan.bound / math.sqrt(self.pairs)

    @property
    def half(self) -> float | None:
        """Return the half-width of its interval where the variance is estimated; None where the range is used."""
        plan = self.test.plan
        two_stage = plan.design is Design.LIST and self.test.repeated
        if not self.error or not (two_stage or plan.method is Method.NORMAL):
            return None
        return student_t.quantile(self.level, self.pairs if two_stage else max(1, self.pairs - 1)) * self.error

    def weights(self, counts: Floats) -> Floats:
        """Return how often each difference occurs among all pairs."""
        return counts * (self.pairs / self.test.count)


def _difference(test: PairedTest) -> float:
    """Return the difference that all scenarios show with the power; above 1 for none."""
    look = _Look(test, test.plan.scenarios)
    if (half := look.half) is not None:
        return half + ONE_SIDE * look.error
    values, counts = test.neutral.sample()
    centred, weights, level = values - test.neutral.mean, look.weights(counts), look.level

    def shown(difference: float) -> bool:
        moved = np.clip(centred + difference - ONE_SIDE * look.error, -1.0, 1.0)
        return lower_p_value(moved, HALF, -1.0, weights) <= level

    few, many = 0.0, 1.0
    if not shown(many):
        return math.inf
    while many - few > 1e-4 * many:
        middle = (few + many) / 2
        few, many = (few, middle) if shown(middle) else (middle, many)
    return many


def _margin(test: PairedTest, pairs: int) -> float:
    """Return the margin at which so many scenarios show equal models to be equivalent, with the power.

    Pairs without a result stay as many as they are, and count as the worst difference on either side.
    """
    look = _Look(test, pairs)
    if (half := look.half) is not None:
        return max(test.unknown_shares) + half + TWO_SIDES * look.error
    mean, needed = test.neutral.mean, 0.0
    for cells, sign in ((test.lowest, 1), (test.highest, -1)):
        values, counts = cells.sample()
        # what counts as the worst does so wherever the mean of the others lies
        centred = sign * np.where(np.abs(values) < 1, np.clip(values - mean, -1.0, 1.0), values)
        needed = max(needed, HALF - lower_bound(centred, -1.0, look.level, look.weights(counts)))
    return needed + TWO_SIDES * look.error


def _scenarios(test: PairedTest) -> int | None:
    """Return how many scenarios would show equal models to be equivalent at the margin."""
    margin = test.plan.share

    def enough(pairs: int) -> bool:
        return _margin(test, pairs) <= margin

    few, many = 1, 2
    while not enough(many):
        few, many = many, 2 * many
        if many > MOST:
            return None
    while many - few > max(1, many // 50):
        middle = (few + many) // 2
        few, many = (few, middle) if enough(middle) else (middle, many)
    return min(many, test.plan.scenarios) if enough(test.plan.scenarios) else many


def _by_bets(test: PairedTest) -> Detectable:
    """Return what the any-time sequence alone would show with the scenarios so far."""
    plan, threshold = test.plan, test.sequence.plan.log_threshold
    spread = test.std / plan.bound
    difference = smallest_difference(test.count, spread, log_threshold=threshold)
    margin = smallest_difference(test.count, spread, log_threshold=threshold, power=(1 + POWER) / 2)
    return Detectable(
        difference=None if difference is None else _in_unit(difference, plan.bound),
        margin=None if margin is None else _in_unit(margin + max(test.unknown_shares), plan.bound),
        scenarios=None,
    )
