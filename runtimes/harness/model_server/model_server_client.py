"""Model server client: the evaluator's side of the model protocol.

The client knows the exact bytes of every reply but for the actions themselves, so that it parses nothing that a model
controls, except error texts.
"""

import array
import contextlib
import fcntl
import math
import os
import select
import socket
import struct
import termios
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..simulators.base import Interface, Space
from ..visible_text import visible
from .deadline_watch import DeadlineWatch, ReadTimes
from .deadlines import HELLO, LOAD, RESET, UNOBSERVED
from .explanations import explain_end
from .model_faults import Crashed, Failed, Garbage, ModelFault, NotStarted, TimedOut, WrongAnswer
from .model_protocol import (
    LENGTH,
    MAX_ERROR_TEXT,
    PROTOCOL,
    SOCKET_FRAME,
    ErrorReply,
    Hello,
    LoadedReply,
    Scalar,
    describe,
    framed,
)

COUNTER = struct.Struct(">I")
#: The most payload bytes of any frame from a model server that is not an action.
SMALL = 64 << 10
#: Range of sequence numbers, after which they restart: msgpack encodes each of them in five bytes.
FIRST, LAST = 1 << 16, (1 << 31) - 1

_hello_decoder = msgspec.msgpack.Decoder(Hello)
_loaded_decoder = msgspec.msgpack.Decoder(LoadedReply | ErrorReply)
_error_decoder = msgspec.msgpack.Decoder(ErrorReply)


class ModelServerClient:
    """The evaluator's client of a model server: validates every reply; an action has ``deadline`` seconds.

    ``per_scenario``: nothing may carry over between scenarios. The model server passes the socket of a new process for
    each scenario, or continues on its own socket after a `done`. ``seq``: the sequence number before the first request.
    ``read_times`` tells what the machine let the model server do, so that a deadline counts only time that it had.
    """

    def __init__(
        self,
        connected: socket.socket,
        interface: Interface,
        *,
        batch: int,
        deadline: float,
        per_scenario: bool = True,
        seq: int = FIRST,
        read_times: ReadTimes = lambda: None,
    ) -> None:
        self._control: socket.socket | None = None  # passes the sockets of scenarios
        self._has_process = True  # ``_socket`` is that of a process whose scenario has not ended
        self._unread = array.array("i", [0])
        self._interface = interface
        self._batch = batch
        self.deadline = deadline
        self._per_scenario = per_scenario
        self._seq = seq
        self._resetting: int | None = None  # the seed of a `reset` that has not been answered yet
        self._in_scenario = False
        self._ready = bytearray(framed(("ready", FIRST)))
        self._read_times = read_times
        #: Tells how the model server's process ended, None if it has not; asked only after a crash.
        self.describe_end: Callable[[], str | None] = lambda: None
        unobserved = UNOBSERVED * deadline
        self._timeout = struct.pack("@ll", int(unobserved), int(unobserved % 1 * 1e6) or 1)
        self._use(connected)
        self._act_frame, self._observations = self._make_act_frame()
        self._expected, self._head = self._expected_reply()
        self._buffer = bytearray(max(self._expected, SMALL) + 64)
        self._view = memoryview(self._buffer)
        action = interface.action
        flat = np.frombuffer(self._buffer, action.dtype, self._batch * _items(action), len(self._head))
        self._actions = flat.reshape(batch, *action.shape)

    def _use(self, connected: socket.socket) -> None:
        """Continue on this socket, with timeouts in the kernel: one system call per reply instead of two."""
        connected.setblocking(True)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, self._timeout)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, self._timeout)
        self._socket = connected
        self._descriptor = connected.fileno()

    def _make_act_frame(self) -> tuple[bytearray, NDArray[Any]]:
        """Make the `act` frame once, and a view of its observations; only they and the sequence number change."""
        space = self._interface.observation
        size = self._batch * space.size
        frame = bytearray(framed(("act", FIRST, self._batch, bytes(size))))
        flat = np.frombuffer(frame, space.dtype, self._batch * _items(space), len(frame) - size)
        return frame, flat.reshape(self._batch, *space.shape)

    def _expected_reply(self) -> tuple[int, bytearray]:
        """Return the length of every `action` frame, and the bytes before its actions."""
        size = self._batch * self._interface.action.size
        frame = framed(("action", FIRST, bytes(size)))
        return len(frame), bytearray(frame[: len(frame) - size])

    @property
    def seq(self) -> int:
        """Sequence number of the last request."""
        return self._seq

    def explained(self, fault: ModelFault) -> ModelFault:
        """Return a fault with how the process ended, if it is a crash: the socket tells only that it has ended."""
        if isinstance(fault, Crashed | NotStarted) and (how := self.describe_end()) is not None:
            return type(fault)(f"{fault}: {explain_end(how)}")
        return fault

    # -- requests

    def hello(self) -> dict[str, Scalar]:
        """Wait for the model server's first frame; return its description."""
        payload = self._receive_small(self._watch(HELLO))
        try:
            greeting = _hello_decoder.decode(payload)
        except (msgspec.MsgspecError, RecursionError):
            raise Garbage("the model server's first frame is not `hello`") from None
        if greeting.protocol != PROTOCOL:
            raise Garbage(f"the model server speaks protocol {greeting.protocol}, not {PROTOCOL}")
        return _visible_values(greeting.model_server)

    def load(
        self, format: str, params: Mapping[str, Any], model: int | str, *, step: float | None = None
    ) -> dict[str, Scalar]:
        """Send the model's descriptor, or the path of its folder; return the model server's information on it.

        ``step``: seconds from one action to the next, if the dataset has them. Raises the model server's refusal.
        """
        seq = self._next()
        request = {
            "format": format,
            "model": model if isinstance(model, str) else None,
            "observation": describe(self._interface.observation),
            "action": describe(self._interface.action),
            "batch": self._batch,
            "params": dict(params),
            "step": step,
        }
        frame = framed(("load", seq, request))
        passed = [] if isinstance(model, str) else [model]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", passed))] if passed else []
        try:
            sent = self._socket.sendmsg([frame], rights)
        except BlockingIOError:
            raise TimedOut("the model server does not read its socket") from None
        except OSError:
            raise Crashed("the model's process ended") from None
        if sent < len(frame):  # otherwise send nothing: the server may have exited after an error that is still unread
            self._send(frame[sent:])
        watch = self._watch(LOAD)
        received = self._receive_first_socket(watch) if self._per_scenario else 0
        try:
            answer: LoadedReply | ErrorReply = _loaded_decoder.decode(self._receive_small(watch, received))
        except (msgspec.MsgspecError, RecursionError):
            raise Garbage("the model server's answer to `load` is not a frame of the protocol") from None
        if answer.seq != seq:
            raise Garbage("the model server answered another request")
        if isinstance(answer, ErrorReply):
            raise _fault(answer)
        return _visible_values(answer.info)

    def begin(self, seed: int) -> None:
        """Send `reset` without waiting for the reply, unless it was sent with this seed or has no process yet."""
        if self._resetting == seed:
            return
        if self._resetting is not None:
            self._await_ready()
        self._done()
        if self._has_process or self._receive_next_socket(None):
            self._send(framed(("reset", self._next(), {"seed": seed})))
            self._resetting = seed

    def ready(self, seed: int) -> None:
        """Wait for the reply to `reset`, which is sent if it has not been sent with this seed.

        Raises NotStarted if the model server has no process for this scenario, which is then no fault of the scenario.
        """
        self.begin(seed)
        if self._resetting is None:
            if not self._receive_next_socket(self._watch(max(RESET, self.deadline))):
                raise NotStarted("the model server did not start the scenario's process in time")
            self.begin(seed)
        self._await_ready()

    def end(self, next_seed: int | None) -> None:
        """End the scenario, and send the `reset` of the one that probably follows.

        A fault here is ignored: the scenario has ended, and the next request will raise it again.
        """
        with contextlib.suppress(ModelFault):
            self._done()
            if next_seed is not None:
                self.begin(next_seed)

    def _await_ready(self) -> None:
        self._resetting = None
        self._in_scenario = True
        COUNTER.pack_into(self._ready, 12, self._seq)
        watch = self._watch(max(RESET, self.deadline))
        try:
            count = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            count = self._receive(0, watch)
        except OSError:
            raise Crashed("the model's process ended") from None
        if count != len(self._ready) or not self._buffer.startswith(self._ready):
            self._receive_rest(count, len(self._ready), self._ready, watch)

    def act(self, observations: NDArray[Any]) -> tuple[NDArray[Any], float]:
        """Return the actions, a view that the next call overwrites, and the latency in seconds.

        The actions have the right shape and type, but any values: see ``finite``.
        """
        self._observations[:] = observations
        seq = self._next()
        COUNTER.pack_into(self._act_frame, 10, seq)
        COUNTER.pack_into(self._head, 13, seq)
        fcntl.ioctl(self._descriptor, termios.FIONREAD, self._unread)
        if self._unread[0]:  # otherwise a model could answer early to fake its latency
            raise Garbage("the model server answered before it was asked")
        started = time.monotonic()
        self._send(self._act_frame, started)
        watch: DeadlineWatch | None = None  # most answers need none
        try:
            count = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            watch = self._watch(self.deadline, started)
            count = self._receive(0, watch)
        except OSError:
            raise Crashed("the model's process ended") from None
        if count != self._expected or not self._buffer.startswith(self._head):
            watch = watch or self._watch(self.deadline, started)
            self._receive_rest(count, self._expected, self._head, watch)
        latency = time.monotonic() - started
        if latency > self.deadline:
            (watch or self._watch(self.deadline, started)).settle()
        return self._actions, latency

    def close(self) -> None:
        """Send `close` and close the socket."""
        try:
            self._socket.send(framed(("close", self._next())), socket.MSG_DONTWAIT)
        except OSError:
            pass  # the model server has ended or hangs; its runner ends it
        for connection in (self._control, self._socket):
            if connection is not None:
                connection.close()

    # -- a process per scenario

    def _done(self) -> None:
        """End the scenario: by closing its process's socket or, if the model server has only one socket, by `done`."""
        if not self._in_scenario:
            return
        if self._control is not None:
            self._socket.close()
            self._has_process = False
        elif self._per_scenario:
            self._send(framed(("done", self._next())))
        self._in_scenario = False

    def _receive_first_socket(self, watch: DeadlineWatch) -> int:
        """Use the socket that a model server passes in answer to `load`, if it does; return the bytes received else."""
        watch.wait(self._socket)
        data, passed = self._receive_rights(self._socket)
        if passed is None:
            self._buffer[: len(data)] = data
            return len(data)
        self._control = self._socket
        self._use(passed)
        return 0

    def _receive_next_socket(self, watch: DeadlineWatch | None) -> bool:
        """Use the socket of the next scenario's process; return False if none has been passed in time, or yet."""
        assert self._control is not None
        try:
            if watch is not None:
                watch.wait(self._control)
            elif not _is_readable(self._control):
                return False
        except TimedOut:
            return False
        try:
            _, passed = self._receive_rights(self._control)
        except Crashed:
            passed = None
        if passed is None:
            raise NotStarted("the model's process ended between two scenarios")
        self._use(passed)
        self._has_process = True
        return True

    def _receive_rights(self, connection: socket.socket) -> tuple[bytes, socket.socket | None]:
        """Receive a frame that passes a socket, or the beginning of another frame."""
        try:
            data, descriptors, _, _ = socket.recv_fds(connection, len(SOCKET_FRAME), 1)
        except OSError:
            raise Crashed("the model's process ended") from None
        if not data:
            raise Crashed("the model's process ended")
        if not descriptors:
            return data, None
        passed = _local_stream(descriptors[0])
        if passed is None:
            raise Garbage("the model server passed a descriptor that is not a socket")
        if data != SOCKET_FRAME:
            passed.close()
            raise Garbage("the model server passed a descriptor with another frame than `socket`")
        return data, passed

    # -- bytes

    def _next(self) -> int:
        self._seq = self._seq + 1 if self._seq < LAST else FIRST
        return self._seq

    def _watch(self, seconds: float, began: float | None = None) -> DeadlineWatch:
        return DeadlineWatch(seconds, self._read_times, began)

    def _send(self, frame: bytes | bytearray, began: float | None = None) -> None:
        sent = 0
        watch: DeadlineWatch | None = None
        while True:
            try:
                sent += self._socket.send(frame[sent:] if sent else frame)
            except BlockingIOError:
                pass
            except OSError:
                raise Crashed("the model's process ended") from None
            if sent == len(frame):
                return
            watch = watch or self._watch(self.deadline, began)
            watch.wait(self._socket, select.POLLOUT)

    def _receive_rest(self, count: int, expected: int, head: bytes | bytearray, watch: DeadlineWatch) -> None:
        """Receive the rest of the reply; raise the fault if it is not the expected one."""
        if count == 0:
            raise Crashed("the model's process ended")
        total = self._frame_length(count, head)
        while count < total:
            count += self._receive(count, watch)
            total = self._frame_length(count, head)
        if count == total == expected and self._buffer.startswith(head):
            return
        if count > total:
            raise Garbage("the model server sent more than its reply")
        try:
            error = _error_decoder.decode(self._view[LENGTH.size : total])
        except (msgspec.MsgspecError, RecursionError):
            raise Garbage("the model server sent an invalid reply") from None
        if error.seq != self._seq:
            raise Garbage("the model server answered another request")
        raise _fault(error)

    def _frame_length(self, count: int, head: bytes | bytearray) -> int:
        """Return the reply's length as far as ``count`` bytes reveal it; raise Garbage if it cannot become valid."""
        received = self._buffer[: min(count, len(head))]
        if not head.startswith(received) and not b"\xa5error".startswith(self._buffer[5 : min(count, 11)]):
            raise Garbage("the model server sent an invalid reply")
        if count < LENGTH.size:
            return LENGTH.size
        total: int = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
        if total > LENGTH.size + SMALL and not head.startswith(self._buffer[: LENGTH.size]):
            raise Garbage("the model server sent an invalid reply")
        return total

    def _receive_small(self, watch: DeadlineWatch, count: int = 0) -> memoryview:
        """Receive a frame of at most 64 KiB, after its first ``count`` bytes; raise Garbage if more bytes follow it."""
        while count < LENGTH.size:
            count += self._receive(count, watch)
        total = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
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
            watch.wait(self._socket)
            try:
                received = self._socket.recv_into(self._view[count:])
            except BlockingIOError:
                continue
            except OSError:
                raise Crashed("the model's process ended") from None
            if received == 0:
                raise Crashed("the model's process ended")
            return received


def _visible_values(info: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {visible(name): visible(value) if isinstance(value, str) else value for name, value in info.items()}


def _is_readable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _local_stream(descriptor: int) -> socket.socket | None:
    """Return a descriptor as a connected Unix stream socket; close it and return None if it is anything else."""
    try:
        connected = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        return None
    if (connected.family, connected.type) == (socket.AF_UNIX, socket.SOCK_STREAM):
        return connected
    connected.close()
    return None


def finite(actions: NDArray[Any]) -> bool:
    """Return whether every entry is a finite number."""
    if actions.dtype.kind != "f":
        return True
    if actions.size <= 16:  # faster than numpy for few entries
        return math.isfinite(sum(actions.ravel().tolist())) or bool(np.isfinite(actions).all())
    return bool(np.isfinite(actions).all())


def _items(space: Space) -> int:
    return int(np.prod(space.shape, dtype=np.int64))


def _fault(error: ErrorReply) -> ModelFault:
    kind = WrongAnswer if error.kind == "invalid" else Failed
    return kind(error.text[:MAX_ERROR_TEXT])
