"""Worker of a test: runs simulations to their end with invented results, as a runner does."""

from collections.abc import Mapping
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

    def report(self, launch: CachedLaunch, lease: Lease, since: int, to: int, **extra: Any) -> None:
        """Report invented results of the tasks [since, to); every seventh task fails."""
        lines = b"".join(line(task, "failed" if task % 7 == 6 else "ok") for task in range(since, to))
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
        self, launch: CachedLaunch, *, artifacts: Mapping[tuple[int, str, str], bytes] | None = None
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
            self.report(launch, lease, lease.cursor, lease.stop, artifacts=described, blobs=blobs)
            first = False
            if self.dispatch.close(id):
                break
        self.platform.jobs.finalization.collect(id)
