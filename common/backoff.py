"""Exponential back-off."""


def pause(failures: int, *, first: float, longest: float) -> float:
    """Return the seconds to wait after so many failures in a row: ``first``, doubled each time, at most ``longest``."""
    # The power alone would overflow a float after a thousand failures.
    return min(longest, first * 2.0 ** min(max(failures - 1, 0), 32))
