"""The bell: wakes loops and streams. It carries no truth; every listener also looks by the clock."""

import threading
from collections import deque
from typing import Protocol


class Bell(Protocol):
    """Rings are hints. A lost one costs seconds, one too many nothing; no method raises because the bell is broken."""

    def ring(self, role: str) -> None:
        """Wake a role's loop."""

    def wait(self, role: str, timeout: float) -> bool:
        """Block until the role is rung for, at most ``timeout`` seconds; tell which."""

    def announce(self, simulation_id: str) -> None:
        """Tell streams that a simulation has something new."""

    def announcements(self, timeout: float) -> list[str]:
        """Block until something is announced, at most ``timeout`` seconds; return what was."""

    def enqueue(self, job: str, id: str) -> None:
        """Hand a job (`stage`, `collect`, `replay`, `sweep`) to the jobs role: an id in, nothing out."""

    def alive(self) -> bool:
        """Tell whether the bell rings at all."""


class LocalBell:
    """A bell within one process, for tests and tools."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._rung: dict[str, int] = {}
        self._announced: deque[str] = deque(maxlen=10_000)
        self.jobs: deque[tuple[str, str]] = deque()

    def ring(self, role: str) -> None:
        with self._changed:
            self._rung[role] = self._rung.get(role, 0) + 1
            self._changed.notify_all()

    def wait(self, role: str, timeout: float) -> bool:
        with self._changed:
            rung = self._changed.wait_for(lambda: self._rung.get(role, 0) > 0, timeout)
            self._rung[role] = 0
            return rung

    def announce(self, simulation_id: str) -> None:
        with self._changed:
            self._announced.append(simulation_id)
            self._changed.notify_all()

    def announcements(self, timeout: float) -> list[str]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._announced), timeout)
            heard = list(self._announced)
            self._announced.clear()
            return heard

    def enqueue(self, job: str, id: str) -> None:
        with self._changed:
            self.jobs.append((job, id))
            self._changed.notify_all()

    def alive(self) -> bool:
        return True
