"""The notifier over Redis, and RQ beneath it: the one place that knows either.

Nothing here is the truth. A flushed, restarted or missing Redis costs the seconds until somebody looks by the clock.
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

#: The jobs there are. Whoever could write to Redis could name any function otherwise.
JOBS = ("stage", "collect", "replay", "register", "prefetch", "sweep")
NEWS = "windtunnel:news"
QUEUE = "windtunnel"
#: Seconds Redis may take to answer what does not block.
TIMEOUT = 5.0
#: Seconds between two tries while it is away.
RETRY = 0.5


class RedisNotifier:
    """A notifier that reaches every process. No method raises because Redis is away; one line says so."""

    def __init__(self, url: str) -> None:
        self._client = Redis.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)
        self._patient = Redis.from_url(url, socket_connect_timeout=TIMEOUT)  # for what blocks
        self._queue = Queue(QUEUE, connection=self._client, job_class=BoundJob, serializer=JSONSerializer)
        self._news: PubSub | None = None
        self._away = threading.Event()

    def wake(self, role: str) -> None:
        """Wake a role's loop, or its next wait."""
        with self._forgiving():
            # One ring is as good as ten; the list is kept at one.
            with self._client.pipeline() as pipeline:
                pipeline.lpush(_notifier(role), 1)
                pipeline.ltrim(_notifier(role), 0, 0)
                pipeline.execute()

    def wait(self, role: str, timeout: float) -> bool:
        """Block until the role is rung for, at most ``timeout`` seconds; tell which."""
        with self._forgiving(timeout):
            if timeout <= 0:
                return self._client.lpop(_notifier(role)) is not None
            return self._patient.blpop([_notifier(role)], timeout) is not None
        return False

    def publish(self, simulation_id: str) -> None:
        """Tell streams that a simulation has something new."""
        with self._forgiving():
            self._client.publish(NEWS, simulation_id)

    def published(self, timeout: float) -> list[str]:
        """Block until something is announced, at most ``timeout`` seconds; one thread of a process may listen."""
        heard: dict[str, None] = {}
        with self._forgiving(timeout):
            if self._news is None:
                listen: Callable[..., PubSub] = self._patient.pubsub
                self._news = listen(ignore_subscribe_messages=True)
                self._news.subscribe(NEWS)
            until = time.monotonic() + timeout
            while (left := until - time.monotonic()) > 0 and not heard:
                _hear(self._news, heard, left)
            while heard and _hear(self._news, heard, 0.0):
                pass
            return list(heard)
        self._news = None
        return list(heard)

    def enqueue(self, job: str, id: str) -> None:
        """Hand a job to the jobs role. Its id is random: a fixed one would stay refused after its worker was killed."""
        if job not in JOBS:
            raise ValueError(f"no such job: {job}")
        with self._forgiving():
            self._queue.enqueue(job, id, job_timeout=-1, result_ttl=0, failure_ttl=60, ttl=3600)

    def alive(self) -> bool:
        """Tell whether Redis answers."""
        with self._forgiving():
            return bool(self._client.ping())
        return False

    def close(self) -> None:
        """Let go of the connections."""
        if self._news is not None:
            self._news.close()
        self._client.close()
        self._patient.close()

    @contextmanager
    def _forgiving(self, pause: float = 0.0) -> Iterator[None]:
        """Swallow a Redis that is away, saying so once; whoever meant to block is held up for a moment instead."""
        try:
            yield
        except RedisError as error:
            if not self._away.is_set():
                self._away.set()
                logger.warning("the notifier does not ring, the clock does: %s", error)
            time.sleep(min(pause, RETRY))
        else:
            if self._away.is_set():
                self._away.clear()
                logger.warning("the notifier rings again")


#: Seconds a worker waits for a job before it turns again, and 15 more; and between two beats while it is at one.
TERM, BEAT = 35, 10.0


def _notifier(role: str) -> str:
    return f"windtunnel:notifier:{role}"


def _hear(news: PubSub, heard: dict[str, None], timeout: float) -> bool:
    message = news.get_message(timeout=timeout)
    if message is not None and message["type"] == "message":
        heard[message["data"].decode()] = None
    return message is not None


class BoundJob(Job):
    """A job that can only be one of those in the table, whatever Redis says of functions, callbacks and webhooks."""

    table: ClassVar[Mapping[str, Callable[[str], None]]] = {}

    def _execute(self) -> None:
        (id,) = self.args
        if self.func_name not in JOBS or not isinstance(id, str) or self.kwargs:
            raise ValueError("not a job of ours")
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
    """Does jobs in this process: forking for each costs more than most of them."""

    max_connection_wait_time = 1.0
    stopping: threading.Event
    beat: Callable[[], None]

    def heartbeat(self, *arguments: Any, **named: Any) -> None:
        """Say that the loop has turned, in Redis and here."""
        self.beat()
        super().heartbeat(*arguments, **named)

    def execute_job(self, job: Job, queue: Queue) -> None:
        """Do a job; while it lasts, the loop cannot turn, and nobody shall think it hangs."""
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
    """Do jobs until told to stop by a signal, whatever becomes of Redis meanwhile; ``beat`` at every turn."""
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
            logger.warning("the jobs' queue is away: %s", error)
        finally:
            connection.close()
        stopping.wait(RETRY)
