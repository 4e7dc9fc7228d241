"""Store health: whether the object store answers, asked in a thread: a store that drops packets blocks its caller."""

import threading
import time

from datasets.objectstore.base import ObjectStore
from errors import NotFound, PlatformError

#: Seconds for which an answer is believed, and seconds after which a question without one counts as an outage.
AGE, LATE = 5.0, 3.0
#: A key that no object has; the answer that there is none is an answer.
KEY = "health/probe"


class StoreHealth:
    """Asks the store when its health is requested, at most once in AGE seconds, and one question at a time."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._began = self._ended = float("-inf")
        self._asking = False
        self._problem: str | None = None

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
        problem = None
        try:
            self.store.size(KEY)
        except NotFound:
            pass
        except PlatformError as error:
            problem = f"the object store (OBJECT_STORE_URL) does not work: {error.detail}"
        except Exception as error:
            problem = f"the object store (OBJECT_STORE_URL) does not work ({type(error).__name__})"
        with self._lock:
            self._asking, self._ended, self._problem = False, time.monotonic(), problem
        self._answered.set()
