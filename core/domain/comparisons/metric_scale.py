"""Scale of a comparison: how two values of a metric become a bounded difference, positive if the first is better.

A test that holds at any time and for any distribution needs bounded differences. The first of these that applies:

- **declared**: the dataset declares `low` and `high` of the metric, and the request no narrower bound; a difference is
  within the width between them.
- **clipped**: the request names a bound; larger differences are clipped to it on both sides. The verdict is about the
  mean of clipped differences, with its full error rate, and the message says so.
- **sign**: otherwise only the sign of a difference counts, 1, 0 or -1. The verdict is about wins minus losses, as a
  share of the pairs, and needs no bound of the metric.

A bound that is taken from the values seen so far would not keep the error rate: the next value may exceed it.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from core.domain.results.declared_results import DeclaredMetric

Floats = NDArray[np.float64]


class ScaleKind(StrEnum):
    """Origin of the bound of the differences."""

    DECLARED = "declared"
    CLIPPED = "clipped"
    SIGN = "sign"


def declared_width(metric: DeclaredMetric) -> float | None:
    """Return the width of the range that a dataset declares of a metric, with its worst value; None without one."""
    if metric.low is None or metric.high is None:
        return None
    values = [float(end) for end in (metric.low, metric.high, metric.worst) if end is not None]
    return max(values) - min(values)


#: Bounds whose squares, and the squares of shares of them, are numbers.
SMALLEST, LARGEST = 1e-100, 1e100


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricScale:
    """Scale of one metric. ``bound``: differences lie in [-bound, bound], in ``unit``.

    ``low`` and ``high``: declared bounds; values beyond are clipped. ``worst``: the value of a task that is not ``ok``;
    without it, such a task is worse than every value by as much as the bound allows.
    """

    kind: ScaleKind
    bound: float
    unit: str
    higher_is_better: bool
    low: float = -math.inf
    high: float = math.inf
    worst: float | None = None

    @classmethod
    def of(cls, metric: DeclaredMetric, bound: float | None = None) -> Self:
        """Return the scale of a metric of a dataset's definition; ``bound``: of the differences, from the request.

        Raise ValueError if the definition does not say whether higher or lower is better, and for a bound that is not
        between SMALLEST and LARGEST. A declared ``worst`` outside of `low` and `high` widens them.
        """
        name = metric.name
        if not metric.has_direction:
            raise ValueError(f"The dataset does not declare whether a higher or a lower `{name}` is better.")
        if bound is not None and not SMALLEST <= bound <= LARGEST:
            allowed = f"from {SMALLEST:g} to {LARGEST:g}"
            raise ValueError(f"The bound of the differences of `{name}` is a number {allowed}, not {bound:g}.")
        low, high, worst = metric.low, metric.high, metric.worst
        higher = metric.better == "higher"
        unit = metric.unit or ""
        unit = "" if unit == "count" else unit  # not "10 count"
        if low is not None and high is not None:
            worst = (low if higher else high) if worst is None else worst
            low, high = min(low, worst), max(high, worst)
            width = float(high - low)
            if width > 0 and (bound is None or bound >= width):
                return cls(
                    kind=ScaleKind.DECLARED,
                    bound=width,
                    unit=unit,
                    higher_is_better=higher,
                    low=float(low),
                    high=float(high),
                    worst=float(worst),
                )
        kind = ScaleKind.SIGN if bound is None else ScaleKind.CLIPPED
        return cls(
            kind=kind,
            bound=1.0 if bound is None else float(bound),
            unit=unit if kind is ScaleKind.CLIPPED else "",
            higher_is_better=higher,
            worst=None if worst is None else float(worst),
        )

    @property
    def difference_unit(self) -> str:
        """Return the unit of a difference: that of percentages is points, since it is not relative to either."""
        return "points" if self.unit == "%" else self.unit

    def unbounded_differences(self, first: Floats, second: Floats) -> Floats:
        """Return the differences of pairs in the metric's unit, positive where the first model is better.

        NaN is a task that is not ``ok``, or one without a number: the worst value, so that failing never is an
        advantage; two of them are equal. Without a declared worst value, or beside a value that is worse than that
        one, it is infinitely worse. Shapes: (n,) each.
        """
        sign = 1.0 if self.higher_is_better else -1.0
        counted = []
        for side, other in ((first, second), (second, first)):
            worst = np.full(len(side), -math.inf if self.worst is None else sign * self.worst)
            worst = np.where(sign * other < worst, -math.inf, worst)
            counted.append(np.where(np.isnan(side), worst, sign * side))
        with np.errstate(invalid="ignore", over="ignore"):
            difference: Floats = np.where(counted[0] == counted[1], 0.0, counted[0] - counted[1])
        return difference

    def differences(self, first: Floats, second: Floats) -> tuple[Floats, int]:
        """Return the differences that are tested, within the bound, and how many were clipped. Shapes: (n,) each."""
        bounded = [np.clip(played, self.low, self.high) for played in (first, second)]
        difference = self.unbounded_differences(*bounded)
        if self.kind is ScaleKind.SIGN:
            return np.sign(difference), 0
        if self.kind is ScaleKind.CLIPPED:
            clipped = np.isfinite(difference) & (np.abs(difference) > self.bound)
        else:
            outside = [np.abs(played - kept) > 0 for played, kept in zip((first, second), bounded, strict=True)]
            clipped = outside[0] | outside[1]
        return np.clip(difference, -self.bound, self.bound), int(clipped.sum())

    def message(self, clipped: int = 0) -> str | None:
        """Return the note on the scale that belongs to each verdict; None if the values were compared as they are.

        ``clipped``: number of pairs with a clipped value or difference.
        """
        if self.kind is ScaleKind.SIGN:
            return (
                "The dataset declares no bounds of this metric, so the test counts in how many scenarios each model is"
                " the better. To compare means, name a `bound` of the differences."
            )
        if self.kind is ScaleKind.CLIPPED:
            unit = f" {self.difference_unit}" if self.unit else ""
            return (
                f"Differences beyond {self.bound:g}{unit} count as {self.bound:g}{unit}: {clipped} of the pairs so far."
                " The verdict is about the mean of these differences."
            )
        if clipped:
            return (
                f"Values outside of {self.low:g} to {self.high:g}, which the dataset declares, were clipped: {clipped}."
            )
        return None
