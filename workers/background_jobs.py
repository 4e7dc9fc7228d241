"""Background jobs: each takes an id and returns nothing. A claim in SQL makes a duplicate run harmless."""

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from core.services.platform import Platform
from runtimes import catalogue, environments
from runtimes.harness.runner.processes import WorkerSpec
from workers import replay_job
from workers.warm_runners import HARNESS, base_interpreter

logger = logging.getLogger(__name__)

#: Concurrent downloads. They take minutes, and jobs of milliseconds must not wait for them.
DOWNLOADS = 2
#: Concurrent dataset registrations; each takes a core while it hashes.
REGISTRATIONS = 2
#: Concurrent finalizations. A simulation of millions of tasks takes a minute; most take milliseconds.
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
        """Stage a simulation's environments and files."""
        self._submit(self._downloads, self._platform.staging.stage, id)

    def prefetch(self, id: str) -> None:
        """Download a dataset version to the node cache."""
        self._submit(self._downloads, self._platform.staging.prefetch, id)

    def register(self, id: str) -> None:
        """Register a dataset version."""
        self._submit(self._registrations, self._platform.dataset_registration.register, id)

    def sweep(self, what: str) -> None:
        """Delete expired uploads, unreferenced objects and unused cache entries."""
        self._submit(self._sweeps, self._sweep, what)

    def _sweep(self, what: str) -> None:
        self._platform.uploads.sweep()
        self._platform.staging.sweep()

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[str], object], id: str) -> None:
        """Run a long job on a pool, unless the same job is running or queued there."""
        with self._lock:
            if (pool, id) in self._busy:
                return  # the job is enqueued again while it runs
            self._busy.add((pool, id))
        pool.submit(self._do, pool, work, id)

    def _do(self, pool: ThreadPoolExecutor, work: Callable[[str], object], id: str) -> None:
        try:
            work(id)
        except Exception:
            logger.exception(
                "a background job failed; it will be enqueued again", extra={"job": work.__name__, "id": id}
            )
        finally:
            with self._lock:
                self._busy.discard((pool, id))

    def collect(self, id: str) -> None:
        """Finalize a simulation and release its cache entries."""
        self._submit(self._sums, self._collect, id)

    def _collect(self, id: str) -> None:
        self._platform.finalization.collect(id)
        self._platform.staging.release(id)

    def replay(self, name: str) -> None:
        """Make the replay of ``simulation:task`` unless it exists."""
        id, _, task = name.partition(":")
        if self._platform.replays.made(id, int(task)):
            return
        frozen, dataset, play, trace = self._platform.replays.inputs(id, int(task))
        site = environments.ready(catalogue.simulators()[dataset.simulator], self._environments)
        if site is None:
            logger.warning("no replay: the simulator's environment is not ready", extra={"simulation": id})
            return
        kit = WorkerSpec(
            python=base_interpreter(),
            harness=str(HARNESS),
            dataset=str(self._platform.staging.folder(frozen, f"replay-{id}")),
            evaluator_site=str(site),
            model_server_site="",  # a replay needs no model
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
