"""Rate buckets: how much may come of each payer, some at once and then at a rate; values only, no I/O."""

from collections import OrderedDict


class RateBuckets:
    """A bucket for each payer: ``burst`` at once, and ``rate`` a second. Times in seconds, monotonic.

    ``most``: buckets that are remembered; of more, the one that was taken from longest ago is forgotten.
    """

    def __init__(self, rate: float, burst: int, most: int) -> None:
        self._interval = 1.0 / rate
        self._slack = (max(1, burst) - 1) * self._interval
        self._most = most
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, payer: str, now: float) -> float:
        """Count one and return 0; or count nothing, and return the seconds after which there is room for it."""
        full_at = max(now, self._full_at.get(payer, now))
        if (excess := full_at - now - self._slack) > 1e-9:  # a rounding error is no request
            return excess
        self._full_at[payer] = full_at + self._interval
        self._full_at.move_to_end(payer)
        if len(self._full_at) > self._most:
            self._full_at.popitem(last=False)
        return 0.0

    def refill(self, payer: str) -> None:
        """Forget what was taken from a payer's bucket."""
        self._full_at.pop(payer, None)
