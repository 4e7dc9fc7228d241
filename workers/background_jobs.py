"""The jobs: an id in, nothing out. A claim in SQL makes it harmless to do one twice."""

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from core.services.platform import Platform
from runtimes import catalogue, environments
from runtimes.harness.runner.processes import Kit
from workers import replay_job
from workers.warm_runners import HARNESS, base_interpreter

logger = logging.getLogger(__name__)

#: Downloads at once. They take minutes, and what ends in milliseconds must not wait for them.
DOWNLOADS = 2
#: Datasets that are registered at once; each takes a core while it hashes.
REGISTRATIONS = 2
#: Simulations that are summed up at once. One of millions of tasks takes a minute; most take milliseconds.
SUMS = 4


class Jobs:
    """The table of jobs over the services."""

    def __init__(self, platform: Platform, *, environments_folder: Path, sandbox: int | None) -> None:
        self._platform = platform
        self._environments = environments_folder
        self._sandbox = sandbox
        self._downloads = ThreadPoolExecutor(DOWNLOADS, "stage")
        self._registrations = ThreadPoolExecutor(REGISTRATIONS, "register")
        self._sums = ThreadPoolExecutor(SUMS, "collect")
        self._sweeps = ThreadPoolExecutor(1, "sweep")
        self._busy: set[tuple[ThreadPoolExecutor, str]] = set()
        self._lock = threading.Lock()

    @property
    def table(self) -> Mapping[str, Callable[[str], None]]:
        """Return each job by its name."""
        return {
            "stage": self.stage,
            "collect": self.collect,
            "replay": self.replay,
            "register": self.register,
            "prefetch": self.prefetch,
            "sweep": self.sweep,
        }

    def stage(self, id: str) -> None:
        """Make a simulation's environments and files ready."""
        self._beside(self._downloads, self._platform.staging.stage, id)

    def prefetch(self, id: str) -> None:
        """Bring a version of a dataset near."""
        self._beside(self._downloads, self._platform.staging.prefetch, id)

    def register(self, id: str) -> None:
        """Make a version of a dataset."""
        self._beside(self._registrations, self._platform.registering.register, id)

    def sweep(self, what: str) -> None:
        """Delete what has expired, and what nobody needs any more."""
        self._beside(self._sweeps, self._sweep, what)

    def _sweep(self, what: str) -> None:
        self._platform.uploads.sweep()
        self._platform.staging.sweep()

    def _beside(self, pool: ThreadPoolExecutor, work: Callable[[str], object], id: str) -> None:
        """Do what may take long beside the other jobs, and not twice at once."""
        with self._lock:
            if (pool, id) in self._busy:
                return  # the notifier rings again while it goes on
            self._busy.add((pool, id))
        pool.submit(self._do, pool, work, id)

    def _do(self, pool: ThreadPoolExecutor, work: Callable[[str], object], id: str) -> None:
        try:
            work(id)
        except Exception:
            logger.exception("a job failed; it is rung for again", extra={"job": work.__name__, "id": id})
        finally:
            with self._lock:
                self._busy.discard((pool, id))

    def collect(self, id: str) -> None:
        """Sum a simulation up and end it."""
        self._beside(self._sums, self._collect, id)

    def _collect(self, id: str) -> None:
        self._platform.collecting.collect(id)
        self._platform.staging.release(id)

    def replay(self, name: str) -> None:
        """Make the replay of ``simulation:task``, unless it is there."""
        id, _, task = name.partition(":")
        if self._platform.replays.made(id, int(task)):
            return
        frozen, dataset, play, trace = self._platform.replays.inputs(id, int(task))
        site = environments.ready(catalogue.simulators()[dataset.simulator], self._environments)
        if site is None:
            logger.warning("no replay: the simulator's environment is not ready", extra={"simulation": id})
            return
        kit = Kit(
            python=base_interpreter(),
            harness=str(HARNESS),
            dataset=str(self._platform.staging.folder(frozen, f"replay-{id}")),
            evaluator_site=str(site),
            model_server_site="",  # nobody drives
            format="",
            isolation="launch",
            sandbox=self._sandbox,
        )
        try:
            self._platform.replays.keep(id, int(task), replay_job.make(kit, play, int(task), trace))
        except replay_job.NothingToShow as error:
            self._platform.replays.refuse(id, int(task), str(error))
        except replay_job.CannotReplay as error:
            logger.warning("no replay of task %s: %s", task, error, extra={"simulation": id})
