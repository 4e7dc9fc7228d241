"""Model server socket: the evaluator sends requests and receives replies here, each within its deadline.

It knows the exact bytes of every reply but for the actions themselves, so that it parses nothing that a model controls,
except error texts. A reply repeats a number that its request was the first to tell: it cannot have been sent before.
"""

import select
import socket
import struct
import time

import msgspec

from .action_exchange import FIRST, NUMBER, SEQ_OF_ACTION, ActionExchange, drawn_numbers
from .deadline_watch import DeadlineWatch, ReadTimes
from .deadlines import UNOBSERVED
from .model_faults import Crashed, Failed, Garbage, ModelFault, WrongAnswer
from .model_protocol import LENGTH, MAX_ERROR_TEXT, ErrorReply
from .run_delay import RunDelay

#: The most payload bytes of any frame from a model server that is not an action.
SMALL = 64 << 10

write_number = NUMBER.pack_into
_error_decoder = msgspec.msgpack.Decoder(ErrorReply)


class ModelServerSocket:
    """A connected socket, and the buffer of replies of up to ``room`` bytes; an action has ``deadline`` seconds."""

    def __init__(self, connected: socket.socket, room: int, deadline: float, read_times: ReadTimes) -> None:
        self.buffer = bytearray(max(room, SMALL) + 64)
        self._view = memoryview(self.buffer)
        self.deadline = deadline
        self._read_times = read_times
        self._numbers = drawn_numbers()
        #: Sequence number of the last request.
        self.seq = FIRST
        unobserved = UNOBSERVED * deadline
        self._timeout = struct.pack("@ll", int(unobserved), int(unobserved % 1 * 1e6) or 1)
        self.run_delay = RunDelay()
        self.use(connected)

    def use(self, connected: socket.socket) -> None:
        """Continue on this socket, with timeouts in the kernel: one system call per reply instead of two."""
        connected.setblocking(True)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, self._timeout)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, self._timeout)
        self.connected = connected
        self._send, self._receive_into = connected.send, connected.recv_into

    def watch(self, seconds: float, began: float | None = None) -> DeadlineWatch:
        """Return the watch of a deadline, ``seconds`` from now or from ``began``."""
        return DeadlineWatch(seconds, self._read_times, began, self.run_delay.take)

    def draw(self) -> int:
        """Return the sequence number of a new request."""
        if not self._numbers:
            self._numbers = drawn_numbers()
        self.seq = seq = self._numbers.pop()
        return seq

    def ask(self, exchange: ActionExchange) -> float:
        """Send a request and receive its actions; return the latency in seconds. Called at every step."""
        numbers = self._numbers
        self.seq = seq = numbers.pop() if numbers else self.draw()
        write_number(exchange.request, exchange.seq_at, seq)
        write_number(exchange.head, SEQ_OF_ACTION, seq)
        sent, count, buffer = 0, -1, self.buffer
        watch: DeadlineWatch | None = None  # most replies need none
        started = time.monotonic()
        try:
            sent = self._send(exchange.request)
            if sent == exchange.size:
                count = self._receive_into(buffer)
        except BlockingIOError:
            pass
        except OSError:
            raise Crashed("the model's process ended") from None
        if count != exchange.expected or not buffer.startswith(exchange.head):
            watch = self.complete(exchange, sent, count, started)
        latency = time.monotonic() - started
        if latency > self.deadline:
            (watch or self.watch(self.deadline, started)).settle()
        return latency

    def complete(self, exchange: ActionExchange, sent: int, received: int, started: float) -> DeadlineWatch:
        """Send the rest of a request and receive the rest of its reply; ``received``: its bytes so far, -1: none.

        Return the watch of the deadline that began at ``started``; raise the fault if it is not the expected reply.
        """
        watch = self.watch(self.deadline, started)
        if sent < exchange.size:
            self._send_rest(exchange.request, sent, watch)
        self.receive_reply(max(0, received), exchange.expected, exchange.head, watch, closed=received == 0)
        return watch

    def send(self, frame: bytes | bytearray) -> None:
        """Send a frame, within the deadline of an action."""
        self.run_delay.take()  # what was before is no excuse for what follows
        sent = 0
        try:
            sent = self._send(frame)
        except BlockingIOError:
            pass
        except OSError:
            raise Crashed("the model's process ended") from None
        if sent < len(frame):
            self._send_rest(frame, sent, self.watch(self.deadline))

    def _send_rest(self, frame: bytes | bytearray, sent: int, watch: DeadlineWatch) -> None:
        while sent < len(frame):
            watch.wait(self.connected, select.POLLOUT)
            try:
                sent += self._send(frame[sent:])
            except BlockingIOError:
                pass
            except OSError:
                raise Crashed("the model's process ended") from None

    def receive_exactly(self, reply: bytes | bytearray, watch: DeadlineWatch) -> None:
        """Receive a reply whose bytes are known; raise the fault if it is not the expected one."""
        count, closed = 0, False
        try:
            count = self._receive_into(self.buffer)
            closed = count == 0
        except BlockingIOError:
            pass
        except OSError:
            raise Crashed("the model's process ended") from None
        if count != len(reply) or not self.buffer.startswith(reply):
            self.receive_reply(count, len(reply), reply, watch, closed=closed)

    def receive_reply(
        self, count: int, expected: int, head: bytes | bytearray, watch: DeadlineWatch, *, closed: bool
    ) -> None:
        """Receive the rest of a reply after ``count`` bytes; raise the fault if it is not the expected one."""
        if closed:
            raise Crashed("the model's process ended")
        total = self._frame_length(count, head)
        while count < total:
            count += self._receive(count, watch)
            total = self._frame_length(count, head)
        if count == total == expected and self.buffer.startswith(head):
            return
        if count > total:
            raise Garbage("the model server sent more than its reply")
        try:
            error = _error_decoder.decode(self._view[LENGTH.size : total])
        except (msgspec.MsgspecError, RecursionError):
            raise Garbage("the model server sent an invalid reply") from None
        if error.seq != self.seq:
            raise Garbage("the model server answered another request")
        raise reported(error)

    def _frame_length(self, count: int, head: bytes | bytearray) -> int:
        """Return the reply's length as far as ``count`` bytes reveal it; raise Garbage if it cannot become valid."""
        received = self.buffer[: min(count, len(head))]
        if not head.startswith(received) and not b"\xa5error".startswith(self.buffer[5 : min(count, 11)]):
            raise Garbage("the model server sent an invalid reply")
        if count < LENGTH.size:
            return LENGTH.size
        total: int = LENGTH.size + LENGTH.unpack_from(self.buffer)[0]
        if total > LENGTH.size + SMALL and not head.startswith(self.buffer[: LENGTH.size]):
            raise Garbage("the model server sent an invalid reply")
        return total

    def receive_small(self, watch: DeadlineWatch, beginning: bytes = b"") -> memoryview:
        """Receive a frame of at most 64 KiB, after its ``beginning``; raise Garbage if more bytes follow it."""
        count = len(beginning)
        self.buffer[:count] = beginning
        while count < LENGTH.size:
            count += self._receive(count, watch)
        total = LENGTH.size + LENGTH.unpack_from(self.buffer)[0]
        if total > LENGTH.size + SMALL:
            raise Garbage("the model server sent an invalid reply")
        while count < total:
            count += self._receive(count, watch)
        if count > total:
            raise Garbage("the model server sent more than its reply")
        return self._view[LENGTH.size : total]

    def _receive(self, count: int, watch: DeadlineWatch) -> int:
        """Receive at least one byte after the first ``count``, within the deadline; return how many."""
        while True:
            watch.wait(self.connected)
            try:
                received = self._receive_into(self._view[count:])
            except BlockingIOError:
                continue
            except OSError:
                raise Crashed("the model's process ended") from None
            if received == 0:
                raise Crashed("the model's process ended")
            return received


def reported(error: ErrorReply) -> ModelFault:
    """Return the fault that a model server reports."""
    kind = WrongAnswer if error.kind == "invalid" else Failed
    return kind(error.text[:MAX_ERROR_TEXT])
