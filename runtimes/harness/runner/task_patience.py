"""Task patience: how long an evaluator may be seen at the same task."""

from ..model_server.deadline_watch import DeadlineWatch, ReadTimes
from ..model_server.model_faults import TimedOut


class TaskPatience:
    """Watches the task that is seen, from the first time that it is seen on."""

    def __init__(self) -> None:
        self._seen: tuple[int, float] | None = None
        self._watch: DeadlineWatch

    def is_exceeded(self, task: int, seconds: float, read_times: ReadTimes) -> bool:
        """Whether this task has been seen for more than so many seconds; time that the machine did not give is free."""
        if self._seen != (task, seconds):
            self._seen, self._watch = (task, seconds), DeadlineWatch(seconds, read_times)
        try:
            self._watch.check()
        except TimedOut:
            self._seen = None
            return True
        return False
