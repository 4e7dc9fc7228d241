"""Measures of a cluster: messages of a size between the ranks of MPI, and the folder of outputs, by repeated windows.

The method is that of the OSU micro-benchmarks (Panda et al., https://mvapich.cse.ohio-state.edu/benchmarks): ping-pong
for the latency, 64 messages under way for the bandwidth, the mean over all ranks for all-reduce and barrier. Windows
that warm up are left out. A measure is the median over windows, so that a disturbance of some of them does not count.
Each call costs about a microsecond of Python besides.
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpi4py import MPI
from windtunnel_program import tasks

world = MPI.COMM_WORLD
#: Messages under way for the bandwidth, as in `osu_bw`.
UNDER_WAY = 64
#: Windows and calls that warm up, and are left out.
WARM_WINDOWS, WARM_CALLS = 2, 10
#: Seconds that a window takes about, and the most calls in it.
WINDOW, CALLS = 0.01, 1000
#: Bytes of each write for the time of a synchronization, and how many there are.
BLOCK, BLOCKS = 4096, 50


class Windows:
    """Repeated measures of calls that all ranks make together; ``number``: of windows that count."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.spreads: list[float] = []

    def seconds(self, call: Callable[[], object], *, mean: bool) -> float:
        """Return how long a call takes; on the first rank, or with ``mean`` the mean over all ranks."""
        calls = self._calls(call)
        measured: list[float] = []
        for window in range(WARM_WINDOWS + self.number):
            world.Barrier()
            began = time.perf_counter()
            for _ in range(calls):
                call()
            seconds = (time.perf_counter() - began) / calls
            seconds = world.allreduce(seconds) / world.size if mean else world.bcast(seconds)
            if window >= WARM_WINDOWS:
                measured.append(seconds)
        middle = statistics.median(measured)
        low, _, high = statistics.quantiles(measured, n=4)
        self.spreads.append((high - low) / middle)
        return middle

    def _calls(self, call: Callable[[], object]) -> int:
        """Return how many calls a window has: the same on all ranks."""
        for _ in range(WARM_CALLS):
            call()
        world.Barrier()
        began = time.perf_counter()
        for _ in range(WARM_CALLS):
            call()
        each = world.allreduce((time.perf_counter() - began) / WARM_CALLS, MPI.MAX)
        return max(1, min(CALLS, int(WINDOW / each)))


class Messages:
    """Messages of ``size`` bytes; point to point between the first rank and the last, which is farthest from it."""

    def __init__(self, size: int) -> None:
        self.own, self.other = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        self.numbers, self.sums = (np.zeros(max(1, size // 4), np.float32) for _ in range(2))
        self.answer = np.zeros(4, np.uint8)
        self.last = world.size - 1

    def ping_pong(self) -> None:
        """Send a message to the last rank and back."""
        if world.rank == 0:
            world.Send(self.own, self.last)
            world.Recv(self.other, self.last)
        elif world.rank == self.last:
            world.Recv(self.other, 0)
            world.Send(self.own, 0)

    def stream(self) -> None:
        """Send messages to the last rank, which answers once it has all of them."""
        if world.rank == 0:
            MPI.Request.Waitall([world.Isend(self.own, self.last) for _ in range(UNDER_WAY)])
            world.Recv(self.answer, self.last)
        elif world.rank == self.last:
            MPI.Request.Waitall([world.Irecv(self.other, 0) for _ in range(UNDER_WAY)])
            world.Send(self.answer, 0)

    def sum(self) -> None:
        """Sum floats of all ranks, on all of them."""
        world.Allreduce(self.numbers, self.sums)


class OutputFolder:
    """The folder of a task's outputs, as the first rank sees it. ``size``: bytes of the file that is written."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.path = Path(os.environ["WINDTUNNEL_OUTPUT"], "probe.bin")

    def rates(self) -> tuple[float, float]:
        """Return the bytes that are written and synchronized in a second, and those that are read, not from memory."""
        content = np.random.default_rng(1).bytes(self.size)  # that no disk can shorten
        began = time.perf_counter()
        with open(self.path, "wb", buffering=0) as file:
            file.write(content)
            os.fsync(file.fileno())
        written = time.perf_counter()
        with open(self.path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            reading = time.perf_counter()
            file.readall()
        return self.size / (written - began), self.size / (time.perf_counter() - reading)

    def synchronization(self) -> float:
        """Return the seconds in which a small write reaches the disk: the median."""
        path, seconds = self.path.with_name("blocks.bin"), []
        with open(path, "wb", buffering=0) as file:
            for _ in range(BLOCKS):
                began = time.perf_counter()
                file.write(bytes(BLOCK))
                os.fsync(file.fileno())
                seconds.append(time.perf_counter() - began)
        path.unlink()
        return statistics.median(seconds)


def measures(message_bytes: int, windows: int, disk_mb: int, keep: bool) -> dict[str, float | None]:
    """Return the metrics of a task, of which the platform takes the first rank's."""
    messages, repeated = Messages(message_bytes), Windows(windows)
    metrics: dict[str, float | None] = dict.fromkeys(("latency", "bandwidth", "disk_write", "disk_read", "disk_sync"))
    if world.size > 1:
        metrics["latency"] = repeated.seconds(messages.ping_pong, mean=False) / 2 * 1e6
        metrics["bandwidth"] = UNDER_WAY * message_bytes / repeated.seconds(messages.stream, mean=False) / 1e6
    metrics["all_reduce"] = repeated.seconds(messages.sum, mean=True) * 1e6
    metrics["barrier"] = repeated.seconds(world.Barrier, mean=True) * 1e6
    metrics["spread"] = max(repeated.spreads)
    hosts = len(set(world.allgather(MPI.Get_processor_name())))
    if world.rank == 0 and disk_mb:
        folder = OutputFolder(disk_mb << 20)
        written, read = folder.rates()
        metrics |= {"disk_write": written / 1e6, "disk_read": read / 1e6, "disk_sync": folder.synchronization() * 1e6}
        if not keep:
            folder.path.unlink()
    return {**metrics, "ranks": world.size, "hosts": hosts}


for task in tasks():
    task.finish(**measures(**task.params))
