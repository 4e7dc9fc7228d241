"""Course of a verdict as an SVG: the mean difference and its interval after each batch, over the pairs played."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 600.0, 140.0
#: Room for the axis, in the units of the picture.
LEFT, BOTTOM, TOP = 4.0, 4.0, 6.0


@dataclass(frozen=True, slots=True)
class Course:
    """Points of an SVG of WIDTH by HEIGHT. ``band``: polygon of the interval; ``line``: of the mean; ``zero``: height.

    ``low`` and ``high``: differences at the bottom and at the top.
    """

    band: str
    line: str
    zero: float
    low: float
    high: float


def course_of(looks: Sequence[Mapping[str, Any]], pairs: int) -> Course | None:
    """Return the course of a verdict; None before the second batch, when it is a point.

    The bounds are those after the second batch: the interval after the first is several times as wide.
    """
    if len(looks) < 2:
        return None
    widest = looks[1]
    low, high = min(widest["low"], 0.0), max(widest["high"], 0.0)
    span = (high - low) or 1.0

    def at(look: Mapping[str, Any], name: str) -> str:
        value = min(max(look[name], low), high)
        x = LEFT + (WIDTH - LEFT) * look["count"] / max(pairs, 1)
        return f"{x:.1f},{_height(value, low, span):.1f}"

    upper = [at(look, "high") for look in looks]
    lower = [at(look, "low") for look in reversed(looks)]
    return Course(
        band=" ".join([*upper, *lower]),
        line=" ".join(at(look, "mean") for look in looks),
        zero=round(_height(0.0, low, span), 1),
        low=low,
        high=high,
    )


def _height(value: float, low: float, span: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / span)
