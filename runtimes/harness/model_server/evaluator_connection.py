"""Evaluator connection: the model server's socket to the evaluator, and the buffers of its frames."""

import socket
import struct
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..simulators.base import Interface
from . import model_protocol
from .action_exchange import NUMBER, SEQ_OF_ACT, SEQ_OF_ACTION, ActionExchange
from .model_protocol import LENGTH, Load

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The most bytes of a frame from the evaluator, which is trusted: a limit for faults only.
LARGEST = 256 << 20
#: Bytes of a buffer for frames; larger ones get a larger buffer.
ROOM = 1 << 16
#: The most descriptors that come with `load`.
MOST_RIGHTS = 5
#: The size of no frame.
NONE = -1

read_number = NUMBER.unpack_from


class EvaluatorConnection:
    """Socket to the evaluator. The `act` frames of an interface are neither decoded nor encoded, once it is known.

    ``observations``: the view of the observations of such a frame, which ``next`` returns in place of a request.
    """

    observations: "NDArray[Any]"

    def __init__(self, connected: socket.socket) -> None:
        self._buffer = bytearray(ROOM)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._used = 0
        self._decoder = msgspec.msgpack.Decoder(model_protocol.Request)
        self._encoder = msgspec.msgpack.Encoder()
        self._out = bytearray(ROOM)
        self._usual = b""  # the beginning of each `act` frame
        self._size = NONE  # of such a frame
        self._in_place = False
        self._seq = 0
        self.rights: list[int] = []
        self.switch(connected)

    def switch(self, connected: socket.socket) -> None:
        """Continue on another socket."""
        self.socket = connected
        self._receive_into, self._send = connected.recv_into, connected.send
        self._filled = self._used = 0

    def expect(self, interface: Interface, batch: int) -> None:
        """Prepare for the `act` frames of an interface, and for the replies to them. Nothing may be received yet."""
        reply = bytearray(model_protocol.framed(("action", 1 << 16, bytes(batch * interface.action.size))))
        exchange = ActionExchange(interface, batch, reply)
        self._usual, self._size = bytes(exchange.request[:SEQ_OF_ACT]), exchange.size
        self._reply, self._answered = reply, exchange.expected - len(exchange.head)
        self._before_actions = bytes(exchange.head[SEQ_OF_ACTION + NUMBER.size :])
        self._write = struct.Struct(f">I{len(self._before_actions)}s{self._answered}s").pack_into
        self._buffer = bytearray(max(ROOM, exchange.size))
        self._view = memoryview(self._buffer)
        observed = exchange.observations
        start = exchange.size - observed.nbytes
        self.observations = np.frombuffer(self._buffer, observed.dtype, observed.size, start).reshape(observed.shape)

    @property
    def seq(self) -> int:
        """Sequence number of the last request."""
        if self._in_place:
            (self._seq,) = read_number(self._buffer, SEQ_OF_ACT)
        return self._seq

    def next(self) -> "model_protocol.Request | NDArray[Any] | None":
        """Return the next request, valid until the next call; None once the evaluator has closed its socket."""
        filled, used = self._filled, self._used
        if used == filled:
            try:
                filled = self._receive_into(self._buffer)
            except ConnectionError:
                return None
            if filled == self._size and self._buffer.startswith(self._usual):
                self._filled = self._used = filled
                self._in_place = True
                return self.observations
            if filled == 0:
                return None
            used = 0
        self._in_place = False
        if used:
            self._buffer[: filled - used] = self._buffer[used:filled]
        self._filled, self._used = filled - used, 0
        if self._filled < LENGTH.size and not self._fill(LENGTH.size):
            return None
        total: int = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
        if self._filled < total and (total > LARGEST or not self._fill(total)):
            return None
        self._used = total
        request: model_protocol.Request = self._decoder.decode(self._view[LENGTH.size : total])
        self._seq = request.seq
        return request

    def _fill(self, need: int) -> bool:
        if need > len(self._buffer):
            # ``observations`` stays a view of the first buffer, which is used no more: no frame is in place then.
            self._size = NONE
            larger = bytearray(need)
            larger[: self._filled] = self._buffer[: self._filled]
            self._buffer, self._view = larger, memoryview(larger)
        while self._filled < need:
            try:
                received = self._receive_into(self._view[self._filled :])
            except ConnectionError:
                return False
            if received == 0:
                return False
            self._filled += received
        return True

    def load(self) -> Load | None:
        """Return the first request, with its descriptors in ``rights``: the model, the socket of the first scenario's
        process, memory and pipes of rows; None if it is not `load`.
        """
        data, self.rights, _, _ = socket.recv_fds(self.socket, LENGTH.size, MOST_RIGHTS)
        self._buffer[: len(data)] = data
        self._filled = len(data)
        request = self.next() if data else None
        return request if isinstance(request, Load) else None

    def answer(self, actions: bytes) -> None:
        """Send the actions that the last request asked for."""
        if not self._in_place or len(actions) != self._answered:
            self.send("action", self.seq, actions)
            return
        reply = self._reply
        self._write(reply, SEQ_OF_ACTION, read_number(self._buffer, SEQ_OF_ACT)[0], self._before_actions, actions)
        if (sent := self._send(reply)) < len(reply):
            self.socket.sendall(memoryview(reply)[sent:])

    def send(self, *message: Any) -> None:
        """Send a frame."""
        out = self._out
        self._encoder.encode_into(message, out, LENGTH.size)
        LENGTH.pack_into(out, 0, len(out) - LENGTH.size)
        sent = self._send(out)
        if sent < len(out):
            self.socket.sendall(memoryview(out)[sent:])
