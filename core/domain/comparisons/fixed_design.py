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


def pairs_needed(difference: float, std: float, *, error_rate: float = 0.05, power: float = POWER) -> int:
    """Return the pairs that a two-sided paired t-test needs to show a true difference, which is not 0.

    ``difference`` and ``std``, that of the paired differences: in the same unit.
    """
    quantile = NORMAL.inv_cdf(1 - error_rate / 2)
    ratio = (quantile + NORMAL.inv_cdf(power)) * std / difference
    return max(2, math.ceil(ratio * ratio + quantile * quantile / 2))


@dataclass(frozen=True, kw_only=True, slots=True)
class Saving:
    """Scenarios that a comparison played of those it could have played, beside the fixed design.

    ``needed``: fewest and most pairs of the fixed design for the differences within the interval, which is what is
    known of the true one; None if the interval has 0, for which no number of pairs would do.
    """

    played: int
    pairs: int
    needed: tuple[int, int] | None

    @property
    def share(self) -> float:
        """Return the share of all pairs that was not played, from 0 to 1."""
        return 1 - self.played / self.pairs

    @property
    def sentence(self) -> str:
        """Return in words what a comparison has not played."""
        unplayed = self.pairs - self.played
        words = f"{self.played:,} of {self.pairs:,} scenarios were played"
        words += f"; {unplayed:,} ({100 * self.share:.0f} %) were saved." if unplayed else "; none were saved."
        if self.needed is not None:
            few, many = self.needed
            many_words = f"{few:,} to {many:,}" if many > few else f"{few:,}"
            words += f" A fixed design for a difference within the interval needs {many_words}."
        return words

    def document(self) -> dict[str, object]:
        """Return the saving for clients."""
        few, many = self.needed or (None, None)
        members = {"played": self.played, "pairs": self.pairs, "needed": few, "needed_at_most": many}
        return members | {"share": self.share, "sentence": self.sentence}


def saving(
    *,
    played: int,
    pairs: int,
    interval: tuple[float, float],
    mean: float,
    std: float,
    signs: bool = False,
    error_rate: float = 0.05,
) -> Saving:
    """Return the saving of a comparison that ended after ``played`` of ``pairs`` pairs with this interval.

    ``mean`` and ``std``: of the differences. ``signs``: they are 1, 0 and -1, whose deviation follows from the mean
    that is assumed, and from the share that is not 0. Of other differences none is known if all were equal.
    """
    low, high = interval
    needed = None
    if (low > 0 or high < 0) and (signs or std > 0):
        near, far = sorted((abs(low), abs(high)))
        share = std * std + mean * mean if signs else 0.0

        def needed_for(difference: float) -> int:
            deviation = math.sqrt(max(share, difference) - difference * difference) if signs else std
            least = math.ceil(1 - math.log2(error_rate)) if signs else 2  # of the sign test: with each pair a win
            return max(least, pairs_needed(difference, deviation, error_rate=error_rate))

        needed = needed_for(far), needed_for(near)
    return Saving(played=played, pairs=pairs, needed=needed)
