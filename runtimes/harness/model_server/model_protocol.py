"""Frames between an evaluator and a model server: how they are written, how replies are read, and what is made of
everything else.

A frame is a length (u32, little-endian) and a msgpack array. The evaluator, whose end this is, knows every reply's
exact bytes but for the answer itself, so nothing a model says is ever parsed; see docs/model-server.md.
"""

import array
import contextlib
import fcntl
import math
import select
import socket
import struct
import termios
import time
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..simulators.base import Interface, Space
from .model_faults import Crashed, Failed, Garbage, ModelFault, TimedOut, WrongAnswer

LENGTH = struct.Struct("<I")
COUNTER = struct.Struct(">I")
PROTOCOL = 1
#: The most bytes of any frame from a model server that is not an action.
SMALL = 64 << 10
#: Sequence numbers begin here, so that msgpack writes each of them in five bytes, and begin again here.
FIRST, LAST = 1 << 16, (1 << 31) - 1
#: Seconds a model server may take to say hello, to load, and to begin a scenario.
HELLO, LOAD, RESET = 120.0, 300.0, 10.0
#: The longest text a model may leave in a result.
WORDS = 2000


class Load(msgspec.Struct, array_like=True, tag="load"):
    """Here is a model; the descriptor that rides along, or ``model``'s path, has its bytes."""

    seq: int
    request: dict[str, Any]


class Reset(msgspec.Struct, array_like=True, tag="reset"):
    """A scenario begins."""

    seq: int
    request: dict[str, int]


class Act(msgspec.Struct, array_like=True, tag="act"):
    """So many observations want an action each."""

    seq: int
    count: int
    observations: memoryview


class Done(msgspec.Struct, array_like=True, tag="done"):
    """The scenario is over."""

    seq: int


class Close(msgspec.Struct, array_like=True, tag="close"):
    """No more is wanted."""

    seq: int


Request = Load | Reset | Act | Done | Close
Word = str | int | float | bool | None


class Hello(msgspec.Struct, array_like=True, tag="hello", forbid_unknown_fields=True):
    """What a model server says first."""

    protocol: int
    model_server: dict[str, Word]


class Loaded(msgspec.Struct, array_like=True, tag="loaded", forbid_unknown_fields=True):
    """The model is there and fits."""

    seq: int
    info: dict[str, Word]


class Error(msgspec.Struct, array_like=True, tag="error", forbid_unknown_fields=True):
    """The model raised, or answered what is no action."""

    seq: int
    text: str
    kind: Literal["failed", "invalid"] = "failed"


_encoder = msgspec.msgpack.Encoder()
_hello = msgspec.msgpack.Decoder(Hello)
_loaded = msgspec.msgpack.Decoder(Loaded | Error)
_error = msgspec.msgpack.Decoder(Error)


def framed(message: Any) -> bytes:
    """Return a message with its length before it."""
    payload = _encoder.encode(message)
    return LENGTH.pack(len(payload)) + payload


def describe(space: Space) -> dict[str, Any]:
    """Return a space as a model server is told of it; infinite bounds become None."""
    return {
        "dtype": space.dtype,
        "shape": list(space.shape),
        "names": list(space.names),
        "units": list(space.units),
        "low": [_bound(value) for value in space.low],
        "high": [_bound(value) for value in space.high],
    }


def _bound(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None


class ModelServerClient:
    """The evaluator's end of a model server: asks, waits no longer than told, and believes nothing.

    ``seq``: the number that the first request follows.
    """

    def __init__(
        self,
        end: socket.socket,
        interface: Interface,
        *,
        batch: int,
        deadline: float,
        tell_done: bool = True,
        seq: int = FIRST,
    ) -> None:
        self._socket = end
        self._number = end.fileno()
        self._early = array.array("i", [0])
        self._interface = interface
        self._batch = batch
        self.deadline = deadline
        self._tell_done = tell_done
        self._seq = seq
        self._begun: int | None = None
        self._playing = False
        self._ready = bytearray(framed(("ready", FIRST)))
        end.setblocking(True)
        patience = struct.pack("@ll", int(deadline), int(deadline % 1 * 1e6) or 1)
        # One system call a reply instead of two: the kernel keeps the time of the first read.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        self._asking, self._observations = self._question()
        self._expected, self._head = self._answer()
        self._buffer = bytearray(max(self._expected, SMALL) + 64)
        self._view = memoryview(self._buffer)
        action = interface.action
        flat = np.frombuffer(self._buffer, action.dtype, self._batch * _items(action), len(self._head))
        self._actions = flat.reshape(batch, *action.shape)

    def _question(self) -> tuple[bytearray, NDArray[Any]]:
        """Make the frame of an `act` once; only its counter and its observations change."""
        space = self._interface.observation
        size = self._batch * space.size
        frame = bytearray(framed(("act", FIRST, self._batch, bytes(size))))
        flat = np.frombuffer(frame, space.dtype, self._batch * _items(space), len(frame) - size)
        return frame, flat.reshape(self._batch, *space.shape)

    def _answer(self) -> tuple[int, bytearray]:
        """Make what every action begins with, and tell how long it is in all."""
        size = self._batch * self._interface.action.size
        frame = framed(("action", FIRST, bytes(size)))
        return len(frame), bytearray(frame[: len(frame) - size])

    @property
    def seq(self) -> int:
        """Number of the last request."""
        return self._seq

    # -- the conversation

    def hello(self) -> dict[str, Word]:
        """Wait for the model server's greeting."""
        payload = self._small(time.monotonic() + HELLO)
        try:
            greeting = _hello.decode(payload)
        except (msgspec.MsgspecError, RecursionError):
            raise Garbage("the model server did not say hello") from None
        if greeting.protocol != PROTOCOL:
            raise Garbage(f"the model server speaks protocol {greeting.protocol}, not {PROTOCOL}")
        return greeting.model_server

    def load(self, format: str, params: Mapping[str, Any], model: int) -> dict[str, Word]:
        """Hand the model over as a descriptor; return what the model server says of it, or raise its refusal."""
        seq = self._next()
        request = {
            "format": format,
            "model": None,
            "observation": describe(self._interface.observation),
            "action": describe(self._interface.action),
            "batch": self._batch,
            "params": dict(params),
        }
        frame = framed(("load", seq, request))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [model]))]
        try:
            sent = self._socket.sendmsg([frame], rights)
        except BlockingIOError:
            raise TimedOut("the model server does not read") from None
        except OSError:
            raise Crashed("the model's process ended") from None
        if sent < len(
            frame
        ):  # else nothing more is sent: a model server that said no may be gone, and what it said counts
            self._send(frame[sent:])
        try:
            answer: Loaded | Error = _loaded.decode(self._small(time.monotonic() + LOAD))
        except (msgspec.MsgspecError, RecursionError):
            raise Garbage("the model server answered `load` with what is no frame of the protocol") from None
        if answer.seq != seq:
            raise Garbage("the model server answered another request")
        if isinstance(answer, Error):
            raise _said(answer)
        return answer.info

    def begin(self, seed: int) -> None:
        """Have a scenario begun, without waiting for it; a model server that was told of another one is told again."""
        if self._begun == seed:
            return
        if self._begun is not None:
            self._await_ready()
        self._done()
        self._send(framed(("reset", self._next(), {"seed": seed})))
        self._begun = seed

    def ready(self, seed: int) -> None:
        """Wait until the model server has begun the scenario."""
        self.begin(seed)
        self._await_ready()

    def end(self, following: int | None) -> None:
        """End the scenario, and have the one begun that is likely to come next, while this one is judged.

        That the model server is gone by now shows when that one is to be played: this one is not its fault.
        """
        with contextlib.suppress(ModelFault):
            self._done()
            if following is not None:
                self.begin(following)

    def _await_ready(self) -> None:
        self._begun = None
        self._playing = True
        COUNTER.pack_into(self._ready, 12, self._seq)
        until = time.monotonic() + max(RESET, self.deadline)
        try:
            count = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            count = self._more(0, until)
        except OSError:
            raise Crashed("the model's process ended") from None
        if count != len(self._ready) or not self._buffer.startswith(self._ready):
            self._rest(count, len(self._ready), self._ready, until)

    def act(self, observations: NDArray[Any]) -> tuple[NDArray[Any], float]:
        """Return the actions, a view that the next call overwrites, and the seconds it took.

        They have the right shape and type, but may hold anything: see ``finite``.
        """
        self._observations[:] = observations
        seq = self._next()
        COUNTER.pack_into(self._asking, 10, seq)
        COUNTER.pack_into(self._head, 13, seq)
        fcntl.ioctl(self._number, termios.FIONREAD, self._early)
        if self._early[0]:
            raise Garbage(
                "the model server answered before it was asked"
            )  # else it could make its latency what it likes
        began = time.monotonic()
        self._send(self._asking)
        try:
            count = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            raise self._late() from None
        except OSError:
            raise Crashed("the model's process ended") from None
        if count != self._expected or not self._buffer.startswith(self._head):
            self._rest(count, self._expected, self._head, began + self.deadline)
        took = time.monotonic() - began
        if took > self.deadline:
            raise self._late()
        return self._actions, took

    def close(self) -> None:
        """Let go of the model server."""
        try:
            self._socket.send(framed(("close", self._next())), socket.MSG_DONTWAIT)
        except OSError:
            pass  # it is gone, or hangs: what is wanted of it is no more
        self._socket.close()

    # -- bytes

    def _done(self) -> None:
        if self._playing and self._tell_done:
            self._send(framed(("done", self._next())))
        self._playing = False

    def _next(self) -> int:
        self._seq = self._seq + 1 if self._seq < LAST else FIRST
        return self._seq

    def _late(self) -> TimedOut:
        return TimedOut(f"no answer within {self.deadline:g} s")

    def _send(self, frame: bytes | bytearray) -> None:
        try:
            sent = self._socket.send(frame)
            until = time.monotonic() + self.deadline if sent < len(frame) else 0.0
            while sent < len(frame):
                if time.monotonic() > until:
                    raise self._late()
                sent += self._socket.send(frame[sent:])
        except BlockingIOError:
            raise self._late() from None
        except OSError:
            raise Crashed("the model's process ended") from None

    def _rest(self, count: int, expected: int, head: bytes | bytearray, until: float) -> None:
        """Read on until the reply is whole; raise what it is if it is not the expected one."""
        if count == 0:
            raise Crashed("the model's process ended")
        total = self._announced(count, head)
        while count < total:
            count += self._more(count, until)
            total = self._announced(count, head)
        if count == total == expected and self._buffer.startswith(head):
            return
        if count > total:
            raise Garbage("the model server sent more than its reply")
        try:
            error = _error.decode(self._view[LENGTH.size : total])
        except (msgspec.MsgspecError, RecursionError):
            raise Garbage("the model server sent what is no reply") from None
        if error.seq != self._seq:
            raise Garbage("the model server answered another request")
        raise _said(error)

    def _announced(self, count: int, head: bytes | bytearray) -> int:
        """Return how long the reply will be, as far as that is known; refuse it as soon as it can be no reply."""
        seen = self._buffer[: min(count, len(head))]
        if not head.startswith(seen) and not b"\xa5error".startswith(self._buffer[5 : min(count, 11)]):
            raise Garbage("the model server sent what is no reply")
        if count < LENGTH.size:
            return LENGTH.size
        total: int = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
        if total > LENGTH.size + SMALL and not head.startswith(self._buffer[: LENGTH.size]):
            raise Garbage("the model server sent what is no reply")
        return total

    def _small(self, until: float) -> memoryview:
        """Read one frame of at most 64 KiB and nothing beyond it."""
        count = self._more(0, until)
        while count < LENGTH.size:
            count += self._more(count, until)
        total = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
        if total > LENGTH.size + SMALL:
            raise Garbage("the model server sent what is no reply")
        while count < total:
            count += self._more(count, until)
        if count > total:
            raise Garbage("the model server sent more than its reply")
        return self._view[LENGTH.size : total]

    def _more(self, count: int, until: float) -> int:
        """Receive some bytes more, at the latest at ``until``."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        if not waiting.poll(max(0.0, until - time.monotonic()) * 1000):
            raise TimedOut("no answer in time")
        try:
            got = self._socket.recv_into(self._view[count:])
        except BlockingIOError:
            raise self._late() from None
        except OSError:
            raise Crashed("the model's process ended") from None
        if got == 0:
            raise Crashed("the model's process ended")
        return got


def finite(actions: NDArray[Any]) -> bool:
    """Tell whether every number is one."""
    if actions.dtype.kind != "f":
        return True
    if actions.size <= 16:  # faster than numpy, up to there
        return math.isfinite(sum(actions.ravel().tolist())) or bool(np.isfinite(actions).all())
    return bool(np.isfinite(actions).all())


def _items(space: Space) -> int:
    return int(np.prod(space.shape, dtype=np.int64))


def _said(error: Error) -> ModelFault:
    kind = WrongAnswer if error.kind == "invalid" else Failed
    return kind(error.text[:WORDS])
