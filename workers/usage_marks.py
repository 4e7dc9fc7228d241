"""Usage marks: every few seconds the dispatcher records which launches their executors still show.

The use of a launch is known up to its last mark, even if platform and launch are killed together.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from core.domain.scheduling.launches import LaunchStatus, Phase
from core.domain.usage.usage_intervals import MARK_INTERVAL
from core.services.scheduling.dispatch import Dispatch
from core.services.scheduling.snapshots import LiveLaunch


class UsageMarks:
    """The marks of the launches of all executors; an executor's are made on its thread."""

    def __init__(self, dispatch: Dispatch, clock: Callable[[], float] = time.monotonic) -> None:
        self._dispatch = dispatch
        self._clock = clock
        self._marked_at: dict[str, float] = {}

    def record(self, executor: str, present: Sequence[LiveLaunch], statuses: Mapping[str, LaunchStatus]) -> None:
        """Mark what is present on an executor, if that is due; the first time at once: this process may be a new one.

        A launch in the queue of its cluster has nothing yet, so that it is not marked, and begins later.
        """
        now, before = self._clock(), self._marked_at.get(executor)
        if not present or (before is not None and now - before < MARK_INTERVAL):
            return
        suspended = {id for id, status in statuses.items() if status.phase is Phase.SUSPENDED}
        ids = {launch.id for launch in present}
        self._dispatch.mark_usage(ids - suspended, ids & suspended, None if before is None else now - before)
        self._marked_at[executor] = now
