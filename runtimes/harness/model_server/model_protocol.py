"""Model protocol: frames between an evaluator and a model server.

A frame is a length (u32, little-endian) and a msgpack array; see docs/model-server.md.
"""

import struct
from typing import Any, Literal

import msgspec

from ..simulators.base import Space
from ..simulators.structures import box

LENGTH = struct.Struct("<I")
PROTOCOL = 1
#: Member of `hello` by which a model server says that it serves many scenarios at once, through memory.
SERVES_ROWS = "serves_rows"
#: Member of `hello` by which a model server says that it runs each scenario in a process of its own, with a socket of
#: its own that the evaluator makes.
PROCESS_PER_SCENARIO = "process_per_scenario"
#: The most characters of an error text that a result keeps.
MAX_ERROR_TEXT = 2000


class Load(msgspec.Struct, array_like=True, tag="load"):
    """Load a model: its bytes are in the accompanying descriptor, or in the file that ``model`` names."""

    seq: int
    request: dict[str, Any]


class Reset(msgspec.Struct, array_like=True, tag="reset"):
    """Start a scenario."""

    seq: int
    request: dict[str, int]


class Act(msgspec.Struct, array_like=True, tag="act"):
    """Compute an action for each of ``count`` observations."""

    seq: int
    count: int
    observations: memoryview


class Rows(msgspec.Struct, array_like=True, tag="rows"):
    """Answer through the memory that came with `load`, until the next frame.

    ``one_step``: each scenario ends with its first action. ``patience``: seconds for the comparison of kernels.
    """

    seq: int
    one_step: bool
    patience: float


class Done(msgspec.Struct, array_like=True, tag="done"):
    """The scenario has ended."""

    seq: int


class Close(msgspec.Struct, array_like=True, tag="close"):
    """End the model server."""

    seq: int


Request = Load | Reset | Act | Rows | Done | Close
Scalar = str | int | float | bool | None
#: How the actions of many scenarios are computed: one after the other, or all rows together.
Kernel = Literal["one", "rows"]
#: Whether a model raised an exception, or its answer is not an action.
FaultKind = Literal["failed", "invalid"]


class Hello(msgspec.Struct, array_like=True, tag="hello", forbid_unknown_fields=True):
    """A model server's first frame."""

    protocol: int
    model_server: dict[str, Scalar]


class LoadedReply(msgspec.Struct, array_like=True, tag="loaded", forbid_unknown_fields=True):
    """The model is loaded and fits the spaces."""

    seq: int
    info: dict[str, Scalar]


class RowsReply(msgspec.Struct, array_like=True, tag="rows", forbid_unknown_fields=True):
    """How rows are computed; "none": the model serves one scenario."""

    seq: int
    kernel: Kernel | Literal["none"]


class ErrorReply(msgspec.Struct, array_like=True, tag="error", forbid_unknown_fields=True):
    """The model raised an exception ("failed"), or its answer is not an action ("invalid")."""

    seq: int
    text: str
    kind: FaultKind = "failed"


class Ended(msgspec.Struct, array_like=True, tag="ended", forbid_unknown_fields=True):
    """The last frame of a model server with a process per scenario: how a process ended during its scenario.

    ``code``: its exit code, or the negative number of its signal.
    """

    code: int


_encoder = msgspec.msgpack.Encoder()
_load_decoder = msgspec.msgpack.Decoder(Load)


def framed(message: Any) -> bytes:
    """Return a message as a frame."""
    payload = _encoder.encode(message)
    return LENGTH.pack(len(payload)) + payload


def load_of(frame: bytes) -> Load:
    """Decode a frame with `load`."""
    return _load_decoder.decode(memoryview(frame)[LENGTH.size :])


#: An evaluator passes the socket of a scenario's process with this frame; the model server returns it without the
#: socket once that process runs.
SOCKET_FRAME = framed(("socket",))


def describe(space: Space) -> dict[str, Any]:
    """Return a space's JSON form for a model server, with its elements in Gymnasium's terms."""
    return space.describe() | {"gymnasium": (space.gymnasium or box(space.shape, space.dtype)).describe()}
