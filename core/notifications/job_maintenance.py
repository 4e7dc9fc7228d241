"""Maintenance of the job queues: starts retries that are due, and finds the jobs of workers that were killed.

RQ does this in idle workers every ten minutes, with 60 s of grace; here it is done every second, because SQL claims of
killed jobs expire after 9 s. It also enqueues what SQL shows as due, as the dispatcher does: Redis may answer here and
not there.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from rq import Queue
from rq.exceptions import NoSuchJobError
from rq.job import JobStatus
from rq.utils import as_text

from core.domain.scheduling.job_kinds import Due, JobKind
from core.notifications.job_queue import MOST_FAILURES, JobQueue, readable
from core.notifications.redis_client import OUTAGES, client
from core.notifications.rq_overrides import TERM, BoundQueue, abandon_executions, job_class_of, queue_of

logger = logging.getLogger(__name__)

#: Seconds between two passes.
INTERVAL = 1.0
#: Seconds after which a job counts as lost that a worker has taken from its queue, but has not recorded as started.
TAKEN = 10.0
#: Seconds between two looks at what SQL shows as due.
DUE_INTERVAL = 5.0
#: Seconds by which clocks of machines may differ.
TOLERANCE = 5.0
#: Timeout in seconds of a Redis command.
TIMEOUT = 5.0


class JobMaintenance:
    """Passes over the queues of all kinds. Several may run at once: at worst a job that both requeue runs twice."""

    def __init__(self, url: str, kinds: Sequence[JobKind], due: Due = lambda kind: ()) -> None:
        self._connection = client(url, TIMEOUT)
        self._kinds = kinds
        self._due = due
        self._due_at = 0.0
        self._jobs = JobQueue(self._connection)
        self._queues = [queue_of(kind, self._connection, job_class_of(kind)) for kind in kinds]
        self._longest = {kind.queue: max(kind.retries, default=0) + TOLERANCE for kind in kinds}
        self._taken: dict[tuple[str, str], float] = {}

    def run(self, wait: Callable[[float], bool]) -> None:
        """Run passes, also through outages of Redis, until ``wait`` returns true."""
        available = True
        while not wait(INTERVAL):
            try:
                self.step()
                available = True
            except OUTAGES as error:
                if available:
                    logger.warning("maintenance of jobs: Redis (REDIS_URL) is unavailable: %s", error)
                available = False

    def step(self) -> None:
        """Run one pass."""
        # `rq info` lists these queues; RQ itself registers a queue when its first job is enqueued.
        self._connection.sadd(Queue.redis_queues_keys, *[queue.key for queue in self._queues])
        for queue, tasks in zip(self._queues, self._pending(), strict=True):
            for task in tasks:
                try:
                    task(queue)
                except OUTAGES:
                    raise
                except Exception:  # a record that another client of Redis wrote
                    logger.exception("maintenance of queue %s failed", queue.name)
        if time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + DUE_INTERVAL
            self._enqueue_due()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _enqueue_due(self) -> None:
        """Enqueue the jobs that are due; nothing happens to those that wait, run or pause already."""
        for kind in self._kinds:
            try:
                ids = [] if kind.period else self._due(kind.name)
            except Exception as error:
                logger.warning("maintenance of jobs: the database (DATABASE_URL) does not answer: %s", error)
                return
            for id in ids:
                self._jobs.enqueue(kind.name, id)

    def _pending(self) -> list[list[Callable[[BoundQueue], None]]]:
        """Return the tasks of each queue that have something to do: nearly always none, in one round trip for all."""
        moment = time.time()
        with self._connection.pipeline(transaction=False) as pipeline:
            for queue in self._queues:
                pipeline.zcount(queue.started_job_registry.key, moment + TERM + TOLERANCE, "+inf")
                pipeline.zcount(queue.scheduled_job_registry.key, moment + self._longest[queue.name], "+inf")
                pipeline.zcount(queue.started_job_registry.key, 0, moment)
                pipeline.zcount(queue.scheduled_job_registry.key, 0, moment)
                pipeline.llen(queue.intermediate_queue_key)
                pipeline.zcard(queue.failed_job_registry.key)
            counts = iter(pipeline.execute(raise_on_error=False))  # a task raises the error of its key again
        remembered = {name for name, _ in self._taken}
        tasks = (
            self._bound_terms,
            self._bound_pauses,
            self._find_abandoned,
            self._start_retries,
            self._return_taken,
            self._trim_failures,
        )
        return [
            [task for task in tasks if next(counts) or (task == self._return_taken and queue.name in remembered)]
            for queue in self._queues
        ]

    def _bound_terms(self, queue: Queue) -> None:
        """End terms of running jobs that a clock has written which is ahead, or has been set back, after a TERM.

        A worker that is alive writes its own again before that.
        """
        self._bound(queue.started_job_registry.key, TERM, beyond=TERM + TOLERANCE)

    def _bound_pauses(self, queue: Queue) -> None:
        """Start the jobs now whose pause ends later than any does."""
        self._bound(queue.scheduled_job_registry.key, 0.0, beyond=self._longest[queue.name])

    def _bound(self, registry: str, seconds: float, *, beyond: float) -> None:
        moment = time.time()
        if members := self._connection.zrangebyscore(registry, moment + beyond, "+inf"):
            scores = {as_text(member): int(moment + seconds) for member in members if isinstance(member, bytes | str)}
            self._connection.zadd(registry, scores, xx=True, lt=True)

    def _find_abandoned(self, queue: Queue) -> None:
        """Retry or fail the jobs whose heartbeat has expired."""
        queue.started_job_registry.cleanup()

    def _start_retries(self, queue: BoundQueue) -> None:
        """Enqueue scheduled jobs that are due. RQ's own scheduler would trust every field of a job."""
        registry = queue.scheduled_job_registry
        for id in registry.get_jobs_to_schedule():
            job = readable(queue, id)
            with self._connection.pipeline() as pipeline:
                pipeline.zrem(registry.key, id)
                if job is not None:
                    queue.push(job, pipeline=pipeline)
                pipeline.execute()

    def _return_taken(self, queue: Queue) -> None:
        """Put jobs back that a worker took and never started, because it was killed in between."""
        now = time.monotonic()
        taken = set(queue.intermediate_queue.get_job_ids())
        for key in [key for key in self._taken if key[0] == queue.name and key[1] not in taken]:
            del self._taken[key]
        for id in taken:
            if now - self._taken.setdefault((queue.name, id), now) < TAKEN:
                continue
            if not self._connection.lrem(queue.intermediate_queue_key, 1, id):
                continue
            job = readable(queue, id)
            if job is not None and job.get_status(refresh=False) is JobStatus.QUEUED:
                queue.push_job_id(id)

    def _trim_failures(self, queue: Queue) -> None:
        """Delete expired failures, and the oldest beyond the limit."""
        registry = queue.failed_job_registry
        registry.cleanup()
        for id in registry.get_job_ids(0, -MOST_FAILURES - 1, cleanup=False):
            with suppress(NoSuchJobError):
                registry.remove(id, delete_job=True)


def abandon(url: str, kind: JobKind, name: str) -> None:
    """Retry or fail the job of a worker that was killed, without waiting for its heartbeat to expire."""
    connection = client(url, TIMEOUT)
    try:
        abandon_executions(queue_of(kind, connection, job_class_of(kind)), name)
    except OUTAGES as error:
        logger.warning("the job of a killed worker waits for its heartbeat to expire: Redis is unavailable: %s", error)
    finally:
        connection.close()
