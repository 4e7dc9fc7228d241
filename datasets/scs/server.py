"""Cache server: one epoll thread parses requests and sends responses; blocking work runs in bounded thread pools."""

import logging
import os
import resource
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from datasets.scs import metrics
from datasets.scs.authenticators import Authenticator, Identity, Unavailable
from datasets.scs.block_checksums import Damaged
from datasets.scs.config import WAITING_PER_WRITER, Config
from datasets.scs.connection import ClientConnection, ConnectionState
from datasets.scs.connection_table import IN, OUT, READ_SIZE, ConnectionTable
from datasets.scs.disk_reads import DiskReads
from datasets.scs.maintenance import Maintenance
from datasets.scs.object_request import ObjectRequest
from datasets.scs.open_files import Changed, Cold, OpenFiles, Unverified
from datasets.scs.page_cache import PageCache
from datasets.scs.put_body import PutOutcome, receive
from datasets.scs.requests import BodyPart, PutRequest, Service, TokenCheck
from datasets.scs.sending import (
    BLOCKED,
    COLD,
    DONE,
    FAILED,
    begin_response,
    mark_verified,
    next_window,
    send_pending,
    window_end,
)
from datasets.scs.store import Store, StoredObject, is_unreadable

logger = logging.getLogger(__name__)
READING, WRITING, OFF_LOOP = ConnectionState.READING, ConnectionState.WRITING, ConnectionState.OFF_LOOP
#: Objects' files kept open.
_MAX_OPEN_FILES = 4096
#: Look-ups per request: a file that replaced another may itself be replaced before it is opened.
_MAX_ATTEMPTS = 4
#: Seconds that `stop` waits for responses in progress.
_GRACE = 5.0


class CacheServer:
    """Event loop of one process. `run` returns after `stop`, which any thread or signal handler may call."""

    def __init__(self, config: Config, store: Store, authenticator: Authenticator, listener: socket.socket) -> None:
        self._config, self._limits, self._store, self._authenticator = config, config.limits, store, authenticator
        self.counts = metrics.ProcessMetrics()
        self.service = Service(config, store, self.counts)
        self._listener = listener
        self._epoll = select.epoll()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._calls: deque[Callable[[], None]] = deque()
        self._connections = ConnectionTable(self._epoll, self._limits)
        self._authenticating: dict[bytes, list[ClientConnection]] = {}
        self._puts_in_progress = 0
        self._stopping = threading.Event()
        self._stopped_at = 0.0
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        max_open_files = min(_MAX_OPEN_FILES, descriptors // 8)
        self.open_files = OpenFiles(store.folder, PageCache(store.folder / "temp"), max_open_files)
        self._writers = ThreadPoolExecutor(self._limits.writers, "write")
        self._authenticator_pool = ThreadPoolExecutor(4, "authenticate")
        self._disk_reads = DiskReads(store, self.call, self._stopping)
        self._maintenance = Maintenance(config, store, self.counts, self.call)
        self._max_connections = max(8, min(self._limits.connections, (descriptors - max_open_files - 128) // 2))

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._connections.by_descriptor)

    def stop(self) -> None:
        """Request a shutdown: `run` finishes the responses in progress and returns."""
        self._stopping.set()
        os.eventfd_write(self._wakeup, 1)

    def call(self, function: Callable[[], None]) -> None:
        """Schedule a function on the loop's thread, from any other thread."""
        self._calls.append(function)
        os.eventfd_write(self._wakeup, 1)

    def run(self) -> None:
        """Serve until `stop` is called, then finish the responses in progress."""
        self._listener.setblocking(False)
        listening, wakeup, watch = self._listener.fileno(), self._wakeup, self.open_files.watch.descriptor
        self._epoll.register(listening, IN)
        self._epoll.register(wakeup, IN)
        if self.open_files.watch.works:
            self._epoll.register(watch, IN)
        self._maintenance.start()
        due = time.monotonic() + 1.0
        connections = self._connections.by_descriptor
        while not self._finished():
            ready = dict(self._epoll.poll(max(0.0, due - time.monotonic())))
            if watch in ready:  # before any request that arrived after the file change
                self.open_files.forget_changed()
            for fd in ready:
                if (connection := connections.get(fd)) is not None:
                    try:
                        self._handle_ready(connection)
                    except OSError:
                        self._connections.close(connection)
                elif fd == listening:
                    self._accept()
                elif fd == wakeup:
                    self._run_calls()
            if (now := time.monotonic()) >= due:
                due = now + 1.0
                self._close_expired(now)
                self.open_files.expire()
                self.open_files.make_room()
                self._maintenance.flush()
                self.service.ready = self._maintenance.ready
                if self._store.index.corrupt:  # the next process to open the folder starts with an empty index
                    self._stopping.set()
        for connection in connections.values():
            if connection.state is OFF_LOOP:  # a thread that waits for this client gets end of file
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
        for pool in (self._writers, self._authenticator_pool):
            pool.shutdown(cancel_futures=True)
        self._disk_reads.close()
        for connection in list(connections.values()):
            self._connections.close(connection)
        self._maintenance.close()
        self.open_files.close()
        self._epoll.close()
        os.close(self._wakeup)

    def _finished(self) -> bool:
        if not self._stopping.is_set():
            return False
        if not self._stopped_at:
            self._stopped_at = time.monotonic()
            self._epoll.unregister(self._listener.fileno())
            self._listener.close()
        busy = any(connection.state in (WRITING, OFF_LOOP) for connection in self._connections.by_descriptor.values())
        return not busy or time.monotonic() - self._stopped_at > _GRACE

    # -- event handling

    def _accept(self) -> None:
        for _ in range(64):
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setblocking(False)
            if len(self._connections.by_descriptor) >= self._max_connections:
                self.counts.add("scs_refusals_total", 'status="503"')
                refusal = self.service.refuse(ObjectRequest(), 503, time.time(), detail="All connections are taken.")
                with suppress(OSError):  # the client has disconnected
                    sock.send(refusal)
                sock.close()
                continue
            self._connections.add(sock, time.monotonic())

    def _run_calls(self) -> None:
        os.eventfd_read(self._wakeup)
        while self._calls:
            call = self._calls.popleft()
            self.open_files.forget_changed()  # the next response reflects what the thread changed
            call()

    def _handle_ready(self, connection: ClientConnection) -> None:
        """Read from a connection that is readable, or continue the response of a connection that is writable."""
        if connection.state is WRITING:
            if self._pump(connection):
                self._serve(connection)
            return
        if connection.state is not READING:
            self._connections.discard(connection)
            return
        try:
            data = connection.sock.recv(READ_SIZE)
        except BlockingIOError:
            return
        if not data:
            self._connections.close(connection)
            return
        now = time.monotonic()
        began = connection.between_requests()
        if began and self._serve_repeated(connection, data, now):
            return
        partial_before = connection.partial
        connection.feed(data, now)
        if not connection.partial:
            connection.deadline = now + self._limits.idle
            if began and len(connection.requests) == 1 and not connection.mid_request():
                self.service.remember_head(data, connection.requests[0])
            self._serve(connection)
        elif not partial_before:
            connection.deadline = now + self._limits.head_time

    def _serve_repeated(self, connection: ClientConnection, data: bytes, now: float) -> bool:
        """Answer a request whose bytes were parsed before, without parsing; return whether that was possible."""
        wall = time.time()
        stored = self.service.match_repeated(data, wall)
        if stored is None:
            return False
        try:
            file = self.open_files.open(stored)
            end = min(stored.size, window_end(0))
            if file.body is None:
                self.open_files.verify(file, 0, end, now)
        except (OSError, Unverified, Changed, Cold, Damaged):
            return False  # the parsed request finds the reason
        head = self.service.full_response_head(stored, wall)
        connection.method, connection.started_at, connection.deadline = b"GET", now, now + self._limits.idle
        begin_response(connection, head, file, 0, stored.size)
        mark_verified(connection, end, now)
        self._pump(connection)
        return True

    def _serve(self, connection: ClientConnection) -> None:
        """Answer the parsed requests in order, until a response has to wait."""
        requests = connection.requests
        while requests and connection.state is READING:
            self._respond(connection, requests.popleft())
            if requests:  # the next request may have arrived after the last check for changed files
                self.open_files.forget_changed()
        if connection.state is READING and connection.mask != IN:
            connection.deadline = time.monotonic() + self._limits.idle
            self._connections.watch(connection, IN)

    def _respond(self, connection: ClientConnection, request: ObjectRequest) -> None:
        connection.method, connection.started_at = request.method, request.arrived_at
        answer = self.service.answer(request, time.time())
        if type(answer) is BodyPart:
            self._open(connection, request, answer)
        elif type(answer) is bytes:
            self._reply(connection, request, answer)
        elif type(answer) is TokenCheck:
            self._authenticate(connection, request, answer)
        elif type(answer) is PutRequest:
            self._start_put(connection, request, answer)
        else:
            self._scrape(connection, request)

    # -- responses

    def _reply(self, connection: ClientConnection, request: ObjectRequest, answer: bytes) -> None:
        if request.method == b"HEAD" and not answer.endswith(b"\r\n\r\n"):
            answer = answer[: answer.index(b"\r\n\r\n") + 4]
        connection.out = answer
        connection.closing = not request.keep_alive
        connection.unread = bool(request.fault) or not request.complete
        self._pump(connection)

    def _open(self, connection: ClientConnection, request: ObjectRequest, part: BodyPart) -> None:
        connection.closing = not request.keep_alive
        try:
            file = self.open_files.open(part.stored)
        except FileNotFoundError:
            self._retry(connection, request, part, "its file is missing")
        except Changed:
            self._retry(connection, request, part, "the size of its file has changed")
        except Damaged as error:
            self._retry(connection, request, part, str(error))
        except Unverified:
            self._connections.hand_over(connection)
            self._disk_reads.add_checksums(part.stored, partial(self._checksums_added, connection, request, part))
        except Cold:
            self._connections.hand_over(connection)
            self._disk_reads.read(part.stored, partial(self._cold_read_done, connection, request, part))
        except OSError as error:
            if not is_unreadable(error):
                raise
            self._retry(connection, request, part, f"its file cannot be read: {error.strerror}")
        else:
            begin_response(connection, part.head, file, part.start, part.end)
            connection.unsent = request, part
            self._pump(connection)

    def _cold_read_done(
        self, connection: ClientConnection, request: ObjectRequest, part: BodyPart, result: bytes | str
    ) -> None:
        if isinstance(result, bytes):
            connection.out = part.head + result[part.start : part.end]
            self._resume(connection, partial(self._pump, connection))
        else:
            self._resume(connection, partial(self._retry, connection, request, part, result))

    def _checksums_added(
        self, connection: ClientConnection, request: ObjectRequest, part: BodyPart, result: StoredObject | str | None
    ) -> None:
        if isinstance(result, StoredObject):
            if self._store.cached(request.target) is part.stored:
                self._store.remember(request.target, result)
            self._resume(connection, partial(self._open, connection, request, part._replace(stored=result)))
        elif result is not None:
            self._resume(connection, partial(self._retry, connection, request, part, result))
        else:
            self._connections.close(connection)

    def _retry(self, connection: ClientConnection, request: ObjectRequest, part: BodyPart, reason: str) -> None:
        """Look up again after a cached entry's file failed, at most _MAX_ATTEMPTS times: deleting its row may fail."""
        if self._store.mark_missing(part.stored, request.target, reason):
            self.service.count_damaged(part.stored.bucket)
        self.service.uncount_hit(part)
        request.attempts += 1
        if request.attempts < _MAX_ATTEMPTS:
            connection.requests.appendleft(request)
        else:
            self._reply(connection, request, self.service.refuse(request, 404, time.time()))

    def _pump(self, connection: ClientConnection) -> bool:
        """Send pending bytes; return whether the response is complete and the connection ready for the next request."""
        try:
            result = send_pending(connection, self.open_files)
        except Damaged as error:
            return self._abandon(connection, str(error))
        except OSError:
            result = FAILED
        if result is DONE:
            if connection.started_at:
                self.counts.time(_METHODS.get(connection.method, "other"), time.monotonic() - connection.started_at)
            if not connection.closing:
                connection.state = READING
                return True
            self._connections.close_after_response(connection)
        elif result is BLOCKED:
            connection.state = WRITING
            connection.deadline = time.monotonic() + self._limits.stall
            self._connections.watch(connection, OUT)
        elif result is COLD and (file := connection.open_file) is not None:
            self._connections.hand_over(connection)
            start, end = next_window(connection)
            self._disk_reads.verify(file, start, end, partial(self._cold_verified, connection, end))
        else:
            self._connections.close(connection)
        return False

    def _cold_verified(self, connection: ClientConnection, end: int, reason: str) -> None:
        connection.state = WRITING
        mark_verified(connection, end, time.monotonic())
        step = partial(self._abandon, connection, reason) if reason else partial(self._pump, connection)
        if self._connections.resume(connection, step):
            self._connections.resume(connection, partial(self._serve, connection))

    def _abandon(self, connection: ClientConnection, reason: str) -> bool:
        """Drop the damaged object that is being sent; answer again, or close if a part of the response has left.

        Return whether the connection is ready for the next request.
        """
        file, unsent, connection.unsent = connection.open_file, connection.unsent, None
        connection.out = b""
        connection.release_file()
        if unsent is not None:
            connection.state = READING
            self._retry(connection, *unsent, reason)
            return connection.state is READING
        if file is not None and self._store.drop(file.stored, reason):
            self.service.count_damaged(file.stored.bucket)
        self._connections.close(connection)
        return False

    def _resume(self, connection: ClientConnection, step: Callable[[], bool | None]) -> None:
        """Take a connection back from a thread: continue its request, then answer the following ones."""
        connection.state = READING
        self._connections.resume(connection, step)
        self._connections.resume(connection, partial(self._serve, connection))

    # -- thread pools

    def _authenticate(self, connection: ClientConnection, request: ObjectRequest, check: TokenCheck) -> None:
        connection.requests.appendleft(request)
        self._connections.hand_over(connection)
        waiting = self._authenticating.setdefault(check.key, [])
        waiting.append(connection)
        if len(waiting) == 1:
            self._authenticator_pool.submit(self._check_token, check)

    def _check_token(self, check: TokenCheck) -> None:
        try:
            identity: Identity | Unavailable | None = self._authenticator.authenticate(check.token)
        except Unavailable as error:
            logger.warning("authenticator is unavailable (Reviewer): %s", error)
            identity = error
        except Exception:
            logger.exception("authenticator failed (Reviewer)")
            identity = Unavailable()
        self.call(partial(self._token_checked, check.key, identity))

    def _token_checked(self, key: bytes, identity: Identity | Unavailable | None) -> None:
        failed = isinstance(identity, Unavailable)
        if not isinstance(identity, Unavailable):
            self.service.authenticated(key, identity, time.time())
        for connection in self._authenticating.pop(key):
            connection.requests[0].authenticator_unavailable = failed
            connection.state = READING
            self._connections.resume(connection, partial(self._serve, connection))

    def _start_put(self, connection: ClientConnection, request: ObjectRequest, put: PutRequest) -> None:
        if self._puts_in_progress >= self._limits.writers * (1 + WAITING_PER_WRITER):
            self._reply(connection, request, self.service.refuse(request, 503, time.time()))
            return
        self._puts_in_progress += 1
        self._connections.hand_over(connection)
        self._writers.submit(self._receive, connection, request, put)

    def _receive(self, connection: ClientConnection, request: ObjectRequest, put: PutRequest) -> None:
        outcome = receive(self._store, connection.sock, request, put, self._limits)
        self.call(partial(self._put_done, connection, request, put, outcome))

    def _put_done(
        self, connection: ClientConnection, request: ObjectRequest, put: PutRequest, outcome: PutOutcome
    ) -> None:
        self._puts_in_progress -= 1
        now = time.time()
        if outcome.disconnected:
            self._connections.close(connection)
            return
        if outcome.stored is not None:
            if not request.complete:
                connection.reset_parser()
            request.complete = True
            answer = self.service.put_response(request, put, outcome.stored, outcome.evicted, now)
        else:
            answer = self.service.refuse(request, outcome.status, now, detail=outcome.detail)
        self._resume(connection, partial(self._reply, connection, request, answer))

    def _scrape(self, connection: ClientConnection, request: ObjectRequest) -> None:
        self._connections.hand_over(connection)
        self._maintenance.collect_metrics(self.connections, partial(self._metrics_collected, connection, request))

    def _metrics_collected(self, connection: ClientConnection, request: ObjectRequest, page: bytes | None) -> None:
        if page is None:
            answer = self.service.refuse(request, 503, time.time(), detail="The object index cannot be read.")
        else:
            answer = self.service.plain(request, page, b"text/plain; version=0.0.4; charset=utf-8", time.time())
        self._resume(connection, partial(self._reply, connection, request, answer))

    def _close_expired(self, now: float) -> None:
        """Close the connections whose deadline has passed; a partial request gets 408."""
        for connection in self._connections.expired(now):
            if connection.state is READING and connection.partial:
                request = ObjectRequest()
                request.fault = 408
                self._connections.resume(connection, partial(self._respond, connection, request))
            else:
                self._connections.close(connection)


_METHODS = {b"GET": "GET", b"HEAD": "HEAD", b"PUT": "PUT"}
