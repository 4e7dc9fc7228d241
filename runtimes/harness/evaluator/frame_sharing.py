"""Frame sharing: how many tasks of one step go to the model server in one frame.

A frame costs two switches between processes, which is more than a trivial step. Tasks share a frame if their worlds end
with the first step, so that no observation depends on an action before it. The model sees the same as in frames of
their own; a fault in a shared frame is not a result: its tasks are run again, one by one.
"""

from collections import deque

from ..model_server.action_exchange import MOST_SHARED

#: Tasks that are run one by one at first, and again after a fault; after each fault of a shared frame twice as many, up
#: to MOST_ALONE, so that a model that is slow now and then is not asked in vain again and again.
ALONE, MOST_ALONE = 16, 4096
#: Seconds that a shared frame and its tasks are to take at most, judged by the fastest of the last LOOKED_AT frames:
#: the others may have waited for a processor, which sharing makes rarer.
TARGET, LOOKED_AT = 0.002, 8


class FrameSharing:
    """Decides the number of tasks of the next frame from what the last frames took, doubling from one."""

    def __init__(self, *, allowed: bool) -> None:
        self._allowed = allowed
        self._alone = ALONE
        self._penalty = ALONE
        self._last = 1
        self._seconds: deque[float] = deque(maxlen=LOOKED_AT)  # per task, of the last frames

    @property
    def tasks(self) -> int:
        """Number of tasks that the next frame may hold."""
        if not self._allowed or self._alone > 0 or not self._seconds:
            return 1
        return max(1, min(MOST_SHARED, 2 * self._last, int(TARGET / min(self._seconds))))

    def ran(self, tasks: int, seconds: float) -> None:
        """Record that so many tasks were run in one frame without a fault, in so many seconds."""
        self._alone = max(0, self._alone - tasks)
        self._last = tasks
        self._seconds.append(max(seconds, 1e-9) / tasks)

    def failed(self, *, shared: bool) -> None:
        """Record a fault in a frame, which was ``shared`` or not: the next tasks are run one by one."""
        if shared:
            self._penalty = min(MOST_ALONE, 2 * self._penalty)
        self._alone, self._last = self._penalty, 1
        self._seconds.clear()
