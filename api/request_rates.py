"""Request rates: how fast the requests of a project may come to a process; a token bucket each, without I/O.

A refused request takes nothing from its bucket, so that the seconds of a refusal are true: after them there is room.
"""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from api.identification import identity_of, project_of
from common.errors import PlatformError, TooManyRequests

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

#: Key of the WSGI environment of a request that has been counted.
RATE_MARK = "windtunnel.rate_counted"
#: Most buckets that are remembered: of the projects, and users, whose requests came last.
MOST_BUCKETS = 10_000
_PROJECT_PATH = re.compile(r"/v1/projects/([^/]+)")


class RateBuckets:
    """A bucket for each payer: ``burst`` requests at once, and ``rate`` a second. Times in seconds, monotonic."""

    def __init__(self, rate: float, burst: int) -> None:
        self._interval = 1.0 / rate
        self._slack = (max(1, burst) - 1) * self._interval
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, payer: str, now: float) -> float:
        """Count a request and return 0; or count nothing, and return the seconds after which there is room for it."""
        full_at = max(now, self._full_at.get(payer, now))
        if (excess := full_at - now - self._slack) > 1e-9:  # a rounding error is no request
            return excess
        self._full_at[payer] = full_at + self._interval
        self._full_at.move_to_end(payer)
        if len(self._full_at) > MOST_BUCKETS:
            self._full_at.popitem(last=False)
        return 0.0


class RequestRates:
    """The rates of a process. ``rate``: requests a second of a project; 0: no limit. ``clock``: monotonic, seconds."""

    def __init__(self, rate: float = 0.0, burst: int = 1, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets = RateBuckets(rate, burst) if rate else None

    def check(self, environ: "WSGIEnvironment") -> PlatformError | None:
        """Count a request that was let in, once; return the error that refuses it, None if there is room."""
        if self._buckets is None or RATE_MARK in environ or (payer := payer_of(environ)) is None:
            return None
        with self._lock:
            seconds = self._buckets.take(payer, self._clock())
        if seconds:
            whose = f"of project {payer}" if not payer.startswith("@") else f"of {payer[1:]} outside of a project"
            return TooManyRequests(
                f"The requests {whose} come faster than {self._rate:g} a second (WINDTUNNEL_PROJECT_RATE). Send this"
                " one again after `Retry-After` seconds; lists and streams need fewer requests than polling.",
                retry_after=seconds,
            )
        environ[RATE_MARK] = True
        return None


def payer_of(environ: "WSGIEnvironment") -> str | None:
    """Return for whom a request counts: the project in which it acts, else its user, as ``@ada``; None: for nobody.

    A project that is not one of the user's is not charged: others could use up its rate.
    """
    identity = identity_of(environ)
    if not identity.user:  # pages and probes, which read nothing
        return None
    projects = identity.projects
    addressed = _PROJECT_PATH.match(str(environ.get("PATH_INFO", "")))
    named = project_of(environ) or (addressed[1] if addressed else None)
    if named is None and len(projects) == 1:
        [named] = projects
    return named if named in projects else f"@{identity.user}"
