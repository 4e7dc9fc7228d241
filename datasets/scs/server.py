"""The loop: one epoll thread that parses, answers and sends; what would make it wait is done by pools of threads."""

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
from datasets.scs.authenticators import Identity, TokenReviewer, Unavailable
from datasets.scs.config import Config
from datasets.scs.connection import Connection, Request, State
from datasets.scs.maintenance import Keeper
from datasets.scs.open_files import Changed, Cold, Recent
from datasets.scs.page_cache import Pages
from datasets.scs.put_body import Outcome, receive
from datasets.scs.requests import Intake, Part, Review, Service
from datasets.scs.sending import BLOCKED, COLD, CUT, DONE, begin, push, window
from datasets.scs.store import Store, is_unreadable

logger = logging.getLogger(__name__)
IN, OUT = select.EPOLLIN, select.EPOLLOUT
READING, WRITING, AWAY = State.READING, State.WRITING, State.AWAY
#: Bytes read at once, and so the most that a connection may have waiting here.
_TAKE = 64 << 10
#: Bytes and seconds that a refused body is still read, so that the client gets to read why.
_LINGER, _LINGER_TIME = 64 << 20, 5.0
#: Files kept open.
_OPEN = 4096
#: Times that one request is looked for: what takes the place of a file that was replaced may be replaced as well.
_LOOKS = 4
#: Seconds a stop waits for answers under way.
_GRACE = 5.0


class Server:
    """One process's loop. `run` returns after `stop`, which any thread or signal may call."""

    def __init__(self, config: Config, store: Store, reviewer: TokenReviewer, listener: socket.socket) -> None:
        self._config, self._limits, self._store, self._reviewer = config, config.limits, store, reviewer
        self.counts = metrics.Counts()
        self.service = Service(config, store, self.counts)
        self._listener = listener
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._calls: deque[Callable[[], None]] = deque()
        self._connections: dict[int, Connection] = {}
        self._reviewing: dict[bytes, list[Connection]] = {}
        self._intakes = 0
        self._stopping = threading.Event()
        self._stopped_at = 0.0
        self._pages = Pages(store.folder / "temp")
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        kept = min(_OPEN, descriptors // 8)
        self.recent = Recent(store.folder, self._pages, kept)
        self._writers = ThreadPoolExecutor(self._limits.writers, "write")
        self._readers = ThreadPoolExecutor(4, "read")
        self._askers = ThreadPoolExecutor(4, "review")
        self._keeper = Keeper(config, store, self.counts, self.call)
        self._most = max(8, min(self._limits.connections, (descriptors - kept - 128) // 2))

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._connections)

    def stop(self) -> None:
        """Ask for an end."""
        self._stopping.set()
        os.eventfd_write(self._bell, 1)

    def call(self, function: Callable[[], None]) -> None:
        """Have the loop's thread do something, from any other."""
        self._calls.append(function)
        os.eventfd_write(self._bell, 1)

    def run(self) -> None:
        """Serve until asked to stop, then finish what is under way."""
        self._listener.setblocking(False)
        listening, bell, watch = self._listener.fileno(), self._bell, self.recent.watch.descriptor
        self._epoll.register(listening, IN)
        self._epoll.register(bell, IN)
        if self.recent.watch.works:
            self._epoll.register(watch, IN)
        self._keeper.start()
        due = time.monotonic() + 1.0
        connections = self._connections
        while not self._over():
            ready = dict(self._epoll.poll(max(0.0, due - time.monotonic())))
            if watch in ready:  # before any request that came after what it tells of
                self.recent.look()
            for fd in ready:
                if (connection := connections.get(fd)) is not None:
                    try:
                        self._turn(connection)
                    except OSError:
                        self._close(connection)
                elif fd == listening:
                    self._accept()
                elif fd == bell:
                    self._answer_bell()
            if (now := time.monotonic()) >= due:
                due = now + 1.0
                self._sweep(now)
                self.recent.sweep()
                self._keeper.note()
                self.service.ready = self._keeper.ready
                if self._store.ledger.broken:  # whoever is started next begins a new one
                    self._stopping.set()
        for connection in self._connections.values():
            if connection.state is AWAY:  # a thread that waits for its client waits no longer
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
        for pool in (self._writers, self._readers, self._askers):
            pool.shutdown(cancel_futures=True)
        for connection in list(connections.values()):
            self._close(connection)
        self._keeper.close()
        self.recent.close()
        self._epoll.close()
        os.close(self._bell)

    def _over(self) -> bool:
        if not self._stopping.is_set():
            return False
        if not self._stopped_at:
            self._stopped_at = time.monotonic()
            self._epoll.unregister(self._listener.fileno())
            self._listener.close()
        busy = any(one.state in (WRITING, AWAY) for one in self._connections.values())
        return not busy or time.monotonic() - self._stopped_at > _GRACE

    # -- turns of the loop

    def _accept(self) -> None:
        for _ in range(64):
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setblocking(False)
            if len(self._connections) >= self._most:
                self.counts.add("scs_refusals_total", 'status="503"')
                refusal = self.service.refuse(Request(), 503, time.time(), detail="All connections are taken.")
                with suppress(OSError):  # it is gone already
                    sock.send(refusal)
                sock.close()
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock, self._limits)
            connection.deadline = time.monotonic() + self._limits.head_time
            self._connections[connection.fd] = connection
            self._watch(connection, IN)

    def _answer_bell(self) -> None:
        os.eventfd_read(self._bell)
        while self._calls:
            call = self._calls.popleft()
            self.recent.look()  # what the thread did, the next answer knows
            call()

    def _turn(self, connection: Connection) -> None:
        """Take what came, or send what could not be sent."""
        if connection.state is WRITING:
            if self._pump(connection):
                self._serve(connection)
            return
        if connection.state is not READING:
            self._discard(connection)
            return
        try:
            data = connection.sock.recv(_TAKE)
        except BlockingIOError:
            return
        if not data:
            self._close(connection)
            return
        now = time.monotonic()
        began = connection.at_rest()
        if began and self._repeat(connection, data, now):
            return
        partial_before = connection.partial
        connection.feed(data, now)
        if not connection.partial:
            connection.deadline = now + self._limits.idle
            if began and len(connection.asked) == 1 and not connection.underway():
                self.service.learn(data, connection.asked[0])
            self._serve(connection)
        elif not partial_before:
            connection.deadline = now + self._limits.head_time

    def _repeat(self, connection: Connection, data: bytes, now: float) -> bool:
        """Answer what was asked just so before, the short way; tell whether that was possible."""
        wall = time.time()
        found = self.service.repeated(data, wall)
        if found is None:
            return False
        try:
            file = self.recent.open(found)
        except (OSError, Changed, Cold):
            return False  # and the long way finds out
        head = self.service.whole(found, wall)
        connection.method, connection.since, connection.deadline = b"GET", now, now + self._limits.idle
        begin(connection, head, file, 0, found.size, now)
        self._pump(connection)
        return True

    def _serve(self, connection: Connection) -> None:
        """Answer what has been asked, one after the other, as far as it goes."""
        asked = connection.asked
        while asked and connection.state is READING:
            self._respond(connection, asked.popleft())
            if asked:  # it may have come after what the loop has looked at
                self.recent.look()
        if connection.state is READING and connection.mask != IN:
            connection.deadline = time.monotonic() + self._limits.idle
            self._watch(connection, IN)

    def _respond(self, connection: Connection, request: Request) -> None:
        connection.method, connection.since = request.method, request.arrived
        answer = self.service.answer(request, time.time())
        if type(answer) is Part:
            self._open(connection, request, answer)
        elif type(answer) is bytes:
            self._reply(connection, request, answer)
        elif type(answer) is Review:
            self._review(connection, request, answer)
        elif type(answer) is Intake:
            self._take(connection, request, answer)
        else:
            self._scrape(connection, request)

    # -- answers

    def _reply(self, connection: Connection, request: Request, answer: bytes) -> None:
        if request.method == b"HEAD" and not answer.endswith(b"\r\n\r\n"):
            answer = answer[: answer.index(b"\r\n\r\n") + 4]
        connection.out = answer
        connection.closing = not request.keep_alive
        connection.unread = bool(request.fault) or not request.whole
        self._pump(connection)

    def _open(self, connection: Connection, request: Request, part: Part) -> None:
        connection.closing = not request.keep_alive
        try:
            file = self.recent.open(part.found)
        except FileNotFoundError:
            self._again(connection, request, part, "its file is gone")
        except Changed:
            self._again(connection, request, part, "its file is of another size")
        except Cold:
            self._leave(connection)
            self._readers.submit(self._read_cold, connection, request, part)
        except OSError as error:
            if not is_unreadable(error):
                raise
            self._again(connection, request, part, f"it cannot be read: {error.strerror}")
        else:
            begin(connection, part.head, file, part.start, part.end, connection.since)
            self._pump(connection)

    def _read_cold(self, connection: Connection, request: Request, part: Part) -> None:
        """Wait for a disk, in a thread."""
        try:
            with open(part.found.path, "rb", buffering=0) as file:
                body = os.pread(file.fileno(), part.end - part.start, part.start)
        except FileNotFoundError:  # replaced just now
            body = b""
        except OSError as error:
            logger.error("%s cannot be read: %s", part.found.path, error)
            body = b""
        self.call(partial(self._has_read, connection, request, part, body))

    def _has_read(self, connection: Connection, request: Request, part: Part, body: bytes) -> None:
        connection.state = READING
        if len(body) == part.end - part.start:
            connection.out = part.head + body
            self._guard(connection, partial(self._pump, connection))
        else:
            self._guard(connection, partial(self._again, connection, request, part, "its file is too short"))
        self._guard(connection, partial(self._serve, connection))

    def _again(self, connection: Connection, request: Request, part: Part, why: str) -> None:
        """Look once more for what was remembered and is not there, but not for ever: its row may not want to go."""
        self._store.lost(part.found, request.target, why)
        self.service.uncount(part)
        request.looks += 1
        if request.looks < _LOOKS:
            connection.asked.appendleft(request)
        else:
            self._reply(connection, request, self.service.refuse(request, 404, time.time()))

    def _pump(self, connection: Connection) -> bool:
        """Send what is pending; return whether all is out and the connection is ready for the next request."""
        try:
            pace = push(connection, self._pages)
        except OSError:
            pace = CUT
        if pace is DONE:
            if connection.since:
                self.counts.time(_METHODS.get(connection.method, "other"), time.monotonic() - connection.since)
            if not connection.closing:
                connection.state = READING
                return True
            self._hang_up(connection)
        elif pace is BLOCKED:
            connection.state = WRITING
            connection.deadline = time.monotonic() + self._limits.stall
            self._watch(connection, OUT)
        elif pace is COLD:
            self._leave(connection)
            self._readers.submit(self._warm, connection, connection.file, *window(connection))
        else:
            self._close(connection)
        return False

    def _warm(self, connection: Connection, file: int, start: int, end: int) -> None:
        """Bring a window of a file into memory, in a thread."""
        self._pages.warm(file, start, end)
        self.call(partial(self._has_warmed, connection, end))

    def _has_warmed(self, connection: Connection, end: int) -> None:
        connection.warm = end
        connection.state = WRITING
        if self._guard(connection, partial(self._pump, connection)):
            self._guard(connection, partial(self._serve, connection))

    # -- what threads do

    def _review(self, connection: Connection, request: Request, review: Review) -> None:
        connection.asked.appendleft(request)
        self._leave(connection)
        waiting = self._reviewing.setdefault(review.key, [])
        waiting.append(connection)
        if len(waiting) == 1:
            self._askers.submit(self._ask, review)

    def _ask(self, review: Review) -> None:
        try:
            identity: Identity | Unavailable | None = self._reviewer.review(review.token)
        except Unavailable as error:
            logger.warning("a token could not be reviewed: %s", error)
            identity = error
        except Exception:
            logger.exception("the reviewer failed")
            identity = Unavailable()
        self.call(partial(self._has_asked, review.key, identity))

    def _has_asked(self, key: bytes, identity: Identity | Unavailable | None) -> None:
        failed = isinstance(identity, Unavailable)
        if not isinstance(identity, Unavailable):
            self.service.reviewed(key, identity, time.time())
        for connection in self._reviewing.pop(key):
            connection.asked[0].unreviewed = failed
            connection.state = READING
            self._guard(connection, partial(self._serve, connection))

    def _take(self, connection: Connection, request: Request, intake: Intake) -> None:
        if self._intakes >= self._limits.writers * 16:
            self._reply(connection, request, self.service.refuse(request, 503, time.time()))
            return
        self._intakes += 1
        self._leave(connection)
        self._writers.submit(self._receive, connection, request, intake)

    def _receive(self, connection: Connection, request: Request, intake: Intake) -> None:
        outcome = receive(self._store, connection.sock, request, intake, self._limits)
        self.call(partial(self._has_received, connection, request, intake, outcome))

    def _has_received(self, connection: Connection, request: Request, intake: Intake, outcome: Outcome) -> None:
        self._intakes -= 1
        connection.state = READING
        now = time.time()
        if outcome.lost:
            self._close(connection)
            return
        if outcome.made is not None:
            if not request.whole:
                connection.renew()
            request.whole = True
            answer = self.service.stored(request, intake, outcome.made, outcome.evicted, now)
        else:
            answer = self.service.refuse(request, outcome.status, now, detail=outcome.detail)
        self._guard(connection, partial(self._reply, connection, request, answer))
        self._guard(connection, partial(self._serve, connection))

    def _scrape(self, connection: Connection, request: Request) -> None:
        self._leave(connection)
        self._keeper.page(len(self._connections), partial(self._has_scraped, connection, request))

    def _has_scraped(self, connection: Connection, request: Request, page: bytes | None) -> None:
        connection.state = READING
        if page is None:
            answer = self.service.refuse(request, 503, time.time(), detail="The ledger cannot be read.")
        else:
            answer = self.service.plain(request, page, b"text/plain; version=0.0.4; charset=utf-8", time.time())
        self._guard(connection, partial(self._reply, connection, request, answer))
        self._guard(connection, partial(self._serve, connection))

    # -- connections

    def _guard(self, connection: Connection, step: Callable[[], bool | None]) -> bool:
        """Take a step on a connection that came back from a thread; return what it returns, False if it broke."""
        try:
            return connection.state is not State.CLOSED and bool(step())
        except OSError:
            self._close(connection)
            return False

    def _watch(self, connection: Connection, mask: int) -> None:
        if mask == connection.mask:
            return
        if not connection.mask:
            self._epoll.register(connection.fd, mask)
        elif mask:
            self._epoll.modify(connection.fd, mask)
        else:
            self._epoll.unregister(connection.fd)
        connection.mask = mask

    def _leave(self, connection: Connection) -> None:
        """Give a connection to a thread; nobody else may touch it until it is called back."""
        connection.state = AWAY
        self._watch(connection, 0)

    def _hang_up(self, connection: Connection) -> None:
        """Close; where something unread may still come, only our side first, or the client never reads the answer."""
        if not connection.unread:
            self._close(connection)
            return
        connection.sock.shutdown(socket.SHUT_WR)
        connection.asked.clear()
        connection.state = State.LINGERING
        connection.deadline = time.monotonic() + _LINGER_TIME
        self._watch(connection, IN)

    def _discard(self, connection: Connection) -> None:
        data = connection.sock.recv(_TAKE)
        connection.discarded += len(data)
        if not data or connection.discarded > _LINGER:
            self._close(connection)

    def _sweep(self, now: float) -> None:
        """Close what has waited too long for its client."""
        for connection in list(self._connections.values()):
            if connection.state is AWAY or connection.deadline > now:
                continue
            if connection.state is READING and connection.partial:
                request = Request()
                request.fault = 408
                self._guard(connection, partial(self._respond, connection, request))
            else:
                self._close(connection)

    def _close(self, connection: Connection) -> None:
        if connection.state is State.CLOSED:
            return
        self._watch(connection, 0)
        connection.let_go()
        self._connections.pop(connection.fd, None)
        connection.state = State.CLOSED
        connection.asked.clear()
        connection.sock.close()
        del connection.parser  # it knows the connection, and so each would keep the other


_METHODS = {b"GET": "GET", b"HEAD": "HEAD", b"PUT": "PUT"}
