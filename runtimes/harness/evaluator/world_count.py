"""World count: how many scenarios a model server serves at once.

A request costs two switches between processes, which is more than many a step. Requests for many worlds share them. The
deadline is still that of one action, so that the number falls with the time that a model takes.
"""

from collections import deque
from collections.abc import Sequence

#: How many worlds there are at most, if nothing else was asked for; and if every scenario ends with its first step, so
#: that requests are most of the time.
USUAL, USUAL_OF_ONE_STEP = 16, 32
#: The share of an action's deadline within which a request for many worlds is expected.
SHARE = 0.1
#: Requests by which that is judged: the fastest, since the others may have waited for a processor.
LATEST_REQUESTS = 8
#: Tasks that are run one by one after a fault of a request for many; after each further one twice as many, up to
#: MOST_PENALTY, so that a model that is slow now and then is not asked in vain again and again.
FIRST_PENALTY, MOST_PENALTY = 16, 4096
#: What the rest of a range must take alone if no number was asked for: seconds, and calls of the model. A comparison of
#: kernels takes some 0.03 s and 300 calls.
WORTHWHILE_SECONDS, WORTHWHILE_CALLS = 0.1, 600
#: The least and the most seconds of such a comparison, and its share of the rest of a range between them.
LEAST_PATIENCE, MOST_PATIENCE, PATIENCE_SHARE = 2.0, 10.0, 0.1


class WorldCount:
    """Decides how many worlds work side by side, doubling from one.

    ``asked``: the most that were asked for; None: what is usual, where the rest of a range is worth a comparison of
    kernels. ``deadline``: seconds of an action. ``one_step``: whether every scenario ends with its first step.
    """

    def __init__(self, asked: int | None, deadline: float, *, one_step: bool = False) -> None:
        usual = USUAL_OF_ONE_STEP if one_step else USUAL
        self.most = usual if asked is None else asked
        self._auto = asked is None
        self._budget = SHARE * deadline
        self._serves_one = False  # the model server
        self._alone = 1
        self._penalty = FIRST_PENALTY
        self._last = 1
        self._seconds: deque[float] = deque(maxlen=LATEST_REQUESTS)  # per world, of the last requests
        self._task_seconds = self._latency = 0.0  # of the last task that was run by itself

    @property
    def worlds(self) -> int:
        """Number of worlds that may work now."""
        if self._serves_one or self._alone > 0 or not self._seconds:
            return 1
        return max(1, min(self.most, 2 * self._last, int(self._budget / min(self._seconds))))

    def patience(self, left: int) -> float | None:
        """Return the seconds for a comparison of kernels before the ``left`` tasks of a range.

        None: the next task is run by itself.
        """
        if min(self.worlds, left) == 1:
            return None
        rest = left * self._task_seconds
        if self._auto and rest < max(WORTHWHILE_SECONDS, WORTHWHILE_CALLS * self._latency):
            return None
        return min(MOST_PATIENCE, max(LEAST_PATIENCE, PATIENCE_SHARE * rest))

    def record_answer(self, worlds: int, seconds: float) -> None:
        """Record that a request for so many worlds was answered in so many seconds."""
        self._last = worlds
        self._seconds.append(max(seconds, 1e-9) / worlds)

    def stay_alone(self) -> None:
        """Record that the model serves one world only."""
        self._serves_one = True

    def record_task(self, seconds: float, latencies: Sequence[float]) -> None:
        """Record what a task that was run by itself has taken: its seconds, and those of its requests."""
        self._task_seconds = seconds
        if latencies:
            self._latency = min(latencies)
            self.record_answer(1, self._latency)

    def record_alone(self) -> None:
        """Record that a task was run by itself, without a fault."""
        self._alone = max(0, self._alone - 1)

    def record_fault(self, *, together: bool) -> None:
        """Record a fault of one world or of many ``together``: the next tasks are run one by one."""
        if together:
            self._penalty = min(MOST_PENALTY, 2 * self._penalty)
        self._alone, self._last = self._penalty, 1
        self._seconds.clear()
