"""Figures for people: numbers with four significant digits, shares, durations and sizes."""

from datetime import UTC, datetime


def number(value: object) -> str:
    """Return a number with four significant digits, without an exponent where it is readable; a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    if size and not 1e-3 <= size < 1e7:
        return f"{value:.3g}"
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{value:,.{digits}f}"


def percent(part: float, whole: float) -> str:
    """Return a share in percent; 100 only if it is the whole."""
    if not whole:
        return "–"
    share = 100.0 * part / whole
    return f"{min(share, 99.9) if part < whole else share:.3g} %"


def seconds(value: float | None) -> str:
    """Return a duration."""
    if value is None:
        return "–"
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 48 else f"{hours // 24}d{hours % 24:02}h"


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago a time was."""
    if moment is None:
        return "–"
    elapsed = max(0, round(((now or datetime.now(UTC)) - moment).total_seconds()))
    return seconds(elapsed) if elapsed >= 60 else f"{elapsed} s"


def size(count: float | None) -> str:
    """Return a number of bytes in binary units."""
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def minute(moment: datetime | None, never: str = "") -> str:
    """Return a moment to a minute; ``never``: for None."""
    return never if moment is None else f"{moment:%Y-%m-%d %H:%M}"
