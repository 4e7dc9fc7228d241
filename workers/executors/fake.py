"""An executor in memory: it runs nothing, and ends launches when told to."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from core.domain.launches import Launch, Phase, Sighting


class FakeExecutor:
    """For tests of what stands above the port; the contract suite holds it to the port's promises."""

    name = "fake"

    def __init__(self, *, cores: int = 4, memory: int = 8 << 30) -> None:
        self.launches: dict[str, Launch] = {}
        self._sightings: dict[str, Sighting] = {}
        self._cores = cores
        self._memory = memory

    def submit(self, launch: Launch) -> None:
        """Take note of it."""
        if launch.id not in self.launches:
            self.launches[launch.id] = launch
            self._sightings[launch.id] = Sighting(id=launch.id, phase=Phase.RUNNING)

    def observe(self, ids: Iterable[str]) -> Mapping[str, Sighting]:
        """Report what has been noted."""
        return {id: self._sightings[id] for id in ids if id in self._sightings}

    def cancel(self, launch_id: str) -> None:
        """Forget it."""
        self._sightings.pop(launch_id, None)
        self.launches.pop(launch_id, None)

    def logs(self, launch_id: str, replica: int) -> Iterator[bytes]:
        """Yield one line."""
        if launch_id in self.launches:
            yield f"{launch_id} runs nothing\n".encode()

    def capacity(self) -> Mapping[str, int]:
        """Return what no running launch holds."""
        running = [id for id, seen in self._sightings.items() if seen.phase is not Phase.ENDED]
        return {"cpu": self._cores - sum(self.launches[id].workers for id in running), "memory": self._memory}

    def end(self, launch_id: str, exit: int = 0, reason: str | None = None) -> None:
        """Let a launch end, as its processes would."""
        seen = self._sightings[launch_id]
        self._sightings[launch_id] = replace(seen, phase=Phase.ENDED, exit=exit, reason=reason)
