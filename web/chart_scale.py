"""Scale of a chart's axis: round ends and ticks around the values that are drawn, and where a value is between them."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

#: Steps between two ticks, times a power of ten.
_STEPS = (1, 2, 5, 10)
#: Part of the axis that is left free at each end, in percent of it: a mark at an end is whole.
MARGIN = 2.0


@dataclass(frozen=True, slots=True)
class ChartScale:
    """Axis from ``low`` to ``high``, which have few digits; ``ticks``: multiples of a round step between them."""

    low: float
    high: float
    ticks: Sequence[float]

    def place(self, value: float) -> float:
        """Return where a value is, in percent of the axis; a value beyond its ends is beyond 0 or 100."""
        share = (value - self.low) / (self.high - self.low)
        return round(MARGIN + (100 - 2 * MARGIN) * share, 2)

    @property
    def labels(self) -> Sequence[float]:
        """Values to write where there is little room: both ends, and 0 if it is not close to one of them."""
        middle = [0.0] if 20 < self.place(0) < 80 else []
        return [self.low, *middle, self.high]


def scale_of(values: Iterable[float | None]) -> ChartScale:
    """Return the scale of finite values, with up to six ticks; None is left out.

    Values that are all equal are in the middle of their scale; without values it is from 0 to 1.
    """
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if not high - low > 1e-12 * max(abs(low), abs(high)):
        half = abs(low) / 2 or 0.5
        low, high = low - half, low + half
    ends = _multiples((high - low) / 20, math.floor, low, math.ceil, high)
    return ChartScale(ends[0], ends[-1], _multiples((high - low) / 5, math.ceil, ends[0], math.floor, ends[-1]))


def _multiples(
    width: float, first: Callable[[float], int], low: float, last: Callable[[float], int], high: float
) -> list[float]:
    """Return the multiples of the least round step that is not below ``width``, from low to high, rounded as said."""
    exponent = math.floor(math.log10(width))
    factor = next(factor for factor in _STEPS if factor * 10.0**exponent >= width * (1 - 1e-9))
    step = factor * 10.0**exponent
    # A multiple that floats miss by their last digit is itself, not its neighbour.
    begin, end = (rounded(round(value / step, 9)) for rounded, value in ((first, low), (last, high)))
    return [float(f"{number * factor}e{exponent}") for number in range(begin, end + 1)]
