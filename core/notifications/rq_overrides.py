"""RQ's job, queue and workers as this platform runs them: everything that RQ does not promise to keep is used here.

RQ is pinned to the version that was read for it, and `tests/unit/test_rq_overrides.py` compares the two: an upgrade of
RQ begins here.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from redis import Redis
from redis.client import Pipeline
from rq import Queue, SimpleWorker, Worker
from rq.exceptions import DequeueTimeout, StopRequested
from rq.executions import WORKER_EXECUTIONS_KEY_TEMPLATE, Execution
from rq.job import Job
from rq.registry import StartedJobRegistry
from rq.results import Result
from rq.serializers import JSONSerializer
from rq.timeouts import BaseTimeoutException
from rq.utils import as_text, now
from rq.worker.base import BaseWorker, WorkerStatus

from core.domain.scheduling.job_kinds import Functions, JobKind
from core.notifications.job_statistics import WorkerStatistics
from core.notifications.polling_workers import GRACE
from core.notifications.redis_client import OUTAGES

logger = logging.getLogger(__name__)

#: Seconds that a job may wait in its queue; SQL enqueues it again if it is still due.
WAITING = 3600
#: Seconds that a failed job is kept in the registry of failed jobs, with its traceback.
FAILURES_KEPT = 7 * 24 * 3600
#: Seconds between two heartbeats of a running job, and seconds after the last one at which it counts as abandoned:
#: those of claims in SQL.
BEAT, TERM = 3, 9
#: RQ's ``worker_ttl`` in seconds: after that, a worker without a heartbeat is not listed any more.
WORKER_TTL = 35
#: Seconds for which a worker waits for a job before it writes a heartbeat.
WAIT = 5
#: Seconds after a heartbeat of a worker in which it writes no other.
HEARTBEAT_PAUSE = 1.0
#: Timeout in seconds of a command: longer than the longest that blocks. So a worker notices dropped packets.
TIMEOUT = WAIT + 3


class BoundJob(Job):
    """A job restricted to the functions in ``functions``.

    A client that can write to Redis could name any function, callback or webhook in a job, or dependents, repeats and
    limits; all of these are ignored or replaced by those of the job's kind.
    """

    kind: ClassVar[JobKind | None] = None
    functions: ClassVar[Callable[[], Functions]] = staticmethod(dict)
    success_callback = failure_callback = stopped_callback = None

    def restore(self, raw_data: object) -> None:
        """Read the record from Redis, except what its kind decides."""
        super().restore(raw_data)
        self.webhooks = []
        self._dependency_ids = []
        self.group_id = None
        self.repeats_left = self.repeat_intervals = None
        self.rate_limit_key = self.rate_limit_concurrency = None
        self.result_ttl, self.failure_ttl, self.ttl = 0, FAILURES_KEPT, WAITING
        if self.kind is not None:
            self.timeout = self.kind.timeout
            self.retry_intervals = list(self.kind.retries)
            self.retries_left = min(self.retries_left or 0, len(self.kind.retries))

    def _execute(self) -> None:
        arguments = self.args
        if (
            self.kind is None
            or self.func_name != self.kind.name
            or self.instance is not None
            or self.kwargs
            or len(arguments) != 1
            or not isinstance(arguments[0], str)
        ):
            raise ValueError("not a job of this platform")
        type(self).functions()[self.kind.name](arguments[0])

    def send_webhooks(self, *arguments: object, **named: object) -> None:
        return None


def job_class_of(kind: JobKind, functions: Callable[[], Functions] = dict) -> type[BoundJob]:
    """Return the class of a kind's jobs. ``functions`` is called where a job runs; without it, none runs."""
    return type("KindJob", (BoundJob,), {"kind": kind, "functions": staticmethod(functions)})


class BoundQueue(Queue):
    """A queue whose jobs have no dependents: this platform enqueues none, so another client of Redis named them."""

    def push(self, job: Job, *, unique: bool = False, pipeline: Pipeline | None = None) -> None:
        """Enqueue a job, without listing the queue each time as RQ's `enqueue` does."""
        self._enqueue_job(job, unique=unique, pipeline=pipeline)

    def move_dependents_to_ready(self, *arguments: object, **named: object) -> dict[str, list[str]]:
        return {}

    enqueue_dependents = move_dependents_to_ready


def queue_of(kind: JobKind, connection: Redis, job_class: type[BoundJob] = BoundJob) -> BoundQueue:
    """Return the RQ queue of a kind."""
    return BoundQueue(kind.queue, connection=connection, job_class=job_class, serializer=JSONSerializer)


class KindWorker(BaseWorker):
    """Worker of one kind of job: the parts that resident and forking workers share."""

    log_result_lifespan = False
    connection_timeout = TIMEOUT
    kind: JobKind
    statistics: WorkerStatistics
    _next_heartbeat = 0.0  # on the monotonic clock

    @property
    def dequeue_timeout(self) -> int:
        return WAIT

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[Job, Queue] | None:
        """Wait for a job, None after ``max_idle_time`` seconds without one.

        Raise StopRequested when Redis is lost, where RQ would try to connect for ever.
        """
        idle_until = float("inf") if max_idle_time is None else time.monotonic() + max_idle_time
        try:
            with self.connection.pipeline(transaction=False) as pipeline:
                self.set_state(WorkerStatus.IDLE, pipeline=pipeline)
                self.heartbeat(pipeline=pipeline)
                pipeline.execute()
            while time.monotonic() < idle_until:
                try:
                    return self.queue_class.dequeue_any(
                        self._ordered_queues,
                        timeout,
                        connection=self.connection,
                        job_class=self.job_class,
                        serializer=self.serializer,
                        death_penalty_class=self.death_penalty_class,
                    )
                except DequeueTimeout:
                    self.heartbeat()
        except OUTAGES as error:
            raise StopRequested from error
        return None

    def heartbeat(self, timeout: int | None = None, pipeline: Pipeline | None = None) -> None:
        """Write a heartbeat of the worker; none by itself right after another: RQ writes several around each job."""
        moment = time.monotonic()
        if pipeline is None and moment < self._next_heartbeat:
            return
        self._next_heartbeat = moment + HEARTBEAT_PAUSE
        if pipeline is not None:
            super().heartbeat(timeout, pipeline)
        else:
            with self.connection.pipeline(transaction=False) as own:
                super().heartbeat(timeout, own)
                own.execute()

    def maintain_heartbeats(self, job: Job, execution: Execution) -> None:
        """Write heartbeats; an outage of Redis does not end a running job."""
        try:
            super().maintain_heartbeats(job, execution)
        except OUTAGES as error:
            logger.warning("no heartbeat of job %s: Redis (REDIS_URL) is unavailable: %s", job.id, error)

    def get_heartbeat_ttl(self, job: Job, working_time: float = 0.0) -> int:
        """Return the seconds until a job without a further heartbeat counts as abandoned."""
        return TERM

    def run_maintenance_tasks(self) -> None:
        """Leave maintenance to `job_maintenance`, which runs more often than a worker is idle."""
        self.last_cleaned_at = now()  # type: ignore[assignment]

    def handle_execution_ended(self, job: Job, queue: Queue, heartbeat_ttl: int) -> None:
        """Record the end of an attempt. It needs no heartbeat: jobs have no callbacks that would follow."""
        job.ended_at = now()

    def handle_job_success(
        self, job: Job, queue: Queue, started_job_registry: StartedJobRegistry, execution: Execution
    ) -> None:
        """Delete a job's record, in one round trip: a job has no result, no dependents and no repetition."""
        with self.connection.pipeline() as pipeline:
            self.increment_successful_job_count(pipeline=pipeline)
            self.increment_total_working_time(job.ended_at - job.started_at, pipeline)  # type: ignore[operator]
            self.cleanup_execution(job, pipeline=pipeline, execution=execution)
            failures: str = Result.get_key(job.id)  # type: ignore[no-untyped-call]
            pipeline.delete(job.key, job.dependents_key, job.dependencies_key, job.execution_registry.key, failures)
            pipeline.execute()
        self.statistics.add_attempt(failed=False, seconds=_seconds(job))

    def handle_job_failure(
        self,
        job: Job,
        queue: Queue,
        started_job_registry: object = None,
        exc_string: str = "",
        execution: Execution | None = None,
    ) -> None:
        self.statistics.add_attempt(failed=True, seconds=_seconds(job))
        super().handle_job_failure(job, queue, started_job_registry, exc_string, execution)


class ResidentWorker(KindWorker, SimpleWorker):
    """Runs jobs in its own process. Its parent kills it at `WorkerStatistics.deadline`."""

    def handle_exception(self, job: Job, *exc_info: object) -> None:
        """Replace this process after a timeout: the job was interrupted anywhere, so its locks may be held for ever."""
        super().handle_exception(job, *exc_info)
        if isinstance(exc_info[0], type) and issubclass(exc_info[0], BaseTimeoutException):
            self._stop_requested = True

    def execute_job(self, job: Job, queue: Queue) -> None:
        """Run a job, with a heartbeat from a thread."""
        execution = self.prepare_execution(job)
        self.statistics.deadline = time.monotonic() + self.kind.timeout + GRACE
        try:
            with self._heartbeat_of(job, execution):
                self.perform_job(job, queue, execution)
        finally:
            self.statistics.deadline = float("inf")

    def prepare_execution(self, job: Job) -> Execution:
        """Record that a job begins, in one transaction; RQ needs two, because another process may run its job."""
        with self.connection.pipeline() as pipeline:
            execution = Execution.create(job, TERM, pipeline=pipeline, worker_name=self.name)
            self.executions[execution.id] = execution
            self.set_state(WorkerStatus.BUSY, pipeline=pipeline)
            self.heartbeat(TERM, pipeline=pipeline)
            job.prepare_for_execution(self.name, pipeline=pipeline)
            pipeline.persist(job.key)
            pipeline.lrem(self.queues[0].intermediate_queue_key, 1, job.id)
            pipeline.execute()
        return execution

    def prepare_job_execution(self, job: Job, remove_from_intermediate_queue: bool = False) -> None:
        """Do nothing: `prepare_execution` has done it."""

    @contextmanager
    def _heartbeat_of(self, job: Job, execution: Execution) -> Iterator[None]:
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(BEAT):
                self.maintain_heartbeats(job, execution)

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


class ForkingWorker(KindWorker, Worker):
    """Runs each job in a forked process, which RQ kills if it does not end at the job's timeout."""

    prepare_fork: Callable[[int], None]

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        """Fork, as RQ does; the forked process also dies with this one."""
        parent = os.getpid()
        self._parent = parent
        super().fork_work_horse(job, queue)

    def main_work_horse(self, job: Job, queue: Queue) -> None:
        self.prepare_fork(self._parent)
        super().main_work_horse(job, queue)


def worker_of(
    kind: JobKind,
    name: str,
    connection: Redis,
    functions: Callable[[], Functions],
    *,
    statistics: WorkerStatistics,
    prepare_fork: Callable[[int], None],
) -> KindWorker:
    """Return a worker of a kind."""
    worker_class: type[KindWorker] = ResidentWorker if kind.resident else ForkingWorker
    job_class = job_class_of(kind, functions)
    worker = worker_class(
        [queue_of(kind, connection, job_class)],
        name=name,
        connection=connection,
        job_class=job_class,
        queue_class=BoundQueue,
        serializer=JSONSerializer,
        worker_ttl=WORKER_TTL,
        job_monitoring_interval=BEAT,
        log_job_description=False,
    )
    worker.kind, worker.statistics = kind, statistics
    if isinstance(worker, ForkingWorker):
        worker.prepare_fork = prepare_fork
    return worker


def abandon_executions(queue: Queue, worker: str) -> None:
    """Retry or fail the job of a worker that was killed, without waiting for its heartbeat to expire."""
    if executions := queue.connection.smembers(WORKER_EXECUTIONS_KEY_TEMPLATE.format(worker)):
        queue.connection.zadd(queue.started_job_registry.key, {as_text(key): 0 for key in executions}, xx=True)
        queue.started_job_registry.cleanup()


def _seconds(job: Job) -> float:
    if job.started_at is None:
        return 0.0
    return max(0.0, ((job.ended_at or now()) - job.started_at).total_seconds())
