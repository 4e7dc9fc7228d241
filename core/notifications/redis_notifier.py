"""Redis notifier: wake-ups over Redis lists and pub/sub; jobs go to `job_queue`.

Redis holds no authoritative state: after a flush, a restart or an outage, consumers find changes by polling.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from redis import Redis, RedisError
from redis.client import PubSub

from core.notifications.embedded_valkey import embedded as embedded
from core.notifications.job_queue import FailedJob, JobQueue, QueueCounts

logger = logging.getLogger(__name__)

NEWS = "windtunnel:news"
#: Timeout in seconds of non-blocking commands.
TIMEOUT = 5.0
#: Seconds between two attempts while Redis is unavailable.
RETRY = 0.5


class RedisNotifier:
    """A notifier across processes. No method raises while Redis is unavailable; one log line reports it."""

    def __init__(self, url: str) -> None:
        self._client = Redis.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)
        self._blocking = Redis.from_url(url, socket_connect_timeout=TIMEOUT)  # for blocking commands
        self._jobs = JobQueue(self._client)
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
        """Enqueue a job, unless the same job waits, runs or pauses already."""
        with self._ignoring_outages():
            self._jobs.enqueue(job, id)

    def job_counts(self) -> Sequence[QueueCounts]:
        """Return the numbers of jobs by kind; none while Redis is unavailable."""
        with self._ignoring_outages():
            return self._jobs.counts()
        return ()

    def failed_jobs(self) -> list[FailedJob]:
        """Return the failed jobs; none while Redis is unavailable."""
        with self._ignoring_outages():
            return list(self._jobs.failures())
        return []

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


def _notifier(role: str) -> str:
    return f"windtunnel:notifier:{role}"


def _receive(news: PubSub, ids: dict[str, None], timeout: float) -> bool:
    message = news.get_message(timeout=timeout)
    if message is not None and message["type"] == "message":
        ids[message["data"].decode()] = None
    return message is not None
