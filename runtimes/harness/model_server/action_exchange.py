"""Action exchange: a request for actions and its reply, made once for an interface; only their contents change."""

import os
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from ..simulators.base import Interface
from .model_protocol import framed

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Sequence numbers: msgpack encodes each of them in five bytes, of which the last four are the number.
FIRST, LAST = 1 << 16, (1 << 31) - 1
NUMBER = struct.Struct(">I")
#: Sequence numbers that are drawn at once.
DRAWN = 1024
#: Offsets of the sequence number in an `act` and an `action` frame.
SEQ_OF_ACT, SEQ_OF_ACTION = 10, 13


class ActionExchange:
    """A request with ``rows`` observations, and the reply with as many actions, which is received into ``buffer``.

    The reply is ``head``, then ``actions``, views of whose
    bytes the next request overwrites; ``expected`` is its length. ``observation`` and ``action``: of the first row,
    whose observation has ``dtype`` and ``shape``; ``observed``: the bytes of all observations.
    The sequence number is at ``seq_at`` in the request, and at SEQ_OF_ACTION in the reply.
    """

    def __init__(self, interface: Interface, rows: int, buffer: bytearray) -> None:
        observation, action = interface.observation, interface.action
        observed = rows * observation.size
        self.request = bytearray(framed(("act", FIRST, rows, bytes(observed))))
        self.size = len(self.request)
        self.observations = _rows(self.request, observation.dtype, rows, observation.shape, self.size - observed)
        reply = framed(("action", FIRST, bytes(rows * action.size)))
        self.expected = len(reply)
        self.head = bytearray(reply[: self.expected - rows * action.size])
        self.actions = _rows(buffer, action.dtype, rows, action.shape, len(self.head))
        self.observation, self.action = self.observations[0, ...], self.actions[0, ...]
        self.dtype, self.shape = self.observation.dtype, self.observation.shape
        self.observed = memoryview(self.request)[self.size - observed :]
        self.seq_at = SEQ_OF_ACT


def drawn_words() -> "NDArray[np.uint32]":
    """Draw sequence numbers that no process can foresee: a reply that was made before its request has another one."""
    words = np.frombuffer(os.urandom(DRAWN * NUMBER.size), np.uint32)
    return (words & np.uint32(LAST)) | np.uint32(FIRST)


def drawn_numbers() -> list[int]:
    """Return such numbers as integers."""
    numbers: list[int] = drawn_words().tolist()
    return numbers


def _rows(frame: bytearray, dtype: str, rows: int, shape: tuple[int, ...], offset: int) -> "NDArray[Any]":
    items = rows * int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(frame, dtype, items, offset).reshape(rows, *shape)
