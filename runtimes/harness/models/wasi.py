"""WASI preview 1 for models: no files, no network, time that calls advance, and random numbers of the scenario's seed.

Functions and numbers: github.com/WebAssembly/WASI, tag snapshot-01, phases/snapshot/docs.md.
"""

import struct
import sys
from collections.abc import Callable
from random import Random
from typing import Any

MODULE = "wasi_snapshot_preview1"
SUCCESS, BADF, FAULT, NOSYS, SPIPE = 0, 8, 21, 52, 70
#: Standard input, output and error, the only descriptors.
STREAMS = (0, 1, 2)
#: Type of a stream, and the right to write to it.
CHARACTER_DEVICE, RIGHT_TO_WRITE = 2, 1 << 6
#: Nanoseconds by which each look at a clock advances all clocks.
TICK = 1000
#: The most bytes of a scenario's output in the log.
OUTPUT = 16 << 10


class Exit(Exception):
    """The module has ended its program."""


class System:
    """What a program sees of a system: random numbers, time, and an output. A scenario begins with `begin`."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Begin a scenario: the clocks are at zero, and random numbers come from its seed."""
        self.random, self.time, self._output = Random(seed), 0, OUTPUT

    def look_at_clock(self) -> int:
        """Return the nanoseconds since the scenario's begin, which each look advances."""
        self.time += TICK
        return self.time

    def print(self, text: bytes) -> None:
        """Write to the log, until the scenario has written OUTPUT bytes."""
        sys.stderr.write(text[: self._output].decode(errors="replace"))
        self._output -= min(self._output, len(text))
        sys.stderr.flush()


class Wasi(System):
    """WASI preview 1, by the names of its functions."""

    def function(self, name: str) -> Callable[..., int]:
        """Return the function of this name; one that needs files or sockets is not available (ENOSYS)."""
        return getattr(self, f"_{name}", _not_available)

    def _args_sizes_get(self, caller: Any, count: int, size: int) -> int:
        return _write(caller, count, bytes(4)) or _write(caller, size, bytes(4))

    _environ_sizes_get = _args_sizes_get

    def _args_get(self, caller: Any, pointers: int, texts: int) -> int:
        return SUCCESS

    _environ_get = _args_get

    def _clock_res_get(self, caller: Any, clock: int, result: int) -> int:
        return _write(caller, result, struct.pack("<Q", TICK))

    def _clock_time_get(self, caller: Any, clock: int, precision: int, result: int) -> int:
        return _write(caller, result, struct.pack("<Q", self.look_at_clock()))

    def _random_get(self, caller: Any, address: int, length: int) -> int:
        length &= 0xFFFFFFFF
        if length > caller["memory"].data_len(caller):  # before so many bytes are drawn
            return FAULT
        return _write(caller, address, self.random.randbytes(length))

    def _sched_yield(self, caller: Any) -> int:
        return SUCCESS

    def _fd_prestat_get(self, caller: Any, descriptor: int, result: int) -> int:
        return BADF  # no folder is open

    def _fd_prestat_dir_name(self, caller: Any, descriptor: int, text: int, size: int) -> int:
        return BADF

    def _fd_close(self, caller: Any, descriptor: int) -> int:
        return SUCCESS if descriptor in STREAMS else BADF

    def _fd_seek(self, caller: Any, descriptor: int, offset: int, whence: int, result: int) -> int:
        return SPIPE if descriptor in STREAMS else BADF

    def _fd_fdstat_get(self, caller: Any, descriptor: int, result: int) -> int:
        if descriptor not in STREAMS:
            return BADF
        return _write(caller, result, struct.pack("<BxHxxxxQQ", CHARACTER_DEVICE, 0, RIGHT_TO_WRITE, 0))

    def _fd_read(self, caller: Any, descriptor: int, vectors: int, count: int, result: int) -> int:
        return _write(caller, result, bytes(4)) if descriptor == 0 else BADF

    def _fd_write(self, caller: Any, descriptor: int, vectors: int, count: int, result: int) -> int:
        if descriptor not in STREAMS[1:]:
            return BADF
        written = 0
        for index in range(count & 0xFFFFFFFF):
            if (vector := _read(caller, vectors + 8 * index, 8)) is None:
                return FAULT
            address, length = struct.unpack("<II", vector)
            if (text := _read(caller, address, length)) is None:
                return FAULT
            self.print(text)
            written += length
        return _write(caller, result, struct.pack("<I", written & 0xFFFFFFFF))

    def _proc_exit(self, caller: Any, code: int) -> int:
        raise Exit(f"it exited with code {code}")


def _not_available(caller: Any, *arguments: int) -> int:
    return NOSYS


def _read(caller: Any, address: int, length: int) -> bytes | None:
    memory, address = caller["memory"], address & 0xFFFFFFFF
    if address + length > memory.data_len(caller):
        return None
    return bytes(memory.read(caller, address, address + length))


def _write(caller: Any, address: int, data: bytes) -> int:
    memory, address = caller["memory"], address & 0xFFFFFFFF
    if address + len(data) > memory.data_len(caller):
        return FAULT
    memory.write(caller, data, address)
    return SUCCESS
