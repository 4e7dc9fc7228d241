"""Row exchange: the evaluator's requests for many scenarios at once, through memory that it shares with a model server.

Each wakes the other by a byte in a pipe, which is polled together with the socket: that stays for all else, and tells
that the model server has ended. An eventfd(2) would be one open file of both, whose O_NONBLOCK a model could remove, so
that the evaluator waits without a deadline.
"""

import os
import select
import socket
import time
from typing import TYPE_CHECKING, Any

from ..simulators.base import Interface
from .action_exchange import drawn_words
from .deadline_watch import DeadlineWatch
from .deadlines import UNOBSERVED
from .model_faults import Crashed, Garbage, ModelFault
from .model_server_socket import ModelServerSocket
from .row_memory import RING, RowMemory

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RowExchange:
    """Memory and pipes, made for a model server, which gets ``descriptors``; they are then closed by `close_passed`.

    ``kinds``: what the next request asks of each row; it is to be set, like ``seeds`` and ``observations``.
    """

    def __init__(self, connection: ModelServerSocket, interface: Interface, rows: int) -> None:
        self._connection = connection
        self._memory, memory = RowMemory.make(interface, rows)
        asked, self._ask = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._answered, answer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.descriptors = [memory, asked, answer]
        self.kinds = self._memory.kinds
        self.seeds, self.observations = self._memory.seeds, self._memory.observations
        self._drawn = drawn_words().tobytes()
        self._next = 0
        self._poll = select.poll()
        self._poll.register(self._answered, select.POLLIN)
        self._poll.register(connection.connected, select.POLLIN)
        self._unobserved = 1000 * UNOBSERVED * connection.deadline

    def close_passed(self) -> None:
        """Close what the model server has."""
        for descriptor in self.descriptors:
            os.close(descriptor)

    def ask(self) -> "tuple[NDArray[Any], bytes, float]":
        """Return an action for each row, for each 1 if it failed or 0, and the latency in seconds.

        Rows without a request have any action. Raises the fault of the model server, which tells nothing of a row.
        """
        memory = self._memory
        size = len(memory.numbers)
        if self._next + size > len(self._drawn):
            self._drawn, self._next = drawn_words().tobytes(), 0
        numbers = self._drawn[self._next : self._next + size]
        self._next += size
        memory.numbers[:] = numbers
        started = time.monotonic()
        self._ring()
        watch = self._await(started)
        answers = bytearray(memory.answers)  # the model server may change the memory at any time
        if not answers.startswith(numbers):
            raise Garbage("the model server says that it has answered, and has not")
        latency = time.monotonic() - started
        if latency > self._connection.deadline:
            (watch or self._connection.watch(self._connection.deadline, started)).settle()
        return *memory.read(answers), latency

    def _ring(self) -> None:
        try:
            os.write(self._ask, RING)
        except BlockingIOError:
            raise Garbage("the model server says that it has answered, and has not read the requests") from None
        except BrokenPipeError:
            raise self._end_fault() from None

    def _await(self, started: float) -> DeadlineWatch | None:
        """Wait for the answer; return the watch of its deadline, if there was time to look."""
        watch = None
        ready = self._poll.poll(self._unobserved)
        while not ready:
            watch = watch or self._connection.watch(self._connection.deadline, started)
            ready = watch.wait_for(self._poll)
        if len(ready) > 1 or ready[0] != (self._answered, select.POLLIN):
            raise self._end_fault()
        try:
            rung = os.read(self._answered, 2 * len(RING))
        except BlockingIOError:  # it has opened the pipe's other end, too
            rung = b""
        if rung != RING:
            raise Garbage("the model server has answered more than once")
        return watch

    def _end_fault(self) -> ModelFault:
        """Return the fault of a model server that has ended, or says something on its socket, where nothing is due."""
        try:
            said = self._connection.connected.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return Garbage("the model server has closed a pipe")
        except OSError:
            said = b""
        return Garbage("the model server sent an invalid reply") if said else Crashed("the model's process ended")

    def close(self) -> None:
        """Close the pipes; the memory is unmapped with the last view of it."""
        os.close(self._ask)
        os.close(self._answered)
