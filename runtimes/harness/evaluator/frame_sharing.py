"""Frame sharing: how many tasks of one step go to the model server in one frame.

A frame costs two switches between processes, which is more than a trivial step. Tasks share a frame if their worlds end
with the first step, so that no observation depends on an action before it. The model sees the same as in frames of
their own; a fault in a shared frame is not a result: its tasks are run again, one by one.
"""

from ..model_server.action_exchange import MOST_SHARED

#: Tasks that are run one by one at first, and again after a fault.
ALONE = 16
#: Seconds that a shared frame and its tasks are to take at most, judged by the tasks before.
TARGET = 0.002


class FrameSharing:
    """Decides the number of tasks of the next frame from what the last tasks took, doubling from one."""

    def __init__(self, *, allowed: bool) -> None:
        self._allowed = allowed
        self._alone = ALONE
        self._last = 1
        self._seconds = TARGET  # per task, lately

    @property
    def tasks(self) -> int:
        """Number of tasks that the next frame may hold."""
        if not self._allowed or self._alone > 0:
            return 1
        return max(1, min(MOST_SHARED, 2 * self._last, int(TARGET / self._seconds)))

    def ran(self, tasks: int, seconds: float) -> None:
        """Record that so many tasks were run in one frame without a fault, in so many seconds."""
        self._alone = max(0, self._alone - tasks)
        self._last, self._seconds = tasks, max(seconds, 1e-9) / tasks

    def failed(self) -> None:
        """Record a fault, also of a task by itself: the next tasks are run one by one."""
        self._alone, self._last = ALONE, 1
