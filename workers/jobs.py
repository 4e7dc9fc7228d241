"""The jobs: an id in, nothing out. A claim in SQL makes it harmless to do one twice."""

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from core.services.platform import Platform
from runtimes import catalogue, environments
from runtimes.harness.processes import Kit
from workers import replays
from workers.crews import HARNESS, base_interpreter

logger = logging.getLogger(__name__)

#: Downloads at once. They take minutes, and what ends in milliseconds must not wait for them.
DOWNLOADS = 2


class Jobs:
    """The table of jobs over the services."""

    def __init__(self, platform: Platform, *, environments_folder: Path, sandbox: int | None) -> None:
        self._platform = platform
        self._environments = environments_folder
        self._sandbox = sandbox
        self._downloads = ThreadPoolExecutor(DOWNLOADS, "stage")
        self._staging: set[str] = set()
        self._sweeps = ThreadPoolExecutor(1, "sweep")
        self._sweeping = threading.Lock()
        self._lock = threading.Lock()

    @property
    def table(self) -> Mapping[str, Callable[[str], None]]:
        """Return each job by its name."""
        return {"stage": self.stage, "collect": self.collect, "replay": self.replay, "sweep": self.sweep}

    def stage(self, id: str) -> None:
        """Make a simulation's environments and files ready, beside the other jobs."""
        with self._lock:
            if id in self._staging:
                return  # the bell rings again while a download goes on
            self._staging.add(id)
        self._downloads.submit(self._stage, id)

    def _stage(self, id: str) -> None:
        try:
            self._platform.staging.stage(id)
        except Exception:
            logger.exception("staging failed; it is rung for again", extra={"simulation": id})
        finally:
            with self._lock:
                self._staging.discard(id)

    def sweep(self, what: str) -> None:
        """Delete what has expired, beside the other jobs; one sweep at a time."""
        if self._sweeping.acquire(blocking=False):
            self._sweeps.submit(self._sweep)

    def _sweep(self) -> None:
        try:
            self._platform.uploads.sweep()
        except Exception:
            logger.exception("a sweep failed; it is rung for again")
        finally:
            self._sweeping.release()

    def collect(self, id: str) -> None:
        """Sum a simulation up and end it."""
        self._platform.collecting.collect(id)

    def replay(self, name: str) -> None:
        """Make the replay of ``simulation:task``, unless it is there."""
        id, _, task = name.partition(":")
        if self._platform.replays.made(id, int(task)):
            return
        dataset, play, trace = self._platform.replays.inputs(id, int(task))
        site = environments.ready(catalogue.simulators()[dataset.simulator], self._environments)
        if site is None:
            logger.warning("no replay: the simulator's environment is not ready", extra={"simulation": id})
            return
        kit = Kit(
            python=base_interpreter(),
            harness=str(HARNESS),
            dataset=str(dataset.folder),
            player_site=str(site),
            host_site="",  # nobody drives
            format="",
            isolation="launch",
            sandbox=self._sandbox,
        )
        try:
            self._platform.replays.keep(id, int(task), replays.make(kit, play, int(task), trace))
        except replays.CannotReplay as error:
            logger.warning("no replay of task %s: %s", task, error, extra={"simulation": id})
