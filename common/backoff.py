"""Retries: exponential back-off, and for how long something that fails is tried again."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """Pauses in seconds between attempts: ``first``, doubled with each failure, at most ``longest``.

    ``patience``: seconds for which it is tried again.
    """

    first: float
    longest: float
    patience: float = math.inf

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row, from 1."""
        # The power alone would overflow a float after a thousand failures.
        return min(self.longest, self.first * 2.0 ** min(max(failures - 1, 0), 32))
