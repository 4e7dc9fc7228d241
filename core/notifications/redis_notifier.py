"""Redis notifier: wake-ups over Redis lists and pub/sub; jobs go to `job_queue`.

Redis holds no authoritative state: after a flush, a restart or an outage, consumers find changes by polling.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import redis
from redis import RedisError
from redis.client import PubSub

from core.notifications.embedded_valkey import embedded as embedded
from core.notifications.job_queue import FailedJob, JobQueue, QueueCounts
from core.notifications.redis_client import TIMEOUT, client, ping

T = TypeVar("T")

logger = logging.getLogger(__name__)

NEWS = "windtunnel:news"
#: Longest seconds for which a command blocks; the timeout of its connection is longer by TIMEOUT.
BLOCK = 2.0
#: Seconds between two probes while Redis is unavailable.
RETRY = 0.5
#: Seconds without a message after which a subscription is pinged: a connection whose packets are dropped is silent.
SILENCE = 5.0


class _Listen(Protocol):
    """The method of Redis clients that subscribes, which has no types of its own."""

    def __call__(self, *, ignore_subscribe_messages: bool) -> PubSub: ...


class RedisNotifier:
    """A notifier across processes. No method raises while Redis is unavailable; one log line reports it.

    During an outage no caller waits for Redis: commands are dropped until a thread's probe is answered.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = client(url, TIMEOUT)
        self._blocking = client(url, BLOCK + TIMEOUT)
        self._jobs = JobQueue(self._client)
        self._news: PubSub | None = None
        self._heard_at = self._pinged_at = 0.0
        self._lock = threading.Lock()
        self._available = threading.Event()
        self._available.set()
        self._closed = threading.Event()

    def wake(self, role: str) -> None:
        """Wake a role's loop, or its next wait."""

        def push() -> None:
            # Wake-ups do not accumulate: the list is trimmed to one element.
            with self._client.pipeline() as pipeline:
                pipeline.lpush(_notifier(role), 1)
                pipeline.ltrim(_notifier(role), 0, 0)
                pipeline.execute()

        self._attempt(push, None)

    def wait(self, role: str, timeout: float) -> bool:
        """Block until the role is woken, at most ``timeout`` seconds; return whether it was."""
        if timeout <= 0:
            return self._attempt(lambda: self._client.lpop(_notifier(role)) is not None, False)
        until = time.monotonic() + timeout
        while (left := until - time.monotonic()) > 0:
            seconds = min(left, BLOCK)
            if self._attempt(lambda: self._blocking.blpop([_notifier(role)], seconds) is not None, False):  # noqa: B023
                return True
            if not self._available.is_set():
                self._available.wait(until - time.monotonic())
                return False
        return False

    def publish(self, simulation_id: str) -> None:
        """Tell every process that a simulation has changed."""
        self._attempt(lambda: self._client.publish(NEWS, simulation_id), 0)

    def published(self, timeout: float) -> list[str]:
        """Block until a change is published, at most ``timeout`` seconds; for a single thread per process."""
        ids: dict[str, None] = {}
        until = time.monotonic() + timeout
        self._attempt(lambda: self._receive(ids, until), None)
        if not self._available.is_set():
            self._drop_subscription()
            if not ids:
                self._available.wait(until - time.monotonic())
        return list(ids)

    def enqueue(self, job: str, id: str) -> bool:
        """Enqueue a job, unless the same job waits, runs or pauses already; return False if Redis is unavailable."""

        def enqueue() -> bool:
            self._jobs.enqueue(job, id)
            return True

        return self._attempt(enqueue, False)

    def job_counts(self) -> Sequence[QueueCounts]:
        """Return the numbers of jobs by kind; none while Redis is unavailable."""
        return self._attempt(self._jobs.counts, ())

    def failed_jobs(self) -> list[FailedJob]:
        """Return the failed jobs; none while Redis is unavailable."""
        return self._attempt(lambda: list(self._jobs.failures()), [])

    def alive(self) -> bool:
        """Return whether Redis answers on a new connection: open ones outlive the socket that they were made by."""
        return self._attempt(lambda: ping(self._url), False)

    def close(self) -> None:
        """Close the connections."""
        self._closed.set()
        self._drop_subscription()
        self._client.close()
        self._blocking.close()

    # -- outages

    def _attempt(self, command: Callable[[], T], otherwise: T) -> T:
        """Return the result of a command; ``otherwise`` if it fails, or without sending it during an outage."""
        if self._available.is_set():
            try:
                return command()
            except RedisError as error:
                self._begin_outage(error)
        return otherwise

    def _begin_outage(self, error: RedisError) -> None:
        with self._lock:
            if not self._available.is_set():
                return
            self._available.clear()
        logger.warning("Redis (REDIS_URL) is unavailable; consumers poll instead: %s", error)
        threading.Thread(target=self._probe, name="redis-probe", daemon=True).start()

    def _probe(self) -> None:
        """Wait until Redis answers; then drop the connections of before, which may be dead, and end the outage."""
        while not self._closed.wait(RETRY):
            try:
                ping(self._url)
            except RedisError:
                continue
            for connections in (self._client.connection_pool, self._blocking.connection_pool):
                connections.disconnect(inuse_connections=False)
            self._available.set()
            logger.warning("Redis (REDIS_URL) is available again")
            return

    # -- subscription

    def _receive(self, ids: dict[str, None], until: float) -> None:
        if self._news is None:
            listen: _Listen = self._blocking.pubsub
            self._news = listen(ignore_subscribe_messages=True)
            self._news.subscribe(NEWS)
            self._heard_at = time.monotonic()
        while (left := until - time.monotonic()) > 0 and not ids:
            self._check_silence(self._news)
            self._read(self._news, ids, min(left, BLOCK))
        while ids and self._read(self._news, ids, 0.0):
            pass

    def _check_silence(self, news: PubSub) -> None:
        """Ping a silent subscription; raise TimeoutError if a ping was not answered."""
        now = time.monotonic()
        if self._pinged_at > self._heard_at:
            if now - self._pinged_at > TIMEOUT:
                raise redis.TimeoutError("a subscription does not answer")
        elif now - self._heard_at > SILENCE:
            news.ping()
            self._pinged_at = now

    def _read(self, news: PubSub, ids: dict[str, None], timeout: float) -> bool:
        message = news.get_message(timeout=timeout)
        if message is None:
            return False
        self._heard_at = time.monotonic()
        if message["type"] == "message":
            ids[message["data"].decode()] = None
        return True

    def _drop_subscription(self) -> None:
        news, self._news = self._news, None
        if news is not None:
            news.close()


def _notifier(role: str) -> str:
    return f"windtunnel:notifier:{role}"
