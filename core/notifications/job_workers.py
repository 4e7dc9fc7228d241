"""RQ workers: one process per worker and kind of job, with a heartbeat, a timeout and statistics.

A worker that has lost Redis ends, and one that begins without Redis takes its jobs from SQL (`polling_workers`).
"""

import logging
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from redis import RedisError
from redis.client import Pipeline
from rq import Queue, SimpleWorker, Worker
from rq.exceptions import DequeueTimeout, StopRequested
from rq.executions import Execution
from rq.job import Job
from rq.registry import StartedJobRegistry
from rq.results import Result
from rq.serializers import JSONSerializer
from rq.timeouts import BaseTimeoutException
from rq.utils import now
from rq.worker.base import BaseWorker, WorkerStatus

from core.domain.scheduling.job_kinds import JobKind
from core.notifications.job_queue import BoundQueue, Due, Functions, job_class_of, queue_of
from core.notifications.job_statistics import WorkerStatistics
from core.notifications.polling_workers import GRACE, PollingWorker
from core.notifications.redis_client import OUTAGES, client, ping

logger = logging.getLogger(__name__)

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


class _KindWorker(BaseWorker):
    """What both kinds of worker have in common."""

    log_result_lifespan = False
    kind: JobKind
    statistics: WorkerStatistics
    _next_heartbeat = 0.0  # on the monotonic clock

    @property
    def dequeue_timeout(self) -> int:
        return WAIT

    @property
    def connection_timeout(self) -> int:
        return TIMEOUT

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

    def handle_job_failure(self, job: Job, queue: Queue, *arguments: Any, **named: Any) -> None:
        self.statistics.add_attempt(failed=True, seconds=_seconds(job))
        super().handle_job_failure(job, queue, *arguments, **named)


class ResidentWorker(_KindWorker, SimpleWorker):
    """Runs jobs in its own process. Its parent kills it at `WorkerStatistics.deadline`."""

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

    def stop_after_timeout(
        self, job: Job, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Replace this process after a timeout: the job was interrupted anywhere, so its locks may be held for ever."""
        if issubclass(kind, BaseTimeoutException):
            self._stop_requested = True


class ForkingWorker(_KindWorker, Worker):
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


def worker_name(kind: JobKind) -> str:
    """Return a new name for a worker: kind, host, and random digits, as process ids recur in containers."""
    return f"{kind.name}.{platform.node()}.{secrets.token_hex(4)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSpec:
    """A worker to be run: its kind, its name in RQ, and the seconds without a job after which it ends, None: never."""

    kind: JobKind
    name: str
    max_idle: int | None


def work(
    url: str,
    spec: WorkerSpec,
    open_functions: Callable[[], Functions],
    open_due: Callable[[], Due],
    *,
    statistics: WorkerStatistics,
    prepare_fork: Callable[[int], None],
) -> None:
    """Run jobs of a kind in this process until SIGTERM, or until Redis is lost; without Redis at first, from SQL.

    ``open_functions`` opens what jobs need, in the process in which they run; ``open_due`` what names those that are
    due. ``prepare_fork`` is called in a forked process with the process id of the worker that forked it.
    """
    kind = spec.kind
    logging.getLogger("rq.worker").addFilter(_no_outage)
    functions: Functions | None = open_functions() if kind.resident else None

    def bound() -> Functions:
        return open_functions() if functions is None else functions

    job_class = job_class_of(kind, bound)
    polling = PollingWorker(kind, functions, open_functions, open_due, statistics=statistics, prepare_fork=prepare_fork)
    if not polling.run(lambda: _answers(url)):
        return
    connection = client(url, TIMEOUT)
    try:
        worker_class: type[_KindWorker] = ResidentWorker if kind.resident else ForkingWorker
        worker = worker_class(
            [queue_of(kind, connection, job_class)],
            name=spec.name,
            connection=connection,
            job_class=job_class,
            queue_class=BoundQueue,
            serializer=JSONSerializer,
            worker_ttl=WORKER_TTL,
            job_monitoring_interval=BEAT,
            log_job_description=False,
        )
        worker.kind, worker.statistics = kind, statistics
        if isinstance(worker, ResidentWorker):
            worker._exc_handlers.append(worker.stop_after_timeout)
        elif isinstance(worker, ForkingWorker):
            worker.prepare_fork = prepare_fork
        worker.work(logging_level="WARNING", max_idle_time=spec.max_idle)
    except RedisError as error:
        logger.warning("worker of %s jobs: Redis (REDIS_URL) is unavailable: %s", kind.name, error)
    finally:
        connection.close()


def _answers(url: str) -> bool:
    try:
        return ping(url)
    except RedisError:
        return False


def _no_outage(record: logging.LogRecord) -> bool:
    """Drop the lines of each worker about an outage; `job_maintenance` logs an outage once."""
    error = record.exc_info[1] if record.exc_info else None
    return "Redis connection timeout" not in str(record.msg) and not isinstance(error, RedisError)


def _seconds(job: Job) -> float:
    if job.started_at is None:
        return 0.0
    return max(0.0, ((job.ended_at or now()) - job.started_at).total_seconds())
