"""Reports: the results of a range of tasks, sent to the runner in the order of tasks, in batches."""

import time
from collections.abc import Iterable

from ..task_page import FIRST_TASK, STOP
from .planned_tasks import PlannedTask
from .result_batch import Played, ResultBatch
from .runner_connection import RangeOrder, RunnerConnection

#: Seconds after which a first result is sent as a batch of its own, and seconds from it to the second batch.
FIRST_FLUSH, SECOND_FLUSH = 0.02, 0.1


class Reports:
    """Results that have not been sent. A result that comes early is kept until all earlier tasks have a result.

    ``page``: of task_page.py.
    """

    def __init__(self, runner: RunnerConnection, page: memoryview, lines: ResultBatch) -> None:
        self._runner, self._page, self._lines = runner, page, lines
        self._order = RangeOrder(0, 0)
        self._early: dict[int, tuple[PlannedTask, Played]] = {}
        #: The first task without a result.
        self.next = 0
        self._flushed_at = 0.0
        self._interval = 0.0  # seconds; 0 until the first batch

    def begin(self, order: RangeOrder) -> None:
        """Begin with the range of an order."""
        self._order, self.next = order, order.start
        self._early.clear()
        self._lines.begin(order.start)
        self._flushed_at = time.perf_counter()

    @property
    def stop(self) -> int:
        """The task before which the range ends now."""
        return min(self._order.stop, self._page[STOP])

    def has(self, number: int) -> bool:
        """Whether a task's result is kept, because an earlier task has none."""
        return number in self._early

    def add(self, results: Iterable[tuple[PlannedTask, Played]]) -> None:
        """Add results, and those that were kept for them; none of a task at or behind the range's end."""
        early, stop, next, lines = self._early, self.stop, self.next, self._lines
        for result in results:
            early[result[0].number] = result
            while next < stop and (ready := early.pop(next, None)) is not None:
                task, played = ready
                lines.add(task.located, task.labels, played)
                next += 1
        self.next = self._page[FIRST_TASK] = next

    def flush_if_due(self) -> None:
        """Send a batch if it is time to, or if it is full."""
        elapsed, order = time.perf_counter() - self._flushed_at, self._order
        careful = self._lines.to - 1 <= order.careful_until
        if elapsed >= min(self._interval, order.flush) and (self._interval or elapsed >= FIRST_FLUSH):
            self._interval = order.flush if self._interval else SECOND_FLUSH
            self.flush()
        elif careful or self._lines.full:
            self.flush()

    def flush(self) -> None:
        """Send the results that are next."""
        if len(self._lines):
            self._runner.send(self._lines.take())
        self._flushed_at = time.perf_counter()
