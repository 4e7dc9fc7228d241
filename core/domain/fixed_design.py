"""Fixed design beside a sequential test: a paired t-test of a number of pairs that is chosen before the first.

Normal approximation with Guenther's correction for the estimated variance (The American Statistician 35, 1981), which
gives the exact number of pairs of a t-test within one.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

NORMAL = NormalDist()
#: Probability with which a difference is to be shown, where nothing else is said (Cohen 1988).
POWER = 0.8


def pairs_needed(difference: float, std: float, *, error_rate: float = 0.05, power: float = POWER) -> int | None:
    """Return the pairs that a two-sided paired t-test needs to show a true difference; None for no difference.

    ``difference`` and ``std``, that of the paired differences: in the same unit.
    """
    if difference == 0:
        return None
    quantile = NORMAL.inv_cdf(1 - error_rate / 2)
    ratio = (quantile + NORMAL.inv_cdf(power)) * std / difference
    return max(2, math.ceil(ratio * ratio + quantile * quantile / 2))


def fixed_power(pairs: int, difference: float, std: float, *, error_rate: float = 0.05) -> float:
    """Return the probability with which that test of ``pairs`` pairs shows a true difference, in its direction."""
    if pairs < 2:
        return 0.0
    if std == 0:
        return 1.0 if difference else error_rate / 2
    quantile = NORMAL.inv_cdf(1 - error_rate / 2)
    corrected = max(0.0, pairs - quantile * quantile / 2)
    return NORMAL.cdf(abs(difference) / std * math.sqrt(corrected) - quantile)


@dataclass(frozen=True, kw_only=True, slots=True)
class Saving:
    """Pairs that a comparison played of those it could have played, beside the fixed design.

    ``needed``: pairs of the fixed design for the difference and the deviation that were observed, which are
    unknown before; None if no difference was observed. ``fixed_power``: that of all pairs, for the same difference.
    """

    played: int
    pairs: int
    needed: int | None
    fixed_power: float

    @property
    def share(self) -> float:
        """Return the share of all pairs that was not played, from 0 to 1."""
        return 1 - self.played / self.pairs


def saving(*, played: int, pairs: int, mean: float, std: float, error_rate: float = 0.05) -> Saving:
    """Return the saving of a comparison that stopped after ``played`` of ``pairs`` pairs with this mean difference."""
    needed = pairs_needed(mean, std, error_rate=error_rate)
    power = fixed_power(pairs, mean, std, error_rate=error_rate)
    return Saving(played=played, pairs=pairs, needed=needed, fixed_power=power)
