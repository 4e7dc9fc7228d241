"""Reports of a runner, for tests that report through the service."""

from typing import Any

from core.domain.scheduling.ranges import Lease
from core.services.scheduling.reports import TaskReport
from runtimes.harness.runner.runner_api_messages import ReportHeader


def report_of(lease: Lease, since: int, to: int, lines: bytes, *, blobs: bytes = b"", **header: Any) -> TaskReport:
    """Return a report of the lease's tasks [since, to) by the worker ``d``."""
    return TaskReport(
        ReportHeader(
            worker="d",
            stage=lease.stage,
            start=lease.start,
            fencing_token=lease.fencing_token,
            since=since,
            to=to,
            lines=len(lines),
            **header,
        ),
        lines,
        blobs,
    )
