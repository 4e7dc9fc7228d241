"""Request rates: how fast the requests of a project may come to a process; a token bucket each, without I/O.

A refused request takes nothing from its bucket, so that the seconds of a refusal are true: after them there is room.
"""

import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from api.identification import identity_of, project_of
from common.errors import PlatformError, TooManyRequests
from common.rate_buckets import RateBuckets

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

#: Key of the WSGI environment of a request that has been counted.
RATE_MARK = "windtunnel.rate_counted"
#: Most buckets that are remembered: of the projects, and users, whose requests came last.
MOST_BUCKETS = 10_000
_PROJECT_PATH = re.compile(r"/v1/projects/([^/]+)")


class RequestRates:
    """The rates of a process. ``rate``: requests a second of a project; 0: no limit. ``clock``: monotonic, seconds."""

    def __init__(self, rate: float = 0.0, burst: int = 1, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets = RateBuckets(rate, burst, MOST_BUCKETS) if rate else None

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
