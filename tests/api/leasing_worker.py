"""Worker of a test: runs simulations to their end with invented results, as a runner does."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.ranges import Lease
from core.domain.scheduling.states import State
from core.services.platform import Platform
from core.services.scheduling.dispatch import Dispatch
from core.services.scheduling.leases import CachedLaunch
from tests.api.answers import line
from tests.dispatching import unended
from tests.executor_configs import LOCAL
from tests.reports import report_of
from tests.waiting import until


def invented(task: int) -> bytes:
    """Return the result line of a task: every seventh task fails."""
    return line(task, "failed" if task % 7 == 6 else "ok")


@dataclass(frozen=True)
class LeasingWorker:
    """Runs simulations as a runner does, through the services behind the runner API."""

    platform: Platform

    @property
    def dispatch(self) -> Dispatch:
        return Dispatch(
            self.platform.database,
            self.platform.notifier,
            executor_configs=[LOCAL],
            runner_api_url="http://127.0.0.1:1",
        )

    def launch(self, id: str) -> CachedLaunch:
        """Admit and launch a queued simulation; return the launch, whose tasks can be leased."""
        dispatch = self.dispatch
        busy = next(simulation for simulation in unended(dispatch) if simulation.id == id)
        assert dispatch.admit(busy, LOCAL.name)
        launch = dispatch.launch(next(simulation for simulation in unended(dispatch) if simulation.id == id))
        assert launch is not None
        return self.platform.scheduling.leases.authenticate(launch.id, launch.token)

    def report(
        self,
        launch: CachedLaunch,
        lease: Lease,
        since: int,
        to: int,
        *,
        line_of: Callable[[int], bytes] = invented,
        **extra: Any,
    ) -> None:
        """Report results of the tasks [since, to), whose lines ``line_of`` returns."""
        lines = b"".join(map(line_of, range(since, to)))
        report = report_of(lease, since, to, lines, **extra)
        assert self.platform.scheduling.leases.report(launch, report).accepted

    def lease(self, launch: CachedLaunch) -> Lease:
        """Lease the next tasks."""
        lease = self.platform.scheduling.leases.lease(launch, "d", None)
        assert isinstance(lease, Lease)
        return lease

    def run_to_end(self, id: str, *, artifacts: Mapping[tuple[int, str, str], bytes] | None = None) -> None:
        """Launch a simulation and run it to its end."""
        self.finish(self.launch(id), artifacts=artifacts)

    def finish(self, launch: CachedLaunch, *, artifacts: Mapping[tuple[int, str, str], bytes] | None = None) -> None:
        """Run the remaining tasks of a launch; assert that the simulation succeeds."""
        self.finish_unseen(launch, artifacts=artifacts)
        assert self.platform.submissions.simulations.get(LOCAL_CALLER, launch.simulation).state is State.SUCCEEDED

    def finish_unseen(
        self,
        launch: CachedLaunch,
        *,
        artifacts: Mapping[tuple[int, str, str], bytes] | None = None,
        line_of: Callable[[int], bytes] = invented,
    ) -> None:
        """Run the remaining tasks of a launch; the first report has the artifacts.

        A dry run is deleted as soon as it has ended, so its state cannot be read afterwards.
        """
        id = launch.simulation
        first = True
        while isinstance(lease := self.platform.scheduling.leases.lease(launch, "d", None), Lease):
            first_artifacts = artifacts if first and artifacts else {}
            blobs = b"".join(first_artifacts.values())
            described = [(*key, len(blob)) for key, blob in first_artifacts.items()]
            self.report(launch, lease, lease.cursor, lease.stop, line_of=line_of, artifacts=described, blobs=blobs)
            first = False
            if self.dispatch.close(id):
                break
        self.platform.jobs.finalization.collect(id)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Run every simulation that is submitted before the block ends, beside it: a dry run's request waits for that.

        It is not enough to run one, because another project may wait for its own (tests/mirror_requests.py).
        """
        ended, ran = threading.Event(), set[str]()

        def next_id() -> str | None:
            return next((each.id for each in unended(self.dispatch) if each.id not in ran), None)

        def run() -> None:
            while not ended.is_set():
                until(lambda: ended.is_set() or next_id())
                if (id := next_id()) is not None:
                    ran.add(id)
                    self.finish_unseen(self.launch(id))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
