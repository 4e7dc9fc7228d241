"""Who may start now: a pure decision over a snapshot."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued simulation: how many cores it wants, and whether it is a moment's work that need not wait its turn."""

    id: str
    cores: int
    submitted_at: float
    not_before: float = 0.0
    brief: bool = False


def admit(queue: Iterable[Waiting], free: int, total: int, now: float) -> Iterator[Waiting]:
    """Yield what to start now, first come first served; who wants more than there is at all gets all of it.

    The head of the line waits for room and everyone waits behind it, so that a wide one is never starved by narrow
    ones. A check of a model (``brief``) passes: it is one step long.
    """
    blocked = False
    for item in sorted(queue, key=lambda item: (item.submitted_at, item.id)):
        if item.brief:
            yield item
        elif item.not_before > now or blocked:
            continue
        elif min(item.cores, total) <= free:
            free -= min(item.cores, total)
            yield item
        else:
            blocked = True


def why_waiting(position: int, wanted: int, pause: float, reason: str | None) -> str:
    """Say in words what a queued simulation waits for; ``pause``: seconds until it may be tried again, and why."""
    if pause > 0 and reason is not None:
        return f"tried again in {pause:.0f} s; {reason}"
    if position > 1:
        return f"waits its turn: {position - 1} before it"
    return f"waits for {wanted} free core{'s' if wanted > 1 else ''}"
