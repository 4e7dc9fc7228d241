"""Kinds of background job: queue, concurrency, timeout and retries of each, and when a job is enqueued again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from common.ages import TOLERANCE
from common.backoff import RetryPolicy

#: Seconds between two attempts of a job that fails. The first is longer than a claim in SQL (9 s): an attempt that
#: finds the claim of a killed attempt would end at once as if all were done.
RETRIES = (10, 30, 90)
#: Retries of a job whose own have failed: it is enqueued again from SQL.
RETRY = RetryPolicy(first=60.0, longest=600.0)
#: Seconds without a sign of life after which the record of a job is no longer believed: of a running job, because
#: registries are cleaned sooner; of a waiting job, if no queue and no registry lists it.
LOST = 60.0
#: The functions of jobs, by the name of their kind.
Functions = Mapping[str, Callable[[str], None]]
#: Returns the ids of a kind's jobs that are due and unclaimed, from SQL.
Due = Callable[[str], Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class JobKind:
    """A kind of background job, with a queue of its own.

    ``period``: seconds between two runs of a periodic job; 0: rows in SQL say when it is due.
    ``concurrency``: worker processes per jobs role. ``timeout``: seconds after which an attempt is ended. ``resident``:
    the job runs in its worker's process, which has the platform open; otherwise each attempt runs in a forked process.
    ``memory``: bytes of data that its process may allocate (None: any): for kinds that parse files of users.
    """

    name: str
    does: str
    concurrency: int
    timeout: int
    retries: tuple[int, ...] = RETRIES
    resident: bool = False
    period: float = 0.0
    memory: int | None = None

    @property
    def queue(self) -> str:
        """Name of the RQ queue."""
        return f"windtunnel:{self.name}"

    def job_id(self, id: str) -> str:
        """Return the RQ id of a job, the same whenever it is enqueued; RQ allows letters, digits, `_` and `-` only."""
        return f"{self.name}-{id.replace(':', '-')}"


KINDS: tuple[JobKind, ...] = (
    JobKind(
        name="stage",
        does="prepares a simulation's files and model from what is here already",
        concurrency=2,
        timeout=3600,
        resident=True,
    ),
    JobKind(
        name="prepare",
        does="prepares a simulation whose packages, files or model take long",
        concurrency=4,  # it waits for networks more than it computes
        timeout=6 * 3600,
        resident=True,
    ),
    JobKind(
        name="prefetch",
        does="downloads a dataset version to the node cache",
        concurrency=2,
        timeout=24 * 3600,
    ),
    JobKind(
        name="register",
        does="registers a dataset version: lists, hashes and stores its files",
        concurrency=2,
        timeout=24 * 3600,
        memory=2 << 30,  # the elements of a map of 64 MiB
    ),
    JobKind(
        name="import",
        does="fetches a model that a submission named by reference",
        concurrency=2,
        timeout=2 * 3600,
        resident=True,
        memory=1 << 30,
    ),
    JobKind(
        name="log",
        does="logs an ended simulation's results to the MLflow run of its model",
        concurrency=1,
        timeout=600,
        resident=True,
        memory=1 << 30,
    ),
    JobKind(
        name="collect",
        does="finalizes a simulation: summary, archive, state",
        concurrency=4,
        timeout=3600,
        resident=True,
    ),
    JobKind(
        name="compare",
        does="adds a played batch to the verdicts of a comparison, and submits the next",
        concurrency=2,
        timeout=3600,
        resident=True,
    ),
    JobKind(
        name="pipeline",
        does="submits the steps of a pipeline that are ready, and adds those that have ended",
        concurrency=1,
        timeout=3600,
        resident=True,
    ),
    JobKind(
        name="delete",
        does="removes the objects and rows of a deleted simulation",
        concurrency=1,
        timeout=3600,
        resident=True,
    ),
    JobKind(
        name="replay",
        does="makes the replay of one task from its trace",
        concurrency=1,
        timeout=1800,
    ),
    JobKind(
        name="deliver",
        does="sends events to a webhook",
        concurrency=4,  # it waits for receivers more than it computes
        timeout=600,
        resident=True,
    ),
    JobKind(
        name="sweep",
        does="deletes expired uploads, unreferenced objects and unused cache entries",
        concurrency=1,
        timeout=3600,
        resident=True,  # it remembers when it last searched the object store for orphans
        period=60.0,
    ),
)
BY_NAME: Mapping[str, JobKind] = {kind.name: kind for kind in KINDS}


def configured(concurrency: Sequence[str], timeouts: Sequence[str]) -> tuple[JobKind, ...]:
    """Return the kinds with the settings of an operator: `stage=4` in ``concurrency``, `stage=7200` in ``timeouts``."""
    kinds = {kind.name: kind for kind in KINDS}
    for entry in concurrency:
        name, number = _parsed(entry, kinds)
        kinds[name] = replace(kinds[name], concurrency=number)
    for entry in timeouts:
        name, number = _parsed(entry, kinds)
        kinds[name] = replace(kinds[name], timeout=number)
    return tuple(kinds.values())


def _parsed(entry: str, known: dict[str, JobKind]) -> tuple[str, int]:
    name, equals, number = entry.partition("=")
    if name not in known or not equals or not number.isdecimal() or int(number) < 1:
        raise ValueError(f"{entry!r} is not KIND=NUMBER with a number of at least 1; kinds are {', '.join(known)}")
    return name, int(number)


class Verdict(Enum):
    """What becomes of a job that is enqueued while a record with its id exists."""

    LEAVE = "leave"
    REQUEUE = "requeue"
    REPLACE = "replace"


def judge(status: str, *, age: float, failures: int, listed: Callable[[], bool]) -> Verdict:
    """Decide about a job that is enqueued again.

    ``age``: seconds since the record's last sign of life, or since it failed; negative if a clock has been set back, or
    that of its worker is ahead. ``failures``: how often the job has been enqueued again after its retries had failed.
    ``listed``: whether a queue, or the registry of scheduled or of started jobs, has it.
    """
    unknown = age < -TOLERANCE
    if status in {"queued", "scheduled"}:
        # RQ writes the record and the list in two steps when a job fails: an outage between them loses the second.
        return Verdict.REPLACE if (unknown or age >= LOST) and not listed() else Verdict.LEAVE
    if status == "started":  # maintenance takes it off the registry when its heartbeats end
        return Verdict.REPLACE if age >= LOST or (unknown and not listed()) else Verdict.LEAVE
    if status in {"failed", "stopped"}:
        return Verdict.REQUEUE if unknown or age >= RETRY.pause(failures + 1) else Verdict.LEAVE
    return Verdict.REPLACE
