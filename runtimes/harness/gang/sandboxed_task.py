"""Sandboxed task: a shared sandbox as its runner sees it, with what it prints, delivers and tells of its tasks."""

import contextlib
import json
import os
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Self

from .. import python_process
from ..runner.captured_output import CapturedOutput
from .delivered_files import OUTPUT, Deliveries, Delivery, NotDeliverable
from .gang_runner import GangStopped
from .gang_task import GangTask, progress_of
from .gang_transport import ReplicaLost
from .looked_files import Looker, NotShown, Seen
from .task_folder import LONGEST_END

PIECE = 64 << 10
#: Seconds that a sandbox takes at most to end once it has closed its connection.
ENDING = 5.0


class SandboxedTask:
    """A running sandbox. ``printed``: gets what it prints.

    ``delivered``: the task's outputs; ``problem``: why files of it cannot be kept. With the end of the context the
    sandbox is killed, and with it all that is left of the task.
    """

    def __init__(self, task: GangTask, printed: CapturedOutput) -> None:
        self._printed = printed
        self._on_checkpoint: Callable[[Delivery], None] = Delivery.close
        self._told, telling = socket.socketpair()
        files, delivering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        files.setblocking(False)
        self._files, self._deliveries = files, Deliveries(files)
        looks, answering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._looks, self._looker, self._looking = looks, Looker(looks), threading.Lock()
        self._shown, self._over = task.shown, False
        self._output, writing = os.pipe()
        printed.watch(self._output, "gang")
        self._ranks = task.gang.ranks
        self.delivered = Delivery(OUTPUT)
        self.problem: str | None = None
        self._heard = b""
        descriptors = {"socket": telling.fileno(), "files": delivering.fileno()}
        if task.shown:
            descriptors["looks"] = answering.fileno()
        with telling, delivering, answering:
            self._process = python_process.start(
                task.gang.python,
                "gang.shared_sandbox",
                [os.path.dirname(task.gang.harness)],
                asdict(task),
                descriptors,
                writing,
            )
        os.close(writing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._printed.forget(self._output)
        os.close(self._output)
        self._deliveries.close()
        self._told.close()
        self._files.close()
        with self._looking:
            self._over = True
            self._looks.close()

    def look(self, kind: str, path: str, offset: int, length: int) -> Seen:
        """Look into it, from any thread. Raise NotShown, or OSError if it has ended or does not answer."""
        with self._looking:
            if self._over or not self._shown:
                raise NotShown("the task cannot be looked into")
            return self._looker.look(kind, path, offset, length)

    def connect(self, port: int) -> socket.socket:
        """Return a connection to a port in it, from any thread. Raise NotShown, or OSError if nothing listens there."""
        with self._looking:
            if self._over or not self._shown:
                raise NotShown("the task cannot be looked into")
            return self._looker.connect(port)

    @property
    def ending(self) -> str:
        """How the sandbox's process ended."""
        return python_process.ending(self._process.wait())

    def tell(self, scenario: Mapping[str, object]) -> None:
        """Give a further task to a program that goes on."""
        self.delivered, self.problem, self._heard = Delivery(OUTPUT), None, b""
        with contextlib.suppress(OSError):  # it is gone, as is heard next
            self._told.sendall(json.dumps(scenario).encode() + b"\n")

    def listen(
        self,
        control: socket.socket,
        until: float,
        on_checkpoint: Callable[[Delivery], None],
        on_progress: Callable[[float], None] = lambda fraction: None,
    ) -> bytes | None:
        """Return what the sandbox tells of the end of its task, nothing if it ends without that; None: not in time.

        ``on_checkpoint``: gets each checkpoint that is complete; ``on_progress``: the program's progress. Raise
        GangStopped when ``control`` becomes readable, after which it may go on to listen, and ReplicaLost if the
        sandbox tells too much.
        """
        self._on_checkpoint = on_checkpoint
        with selectors.DefaultSelector() as selector:
            for source in (self._told, self._files, self._output, control):
                selector.register(source, selectors.EVENT_READ)
            while (left := until - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    if key.fileobj is control:
                        raise GangStopped("the node agent ended it")
                    if key.fileobj is self._files:
                        if not self._receive():
                            selector.unregister(self._files)
                    elif key.fileobj == self._output:
                        if not self._printed.collect(self._output):
                            selector.unregister(self._output)
                    elif not (piece := self._hear()):
                        self._await_end()
                        return b""
                    else:
                        self._heard = _without_progress(self._heard + piece, on_progress)
                        if len(self._heard) > LONGEST_END * (self._ranks + 1):
                            raise ReplicaLost("its sandbox told too much")
                        if self._heard.endswith(b"\n"):
                            while self._receive():  # what was delivered before the end was told
                                pass
                            return self._heard
        return None

    def _hear(self) -> bytes:
        try:
            return self._told.recv(PIECE)
        except ConnectionResetError:  # it has not read what it was told
            return b""

    def _await_end(self) -> None:
        """Wait until a sandbox that told nothing has ended, so that it is known how."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING)

    def _receive(self) -> bool:
        """Receive files; return whether more may come."""
        try:
            delivery = self._deliveries.receive()
        except (EOFError, BlockingIOError):
            return False
        except NotDeliverable as error:
            self.problem = str(error)
            return True
        if delivery is not None and delivery.name == OUTPUT:
            self.delivered.close()
            self.delivered = delivery
        elif delivery is not None:
            self._on_checkpoint(delivery)
        return True


def _without_progress(message: bytes, on_progress: Callable[[float], None]) -> bytes:
    """Return what a sandbox has told without the lines about its program's progress."""
    *lines, begun = message.split(b"\n")
    kept = []
    for line in lines:
        if (fraction := progress_of(line)) is None:
            kept.append(line)
        else:
            on_progress(fraction)
    return b"\n".join([*kept, begun])
