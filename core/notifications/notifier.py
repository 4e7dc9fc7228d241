"""Best-effort wake-ups. Delivery is not guaranteed; every consumer also polls."""

from typing import Protocol


class Notifier(Protocol):
    """Wakes loops and streams. A lost wake-up costs seconds, a spurious one nothing; no method raises."""

    def wake(self, role: str) -> None:
        """Wake a role's loop, or its next wait."""

    def wait(self, role: str, timeout: float) -> bool:
        """Block until the role is woken, at most ``timeout`` seconds; return whether it was."""

    def publish(self, simulation_id: str) -> None:
        """Tell every process that a simulation has changed."""

    def published(self, timeout: float) -> list[str]:
        """Block until a simulation has changed, at most ``timeout`` seconds; return the ids published meanwhile."""

    def enqueue(self, job: str, id: str) -> bool:
        """Enqueue a job of a kind for the jobs role (scheduling/job_kinds.py), unless it waits or runs already.

        Return False if the queue is unavailable.
        """

    def alive(self) -> bool:
        """Return whether wake-ups are delivered at present."""
