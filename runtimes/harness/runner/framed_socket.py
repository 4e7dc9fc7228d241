"""Framed socket: length-prefixed msgpack between a runner and its processes, with passed descriptors.

The peer may run untrusted code: lengths are bounded, messages are typed, unknown messages are refused.
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

from .runner_api_messages import StoredArtifact

_LENGTH = struct.Struct("<I")
#: Size limit in bytes of a received message.
LARGEST = 60 << 20
#: Socket buffer in bytes: an evaluator can send a batch without waiting for the runner.
BUFFER = 4 << 20


class PeerClosed(Exception):
    """The peer is gone, or sent an invalid or unexpected message."""


class Ready(msgspec.Struct, tag="ready"):
    """The evaluator is set up."""


class Broken(msgspec.Struct, tag="broken"):
    """The evaluator cannot be set up."""

    reason: str


class ModelLoaded(msgspec.Struct, tag="loaded"):
    """The model server has the model and it fits."""

    info: dict[str, Any] = {}


class ModelRefused(msgspec.Struct, tag="refused"):
    """The model does not load, or does not fit. ``final``: it would not with another model server either."""

    reason: str
    status: str = "failed"
    final: bool = False


class Batch(msgspec.Struct, tag="batch", rename={"since": "from"}):
    """Results of [since, to): lines in task order, then the artifacts' bytes."""

    since: int
    to: int
    lines: memoryview
    failed: int = 0
    artifacts: list[tuple[int, str, str, int]] = []
    stored: list[StoredArtifact] = []
    checkpointed: list[int] = []
    blobs: memoryview = memoryview(b"")
    sketch: dict[str, Any] = {}


class Idle(msgspec.Struct, tag="idle"):
    """The range is finished, or the stop task was reached."""


class NeedModelServer(msgspec.Struct, tag="need_model_server"):
    """The model server died or was dropped."""

    reason: str = ""


class ServerTimesWanted(msgspec.Struct, tag="server_times"):
    """The evaluator wants to know what the machine lets its model server do."""


class ModelServerEndWanted(msgspec.Struct, tag="model_server_end"):
    """The evaluator wants to know how its model server's process, whose socket was closed, has ended."""


class ReplayDone(msgspec.Struct, tag="replay"):
    """A scenario's replay, ready to be drawn."""

    replay: dict[str, Any] | None = None
    error: str | None = None


Message = (
    Ready
    | Broken
    | ModelLoaded
    | ModelRefused
    | Batch
    | Idle
    | NeedModelServer
    | ServerTimesWanted
    | ModelServerEndWanted
    | ReplayDone
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


class FramedSocket:
    """One end of a socket pair."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        """Send one message; the descriptors are attached to its first byte."""
        payload = _encoder.encode(message)
        frame = memoryview(_LENGTH.pack(len(payload)) + payload)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            sent = self._socket.sendmsg([frame], rights, socket.MSG_NOSIGNAL)
            if sent < len(frame):
                self._socket.sendall(frame[sent:], socket.MSG_NOSIGNAL)
        except OSError as error:
            raise PeerClosed(str(error)) from None

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next message. Raises PeerClosed at the end, TimeoutError without a whole message in time."""
        payload = self.receive_raw(timeout)
        try:
            message: Message = _decoder.decode(payload)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise PeerClosed(f"the peer sent an unreadable message: {error}") from None
        return message

    def receive_raw(self, timeout: float | None = None) -> bytearray:
        """Return the bytes of the next message."""
        until = None if timeout is None else time.monotonic() + timeout
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size, until))
        if length > LARGEST:
            raise PeerClosed(f"the peer announced a message of {length:,} bytes")
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
                raise PeerClosed(str(error)) from None
            if not count:
                raise PeerClosed("the peer closed the connection")
            view = view[count:]
        return data

    def _readable(self, until: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))

    def close(self) -> None:
        """Close this end; a thread that waits on it is woken."""
        with contextlib.suppress(OSError):  # the peer may have closed it first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def receive_with_rights(end: socket.socket) -> tuple[bytes, list[int]]:
    """Receive one message and at most one descriptor; empty bytes mean that the peer is gone."""
    data, descriptors, _, _ = socket.recv_fds(end, 1 << 16, 1)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return data, descriptors
