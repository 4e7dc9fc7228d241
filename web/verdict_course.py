"""Course of a verdict as a picture: the mean difference and its interval after each look, beside 0 and the margin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from web.chart_scale import ChartScale, scale_of

#: Most looks whose number of pairs is written below the picture.
LABELLED = 6
#: Longest end mark of an interval, to each side, in percent of the picture's width.
CAP = 1.0


@dataclass(frozen=True, slots=True)
class DrawnLook:
    """A look in the picture: ``x`` and heights in percent of it from its upper left; ``pairs`` that were played.

    ``left`` and ``right``: ends of the marks at the interval's ends. ``is_labelled``: its pairs are written below.
    """

    pairs: int
    x: float
    left: float
    right: float
    mean: float
    low: float
    high: float
    is_labelled: bool


@dataclass(frozen=True, slots=True)
class DrawnMargin:
    """The band from -margin to +margin: ``value`` in the metric's unit, ``top`` and ``bottom`` in percent.

    ``holds``: whether the last interval is within it; an end that is equal to the margin is.
    """

    value: float
    top: float
    bottom: float
    holds: bool


@dataclass(frozen=True, slots=True)
class Course:
    """Picture of a course. ``ticks``: height and value of each line; ``zero``: height of no difference, in percent.

    ``is_cut``: at least one interval reaches beyond the picture.
    """

    looks: Sequence[DrawnLook]
    ticks: Sequence[tuple[float, float]]
    zero: float
    margin: DrawnMargin | None
    is_cut: bool


def course_of(looks: Sequence[Mapping[str, Any]], margin: float | None = None) -> Course | None:
    """Return the course of a verdict; None before the first look. ``margin``: of its comparison, in the metric's unit.

    Looks are equally far apart, because each batch is larger than the last: on an axis of pairs the first ones would
    be one above the other. The picture shows 0, the margin and the last interval; the first intervals, which are many
    times as wide, are cut.
    """
    if not looks:
        return None
    scale = _scale_of(looks, margin or 0.0)
    slot = 100 / len(looks)
    every = -(-len(looks) // LABELLED)

    def drawn(number: int, look: Mapping[str, Any]) -> DrawnLook:
        x, cap = slot * (number + 0.5), min(CAP, slot / 4)
        return DrawnLook(
            pairs=look["count"],
            x=round(x, 2),
            left=round(x - cap, 2),
            right=round(x + cap, 2),
            mean=_height(scale, look["mean"]),
            low=_height(scale, look["low"]),
            high=_height(scale, look["high"]),
            is_labelled=(len(looks) - 1 - number) % every == 0,
        )

    return Course(
        looks=[drawn(number, look) for number, look in enumerate(looks)],
        ticks=[(_height(scale, tick), tick) for tick in scale.ticks],
        zero=_height(scale, 0.0),
        margin=_margin(scale, margin, looks[-1]) if margin else None,
        is_cut=any(look["low"] < scale.low or scale.high < look["high"] for look in looks),
    )


def _scale_of(looks: Sequence[Mapping[str, Any]], margin: float) -> ChartScale:
    """Return a scale that has room for half as much again as must be seen, as far as there is anything to be seen."""
    needed = [0.0, -margin, margin, looks[-1]["low"], looks[-1]["high"]]
    low, high = min(needed), max(needed)
    room = (high - low) / 2
    least, most = min(look["low"] for look in looks), max(look["high"] for look in looks)
    return scale_of([min(low, max(least, low - room)), max(high, min(most, high + room))])


def _margin(scale: ChartScale, margin: float, last: Mapping[str, Any]) -> DrawnMargin:
    holds = -margin <= last["low"] and last["high"] <= margin
    return DrawnMargin(margin, top=_height(scale, margin), bottom=_height(scale, -margin), holds=holds)


def _height(scale: ChartScale, value: float) -> float:
    """Return how far below the upper edge a value is, in percent of the height; far beyond it, two heights."""
    return round(min(max(100 - scale.place(value), -100.0), 200.0), 2)
