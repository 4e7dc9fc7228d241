"""Many small requests at once in one thread, over libcurl's multi interface and epoll.

Eight threads of small requests spend half their time handing Python's lock (the GIL) to each other. Here libcurl tells
which connections are ready, and responses are hashed and written as they are complete.
"""

import heapq
import queue
import random
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pycurl  # type: ignore[import-untyped]

from datasets.download.range_coalescing import CoalescedRange
from datasets.download.range_fetch import RangeFetch
from datasets.objectstore.s3_reader import ObjectLocation, RetryLimits, S3Connection

#: Bytes up to which a request is small: hashing and writing them takes no longer than sending the request.
SMALL_REQUEST = 128 << 10
#: Seconds between two checks of the stop event and of stalled connections.
CHECK_INTERVAL = 0.1
EVENTS = (
    (select.EPOLLIN | select.EPOLLHUP, pycurl.CSELECT_IN),
    (select.EPOLLOUT, pycurl.CSELECT_OUT),
    (select.EPOLLERR, pycurl.CSELECT_ERR),
)


class CurlMulti:
    """Fetches the ranges of batches from a queue, up to ``concurrency`` at once; a ``None`` in the queue ends it.

    ``begin`` creates the fetch of a range; ``on_batch_taken`` is called when a batch was taken from the queue.
    """

    def __init__(
        self,
        begin: Callable[[CoalescedRange], RangeFetch],
        batches: "queue.Queue[list[CoalescedRange] | None]",
        on_batch_taken: Callable[[], object],
        *,
        concurrency: int,
        retry_limits: RetryLimits,
        stop: threading.Event,
    ) -> None:
        self._begin = begin
        self._batches = batches
        self._on_batch_taken = on_batch_taken
        self._concurrency = concurrency
        self._retry_limits = retry_limits
        self._stop = stop
        self._batch: list[CoalescedRange] = []
        self._queue_ended = False
        self._idle: list[S3Connection] = []
        self._active: dict[object, tuple[S3Connection, RangeFetch]] = {}
        self._backing_off: list[tuple[float, int, RangeFetch]] = []
        self._sequence = count()
        self._poll = select.epoll()
        self._timer: float | None = None
        self._multi = multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_MAXCONNECTS, concurrency)
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch_socket)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)

    def run(self) -> None:
        """Return when all ranges are fetched, or ``stop`` is set. Raise the error of the first fetch that fails."""
        checked_at = time.monotonic()
        while not self._stop.is_set():
            self._start_fetches()
            if not self._active and not self._backing_off:
                if self._queue_ended:
                    return
                continue
            self._drive()
            self._collect_finished()
            if (now := time.monotonic()) - checked_at >= CHECK_INTERVAL:
                checked_at = now
                self._abort_stalled(now)

    def close(self) -> None:
        """Close every file and connection."""
        for connection, fetch in self._active.values():
            self._multi.remove_handle(connection.curl)
            fetch.writer.close()
            self._idle.append(connection)
        for _, _, fetch in self._backing_off:
            fetch.writer.close()
        for connection in self._idle:
            connection.close()
        self._multi.close()
        self._poll.close()

    # -- fetches

    def _start_fetches(self) -> None:
        """Start the retries that are due, then new ranges, up to ``concurrency``."""
        now = time.monotonic()
        while self._backing_off and self._backing_off[0][0] <= now:
            self._send_request(heapq.heappop(self._backing_off)[2])
        while len(self._active) + len(self._backing_off) < self._concurrency:
            if (next_range := self._next_range()) is None:
                return
            fetch = self._begin(next_range)
            if not fetch.done:
                self._send_request(fetch)

    def _next_range(self) -> CoalescedRange | None:
        """Return the next range, or None; block on the queue only if no fetch is active or backing off."""
        if not self._batch and not self._queue_ended:
            idle = not self._active and not self._backing_off
            try:
                batch = self._batches.get(block=idle, timeout=CHECK_INTERVAL if idle else None)
            except queue.Empty:
                return None
            self._on_batch_taken()
            self._queue_ended = batch is None
            self._batch = list(reversed(batch or ()))
        return self._batch.pop() if self._batch else None

    def _send_request(self, fetch: RangeFetch) -> None:
        connection = self._idle.pop() if self._idle else S3Connection(self._retry_limits, self._stop, SMALL_REQUEST)
        self._active[connection.curl] = connection, fetch
        assert isinstance(fetch.location, ObjectLocation)
        wanted, writer = fetch.range, fetch.writer
        connection.prepare(fetch.location, writer.position, wanted.stop, wanted.etag, writer.write)
        self._multi.add_handle(connection.curl)

    def _finish_request(self, curl: object, code: int) -> None:
        connection, fetch = self._active.pop(curl)
        self._multi.remove_handle(curl)
        self._idle.append(connection)
        failure: Exception | None = None
        try:
            connection.finish(code)
        except Exception as error:
            failure = error
        if failure is None and fetch.done:
            return
        try:
            wait = fetch.request_ended(failure, random.random())
        except BaseException:
            fetch.writer.close()
            raise
        if not fetch.done:
            heapq.heappush(self._backing_off, (time.monotonic() + wait, next(self._sequence), fetch))

    # -- libcurl

    def _drive(self) -> None:
        """Wait for socket events, the timer or the next retry, and let libcurl handle them."""
        now = time.monotonic()
        timeout = min([CHECK_INTERVAL, *([self._timer - now] if self._timer is not None else []), *self._retry_in(now)])
        for descriptor, events in self._poll.poll(max(0.0, timeout)):
            curl_events = sum(curl_event for epoll_event, curl_event in EVENTS if events & epoll_event)
            self._multi.socket_action(descriptor, curl_events)
        if self._timer is not None and self._timer <= time.monotonic():
            self._timer = None
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def _retry_in(self, now: float) -> list[float]:
        return [self._backing_off[0][0] - now] if self._backing_off else []

    def _collect_finished(self) -> None:
        remaining = 1
        while remaining:
            remaining, succeeded, failed = self._multi.info_read()
            for curl in succeeded:
                self._finish_request(curl, 0)
            for curl, code, _ in failed:
                self._finish_request(curl, code)

    def _abort_stalled(self, now: float) -> None:
        """Abort the requests that received nothing for longer than the stall limit."""
        for curl, (connection, _) in list(self._active.items()):
            if connection.is_stalled(now):
                self._finish_request(curl, pycurl.E_OPERATION_TIMEDOUT)

    def _watch_socket(self, what: int, descriptor: int, multi: object, data: object) -> None:
        """Register a socket with epoll as libcurl asks; the kernel unregisters closed sockets itself."""
        events = select.EPOLLIN * bool(what & pycurl.POLL_IN) | select.EPOLLOUT * bool(what & pycurl.POLL_OUT)
        if what == pycurl.POLL_REMOVE:
            with suppress(OSError):
                self._poll.unregister(descriptor)
            return
        try:
            self._poll.register(descriptor, events)
        except FileExistsError:
            self._poll.modify(descriptor, events)

    def _set_timer(self, milliseconds: int) -> None:
        """Store when libcurl asks to be called next; a negative value cancels the timer."""
        self._timer = None if milliseconds < 0 else time.monotonic() + milliseconds / 1000
