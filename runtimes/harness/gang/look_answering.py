"""Look answering: a gang's runner answers people who look into its task, as long as there are any.

A heartbeat's answer says that people wait. The runner then asks for their looks and answers them in threads of their
own, and ends that when nobody has looked for a while: a gang at which nobody looks costs nothing.
"""

import socket
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from ..runner.runner_api_client import Credentials, LaunchOver, RequestRejected, RunnerApiClient, Unreachable
from ..runner.runner_api_messages import LookAnswer, LookedEntry, LookRequest, LookRequests, pack_look
from .looked_files import LARGEST_PIECE, NotShown, Seen
from .port_tunnel import PortTunnel

#: Seconds without a look after which the runner asks for none until a heartbeat tells of one.
LINGERING_SECONDS = 60.0
#: LookRequests that are answered at the same time; most of them wait for a file to grow.
AT_ONCE = 8
#: Seconds between two looks at a file that is to grow.
GROWTH_INTERVAL = 0.25
#: Seconds for which answers are sent again while the runner API does not take them: after that, nobody waits.
PATIENCE = 10.0


class ShownTask(Protocol):
    """The task at work, as it can be looked into."""

    def look(self, kind: str, path: str, offset: int, length: int) -> Seen:
        """Look into it, from any thread. Raise NotShown, or OSError if it has ended or does not answer."""

    def connect(self, port: int) -> socket.socket:
        """Return a connection to a port in it, from any thread. Raise NotShown, or OSError if nothing listens there."""


class LookClient(RunnerApiClient):
    """A connection to the runner API for looks; each thread needs its own."""

    def looks(self) -> list[LookRequest]:
        """Wait a while for looks that are to be answered, and return them."""
        return msgspec.json.decode(self._ask("GET", "/looks", b"")[1], type=LookRequests).looks

    def answer(self, answer: LookAnswer, data: bytes) -> None:
        """Answer a look."""
        self._ask("POST", "/looks", pack_look(answer, data))


class LookAnswering:
    """Answers looks. ``shown``: returns the task at work with its number; None: there is none.

    ``ports``: those that people may connect to.
    """

    def __init__(
        self, credentials: Credentials, shown: Callable[[], tuple[int, ShownTask] | None], ports: Collection[int]
    ) -> None:
        self._credentials = credentials
        self._ports = ports
        self._shown = shown
        self._lock = threading.Lock()
        self._asking = False

    def begin(self) -> None:
        """Ask for looks from now on, unless that is done already."""
        with self._lock:
            if self._asking:
                return
            self._asking = True
        threading.Thread(target=self._run, name="looks", daemon=True).start()

    def _run(self) -> None:
        client = LookClient(self._credentials, threading.Event(), patience=PATIENCE)
        until = time.monotonic() + LINGERING_SECONDS
        try:
            with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="look") as threads:
                while time.monotonic() < until:
                    for look in client.looks():
                        threads.submit(self._answer, look)
                        until = time.monotonic() + LINGERING_SECONDS
        except (LaunchOver, Unreachable, RequestRejected):
            pass  # the heartbeats see it as well
        finally:
            client.close()
            with self._lock:
                self._asking = False

    def _answer(self, look: LookRequest) -> None:
        """Answer a look; begin the tunnel of a connection once the person is told of it."""
        client = LookClient(self._credentials, threading.Event(), patience=PATIENCE)
        try:
            if look.kind == "connect":
                answer, connection = self._connect(look)
                client.answer(answer, b"")
                if connection is not None:
                    PortTunnel(self._credentials, look.id, connection).start()
            else:
                client.answer(*self._see(look))
        except (LaunchOver, Unreachable, RequestRejected):
            pass  # the person is told that the runner did not answer
        finally:
            client.close()

    def _connect(self, look: LookRequest) -> tuple[LookAnswer, socket.socket | None]:
        """Return the answer to who wants a connection, with the connection if there is one."""
        shown = self._shown()
        if shown is None or shown[0] != look.task:
            return LookAnswer(look.id, problem="the task is not at work", ended=True), None
        if int(look.path) not in self._ports:
            return LookAnswer(look.id, problem="the operator does not let it be forwarded"), None
        try:
            return LookAnswer(look.id), shown[1].connect(int(look.path))
        except NotShown as error:
            return LookAnswer(look.id, problem=str(error)), None
        except OSError as error:
            return LookAnswer(look.id, problem=f"{error.strerror or error}"), None

    def _see(self, look: LookRequest) -> tuple[LookAnswer, bytes]:
        """Return the answer to a look, and the bytes that it has seen."""
        until = time.monotonic() + look.wait
        while True:
            shown = self._shown()
            if shown is None or shown[0] != look.task:
                return LookAnswer(look.id, problem="the task is not at work", ended=True), b""
            try:
                seen = shown[1].look(look.kind, look.path, look.offset, min(look.length, LARGEST_PIECE))
            except NotShown as error:
                return LookAnswer(look.id, problem=str(error)), b""
            except OSError as error:
                ended = not isinstance(error, TimeoutError)
                problem = "the task does not answer" if not ended else "the task has just ended"
                return LookAnswer(look.id, problem=problem, ended=ended), b""
            # Bytes, or a file that is shorter than what was seen of it before: there is something new.
            if look.kind != "read" or seen.data or seen.size < look.offset or time.monotonic() >= until:
                entries = msgspec.convert(seen.entries, list[LookedEntry])
                answer = LookAnswer(look.id, entries=entries, more=seen.more, start=seen.start, size=seen.size)
                return answer, seen.data
            time.sleep(GROWTH_INTERVAL)
