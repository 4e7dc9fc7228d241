"""Fake executor in memory: runs no processes; tests set the status and the end of its launches."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from core.domain.scheduling.launches import Launch, LaunchStatus, Phase


class FakeExecutor:
    """Executor in memory, for tests of code that uses executors; the contract suite tests it too."""

    def __init__(self, *, name: str = "fake") -> None:
        self.name = name
        self.launches: dict[str, Launch] = {}
        self._statuses: dict[str, LaunchStatus] = {}

    def submit(self, launch: Launch) -> None:
        """Record the launch."""
        if launch.id not in self.launches:
            self.launches[launch.id] = launch
            self._statuses[launch.id] = LaunchStatus(id=launch.id, phase=Phase.RUNNING)

    def observe(self, ids: Iterable[str]) -> Mapping[str, LaunchStatus]:
        """Return the recorded statuses."""
        return {id: self._statuses[id] for id in ids if id in self._statuses}

    def cancel(self, launch_id: str) -> None:
        """Remove the launch."""
        self._statuses.pop(launch_id, None)
        self.launches.pop(launch_id, None)

    def resize(self, launch_id: str, workers: int) -> None:
        """Record the new number of workers."""
        if launch_id in self.launches:
            self.launches[launch_id] = replace(self.launches[launch_id], workers=workers)

    def orphans(self, known: Collection[str]) -> Sequence[str]:
        """Return recorded launches that the platform does not know."""
        return [id for id in self.launches if id not in known]

    def see(self, status: LaunchStatus) -> None:
        """Set the status of a launch."""
        self._statuses[status.id] = status

    def end(self, launch_id: str, exit: int = 0, reason: str | None = None) -> None:
        """End a launch, as the end of its processes does."""
        status = self._statuses[launch_id]
        self._statuses[launch_id] = replace(status, phase=Phase.ENDED, exit=exit, reason=reason)
