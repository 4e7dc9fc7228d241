"""Staging: prepare a simulation's environments, files and model, with progress in its events; no worker is held."""

import json
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from common.backoff import RetryPolicy
from common.errors import (
    BadArchive,
    BadRequirements,
    Conflict,
    LargerThanCache,
    NodeFull,
    NotFound,
    OriginFailed,
    PlatformError,
    StoreUnavailable,
    TooLarge,
    UnknownSimulation,
)
from core.domain.access.scopes import OPERATION, PLATFORM, Caller
from core.domain.scheduling.preparation import Missing, Preparation, following
from core.domain.scheduling.states import State
from core.domain.submissions.packed_files import PackedFiles, packed_files_of
from core.domain.submissions.provenance import Provenance, ResolvedDataset, provenance_of
from core.notifications.notifier import Notifier
from core.services.claims import DEFECTS, Action, ClaimedJob, DiskFull, FailedAttempt, OnError
from core.services.datasets import environment_files
from core.services.datasets.bundles import Bundles
from core.services.datasets.catalogue import built_in
from core.services.datasets.datasets import Datasets
from core.services.datasets.prefetches import PREFETCH_HOLDER
from core.services.download_events import PROGRESS_INTERVAL, at_intervals, download_event
from core.services.orphan_search import OrphanSearch
from core.services.scheduling.compiled_models import CompiledModels, stored_model
from core.services.scheduling.model_environments import ModelEnvironments, Say, has_dependencies, ignore_message
from core.services.store_health import StoreHealth
from core.services.uploads.models import key_of, store_shipped
from core.store import datasets as store
from core.store import events, leases, simulations
from core.store.claims import HeldClaim
from core.store.database import Connection, Database
from datasets.nodecache.model_files import StoredModel
from datasets.nodecache.node_cache import DownloadProgress, ignore_progress
from datasets.versions import scenario_folder
from datasets.versions.program_files import add_files
from datasets.versions.scenarios import network_path
from datasets.versions.version_description import VersionDescription
from runtimes import catalogue, environments

logger = logging.getLogger(__name__)


#: Bytes of a dataset that the quick kind of job still downloads.
QUICK_DOWNLOAD = 64 << 20
#: Seconds for which a submission waits to learn whether the store answers, if that was not known a moment ago.
STORE_WAIT = 0.1
#: Attempts after which a simulation ends as ERRORED whose files or packages are refused, rather than out of reach.
ATTEMPTS = 5
_NO_ENVIRONMENT = "the environment could not be prepared: {error}"  # the platform's own, from an external index
STAGE = ClaimedJob(
    take=simulations.STAGING.take,
    what="simulation {id}",
    outcomes=(
        OnError((environments.IndexUnavailable, environments.OutOfSpace), Action.WAIT, _NO_ENVIRONMENT),
        OnError((environments.CannotPrepare,), Action.RETRY, _NO_ENVIRONMENT),
        OnError((LargerThanCache, UnknownSimulation), Action.FAIL),
        OnError((NodeFull, OriginFailed, StoreUnavailable), Action.WAIT),
        OnError((NotFound,), Action.RETRY),  # a bucket may be restored
        OnError((PlatformError,), Action.FAIL),
        OnError((DiskFull,), Action.WAIT, "the disk of {home} (HOME) is full"),
        OnError(DEFECTS, Action.RETRY, "a defect of the platform, whose log has the details; report it ({error})"),
    ),
    retry=RetryPolicy(first=1.0, longest=30.0),
)


class Staging:
    """Prepares environments and files that are missing; both are content-addressed and usually present already."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        datasets: Datasets,
        models: ModelEnvironments,
        store_health: StoreHealth,
        *,
        home: Path,
        own_environments: Collection[str] = (),
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._datasets = datasets
        self._environments = home / "environments"
        self._models = models.files
        self._model_environments = models
        self._compiled_models = CompiledModels(database, models.files, self._environments, sandbox=models.sandbox)
        self._cache = models.files.cache
        self._plays = home / "plays"
        self._objects = store_health.store
        self._bundles = Bundles(self._objects, database)
        #: Executors with their own environments and without a shared folder.
        self._own_environments = frozenset(own_environments)
        self._store_health = store_health
        self._orphan_search = OrphanSearch()

    def missing(self, id: str, provenance: Provenance, packed: PackedFiles, executor: str) -> Missing | None:
        """Return what has to be prepared first; None: nothing, so that the dispatcher can launch at once.

        The launch itself fetches a model that is not on this node, unless the store is away: staging says so.
        ``packed``: what was packed for executors that share no folder.
        """
        apart = executor in self._own_environments
        if apart and packed.play is not None:
            return None
        if not apart:
            specs = [spec for spec in _specs(provenance) if environments.ready(spec, self._environments) is None]
            if specs:
                return Missing(f"packages are installed: {', '.join(spec.name for spec in specs)}", Preparation.LONG)
        if has_dependencies(provenance) and not self._model_environments.ready(provenance, id):
            return Missing("the packages of its model are installed", Preparation.LONG)
        dataset = provenance.dataset
        if (name := _folder_name(dataset)) and not scenario_folder.ready(self._plays, name):
            job = Preparation.LONG if self._takes_long(dataset) else Preparation.QUICK
            return Missing(f"the files of dataset {dataset.name} are prepared", job)
        if apart:
            return Missing(f"its files are prepared for {executor}")
        stored = _stored_model(provenance)
        if self._compiled_models.missing(stored):
            return Missing("its model is compiled", Preparation.LONG)
        ready = self._models.ready(stored)
        if ready is None:
            problem = self._store_health.problem(STORE_WAIT)
            return None if problem is None else Missing(problem)
        return None if ready else Missing("its model is unpacked")

    def _takes_long(self, dataset: ResolvedDataset) -> bool:
        """Return whether a dataset's folder needs a large download, or packages."""
        if "openenv" in (dataset.said or ()):
            return True
        return (
            self._cache.ready(dataset.digest) is None
            and self._datasets.size(OPERATION, dataset.digest) > QUICK_DOWNLOAD
        )

    def folder(
        self,
        caller: Caller,
        dataset: ResolvedDataset,
        holder: str,
        say: Callable[[DownloadProgress], None] = ignore_progress,
        say_installing: Say = ignore_message,
    ) -> Path:
        """Return the folder that an evaluator reads for a provenance's dataset, with all its files present.

        ``say_installing``: gets the progress of the packages of the dataset's environment, if it has one.
        """
        shipped = built_in(dataset)
        if not (name := _folder_name(dataset)):
            return shipped.folder
        digest = dataset.digest
        if not scenario_folder.ready(self._plays, name):
            tree = self._cache.tree(
                digest, lambda: self._datasets.kept_entries(caller, dataset), holder=holder, on_progress=say
            )
            said = dataset.said or {}
            networks = {entry["name"]: tree / network_path(entry["name"]) for entry in said.get("maps", ())}
            plant = said.get("definition", {}).get("plant")
            fmu = tree / plant["file"] if plant is not None else None
            add = self._environment(dataset, tree, holder, say_installing) if "openenv" in said else None
            listed = _scenarios_file(dataset)
            if listed is None:
                add = partial(add_files, tree)
            scenarios = None if listed is None else tree / listed
            own = scenario_folder.OwnFiles(scenarios, networks, fmu, plant, add)
            scenario_folder.create(self._plays, name, shipped, own)
        return scenario_folder.path_of(self._plays, name)

    def _environment(self, dataset: ResolvedDataset, tree: Path, holder: str, say: Say) -> Callable[[Path], None]:
        """Install the packages of a dataset's environment; return what adds both to the folder of an evaluator."""
        kept = (dataset.said or {})["openenv"]
        if (target := kept["target"]) != environments.target():
            raise BadRequirements(
                f"The environment of {dataset.name} was registered for {target}, and this platform has"
                f" {environments.target()}; register it again."
            )
        lock = (tree / environment_files.LOCK).read_text()
        installed = self._model_environments.install_lock(lock, holder, say)
        files = environment_files.in_tree(tree)
        return lambda folder: environment_files.write(files, folder, kept["package"], installed)

    def release(self, id: str) -> None:
        """Release the cache entries that an ended simulation pinned."""
        self._cache.release(id)

    def sweep(self) -> None:
        """Remove unreferenced dataset objects, and unused folders on this node."""
        self._datasets.garbage.collect()
        if self._orphan_search.begin():
            self._datasets.garbage.remove_orphans()
            self._bundles.remove_orphans()
        scenario_folder.sweep(self._plays, lambda: map(_folder_name, self._datasets.in_use()))
        self._cache.sweep(self._alive)
        self._cache.scrub()

    def _alive(self, holders: set[str]) -> set[str]:
        """Return the holders whose pins are still needed: simulations that have not ended, running prefetches."""
        with self._database.read() as c:
            busy = simulations.unended_states(c).keys()
            return {
                holder
                for holder in holders
                if holder in busy or store.at_prefetch(c, holder.removeprefix(PREFETCH_HOLDER))
            }

    def stage(self, id: str) -> None:
        """Prepare a simulation and queue it again, until workers are free; nothing if the job was enqueued twice."""
        STAGE.run(self._database, id, self._stage)

    def _stage(self, claim: HeldClaim) -> None:
        id = claim.id
        with self._database.read() as c:
            row = simulations.find(c, PLATFORM, id)
        try:
            provenance = provenance_of(row.provenance)
            model = provenance.played_model.digest
            apart = row.executor in self._own_environments
            if row.preparation != Preparation.LONG and self._hand_over(row, provenance):
                return
            if row.staging_failures:  # it may have been accepted when its model could not be stored
                store_shipped(self._objects, model)
            for spec in () if apart else _specs(provenance):
                self._prepare(id, spec)
            built_in(provenance.dataset).verify()
            report = at_intervals(lambda progress: self._add_event(id, download_event(progress)))
            say = self._environment_reporter(id, provenance.dataset.name)
            folder = self.folder(row.caller, provenance.dataset, id, report, say)
            try:
                environment = self._stage_model(row, provenance, report, apart=apart)
            except (BadArchive, BadRequirements, TooLarge) as error:
                self._give_up(id, error.detail or "the model cannot be prepared", State.FAILED)
                return
            if apart:
                self._pack(id, provenance.dataset, folder, model, environment)
        except Exception as error:
            if isinstance(error, DEFECTS):
                logger.exception("staging of simulation %s has failed", id)
            if isinstance(error, NodeFull):
                self._cache.release(id)  # simulations that wait for room must not keep it from each other
            exhausted, home = row.attempt >= ATTEMPTS, self._environments.parent
            failure = STAGE.failure_of(error, failures=row.staging_failures, exhausted=exhausted, home=home)
            self._settle(row, failure)
        else:
            self._queue(id, None, preparation=Preparation.DONE.value, attempt=row.attempt, staging_failures=0)

    def _hand_over(self, row: simulations.SimulationRow, provenance: Provenance) -> bool:
        """Leave what takes long to the kind of job for it; return whether that was done."""
        missing = self.missing(row.id, provenance, packed_files_of(row.bundle), row.executor or "")
        if missing is None or missing.job is not Preparation.LONG:
            return False
        if self._database.write(lambda c: simulations.hand_over(c, row.id, Preparation.LONG)):
            self._notifier.enqueue(Preparation.LONG, row.id)
        return True

    def _settle(self, row: simulations.SimulationRow, failure: FailedAttempt) -> None:
        """Queue a simulation again or end it; waiting for the end of an outage is not an attempt."""
        if failure.action is Action.WAIT:
            logger.warning(
                "staging of simulation %s is tried again in %.0f s: %s", row.id, failure.pause, failure.reason
            )
            self._queue(
                row.id,
                failure.reason,
                pause=failure.pause,
                preparation=None,
                attempt=row.attempt,
                staging_failures=row.staging_failures + 1,
            )
        elif failure.action is Action.RETRY:
            self._queue(row.id, failure.reason, pause=STAGE.retry.pause(row.attempt), preparation=None)
        else:
            self._give_up(row.id, failure.reason)

    def _stage_model(
        self,
        row: simulations.SimulationRow,
        provenance: Provenance,
        report: Callable[[DownloadProgress], None],
        *,
        apart: bool,
    ) -> Path | None:
        """Fetch and unpack a model for runners of this machine; return the folder of its own environment, if any.

        Raises BadArchive, BadRequirements or TooLarge if the model is at fault.
        """
        id, stored = row.id, _stored_model(provenance)
        if not apart:
            if self._compiled_models.missing(stored):
                self._compile(id, provenance, stored)
            self._models.path(stored, holder=id, on_progress=report)
        if not has_dependencies(provenance):
            return None
        say = self._environment_reporter(id, provenance.model.name)
        file = self._cache.object(stored.key, stored.digest, holder=id)
        provenance = self._model_environments.lock(id, row.provenance, file, say)
        return self._model_environments.install(provenance, id, say)

    def _compile(self, id: str, provenance: Provenance, model: StoredModel) -> None:
        """Compile a model to code for this node, once for all simulations; a deleted simulation ends it."""
        played = provenance.played_model
        say = self._environment_reporter(id, provenance.model.name)
        began = time.monotonic()

        def report() -> None:
            if time.monotonic() - began >= PROGRESS_INTERVAL:
                say(f"compiling it to code for this machine, for {time.monotonic() - began:.0f} s", None)

        report()
        self._compiled_models.make(model, played.runtime, played.format, holder=id, report=report)

    def _give_up(self, id: str, reason: str, outcome: State = State.ERRORED) -> None:
        def write(c: Connection) -> None:
            leases.close_early(c, id)
            simulations.conclude(c, id, State.STAGING, outcome, reason)

        try:
            self._database.write(write)
        except Conflict:
            logger.info("simulation %s was no longer staging", id)  # cancelled in the meantime
        else:
            self._notifier.enqueue("collect", id)
        self._notifier.wake("dispatch")

    def _pack(self, id: str, dataset: ResolvedDataset, folder: Path, model: str, environment: Path | None) -> None:
        """Pack what a runner downloads into bundles, and record them with the model's size for the runner API."""
        name = _folder_name(dataset) or dataset.digest
        has_packages = "openenv" in (dataset.said or ())
        large = has_packages or (dataset.extends is not None and _scenarios_file(dataset) is None)
        play = self._bundles.of_tree(name, folder) if large else self._bundles.of(name, folder)
        packed = {"play": play, "model_size": self._objects.size(key_of(model))}
        if environment is not None:
            self._add_event(id, {"what": "environment", "message": "packing for the cluster", "fraction": None})
            packed["environment"] = self._bundles.of_tree(environment.name, environment)
        self._database.write(lambda c: simulations.describe(c, id, bundle=json.dumps(packed)))

    def _prepare(self, id: str, spec: environments.Environment) -> None:
        if environments.ready(spec, self._environments) is None:
            environments.prepare(spec, self._environments, self._environment_reporter(id, spec.name))

    def _environment_reporter(self, id: str, name: str) -> Callable[[str, float | None], None]:
        """Return a callback that writes the progress of an environment to a simulation's events; steps always."""
        reported_at = -PROGRESS_INTERVAL

        def progress(message: str, fraction: float | None) -> None:
            nonlocal reported_at
            step = fraction is not None or message.startswith("resolving")
            if time.monotonic() - reported_at < PROGRESS_INTERVAL and not step:
                return
            reported_at = time.monotonic()
            body = {"what": "environment", "name": name, "message": following(message), "fraction": fraction}
            self._add_event(id, body)

        return progress

    def _add_event(self, id: str, body: Mapping[str, object]) -> None:
        self._database.write(lambda c: events.say(c, id, "staging", body, self._database.now(c)))
        self._notifier.publish(id)

    def _queue(self, id: str, reason: str | None, *, pause: float = 0.0, **changes: object) -> None:
        """Queue a simulation that is staged, for an attempt ``pause`` seconds from now."""

        def write(c: Connection) -> None:
            now = self._database.now(c)
            simulations.move(c, id, State.STAGING, State.QUEUED, now, reason=reason, not_before=now + pause, **changes)

        try:
            self._database.write(write)
        except Conflict:
            logger.info("simulation %s was no longer staging", id)  # cancelled in the meantime
        self._notifier.wake("dispatch")
        self._notifier.publish(id)


def _stored_model(provenance: Provenance) -> StoredModel:
    model = provenance.played_model
    return stored_model(model.runtime, model.format, model.digest)


def _folder_name(dataset: ResolvedDataset) -> str:
    """Return the name of the folder that an evaluator reads; "" for a built-in dataset, which has its own."""
    return scenario_folder.folder_name(dataset.digest, dataset.base.digest)


def _scenarios_file(dataset: ResolvedDataset) -> str | None:
    """Return the file of the scenarios of a registered dataset; None: it has files for programs alone."""
    return msgspec.convert(dataset.said, VersionDescription).scenarios


def _specs(provenance: Provenance) -> Iterator[environments.Environment]:
    model = provenance.played_model
    if not has_dependencies(provenance):
        yield catalogue.runtime(model.runtime).formats[model.format].environment
    if provenance.communication is not None:
        yield catalogue.communications()[provenance.communication.name]
    yield catalogue.simulators()[provenance.simulator.name]
