"""RQ workers: one process per worker and kind of job, with a heartbeat, a timeout and statistics.

A worker that has lost Redis ends, and one that begins without Redis takes its jobs from SQL (`polling_workers`).
"""

import logging
import platform
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from redis import RedisError

from core.domain.scheduling.job_kinds import Due, Functions, JobKind
from core.notifications.job_statistics import WorkerStatistics
from core.notifications.polling_workers import PollingWorker
from core.notifications.redis_client import client, ping
from core.notifications.rq_overrides import TIMEOUT, worker_of

logger = logging.getLogger(__name__)


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

    polling = PollingWorker(kind, functions, open_functions, open_due, statistics=statistics, prepare_fork=prepare_fork)
    if not polling.run(lambda: _answers(url)):
        return
    connection = client(url, TIMEOUT)
    try:
        worker = worker_of(kind, spec.name, connection, bound, statistics=statistics, prepare_fork=prepare_fork)
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
