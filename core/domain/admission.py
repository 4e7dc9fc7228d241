"""Who may start now: a pure decision over a snapshot."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from core.domain.executor_config import ExecutorConfig


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued simulation. ``requested``: pairs at work at once, None for all there are; ``executor``: where, if it
    says.

    ``brief`` is a moment's work that need not wait its turn. ``among``: the places that could run it; None: all.
    """

    id: str
    requested: int | None
    submitted_at: float
    not_before: float = 0.0
    brief: bool = False
    executor: str = ""
    among: frozenset[str] | None = None

    def may_run(self, place: str) -> bool:
        """Tell whether it could run in a place."""
        return self.executor in {"", place} and (self.among is None or place in self.among)


@dataclass(frozen=True, slots=True)
class Room:
    """What is free in a place; one that does not answer has no room, and holds nobody up who could go elsewhere."""

    config: ExecutorConfig
    free: int
    healthy: bool = True


def admit(queue: Iterable[Waiting], rooms: Iterable[Room], now: float) -> Iterator[tuple[Waiting, str]]:
    """Yield what to start now, and where; first come first served, to where most is free.

    The head of the line waits for room, and whoever could run where it could waits behind it, so that a wide one is
    never starved by narrow ones. A check of a model (``brief``) passes: it is one step long.
    """
    well = [room for room in rooms if room.healthy]
    known: Mapping[str, ExecutorConfig] = {room.config.name: room.config for room in well}
    free = {room.config.name: room.free for room in well}
    blocked: set[str] = set()
    for item in sorted(queue, key=lambda item: (item.submitted_at, item.id)):
        places = [name for name in free if item.may_run(name)]
        if item.not_before > now or not places:
            continue
        if item.brief:
            yield item, max(places, key=lambda name: free[name])
            continue
        open_ = [name for name in places if name not in blocked]
        fits = [name for name in open_ if known[name].workers_for(item.requested) <= free[name]]
        if fits:
            # As wide as it asked for where that can be had; among those, where most is left.
            chosen = max(fits, key=lambda name: (known[name].workers_for(item.requested), free[name]))
            free[chosen] -= known[chosen].workers_for(item.requested)
            yield item, chosen
        else:
            blocked.update(places)


def why_waiting(position: int, requested: int, pause: float, reason: str | None) -> str:
    """Say in words what a queued simulation waits for; ``pause``: seconds until it may be tried again, and why."""
    if pause > 0 and reason is not None:
        return f"tried again in {pause:.0f} s; {reason}"
    if position > 1:
        return f"waits its turn: {position - 1} before it"
    return f"waits for {requested} free worker{'s' if requested > 1 else ''}"
