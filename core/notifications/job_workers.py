"""RQ workers: one process per worker and kind of job, with a heartbeat, a timeout and statistics."""

import logging
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from redis import Redis, RedisError
from rq import Queue, SimpleWorker, Worker
from rq.executions import Execution
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.timeouts import BaseTimeoutException
from rq.utils import now
from rq.worker.base import BaseWorker

from core.domain.job_kinds import JobKind
from core.notifications.job_queue import BoundQueue, Functions, job_class_of, queue_of
from core.notifications.job_statistics import WorkerStatistics

logger = logging.getLogger(__name__)

#: Seconds between two heartbeats of a running job, and seconds after the last one at which it counts as abandoned:
#: those of claims in SQL.
BEAT, TERM = 3, 9
#: Seconds after a resident job's timeout at which its process is killed, if the timeout's exception did not end it.
GRACE = 30.0
#: RQ's ``worker_ttl`` in seconds: it waits for a job 15 s less, then writes a heartbeat.
WORKER_TTL = 35
#: Timeout in seconds of connecting.
CONNECT_TIMEOUT = 5.0
#: Seconds between two attempts to reach Redis.
RETRY = 0.5


class _KindWorker(BaseWorker):
    """What both kinds of worker have in common."""

    max_connection_wait_time = 1.0
    log_result_lifespan = False
    kind: JobKind
    statistics: WorkerStatistics

    def get_heartbeat_ttl(self, job: Job, working_time: float = 0.0) -> int:
        """Return the seconds until a job without a further heartbeat counts as abandoned."""
        return TERM

    def run_maintenance_tasks(self) -> None:
        """Leave maintenance to `job_maintenance`, which runs more often than a worker is idle."""
        self.last_cleaned_at = now()  # type: ignore[assignment]

    def handle_job_success(self, job: Job, queue: Queue, *arguments: Any, **named: Any) -> None:
        super().handle_job_success(job, queue, *arguments, **named)
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
        self.set_state("idle")

    @contextmanager
    def _heartbeat_of(self, job: Job, execution: Execution) -> Iterator[None]:
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(BEAT):
                try:
                    self.maintain_heartbeats(job, execution)
                except RedisError as error:
                    logger.warning("no heartbeat of job %s: Redis (REDIS_URL) is unavailable: %s", job.id, error)

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


def work(
    url: str,
    kind: JobKind,
    name: str,
    open_functions: Callable[[], Functions],
    *,
    statistics: WorkerStatistics,
    prepare_fork: Callable[[int], None],
) -> None:
    """Run jobs of a kind in this process until SIGTERM, or until Redis does not answer any more.

    ``open_functions`` opens what jobs need, in the process in which they run. ``prepare_fork`` is called there with the
    process id of the worker that forked it.
    """
    logging.getLogger("rq.worker").addFilter(_no_outage)
    functions: Functions | None = open_functions() if kind.resident else None

    def bound() -> Functions:
        return open_functions() if functions is None else functions

    job_class = job_class_of(kind, bound)
    connection = Redis.from_url(url, socket_connect_timeout=CONNECT_TIMEOUT)
    _wait_for(connection)
    try:
        worker_class: type[_KindWorker] = ResidentWorker if kind.resident else ForkingWorker
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
        if isinstance(worker, ResidentWorker):
            worker._exc_handlers.append(worker.stop_after_timeout)
        elif isinstance(worker, ForkingWorker):
            worker.prepare_fork = prepare_fork
        worker.work(logging_level="WARNING")
    except RedisError as error:
        logger.warning("worker of %s jobs: Redis (REDIS_URL) is unavailable: %s", kind.name, error)
    finally:
        connection.close()


def _wait_for(connection: Redis) -> None:
    """Block until Redis answers; a signal ends the process meanwhile."""
    while True:
        try:
            connection.ping()
            return
        except RedisError:
            time.sleep(RETRY)


def _no_outage(record: logging.LogRecord) -> bool:
    """Drop the line that each worker logs each second of an outage; `job_maintenance` logs an outage once."""
    return "could not connect to Redis" not in record.msg


def _seconds(job: Job) -> float:
    if job.started_at is None:
        return 0.0
    return max(0.0, ((job.ended_at or now()) - job.started_at).total_seconds())
