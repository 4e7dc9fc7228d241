"""Background jobs: the functions that RQ workers run, by kind. Each takes an id and returns nothing.

A function that raises is tried again, then listed as failed. A claim in SQL makes a duplicate run harmless.
"""

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from common.errors import StoreUnavailable
from core.services.service_groups import (
    CatalogueServices,
    FileServices,
    JobServices,
    PipelineServices,
    UpkeepServices,
)
from runtimes import catalogue, environments
from runtimes.harness.runner.processes import WorkerSpec
from workers import replay_job
from workers.warm_runners import HARNESS, base_interpreter

logger = logging.getLogger(__name__)


class Jobs:
    """The functions of all kinds of job, over the services."""

    def __init__(
        self,
        services: JobServices,
        files: FileServices,
        catalogue: CatalogueServices,
        pipelines: PipelineServices,
        upkeep: UpkeepServices,
        *,
        environments_folder: Path,
        sandbox: int | None,
    ) -> None:
        self._services = services
        self._files = files
        self._catalogue = catalogue
        self._pipelines = pipelines
        self._upkeep = upkeep
        self._environments = environments_folder
        self._sandbox = sandbox

    @property
    def table(self) -> Mapping[str, Callable[[str], None]]:
        """Return each function by its kind (`core/domain/scheduling/job_kinds.py`)."""
        functions: Mapping[str, Callable[[str], None]] = {
            "stage": self._services.staging.stage,
            "prepare": self._services.staging.stage,
            "prefetch": self._catalogue.prefetches.download,
            "register": self._services.dataset_registration.register,
            "import": self._services.model_imports.fetch,
            "log": self._services.run_logging.log,
            "collect": self.collect,
            "compare": self._services.comparison_batches.advance,
            "pipeline": self._pipelines.pipeline_steps.advance,
            "delete": self._services.deletion.remove,
            "replay": self.replay,
        }
        # The sweep is for everybody, and so for nobody; who delivers waits for others, and computes nothing.
        unmeasured = {"sweep": self.sweep, "deliver": self._upkeep.webhook_delivery.deliver}
        return {kind: partial(self._measure, kind, work) for kind, work in functions.items()} | unmeasured

    def _measure(self, kind: str, work: Callable[[str], None], id: str) -> None:
        """Do a job's work and record how long it took, however it ends."""
        begun = time.monotonic()
        try:
            work(id)
        finally:
            self._upkeep.job_usage.record(kind, id.partition(":")[0], time.monotonic() - begun)

    def collect(self, id: str) -> None:
        """Finalize a simulation and release its cache entries."""
        try:
            self._services.finalization.collect(id)
        except StoreUnavailable as error:
            # Not a failure of the job: it is due again once its claim in SQL has expired, without end.
            self._services.finalization.explain(id, f"its summary waits: {error.detail}")
            return
        self._services.staging.release(id)

    def sweep(self, what: str) -> None:
        """Delete what is expired, unreferenced or too old, end projects; apply rules, recount, read groups again."""
        self._files.uploads.sweep()
        self._services.staging.sweep()
        self._services.deletion.sweep()
        self._files.models.sweep()
        self._files.retention.sweep()
        self._files.bin.sweep()
        self._upkeep.quotas.sweep()
        self._upkeep.audit.sweep()
        self._upkeep.webhook_delivery.sweep()
        self._upkeep.project_ends.sweep()
        self._upkeep.provider_sign_ins.read_due()

    def replay(self, name: str) -> None:
        """Make the replay of ``simulation:task`` unless it exists."""
        id, _, number = name.partition(":")
        task = int(number)
        if self._services.replays.made(id, task):
            return
        caller = self._services.replays.caller_of(id)
        frozen, dataset, play, trace = self._services.replays.inputs(caller, id, task)
        site = environments.ready(catalogue.simulators()[dataset.simulator], self._environments)
        if site is None:
            raise replay_job.CannotReplay(f"the environment of simulator {dataset.simulator} is not ready")
        spec = WorkerSpec(
            python=base_interpreter(),
            harness=str(HARNESS),
            dataset=str(self._services.staging.folder(caller, frozen, f"replay-{id}")),
            evaluator_site=str(site),
            model_server_site="",  # a replay needs no model
            format="",
            isolation="launch",
            sandbox=self._sandbox,
        )
        try:
            self._services.replays.keep(caller, id, task, replay_job.make(spec, play, task, trace))
        except replay_job.NothingToShow as error:
            logger.warning("task %d of simulation %s cannot be replayed: %s", task, id, error)
            self._services.replays.refuse(id, task, str(error))
        except replay_job.EvaluatorEnded as error:
            if not self._services.replays.note_end(id, task, str(error)):
                raise  # and tried again
            logger.warning("task %d of simulation %s cannot be replayed: %s", task, id, error)
