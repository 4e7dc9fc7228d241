"""Row memory: what an evaluator and a model server share, with a request and an answer for each of many scenarios.

The evaluator makes it, sealed so that it cannot be made shorter: reading behind the end of a file is SIGBUS. Arrays
lie one behind the other, each at a multiple of ALIGNMENT bytes; the answers are in one piece, of which the evaluator
makes a copy before it looks at it. docs/model-server.md has the layout for people.
"""

import fcntl
import mmap
import os
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from ..simulators.base import Interface

if TYPE_CHECKING:
    from ..models.base import Array

#: What a row's request asks for: nothing, an action, or a reset with its seed and then an action.
IDLE, ACT, RESET = 0, 1, 2
#: What is written to a pipe to wake its reader.
RING = b"\1"
#: Bytes to a multiple of which every array begins: those of a cache line.
ALIGNMENT = 64
#: Seals of the memory (fcntl(2)): no shorter, no longer, and no further seals.
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class RowMemory:
    """Views of the arrays in a buffer. ``numbers``: drawn for each request, and repeated by its answer.

    ``faults``: 0 for an action. ``answers``: ``answered_numbers``, ``faults`` and ``actions`` in one piece.
    """

    def __init__(self, interface: Interface, rows: int, memory: Any) -> None:
        observation, action = interface.observation, interface.action
        sizes = (4 * rows, rows, 8 * rows, rows * observation.size, 4 * rows, rows, rows * action.size)
        self.rows = rows
        (numbers, kinds, seeds, observations, answered, faults, actions), _ = _places(sizes)
        view = memoryview(memory)
        self.numbers = view[numbers : numbers + 4 * rows]
        self.kinds = view[kinds : kinds + rows]
        self.seeds = np.frombuffer(view, "<u8", rows, seeds)
        self.observations = _array(view, observation.dtype, rows, observation.shape, observations)
        self.answers = view[answered : actions + rows * action.size]
        self.answered_numbers = view[answered : answered + 4 * rows]
        self.faults = view[faults : faults + rows]
        self.actions = view[actions : actions + rows * action.size]
        self._faults_at, self._actions_at = faults - answered, actions - answered
        self._dtype, self._shape = np.dtype(action.dtype), (rows, *action.shape)

    def read(self, answers: bytearray) -> "tuple[Array, bytes]":
        """Return an action for each row, and for each 1 if it failed or 0, from a copy of ``answers``."""
        actions = np.frombuffer(answers, self._dtype, offset=self._actions_at).reshape(self._shape)
        return actions, bytes(answers[self._faults_at : self._faults_at + self.rows])

    @staticmethod
    def size(interface: Interface, rows: int) -> int:
        """Return the bytes that so many rows take."""
        observation, action = interface.observation, interface.action
        return _places((4 * rows, rows, 8 * rows, rows * observation.size, 4 * rows, rows, rows * action.size))[1]

    @classmethod
    def make(cls, interface: Interface, rows: int) -> "tuple[RowMemory, int]":
        """Make the memory; return it with its descriptor."""
        size = cls.size(interface, rows)
        descriptor = os.memfd_create("rows", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
        return cls(interface, rows, mmap.mmap(descriptor, size)), descriptor

    @classmethod
    def map_descriptor(cls, interface: Interface, rows: int, descriptor: int) -> "RowMemory":
        """Return the memory of a descriptor, which is closed."""
        try:
            return cls(interface, rows, mmap.mmap(descriptor, cls.size(interface, rows)))
        finally:
            os.close(descriptor)


def _places(sizes: Iterable[int]) -> tuple[list[int], int]:
    """Return where arrays of these sizes begin, and where the last ends."""
    ends = list(accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0))
    return ends[:-1], ends[-1]


def _array(view: memoryview, dtype: str, rows: int, shape: tuple[int, ...], offset: int) -> "Array":
    items = rows * int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(view, dtype, items, offset).reshape(rows, *shape)
