"""Reports of runners: result lines (NDJSON, one per task) and the artifact bytes that they refer to."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from common.errors import BadRequest
from core.domain.results.outcomes import shorten_error
from core.domain.scheduling.ranges import STRIKES
from runtimes.harness.evaluator.tasks import Located
from runtimes.harness.runner.runner_api_messages import ReportHeader


class _ResultHead(msgspec.Struct):
    task: int
    status: str


_decoder = msgspec.json.Decoder(_ResultHead)
#: Final statuses of a task.
STATUSES = frozenset({"ok", "failed", "crashed", "timed_out", "invalid"})


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Results of the tasks [header.since, header.to): their lines in task order, and the bytes of their artifacts."""

    header: ReportHeader
    lines: bytes
    blobs: bytes = b""


def failed_tasks(report: TaskReport) -> list[int]:
    """Return the tasks whose status is not `ok`; raise BadRequest unless the lines are exactly those of [since, to)."""
    failures = []
    since, to = report.header.since, report.header.to
    try:
        heads = _decoder.decode_lines(report.lines)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"A result line cannot be read: {error}") from None
    if len(heads) != to - since or to <= since:
        raise BadRequest(f"{len(heads)} lines for the tasks [{since}, {to}).")
    for task, head in enumerate(heads, since):
        if head.task != task:
            raise BadRequest(f"Line {task - since} is of task {head.task}, not {task}.")
        if head.status != "ok":
            if head.status not in STATUSES:
                raise BadRequest(f"Task {task} has an unknown status.")
            failures.append(task)
    if sum(size for *_, size in report.header.artifacts) != len(report.blobs):
        raise BadRequest("The artifacts' sizes do not add up to the bytes sent.")
    return failures


def first_lines(lines: bytes, count: int) -> bytes:
    """Return the first ``count`` lines."""
    end = 0
    for _ in range(count):
        end = lines.index(b"\n", end) + 1
    return lines[:end]


def crashed_line(located: Located, task: int, reason: str, labels: Mapping[str, object]) -> bytes:
    """Return the result line of a task whose worker died on it STRIKES times.

    ``labels``: name and groups of its scenario, with which an evaluator would have labelled the result.
    """
    scenario: dict[str, object] = {"index": located.index, "repeat": located.repeat, "seed": located.seed, **labels}
    if located.swept:
        scenario["params"] = located.swept
    result = {
        "task": task,
        "status": "crashed",
        "scenario": scenario,
        "metrics": {},
        "error": f"simulator: {shorten_error(reason)} ({STRIKES} times on this scenario)",
        "artifacts": [],
        "timing": {},
    }
    return msgspec.json.encode(result) + b"\n"
