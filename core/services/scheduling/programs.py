"""Programs without a runner (gangs in their own image): the dispatcher leases and reports in their place."""

from common.errors import Gone
from core.domain.scheduling.ranges import Ended, Later
from core.services.datasets.catalogue import played
from core.services.scheduling.leases import Leases
from core.services.scheduling.reports import TaskReport
from runtimes.harness.dataset_definition import definition_of
from runtimes.harness.evaluator.result_batch import Played, ResultBatch
from runtimes.harness.evaluator.tasks import TaskPlan
from runtimes.harness.runner.runner_api_messages import ReportHeader

#: Worker name under which the dispatcher leases.
WORKER = "dispatch"


class Programs:
    """Leases and reports for launches that have no runner. Every step is idempotent."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    def began(self, launch_id: str) -> None:
        """Record that a launch's processes run: move its simulation to RUNNING."""
        launch = self._leases.unattended(launch_id)
        if launch is not None and not launch.running:
            self._leases.begin(launch)

    def ended(self, launch_id: str, exit: int, reason: str | None, seconds: float) -> None:
        """Report the single task of a launch whose processes ended: its status follows from the exit status."""
        launch = self._leases.unattended(launch_id)
        if launch is None:
            return
        try:
            lease = self._leases.lease(launch, WORKER, None)
        except Gone:
            return
        if isinstance(lease, Ended | Later):
            return  # reported already, or leased by a dispatcher that died: then the lease expires
        provenance = self._leases.provenance(launch)
        definition = definition_of(played(provenance.dataset).definition)
        plan, batch = TaskPlan(provenance.play.tasks), ResultBatch(definition, "none", None)
        batch.begin(lease.cursor)
        status, error = ("ok", None) if exit == 0 else ("crashed", reason or f"the program exited with status {exit}")
        for task in range(lease.cursor, lease.stop):
            batch.add(plan.locate(task), {}, Played(status, {}, error=error, seconds=seconds))
        lines = bytes(batch.take()["lines"])
        header = ReportHeader(
            worker=WORKER,
            stage=lease.stage,
            start=lease.start,
            fencing_token=lease.fencing_token,
            since=lease.cursor,
            to=lease.stop,
            lines=len(lines),
        )
        self._leases.report(launch, TaskReport(header, lines))
