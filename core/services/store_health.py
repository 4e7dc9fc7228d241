"""Store health: whether the object store can be read and written, asked in a thread: one that drops packets blocks."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from common.errors import NotFound, PlatformError
from datasets.objectstore.base import ObjectStore

#: Seconds for which an answer is believed, and seconds after which a question without one counts as an outage.
AGE, LATE = 5.0, 3.0
#: Seconds between two objects that are written to see whether the store accepts any: while it does, each is a version
#: in a bucket that keeps versions. While it does not, one is written with every question.
WRITING = 60.0
#: The object that is written, and read: the answer that there is none is an answer. It fills a block of a disk.
KEY, BODY = "health/probe", bytes(4096)


class StoreHealth:
    """Asks the store when its health is requested, at most once in AGE seconds, and one question at a time.

    A store that is read-only, full, or whose key lacks the right to put objects can be read and does not work.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._began = self._ended = float("-inf")
        self._asking = False
        self._problem: str | None = None
        self._wrote = float("-inf")

    def problem(self, wait: float = 0.0) -> str | None:
        """Return why the store cannot be used, None if it can.

        ``wait``: the answer is waited for until so many seconds after the question.
        """
        with self._lock:
            if not self._asking and time.monotonic() - self._ended > AGE:
                self._asking, self._began = True, time.monotonic()
                self._answered.clear()
                threading.Thread(target=self._ask, name="store-health", daemon=True).start()
            began = self._began
        if (patience := began + wait - time.monotonic()) > 0:
            self._answered.wait(patience)
        with self._lock:
            if self._asking and time.monotonic() - self._began > min(LATE, wait or LATE):
                return "the object store (OBJECT_STORE_URL) does not answer"
            return self._problem

    def _ask(self) -> None:
        problem = self._failure_of(self._read, "does not work")
        if problem is None and time.monotonic() - self._wrote > WRITING:
            problem = self._failure_of(self._write, "can be read and refuses objects")
        with self._lock:
            self._asking, self._ended, self._problem = False, time.monotonic(), problem
        self._answered.set()

    def _failure_of(self, use: Callable[[], object], failure: str) -> str | None:
        try:
            use()
        except PlatformError as error:
            return f"the object store (OBJECT_STORE_URL) {failure}: {error.detail}"
        except Exception as error:
            return f"the object store (OBJECT_STORE_URL) {failure} ({type(error).__name__})"
        return None

    def _read(self) -> None:
        with suppress(NotFound):
            self.store.size(KEY)

    def _write(self) -> None:
        self.store.put(KEY, [BODY])
        self._wrote = time.monotonic()
