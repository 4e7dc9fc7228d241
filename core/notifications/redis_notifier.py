"""Redis notifier: wake-ups over Redis lists and pub/sub, jobs over RQ. No other module uses either.

Redis holds no authoritative state: after a flush, a restart or an outage, consumers find changes by polling.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar

from redis import Redis, RedisError
from redis.client import PubSub
from rq import Queue, SimpleWorker
from rq.job import Job
from rq.serializers import JSONSerializer

from core.notifications.embedded_valkey import embedded as embedded

logger = logging.getLogger(__name__)

#: Allowed jobs. Without this list, any client that can write to Redis could name any function.
JOBS = ("stage", "collect", "replay", "register", "prefetch", "sweep")
NEWS = "windtunnel:news"
QUEUE = "windtunnel"
#: Timeout in seconds of non-blocking commands.
TIMEOUT = 5.0
#: Seconds between two attempts while Redis is unavailable.
RETRY = 0.5


class RedisNotifier:
    """A notifier across processes. No method raises while Redis is unavailable; one log line reports it."""

    def __init__(self, url: str) -> None:
        self._client = Redis.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)
        self._blocking = Redis.from_url(url, socket_connect_timeout=TIMEOUT)  # for blocking commands
        self._queue = Queue(QUEUE, connection=self._client, job_class=BoundJob, serializer=JSONSerializer)
        self._news: PubSub | None = None
        self._unavailable = threading.Event()

    def wake(self, role: str) -> None:
        """Wake a role's loop, or its next wait."""
        with self._ignoring_outages():
            # Wake-ups do not accumulate: the list is trimmed to one element.
            with self._client.pipeline() as pipeline:
                pipeline.lpush(_notifier(role), 1)
                pipeline.ltrim(_notifier(role), 0, 0)
                pipeline.execute()

    def wait(self, role: str, timeout: float) -> bool:
        """Block until the role is woken, at most ``timeout`` seconds; return whether it was."""
        with self._ignoring_outages(timeout):
            if timeout <= 0:
                return self._client.lpop(_notifier(role)) is not None
            return self._blocking.blpop([_notifier(role)], timeout) is not None
        return False

    def publish(self, simulation_id: str) -> None:
        """Tell every process that a simulation has changed."""
        with self._ignoring_outages():
            self._client.publish(NEWS, simulation_id)

    def published(self, timeout: float) -> list[str]:
        """Block until a change is published, at most ``timeout`` seconds; for a single thread per process."""
        ids: dict[str, None] = {}
        with self._ignoring_outages(timeout):
            if self._news is None:
                listen: Callable[..., PubSub] = self._blocking.pubsub
                self._news = listen(ignore_subscribe_messages=True)
                self._news.subscribe(NEWS)
            until = time.monotonic() + timeout
            while (left := until - time.monotonic()) > 0 and not ids:
                _receive(self._news, ids, left)
            while ids and _receive(self._news, ids, 0.0):
                pass
            return list(ids)
        self._news = None
        return list(ids)

    def enqueue(self, job: str, id: str) -> None:
        """Enqueue a job. Its RQ id is random: RQ would keep refusing a fixed id after its worker was killed."""
        if job not in JOBS:
            raise ValueError(f"unknown job: {job}")
        with self._ignoring_outages():
            self._queue.enqueue(job, id, job_timeout=-1, result_ttl=0, failure_ttl=60, ttl=3600)

    def alive(self) -> bool:
        """Return whether Redis answers."""
        with self._ignoring_outages():
            return bool(self._client.ping())
        return False

    def close(self) -> None:
        """Close the connections."""
        if self._news is not None:
            self._news.close()
        self._client.close()
        self._blocking.close()

    @contextmanager
    def _ignoring_outages(self, pause: float = 0.0) -> Iterator[None]:
        """Suppress errors of Redis, log an outage once, and sleep instead of a blocking command (at most RETRY)."""
        try:
            yield
        except RedisError as error:
            if not self._unavailable.is_set():
                self._unavailable.set()
                logger.warning("Redis (REDIS_URL) is unavailable; consumers poll instead: %s", error)
            time.sleep(min(pause, RETRY))
        else:
            if self._unavailable.is_set():
                self._unavailable.clear()
                logger.warning("Redis (REDIS_URL) is available again")


#: RQ's ``worker_ttl`` in seconds (it waits 15 s less for a job), and seconds between liveness beats during a job.
TERM, BEAT = 35, 10.0


def _notifier(role: str) -> str:
    return f"windtunnel:notifier:{role}"


def _receive(news: PubSub, ids: dict[str, None], timeout: float) -> bool:
    message = news.get_message(timeout=timeout)
    if message is not None and message["type"] == "message":
        ids[message["data"].decode()] = None
    return message is not None


class BoundJob(Job):
    """A job restricted to the functions in ``table``; functions, callbacks and webhooks named in Redis are ignored."""

    table: ClassVar[Mapping[str, Callable[[str], None]]] = {}

    def _execute(self) -> None:
        (id,) = self.args
        if self.func_name not in JOBS or not isinstance(id, str) or self.kwargs:
            raise ValueError("not one of this platform's jobs")
        self.table[self.func_name](id)

    @property
    def success_callback(self) -> None:
        return None

    @property
    def failure_callback(self) -> None:
        return None

    @property
    def stopped_callback(self) -> None:
        return None

    def send_webhooks(self, *arguments: Any, **named: Any) -> None:
        return None


class _Worker(SimpleWorker):
    """Runs jobs in this process: a fork per job costs more than most jobs."""

    max_connection_wait_time = 1.0
    stopping: threading.Event
    beat: Callable[[], None]

    def heartbeat(self, *arguments: Any, **named: Any) -> None:
        """Record an iteration of the loop, in Redis and in the liveness file."""
        self.beat()
        super().heartbeat(*arguments, **named)

    def execute_job(self, job: Job, queue: Queue) -> None:
        """Run a job; meanwhile a thread beats, so that the liveness probe does not fail during long jobs."""
        done = threading.Event()

        def beating() -> None:
            while not done.wait(BEAT):
                self.beat()

        threading.Thread(target=beating, name="beat", daemon=True).start()
        try:
            super().execute_job(job, queue)
        finally:
            done.set()

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        self.stopping.set()
        stop: Callable[[int, FrameType | None], None] = super().request_stop
        stop(signum, frame)


def work(
    url: str, table: Mapping[str, Callable[[str], None]], stopping: threading.Event, beat: Callable[[], None]
) -> None:
    """Run jobs until a signal stops the process, also through outages of Redis; ``beat`` at every iteration."""
    job_class = type("TableJob", (BoundJob,), {"table": dict(table)})
    while not stopping.is_set():
        beat()
        connection = Redis.from_url(url, socket_connect_timeout=TIMEOUT)
        try:
            queue = Queue(QUEUE, connection=connection, job_class=job_class, serializer=JSONSerializer)
            worker = _Worker(
                [queue], connection=connection, job_class=job_class, serializer=JSONSerializer, worker_ttl=TERM
            )
            worker.stopping, worker.beat = stopping, beat
            worker.work(logging_level="WARNING")
        except RedisError as error:
            logger.warning("job queue: Redis (REDIS_URL) is unavailable: %s", error)
        finally:
            connection.close()
        stopping.wait(RETRY)
