"""Notifier within a single process, for services that have one: local play, tests and benchmarks need no Redis."""

import threading
from collections import deque


class LocalNotifier:
    """Wakes threads of this process and keeps the jobs that were enqueued, for the process to do or to ignore."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._wakeups: dict[str, int] = {}
        self._published: deque[str] = deque(maxlen=10_000)
        self.jobs: deque[tuple[str, str]] = deque()

    def wake(self, role: str) -> None:
        with self._changed:
            self._wakeups[role] = self._wakeups.get(role, 0) + 1
            self._changed.notify_all()

    def wait(self, role: str, timeout: float) -> bool:
        with self._changed:
            woken = self._changed.wait_for(lambda: self._wakeups.get(role, 0) > 0, timeout)
            self._wakeups[role] = 0
            return woken

    def publish(self, simulation_id: str) -> None:
        with self._changed:
            self._published.append(simulation_id)
            self._changed.notify_all()

    def published(self, timeout: float) -> list[str]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._published), timeout)
            ids = list(self._published)
            self._published.clear()
            return ids

    def enqueue(self, job: str, id: str) -> bool:
        with self._changed:
            self.jobs.append((job, id))
            self._changed.notify_all()
        return True

    def alive(self) -> bool:
        return True
