"""Text of values on pages: numbers, shares, durations, sizes and times; the filters of the templates."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

MISSING = "\N{EN DASH}"
_RAISED: Mapping[str, str] = {"2": "\N{SUPERSCRIPT TWO}", "3": "\N{SUPERSCRIPT THREE}"}
_POWER = re.compile(r"(?<=[a-z])[23]\b")


def number(value: object) -> str:
    """Format a number with up to four significant digits, a large one as a whole number with separators.

    What is not a number, such as a member that a document lacks, is a dash.
    """
    if not isinstance(value, int | float) or not (isinstance(value, int) or math.isfinite(value)):
        return MISSING
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def percent(share: float | None) -> str:
    """Format a share of 1 in percent; what is not quite nothing or all is not shown as nothing or all."""
    if share is None:
        return MISSING
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.3g} %"


def duration(seconds: float | None) -> str:
    """Format seconds as the two largest units that are not zero: `3 min 20 s`."""
    if seconds is None:
        return MISSING
    if 0 < seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    parts: list[str] = []
    remaining = round(seconds)
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, remaining = divmod(remaining, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def size(count: int | None) -> str:
    """Format a number of bytes with a binary unit."""
    if count is None:
        return MISSING
    if count < 1024:
        return f"{count} byte{'s' if count != 1 else ''}"
    value = count / 1024
    for unit in ("KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def unit(text: str | None, before: str = "") -> str:
    """Return a unit as it is written after a number and ``before``, with raised powers; a number that counts has none.

    The replays write units in the same way: `unitText` in static/replay/format.js.
    """
    return before + _POWER.sub(lambda power: _RAISED[power[0]], text) if text and text != "count" else ""


def moment(text: str) -> datetime:
    """Parse a time of the API (RFC 3339)."""
    return datetime.fromisoformat(text)


def utc(text: str | None) -> str:
    """Format a time of the API as `2026-11-25 08:34:38 UTC`."""
    return moment(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if text else MISSING


def ago(text: str | None) -> str:
    """Format the time since a time of the API."""
    if not text:
        return MISSING
    seconds = (datetime.now(UTC) - moment(text)).total_seconds()
    if seconds < 5:
        return "just now"
    return f"{math.floor(seconds)} s ago" if seconds < 60 else f"{duration(math.floor(seconds))} ago"


def elapsed(begun: str | None, ended: str | None) -> float | None:
    """Return the seconds between two times of the API, until now without an end; None without a begin."""
    if not begun:
        return None
    return ((moment(ended) if ended else datetime.now(UTC)) - moment(begun)).total_seconds()


def sparkline(series: Sequence[float], width: int = 96, height: int = 22) -> str:
    """Return the points of an SVG polyline through a series, the least value at the bottom."""
    low, high = min(series), max(series)
    step = (width - 2) / max(1, len(series) - 1)
    span = high - low

    def place(value: float) -> float:
        return height / 2 if span == 0 else 1 + (height - 2) * (high - value) / span

    points = [(1 + at * step, place(value)) for at, value in enumerate(series)]
    if len(points) == 1:
        points.append((width - 1, points[0][1]))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def short(text: str, length: int = 10) -> str:
    """Shorten an id or a digest."""
    return text.removeprefix("sha256:")[:length]


#: What the API says about its addresses, and the same for a reader of the page.
WORDINGS = (
    (re.compile(r"`POST /v1/comparisons/[^`]*/retry` tries again"), "“Go on” tries again"),
    (re.compile(r"`GET /v1/(simulations|comparisons|models|runtimes)[^`]*` lists them"), r"The page /\1 lists them"),
    (re.compile(r"`GET /v1/datasets[^`]*` lists them"), "The page /data lists them"),
    (re.compile(r"`GET /v1/session` lists yours"), "The page /projects lists yours"),
    (re.compile(r"`GET /v1/users` lists them"), "The page /operations/platform lists them, for operators"),
    (re.compile(r"There is no resource at /v1(/\S*); is .* /docs lists every address\."), r"There is nothing at \1."),
)


def on_page(text: str | None) -> str:
    """Return a message of the API with the buttons and pages of a reader, where the API names its addresses."""
    shown = text or ""
    for pattern, wording in WORDINGS:
        shown = pattern.sub(wording, shown)
    return shown


FILTERS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (number, percent, duration, size, unit, on_page, utc, ago, short, sparkline)
}
