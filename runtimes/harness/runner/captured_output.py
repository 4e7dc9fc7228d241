"""Captured output of models and simulators: read from pipes, limited in rate and size, delivered in pieces."""

import os
import threading
import time
from collections.abc import Callable

#: Limits of a launch's output, in bytes: per second, and in total.
RATE, CAP = 64 << 10, 1 << 20
#: Bytes read from a pipe at once; the rest stays in the pipe, so a flood blocks its writer instead of the runner.
PIECE = 64 << 10

Clock = Callable[[], float]


class CapturedOutput:
    """Collects output by name. Output over the rate or the cap is dropped, and a line reports it."""

    def __init__(self, *, rate: int = RATE, cap: int = CAP, clock: Clock = time.monotonic) -> None:
        self._rate, self._left, self._clock = rate, cap, clock
        self._allowance, self._seen_at = float(rate), clock()
        self._lock = threading.Lock()
        self._pending: dict[str, bytearray] = {}
        self._dropped = 0
        self._full = False
        self._pipes: dict[int, str] = {}

    def watch(self, pipe: int, name: str) -> None:
        """Add a pipe to read from. Reads of it wait for nothing: one thread that did would keep the others waiting."""
        os.set_blocking(pipe, False)
        with self._lock:
            self._pipes[pipe] = name

    def forget(self, pipe: int) -> None:
        """Read the rest of the pipe's data once, then remove it."""
        with self._lock:
            name = self._pipes.pop(pipe, None)
            if name is not None:
                self._read(pipe, name)

    def collect(self, pipe: int) -> bool:
        """Read the available data of a pipe; return whether it is still open."""
        with self._lock:
            name = self._pipes.get(pipe)
            return name is not None and self._read(pipe, name)

    def add(self, name: str, data: bytes) -> None:
        """Add a line from the runner itself."""
        with self._lock:
            self._keep(name, data)

    def take(self) -> list[tuple[str, bytes]]:
        """Read every pipe and return the new output since the last call, by name."""
        with self._lock:
            for pipe, name in list(self._pipes.items()):
                self._read(pipe, name)
            taken = [(name, bytes(data)) for name, data in self._pending.items() if data]
            self._pending.clear()
            if self._dropped:
                why = "the launch's output is full" if self._left <= 0 else "it came too fast"
                taken.append(("runner", f"[{self._dropped} bytes of output left out: {why}]\n".encode()))
                self._dropped = 0
            return taken

    def _read(self, pipe: int, name: str) -> bool:
        try:
            data = os.read(pipe, PIECE)
        except BlockingIOError:
            return True
        self._keep(name, data)
        return bool(data)

    def _keep(self, name: str, data: bytes) -> None:
        now = self._clock()
        self._allowance = min(float(self._rate), self._allowance + (now - self._seen_at) * self._rate)
        self._seen_at = now
        size = max(0, min(len(data), int(self._allowance), self._left))
        self._allowance -= size
        self._left -= size
        self._pending.setdefault(name, bytearray()).extend(data[:size])
        if size < len(data) and not (self._left <= 0 and self._full):
            self._dropped += len(data) - size
            self._full = self._left <= 0  # report a full output only once
