"""Redis clients whose commands fail in time: a connection whose packets are dropped would block for ever."""

import redis
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

#: Timeout in seconds of connecting, and of commands that do not block.
TIMEOUT = 2.0
#: Errors of an outage.
OUTAGES = (redis.ConnectionError, redis.TimeoutError)


def client(url: str, timeout: float) -> Redis:
    """Return a client whose commands fail after ``timeout`` seconds; a broken connection is replaced once, at once."""
    retry = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
    return Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=TIMEOUT, retry=retry)


def ping(url: str) -> bool:
    """Return True if Redis answers on a new connection within TIMEOUT; else raise RedisError."""
    connection = Redis.from_url(
        url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, retry=Retry(NoBackoff(), 0)
    )
    try:
        return bool(connection.ping())
    finally:
        connection.close()
