"""Runner connection: the runner's orders, and the evaluator's socket to it."""

import socket
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from ..dataset_definition import Definition, definition_of
from ..model_server.deadlines import ServerTimes
from ..model_server.model_protocol import LENGTH

#: The most bytes of a message from the runner, and of an inflated trace.
LARGEST = 256 << 20
#: Bytes of the socket's send buffer: batches wait there for the runner while the evaluator works on.
BUFFER = 4 << 20


class EvaluationSetup(msgspec.Struct, dict=True):
    """What the evaluator must know of a simulation to run its tasks; ``deadline`` in seconds per action."""

    document: dict[str, Any] = msgspec.field(name="definition")
    tasks: dict[str, Any]
    deadline: float
    params: dict[str, Any] = {}
    record: str = "none"
    dry_run: bool = False
    isolation: str = "launch"
    batch: int = 1
    worlds: int | None = None  # None: `auto`
    trusted: bool = False
    format: str = ""

    @cached_property
    def definition(self) -> Definition:
        """The definition of the dataset, read once."""
        return definition_of(self.document)


class SetupOrder(msgspec.Struct, tag="setup"):
    """Order to prepare for a simulation."""

    play: EvaluationSetup


class ModelServerOrder(msgspec.Struct, tag="model_server"):
    """Order to use a new model server; descriptors: its socket, the model.

    ``folder``: where the model server finds the model's files, in place of a descriptor.
    """

    folder: str | None = None


class RangeOrder(msgspec.Struct, tag="play"):
    """Order to run tasks [start, stop): a batch every ``flush`` seconds, and one per task up to ``careful_until``."""

    start: int
    stop: int
    flush: float = 1.0
    careful_until: int = -1


class ReplayOrder(msgspec.Struct, tag="replay"):
    """Order to run a task again from the actions of its trace (zlib)."""

    task: int
    trace: bytes


class ServerTimesOrder(msgspec.Struct, tag="server_times"):
    """Answer to `server_times`: what the machine let the model server do; None if that is not known."""

    times: ServerTimes | None = None


class ModelServerEndOrder(msgspec.Struct, tag="model_server_end"):
    """Answer to `model_server_end`: how the model server's process ended; None if it has not ended."""

    how: str | None = None


Order = SetupOrder | ModelServerOrder | RangeOrder | ReplayOrder | ServerTimesOrder | ModelServerEndOrder


class RunnerGone(Exception):
    """The runner has closed its socket."""


class RunnerConnection:
    """Socket to the runner: length-prefixed msgpack; descriptors accompany a message's first byte (SCM_RIGHTS)."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self._decoder = msgspec.msgpack.Decoder(Order)
        self._encoder = msgspec.msgpack.Encoder()
        self.rights: list[int] = []

    def next(self) -> Order:
        """Wait for an order; its descriptors are in ``rights``. Raise RunnerGone at the end of the stream."""
        try:
            prefix, self.rights, _, _ = socket.recv_fds(self._socket, LENGTH.size, 2)
            if not prefix:
                raise RunnerGone
            (length,) = LENGTH.unpack(prefix + self._exactly(LENGTH.size - len(prefix)))
            if length > LARGEST:
                raise RunnerGone
            return self._decoder.decode(self._exactly(length))  # type: ignore[no-any-return]
        except OSError:
            raise RunnerGone from None

    def _exactly(self, length: int) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise RunnerGone
            view = view[count:]
        return data

    def server_times(self) -> ServerTimes | None:
        """Ask what the machine let the current model server do."""
        self.send_message("server_times")
        order = self.next()
        if not isinstance(order, ServerTimesOrder):
            raise RunnerGone
        return order.times

    def model_server_end(self) -> str | None:
        """Ask how the current model server's process ended; the runner waits for its end a moment."""
        self.send_message("model_server_end")
        order = self.next()
        if not isinstance(order, ModelServerEndOrder):
            raise RunnerGone
        return order.how

    def send_message(self, kind: str, **fields: Any) -> None:
        """Send a message of this type."""
        self.send({"type": kind, **fields})

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message, given with its type."""
        payload = self._encoder.encode(message)
        try:
            self._socket.sendall(LENGTH.pack(len(payload)) + payload)
        except OSError:
            raise RunnerGone from None
