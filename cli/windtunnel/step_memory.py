# Generated from runtimes/harness/session/step_memory.py by scripts/sync_client.py; change that file.
"""Step memory: what a trainer and a session's process share, with an order and an answer for each of its worlds.

The trainer makes it, sealed so that it cannot be made shorter: reading behind the end of a file is SIGBUS. Arrays lie
one behind the other, each at a multiple of CACHE_LINE bytes; the trainer copies each answer once before it looks at it.
Each wakes the other by a byte in a pipe. An eventfd(2) would be one open file of both, whose O_NONBLOCK the process
could remove, so that the trainer waits without a deadline.
"""

import math
import mmap
import os
import select
import sys
import time
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

if sys.platform != "win32":  # on which the client steps on servers only
    import fcntl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

#: What a world is ordered to do: nothing, to start a scenario, or to apply an action.
IDLE, RESET, STEP = 0, 1, 2
#: What has become of an order: the scenario goes on, it is over, a limit of time has ended it, or an error has.
GOES_ON, OVER, CUT_OFF, FAULT = 0, 1, 2, 3
#: What is written to a pipe to wake its reader.
RING = b"\1"
#: Bytes to a multiple of which every array begins.
CACHE_LINE = 64
#: Exchanges in which a process sleeps at once after it has polled in vain; twice as many after the next time, and so on
#: to the most.
FIRST_PAUSE, LONGEST_PAUSE = 2, 256
#: The most bytes of a world's document, which is msgpack.
DOCUMENT = 1 << 16


class ArrayType(NamedTuple):
    """Type and shape of the arrays of a space."""

    dtype: str
    shape: tuple[int, ...]

    def size(self, worlds: int) -> int:
        """Return the bytes of so many arrays."""
        return worlds * math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Answers(NamedTuple):
    """Copies of the answers of all worlds, of which StepMemory says more."""

    lengths: list[int]
    outcomes: bytes
    rewards: "NDArray[np.float64]"
    observations: "Array"


class Document(msgspec.Struct, omit_defaults=True):
    """Description of a scenario at its start or its end, or of an error.

    ``seed``: of the scenario. ``metrics``: None before the end. ``reason``: of the error.
    """

    seed: int = 0
    name: str | None = None
    metrics: Mapping[str, float | int | str | bool | None] | None = None
    reason: str = ""


class StepMemory:
    """Views of the arrays in a buffer. ``lengths``: bytes of each world's document, 0 if there is none."""

    def __init__(self, observation: ArrayType, action: ArrayType, worlds: int, memory: "mmap.mmap | bytearray") -> None:
        places = _places(observation, action, worlds)
        orders, scenarios, repeats, seeds, actions, lengths, outcomes, rewards, observations, documents, _ = places
        view = memoryview(memory)
        self.worlds = worlds
        self.orders = view[orders : orders + worlds]
        self.scenarios = np.frombuffer(view, np.int64, worlds, scenarios)
        self.repeats = np.frombuffer(view, np.int64, worlds, repeats)
        self.seeds = np.frombuffer(view, np.int64, worlds, seeds)
        self.actions = _array(view, action, worlds, actions)
        self.lengths = np.frombuffer(view, np.uint32, worlds, lengths)
        self.outcomes = view[outcomes : outcomes + worlds]
        self.rewards = np.frombuffer(view, np.float64, worlds, rewards)
        self.observations = _array(view, observation, worlds, observations)
        self.documents = [view[at : at + DOCUMENT] for at in range(documents, documents + worlds * DOCUMENT, DOCUMENT)]
        self._cleared = view[lengths : outcomes + worlds]

    def clear(self) -> None:
        """Set lengths and outcomes of all worlds: the scenario goes on, and there is no document."""
        self._cleared[:] = bytes(len(self._cleared))

    def answers(self) -> Answers:
        """Return copies of the answers but the documents."""
        return Answers(self.lengths.tolist(), bytes(self.outcomes), self.rewards.copy(), self.observations.copy())

    @staticmethod
    def size(observation: ArrayType, action: ArrayType, worlds: int) -> int:
        """Return the bytes that so many worlds take."""
        return _places(observation, action, worlds)[-1]

    @classmethod
    def make(cls, observation: ArrayType, action: ArrayType, worlds: int) -> "tuple[StepMemory, int]":
        """Make the memory; return it with its descriptor."""
        size = cls.size(observation, action, worlds)
        descriptor = os.memfd_create("steps", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return cls(observation, action, worlds, mmap.mmap(descriptor, size)), descriptor

    @classmethod
    def of_descriptor(cls, observation: ArrayType, action: ArrayType, worlds: int, descriptor: int) -> "StepMemory":
        """Return the memory of a descriptor, which is closed. Raise ValueError if it is of another size."""
        try:
            size = cls.size(observation, action, worlds)
            if (actual := os.fstat(descriptor).st_size) != size:
                raise ValueError(f"the memory of {worlds} worlds has {actual:,} bytes in place of {size:,}")
            return cls(observation, action, worlds, mmap.mmap(descriptor, size))
        finally:
            os.close(descriptor)


class RingWait:
    """Waits for a byte in a pipe. For ``spin`` seconds it polls again and again, before this process sleeps.

    Waking a process on another processor takes longer than a step of most worlds: 50 to 90 us on virtual machines. On a
    busy machine both processes have one processor, and polling keeps the other from working, while sleeping costs a
    switch, of 4 us. So what has been in vain is not tried again for a while, which is short at first.
    """

    def __init__(self, descriptor: int, spin: float) -> None:
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._spin = spin
        self._pause, self._left = 0, 0  # exchanges of this pause, and those of it that are left

    def __call__(self, milliseconds: float | None = None) -> bool:
        """Return whether the pipe can be read, or is closed, before the time is over; None: whenever that is."""
        ask = self._poll.poll
        if self._left:
            self._left -= 1
        elif self._spin:
            clock = time.perf_counter
            until = clock() + self._spin
            while clock() < until:
                if ask(0):
                    self._pause = 0
                    return True
            self._pause = self._left = min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE)
        return bool(ask(milliseconds))


def _places(observation: ArrayType, action: ArrayType, worlds: int) -> list[int]:
    """Return where each array begins, and where the last ends."""
    asked = (worlds, 8 * worlds, 8 * worlds, 8 * worlds, action.size(worlds))
    answered = (4 * worlds, worlds, 8 * worlds, observation.size(worlds), worlds * DOCUMENT)
    return list(accumulate((-(-size // CACHE_LINE) * CACHE_LINE for size in (*asked, *answered)), initial=0))


def _array(buffer: memoryview, kind: ArrayType, worlds: int, offset: int) -> "Array":
    return np.frombuffer(buffer, kind.dtype, worlds * math.prod(kind.shape), offset).reshape(worlds, *kind.shape)
