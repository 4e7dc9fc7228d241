"""World count: how many scenarios a model server serves at once.

A request costs two switches between processes, which is more than many a step. Requests for many worlds share them. The
deadline is still that of one action, so that the number falls with the time that a model takes.
"""

from collections import deque

#: How many worlds there are at most, if nothing else was asked for.
USUAL = 16
#: The share of an action's deadline within which a request for many worlds is expected.
SHARE = 0.1
#: Requests by which that is judged: the fastest, since the others may have waited for a processor.
LATEST_REQUESTS = 8
#: Tasks that are run one by one after a fault of a request for many; after each further one twice as many, up to
#: MOST_PENALTY, so that a model that is slow now and then is not asked in vain again and again.
FIRST_PENALTY, MOST_PENALTY = 16, 4096


class WorldCount:
    """Decides how many worlds work side by side, doubling from one. ``most``: as many as were asked for."""

    def __init__(self, most: int, deadline: float) -> None:
        self._most = most
        self._budget = SHARE * deadline
        self._alone = 1 if most > 1 else 0
        self._penalty = FIRST_PENALTY
        self._last = 1
        self._seconds: deque[float] = deque(maxlen=LATEST_REQUESTS)  # per world, of the last requests

    @property
    def worlds(self) -> int:
        """Number of worlds that may work now."""
        if self._most == 1 or self._alone > 0 or not self._seconds:
            return 1
        return max(1, min(self._most, 2 * self._last, int(self._budget / min(self._seconds))))

    def record_answer(self, worlds: int, seconds: float) -> None:
        """Record that a request for so many worlds was answered in so many seconds."""
        self._last = worlds
        self._seconds.append(max(seconds, 1e-9) / worlds)

    def stay_alone(self) -> None:
        """Record that the model serves one world only."""
        self._most = 1

    def record_alone(self) -> None:
        """Record that a task was run by itself, without a fault."""
        self._alone = max(0, self._alone - 1)

    def record_fault(self, *, together: bool) -> None:
        """Record a fault of one world or of many ``together``: the next tasks are run one by one."""
        if together:
            self._penalty = min(MOST_PENALTY, 2 * self._penalty)
        self._alone, self._last = self._penalty, 1
        self._seconds.clear()
