"""Measurement: a value that may take long to compute, computed in a thread and kept for requests."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from common.errors import PlatformError

T = TypeVar("T")
logger = logging.getLogger(__name__)

#: Seconds that a request waits for a new value, and how many times as long as it took a computation is not repeated.
WAIT, REST = 0.05, 20.0


@dataclass(frozen=True, slots=True)
class Measured(Generic[T]):
    """The last value, and when it was computed; both are None until the first computation has ended."""

    value: T | None = None
    at: datetime | None = None


class Measurement(Generic[T]):
    """Computes a value when it is asked for: one computation at a time, and not again within ``interval`` seconds.

    So the cost of a value is bounded, however often and by however many clients it is asked for.
    """

    def __init__(self, compute: Callable[[], T], *, interval: float, wait: float = WAIT) -> None:
        self._compute, self._interval, self._wait = compute, interval, wait
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._computing = False
        self._due_at = float("-inf")
        self._latest: Measured[T] = Measured()
        self._error: PlatformError | None = None

    def latest(self) -> Measured[T]:
        """Return the last value; wait a moment for a new one if it is old. Raise the error of the last computation."""
        with self._lock:
            if not self._computing and time.monotonic() >= self._due_at:
                self._computing = True
                self._ended.clear()
                threading.Thread(target=self._run, name="measurement", daemon=True).start()
            computing = self._computing
        if computing:
            self._ended.wait(self._wait)
        with self._lock:
            if self._error is not None:
                raise self._error.with_traceback(None)
            return self._latest

    def _run(self) -> None:
        began, at = time.monotonic(), datetime.now(UTC)
        latest, error = self._latest, None
        try:
            latest = Measured(self._compute(), at)
        except PlatformError as caught:
            error = caught
        except Exception as caught:
            logger.exception("a measurement failed")
            error = PlatformError(f"The measurement failed ({type(caught).__name__}); the server's log has the error.")
        ended = time.monotonic()
        with self._lock:
            self._computing, self._latest, self._error = False, latest, error
            self._due_at = ended + max(self._interval, REST * (ended - began))
        self._ended.set()
