"""Programs that run by themselves: nobody leases for them; the dispatcher says that they began, and how they ended."""

from core.domain.ranges import Ended, Later
from core.services.scheduling.leases import Leases
from core.services.scheduling.reports import Report
from errors import Gone
from runtimes.harness.evaluator.result_batch import Lines, Played
from runtimes.harness.evaluator.tasks import Plan

#: What the dispatcher is called as a worker.
WORKER = "dispatch"


class Programs:
    """Stands in for the runners of launches that have none. Every step may be repeated."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    def began(self, launch_id: str) -> None:
        """It runs."""
        known = self._leases.unattended(launch_id)
        if known is not None and not known.running:
            self._leases.begin(known)

    def ended(self, launch_id: str, exit: int, reason: str | None, seconds: float) -> None:
        """It ended by itself: what is to be had is its one task, and the exit is the result."""
        known = self._leases.unattended(launch_id)
        if known is None:
            return
        try:
            lease = self._leases.lease(known, WORKER, None)
        except Gone:
            return
        if isinstance(lease, Ended | Later):  # reported before, or lent to a dispatcher that died: then it comes back
            return
        play = self._leases.describe(known)["play"]
        plan, lines = Plan(play["tasks"]), Lines(play["definition"], "none", None)
        lines.begin(lease.cursor)
        status, error = ("ok", None) if exit == 0 else ("crashed", reason or f"it ended with {exit}")
        for task in range(lease.cursor, lease.stop):
            lines.add(plan.locate(task), {}, Played(status, {}, error=error, seconds=seconds))
        text = bytes(lines.take()["lines"])
        self._leases.report(
            known, Report(WORKER, lease.stage, lease.start, lease.fencing_token, lease.cursor, lease.stop, text)
        )
