"""Job queue over RQ: a queue per kind of job and deterministic job ids.

Redis holds no authoritative state: whatever is due is enqueued again from SQL, and a claim in SQL makes a duplicate run
harmless.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from redis import Redis
from rq import Queue, Retry
from rq.exceptions import DuplicateJobError, InvalidJobOperation
from rq.job import Job
from rq.utils import now

from core.domain.scheduling.job_kinds import BY_NAME, KINDS, Verdict, judge
from core.notifications.redis_client import OUTAGES
from core.notifications.rq_overrides import FAILURES_KEPT, WAITING, BoundJob, queue_of

logger = logging.getLogger(__name__)

#: Failed jobs that are kept per kind; the oldest are deleted first.
MOST_FAILURES = 1000


class JobQueue:
    """Enqueues jobs. Methods raise RedisError while Redis is unavailable."""

    def __init__(self, connection: Redis) -> None:
        self._queues = {kind.name: queue_of(kind, connection) for kind in KINDS}
        self._listed: set[str] = set()

    def enqueue(self, name: str, id: str) -> None:
        """Enqueue a job, unless it waits, runs or pauses already.

        A job whose retries have failed is enqueued again after a pause, which doubles each time.
        """
        if (kind := BY_NAME.get(name)) is None:
            raise ValueError(f"unknown kind of job: {name}")
        queue = self._queues[name]
        if name not in self._listed:  # `rq info` shows it; after a flush of Redis, maintenance lists it again
            queue.connection.sadd(Queue.redis_queues_keys, queue.key)
            self._listed.add(name)
        for _ in range(2):
            job = queue.create_job(
                kind.name,
                (id,),
                job_id=kind.job_id(id),
                description=f"{kind.name} {id}",
                timeout=kind.timeout,
                result_ttl=0,
                failure_ttl=FAILURES_KEPT,
                ttl=WAITING,
                retry=Retry(max=len(kind.retries), interval=list(kind.retries)),
            )
            try:
                queue.push(job, unique=True)
            except DuplicateJobError:
                if self._settled(queue, kind.job_id(id)):
                    return
            else:
                return

    def _settled(self, queue: Queue, job_id: str) -> bool:
        """Apply the verdict on a job's existing record; return False if the job has to be enqueued afresh."""
        job = readable(queue, job_id)
        if job is None:
            return False
        failures = _failures(job)
        seen = job.ended_at or job.last_heartbeat or job.enqueued_at or job.created_at
        verdict = judge(
            job.get_status(refresh=False).value,
            age=(now() - seen).total_seconds() if seen else 0.0,
            failures=failures,
            listed=lambda: _is_listed(queue, job_id),
        )
        if verdict is Verdict.REPLACE:
            job.delete()
            return False
        if verdict is Verdict.REQUEUE:
            job.meta = {"failures": failures + 1}
            try:
                queue.failed_job_registry.requeue(job)
            except InvalidJobOperation:  # no registry lists it
                job.delete()
                return False
        return True

    def counts(self) -> Sequence["QueueCounts"]:
        """Return how many jobs of each kind wait, run, pause before a retry, and have failed."""
        return [
            QueueCounts(
                kind=name,
                queued=queue.count,
                started=queue.connection.zcard(queue.started_job_registry.key),
                scheduled=queue.connection.zcard(queue.scheduled_job_registry.key),
                failed=queue.connection.zcard(queue.failed_job_registry.key),
            )
            for name, queue in self._queues.items()
        ]

    def failures(self) -> Iterator["FailedJob"]:
        """Yield the failed jobs of each kind, the oldest first."""
        for name, queue in self._queues.items():
            for id in queue.failed_job_registry.get_job_ids():
                if (job := queue.fetch_job(id)) is not None:
                    result = job.latest_result()
                    yield FailedJob(
                        kind=name,
                        job_id=id,
                        ended_at=job.ended_at,
                        failures=_failures(job) + 1,
                        traceback=((result.exc_string if result else None) or "").strip(),
                    )


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedJob:
    """A job whose retries have failed. ``failures``: how often all of them have."""

    kind: str
    job_id: str
    ended_at: datetime | None
    failures: int
    traceback: str


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueCounts:
    """Numbers of jobs of a kind, by where RQ lists them."""

    kind: str
    queued: int
    started: int
    scheduled: int
    failed: int


def readable(queue: Queue, job_id: str) -> Job | None:
    """Return a job, None if there is none; a record that no worker could read is deleted.

    After Redis was emptied, the heartbeat of a running job leaves such a record: it has nothing but its time.
    """
    try:
        if (job := queue.fetch_job(job_id)) is not None:
            return job
    except OUTAGES:
        raise
    except Exception as error:
        logger.warning("job %s is deleted: its record cannot be read: %s", job_id, error)
    queue.connection.delete(BoundJob.key_for(job_id))
    return None


def _is_listed(queue: Queue, job_id: str) -> bool:
    """Return whether a job waits in its queue, was just taken from it, is scheduled, or runs."""
    if queue.connection.zscore(queue.scheduled_job_registry.key, job_id) is not None:
        return True
    if job_id in queue.started_job_registry.get_job_ids(cleanup=False):
        return True
    lists = (queue.key, queue.intermediate_queue_key)
    return any(queue.connection.lpos(key, job_id) is not None for key in lists)


def _failures(job: Job) -> int:
    failures = job.meta.get("failures", 0) if isinstance(job.meta, dict) else 0
    return failures if isinstance(failures, int) else 0
