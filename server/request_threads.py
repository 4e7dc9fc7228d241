"""Threads that serve requests: started when all are busy, up to a limit, and ended when they have been idle.

The threads are daemons, unlike those of `concurrent.futures`: a response that a client does not read must not keep the
process from ending.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

#: Seconds of idleness after which a thread ends.
IDLE = 60.0

_Call = tuple["asyncio.Future[None]", Callable[..., None], tuple[Any, ...]]


class RequestThreads:
    """At most ``most`` threads, which run functions for one event loop; further calls wait in a queue."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    def run(self, function: Callable[..., None], *arguments: Any) -> "asyncio.Future[None]":
        """Run a function, which must not raise, in a thread; return the future of its end. Call this on the loop."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._calls.put((future, function, arguments))
            start = self._idle < self._calls.qsize() and self._threads < self._most
            if start:
                self._threads += 1
        if start:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            call: _Call | None = None
            with suppress(queue.Empty):
                call = self._calls.get(timeout=IDLE)
            with self._lock:
                self._idle -= 1
                if call is None and self._calls.empty():
                    self._threads -= 1
                    return
            if call is not None:
                future, function, arguments = call
                del call
                try:
                    function(*arguments)
                finally:
                    del function, arguments
                    future.get_loop().call_soon_threadsafe(_end, future)
                    del future


def _end(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
