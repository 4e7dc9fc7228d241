"""Usage marks: every few seconds the dispatcher records what its executors still show, launches and warm runners.

The use of a launch is known up to its last mark, even if platform and launch are killed together.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from core.domain.scheduling.launches import LaunchStatus, Phase
from core.domain.usage.granted_resources import WarmGrant
from core.domain.usage.usage_intervals import MARK_INTERVAL
from core.services.scheduling.dispatch import Dispatch
from core.services.scheduling.snapshots import LiveLaunch
from workers.executors.base import Executor, GrantsWarmRunners

#: Seconds between two marks of warm runners while nothing runs: a machine that rests writes seldom.
IDLE_INTERVAL = 50.0


class UsageMarks:
    """The marks of the launches of all executors; an executor's are made on its thread."""

    def __init__(self, dispatch: Dispatch, clock: Callable[[], float] = time.monotonic) -> None:
        self._dispatch = dispatch
        self._clock = clock
        self._marked_at: dict[str, float] = {}
        self._waited: set[str] = set()  # executors on which warm runners waited at the last mark

    def record(self, executor: Executor, present: Sequence[LiveLaunch], statuses: Mapping[str, LaunchStatus]) -> None:
        """Mark what is present on an executor, if that is due; the first time at once: this process may be a new one.

        A launch in the queue of its cluster has nothing yet, so that it is not marked, and begins later.
        """
        name, now = executor.name, self._clock()
        before = self._marked_at.get(name)
        if before is not None and now - before < (MARK_INTERVAL if present else IDLE_INTERVAL):
            return
        warm = self._warm_grants(executor)
        if present or warm or name in self._waited or before is None:
            suspended = {id for id, status in statuses.items() if status.phase is Phase.SUSPENDED}
            ids = {launch.id for launch in present}
            elapsed = None if before is None else now - before
            self._dispatch.mark_usage(name, ids - suspended, ids & suspended, warm, elapsed)
        (self._waited.add if warm else self._waited.discard)(name)
        self._marked_at[name] = now

    @staticmethod
    def _warm_grants(executor: Executor) -> Collection[WarmGrant]:
        return executor.warm_grants() if isinstance(executor, GrantsWarmRunners) else ()
