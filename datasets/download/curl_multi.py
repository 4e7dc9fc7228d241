"""The swarm: many small requests at once in one thread, so that none waits for another, nor all for one lock.

Eight threads of small requests spend half their time handing Python's lock to each other. Here libcurl tells which
connections have something, and its answers are hashed and written as they become whole.
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

from datasets.download.range_coalescing import Stretch
from datasets.download.range_fetch import Errand
from datasets.objectstore.s3_reader import Line, Patience, Place

#: Bytes of a request that is small: hashing and writing them takes no longer than asking for them.
LITTLE = 128 << 10
#: Seconds after which it is looked whether to stop, and who has fallen silent.
LOOK = 0.1
EVENTS = (
    (select.EPOLLIN | select.EPOLLHUP, pycurl.CSELECT_IN),
    (select.EPOLLOUT, pycurl.CSELECT_OUT),
    (select.EPOLLERR, pycurl.CSELECT_ERR),
)


class Swarm:
    """Runs the errands of batches from a queue, up to ``wide`` at once; ``None`` in the queue says there are no more.

    ``begin`` makes an errand of a stretch; ``taken`` is called when a batch was taken up.
    """

    def __init__(
        self,
        begin: Callable[[Stretch], Errand],
        waiting: "queue.Queue[list[Stretch] | None]",
        taken: Callable[[], object],
        *,
        wide: int,
        patience: Patience,
        stop: threading.Event,
    ) -> None:
        self._begin = begin
        self._waiting = waiting
        self._taken = taken
        self._wide = wide
        self._patience = patience
        self._stop = stop
        self._batch: list[Stretch] = []
        self._over = False
        self._idle: list[Line] = []
        self._flying: dict[object, tuple[Line, Errand]] = {}
        self._resting: list[tuple[float, int, Errand]] = []
        self._numbers = count()
        self._poll = select.epoll()
        self._due: float | None = None
        self._multi = multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_MAXCONNECTS, wide)
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._remind)

    def run(self) -> None:
        """Return when all is done, or when it is to stop. Raise what the first errand failed of."""
        looked = time.monotonic()
        while not self._stop.is_set():
            self._set_out()
            if not self._flying and not self._resting:
                if self._over:
                    return
                continue
            self._drive()
            self._come_home()
            if (now := time.monotonic()) - looked >= LOOK:
                looked = now
                self._give_up(now)

    def close(self) -> None:
        """Let go of every file and connection."""
        for line, errand in self._flying.values():
            self._multi.remove_handle(line.curl)
            errand.pouring.close()
            self._idle.append(line)
        for _, _, errand in self._resting:
            errand.pouring.close()
        for line in self._idle:
            line.close()
        self._multi.close()
        self._poll.close()

    # -- errands

    def _set_out(self) -> None:
        """Ask again for what has rested, and then for what is new, until there are enough under way."""
        now = time.monotonic()
        while self._resting and self._resting[0][0] <= now:
            self._ask(heapq.heappop(self._resting)[2])
        while len(self._flying) + len(self._resting) < self._wide and (stretch := self._following()) is not None:
            errand = self._begin(stretch)
            if not errand.done:
                self._ask(errand)

    def _following(self) -> Stretch | None:
        """Return the next stretch, if there is one; wait for it only if there is nothing else to do."""
        if not self._batch and not self._over:
            alone = not self._flying and not self._resting
            try:
                batch = self._waiting.get(block=alone, timeout=LOOK if alone else None)
            except queue.Empty:
                return None
            self._taken()
            self._over = batch is None
            self._batch = list(reversed(batch or ()))
        return self._batch.pop() if self._batch else None

    def _ask(self, errand: Errand) -> None:
        line = self._idle.pop() if self._idle else Line(self._patience, self._stop, LITTLE)
        self._flying[line.curl] = line, errand
        assert isinstance(errand.place, Place)
        stretch, pouring = errand.stretch, errand.pouring
        line.ask(errand.place, pouring.position, stretch.stop, stretch.etag, pouring.write)
        self._multi.add_handle(line.curl)

    def _land(self, curl: object, code: int) -> None:
        line, errand = self._flying.pop(curl)
        self._multi.remove_handle(curl)
        self._idle.append(line)
        problem: Exception | None = None
        try:
            line.end(code)
        except Exception as error:
            problem = error
        if problem is None and errand.done:
            return
        try:
            wait = errand.ended(problem, random.random())
        except BaseException:
            errand.pouring.close()
            raise
        if not errand.done:
            heapq.heappush(self._resting, (time.monotonic() + wait, next(self._numbers), errand))

    # -- libcurl

    def _drive(self) -> None:
        """Wait until something can be done, and have libcurl do it."""
        now = time.monotonic()
        ends = min([LOOK, *([self._due - now] if self._due is not None else []), *self._rested(now)])
        for descriptor, event in self._poll.poll(max(0.0, ends)):
            told = sum(each for seen, each in EVENTS if event & seen)
            self._multi.socket_action(descriptor, told)
        if self._due is not None and self._due <= time.monotonic():
            self._due = None
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def _rested(self, now: float) -> list[float]:
        return [self._resting[0][0] - now] if self._resting else []

    def _come_home(self) -> None:
        left = 1
        while left:
            left, good, bad = self._multi.info_read()
            for curl in good:
                self._land(curl, 0)
            for curl, code, _ in bad:
                self._land(curl, code)

    def _give_up(self, now: float) -> None:
        """Break off with those that have been silent for too long."""
        for curl, (line, _) in list(self._flying.items()):
            if line.silent(now):
                self._land(curl, pycurl.E_OPERATION_TIMEDOUT)

    def _watch(self, what: int, descriptor: int, multi: object, data: object) -> None:
        """Watch a connection as libcurl wishes; what it has closed already, the kernel has forgotten."""
        wanted = select.EPOLLIN * bool(what & pycurl.POLL_IN) | select.EPOLLOUT * bool(what & pycurl.POLL_OUT)
        if what == pycurl.POLL_REMOVE:
            with suppress(OSError):
                self._poll.unregister(descriptor)
            return
        try:
            self._poll.register(descriptor, wanted)
        except FileExistsError:
            self._poll.modify(descriptor, wanted)

    def _remind(self, milliseconds: int) -> None:
        """Note when libcurl wants to be called next."""
        self._due = None if milliseconds < 0 else time.monotonic() + milliseconds / 1000
