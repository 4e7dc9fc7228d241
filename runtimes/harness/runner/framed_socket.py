"""Length-prefixed msgpack between a runner and its neighbours, with descriptors riding along.

The other end may run code that is not ours: lengths are bounded, messages typed, unknown ones refused.
"""

import array
import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

import msgspec

_LENGTH = struct.Struct("<I")
#: Bytes of the largest message taken from the other end.
LARGEST = 60 << 20
#: Room for the evaluator to put a batch down and go on playing.
BUFFER = 4 << 20


class Closed(Exception):
    """The other end is gone, or spoke out of turn."""


class Ready(msgspec.Struct, tag="ready"):
    """The evaluator is set up."""


class Broken(msgspec.Struct, tag="broken"):
    """The evaluator cannot be set up."""

    reason: str


class Loaded(msgspec.Struct, tag="loaded"):
    """The model server has the model and it fits."""

    info: dict[str, Any] = {}


class Refused(msgspec.Struct, tag="refused"):
    """The model does not load, or does not fit."""

    reason: str
    status: str = "failed"


class Batch(msgspec.Struct, tag="batch", rename={"since": "from"}):
    """Results of [since, to): lines in task order, then the artifacts' bytes."""

    since: int
    to: int
    lines: memoryview
    failed: int = 0
    artifacts: list[tuple[int, str, str, int]] = []
    blobs: memoryview = memoryview(b"")
    sketch: dict[str, Any] = {}


class Idle(msgspec.Struct, tag="idle"):
    """The range is played, or a stop was seen."""


class NeedModelServer(msgspec.Struct, tag="need_model_server"):
    """The model server is dead or was dropped."""

    reason: str = ""


class Replay(msgspec.Struct, tag="replay"):
    """A scenario as it can be drawn."""

    replay: dict[str, Any] | None = None
    error: str | None = None


Message = Ready | Broken | Loaded | Refused | Batch | Idle | NeedModelServer | Replay

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


class Channel:
    """One end of a socket pair."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        """Send one message; the descriptors ride on its first byte."""
        payload = _encoder.encode(message)
        frame = memoryview(_LENGTH.pack(len(payload)) + payload)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            sent = self._socket.sendmsg([frame], rights, socket.MSG_NOSIGNAL)
            if sent < len(frame):
                self._socket.sendall(frame[sent:], socket.MSG_NOSIGNAL)
        except OSError as error:
            raise Closed(str(error)) from None

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next message; raise Closed at the end, TimeoutError after so many seconds without a whole one."""
        payload = self.receive_raw(timeout)
        try:
            message: Message = _decoder.decode(payload)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Closed(f"it said what cannot be read: {error}") from None
        return message

    def receive_raw(self, timeout: float | None = None) -> bytearray:
        """Return the bytes of the next message."""
        until = None if timeout is None else time.monotonic() + timeout
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size, until))
        if length > LARGEST:
            raise Closed(f"it announced a message of {length:,} bytes")
        return self._exactly(length, until)

    def _exactly(self, length: int, until: float | None) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            if until is not None and not self._readable(until):
                raise TimeoutError
            try:
                count = self._socket.recv_into(view)
            except OSError as error:
                raise Closed(str(error)) from None
            if not count:
                raise Closed("it closed the connection")
            view = view[count:]
        return data

    def _readable(self, until: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))

    def close(self) -> None:
        """Close this end; a thread that waits on it is woken."""
        with contextlib.suppress(OSError):  # the other end may have been first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def receive_with_rights(end: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """Receive one message and at most so many descriptors; empty bytes mean that the other end is gone."""
    data, descriptors, _, _ = socket.recv_fds(end, 1 << 16, most)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return data, descriptors
