"""Staging: bring a simulation's environments, files and model near, and say so in its events."""

import json
import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.domain.states import State
from core.notifications.notifier import Notifier
from core.services.claims import TERM, claimed, held
from core.services.datasets.bundles import Bundles
from core.services.datasets.catalogue import built_in
from core.services.datasets.datasets import Datasets
from core.services.uploads.models import key_of
from core.store import datasets as store
from core.store import simulations
from core.store.database import Connection, Database
from datasets.nodecache.node_cache import NodeCache, Progress, silent
from datasets.objectstore.base import ObjectStore
from datasets.versions import scenario_folder
from errors import Conflict, OriginFailed, PlatformError, StoreUnavailable
from runtimes import catalogue, environments

logger = logging.getLogger(__name__)

#: Seconds between two progress events of one download.
PACE = 0.5
#: Attempts of a simulation of which the last ends it, when a store that it needs does not answer.
ATTEMPTS = 5
#: Seconds between two searches for objects that no dataset refers to.
COMBING = 3600.0


class Staging:
    """Makes ready what is not; both kinds of thing are content-addressed, and usually there already."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        datasets: Datasets,
        cache: NodeCache,
        *,
        environments_folder: Path,
        plays: Path,
        objects: ObjectStore,
        apart: Collection[str] = (),
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._datasets = datasets
        self._environments = environments_folder
        self._cache = cache
        self._plays = plays
        self._objects = objects
        self._bundles = Bundles(objects, database)
        self._apart = frozenset(apart)  # executors that bring environments and share no folder with us
        self._comb_at = 0.0

    def ready(self, provenance: dict[str, Any], executor: str) -> bool:
        """Tell whether nothing is left to be done, so that the dispatcher can go on by itself."""
        if executor in self._apart:
            return False
        dataset = provenance["dataset"]
        if (name := scenario_folder.named(dataset)) and not scenario_folder.ready(self._plays, name):
            return False
        return all(environments.ready(spec, self._environments) is not None for spec in _specs(provenance))

    def folder(self, dataset: Mapping[str, Any], holder: str, say: Callable[[Progress], None] = silent) -> Path:
        """Return the folder that an evaluator sees of a provenance, with all its files present."""
        shipped = built_in(dataset)
        if not (name := scenario_folder.named(dataset)):
            return shipped.folder
        digest = dataset["digest"]
        if not scenario_folder.ready(self._plays, name):
            tree = self._cache.tree(digest, lambda: self._datasets.entries(digest), holder=holder, say=say)
            scenario_folder.lay_out(self._plays, name, shipped, tree / dataset["said"]["scenarios"])
        return scenario_folder.place(self._plays, name)

    def prefetch(self, id: str) -> None:
        """Bring a version of a dataset to this node, before anybody plays it."""
        who = secrets.token_hex(8)

        def take() -> bool:
            return self._database.write(
                lambda c: store.claim_prefetch(c, id, who, TERM, self._database.now(c)), durable=False
            )

        with held(take, f"the prefetch of {id}") as ours:
            if not ours:
                return
            state, progress = "ready", {}
            try:
                progress = self._fetch(id)
            except PlatformError as error:
                state, progress = "failed", {"reason": error.detail}
            self._database.write(lambda c: store.tell_prefetch(c, id, state, progress))

    def _fetch(self, id: str) -> dict[str, Any]:
        """Bring a version's files here, and say how far that is; return how much it was."""
        digest = self._datasets.get(id)["digest"]
        last: dict[str, Any] = {}

        def say(progress: Progress) -> None:
            nonlocal last
            last = told(progress)
            self._database.write(lambda c: store.tell_prefetch(c, id, "fetching", last), durable=False)
            self._datasets.get(id)  # whoever has deleted it wants nothing brought any more

        holder = f"prefetch-{id}"
        try:
            self._cache.tree(digest, lambda: self._datasets.entries(digest), holder=holder, say=self._paced(say))
        finally:
            self._cache.release(holder)
        return last

    def release(self, id: str) -> None:
        """A simulation has ended: let go of what it held."""
        self._cache.release(id)

    def sweep(self) -> None:
        """Remove what nobody needs any more: objects of datasets, and folders on this node."""
        self._datasets.collect_garbage()
        if time.monotonic() >= self._comb_at:
            self._comb_at = time.monotonic() + COMBING
            self._datasets.comb()
            self._bundles.comb()
        scenario_folder.sweep(self._plays, lambda: map(scenario_folder.named, self._datasets.in_use()))
        self._cache.sweep(self._alive)
        self._cache.scrub()

    def _alive(self, holders: set[str]) -> set[str]:
        """Return those of the holders that still need what they hold: simulations that have not ended, prefetches."""
        with self._database.read() as c:
            busy = {row.id for row in simulations.busy(c)}
            return {one for one in holders if one in busy or store.at_prefetch(c, one.removeprefix("prefetch-"))}

    def stage(self, id: str) -> None:
        """Make a simulation's environments and files ready and move it on; a second ring does nothing."""
        with claimed(self._database, id, State.STAGING) as ours:
            if ours:
                self._stage(id)

    def _stage(self, id: str) -> None:
        with self._database.read() as c:
            row = simulations.find(c, id)
        provenance = json.loads(row.provenance)
        model = provenance["model"]["digest"]
        apart = row.executor in self._apart
        try:
            for spec in () if apart else _specs(provenance):
                self._prepare(id, spec)
            built_in(provenance["dataset"]).verify()
            said = self._paced(lambda progress: self._say(id, told(progress)))
            folder = self.folder(provenance["dataset"], id, said)
            if apart:
                self._pack(id, provenance["dataset"], folder, model)
            else:
                self._cache.object(key_of(model), model, holder=id)
        except environments.CannotPrepare as error:  # what it needs is ours to name, and lies in an index of others
            self._once_more(id, row.attempt, f"the environment could not be prepared: {error}")
        except (StoreUnavailable, OriginFailed) as error:  # it may be back in a moment
            self._once_more(id, row.attempt, error.detail)
        except PlatformError as error:
            self._move(id, State.ERRORED, error.detail or "staging failed")
        else:
            self._move(id, State.LAUNCHING, None)

    def _once_more(self, id: str, attempt: int, reason: str | None) -> None:
        self._move(id, State.ERRORED if attempt >= ATTEMPTS else State.QUEUED, reason, pause=0.5 * 2.0**attempt)

    def _pack(self, id: str, dataset: Mapping[str, Any], folder: Path, model: str) -> None:
        """Make one object of what an evaluator sees, and note it and the model's size for the runners to ask for."""
        play = self._bundles.of(scenario_folder.named(dataset) or dataset["digest"], folder)
        packed = {"play": play, "model_size": self._objects.size(key_of(model))}
        self._database.write(lambda c: simulations.set_bundle(c, id, packed))

    def _prepare(self, id: str, spec: Any) -> None:
        if environments.ready(spec, self._environments) is not None:
            return
        said_at = -PACE

        def progress(message: str, fraction: float | None) -> None:
            nonlocal said_at
            if time.monotonic() - said_at < PACE and fraction != 1.0:
                return
            said_at = time.monotonic()
            self._say(id, {"what": "environment", "name": spec.name, "message": message, "fraction": fraction})

        environments.prepare(spec, self._environments, progress)

    def _say(self, id: str, body: Mapping[str, Any]) -> None:
        self._database.write(lambda c: simulations.say(c, id, "staging", body, self._database.now(c)))
        self._notifier.publish(id)

    @staticmethod
    def _paced(say: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Let through what is said as often as people look, and the last word."""
        said_at = -PACE

        def paced(progress: Progress) -> None:
            nonlocal said_at
            done = progress.bytes >= progress.total_bytes and progress.files >= progress.total_files
            if done or time.monotonic() - said_at >= PACE:
                said_at = time.monotonic()
                say(progress)

        return paced

    def _move(self, id: str, following: State, reason: str | None, *, pause: float = 0.0) -> None:
        changes: dict[str, Any] = {"reason": reason} if reason else {}

        def write(c: Connection) -> None:
            now = self._database.now(c)
            later = {"not_before": now + pause} if following is State.QUEUED else {}
            simulations.move(c, id, State.STAGING, following, now, **changes, **later)

        try:
            self._database.write(write)
        except Conflict:
            logger.info("simulation %s was no longer staging", id)  # cancelled in the meantime
        self._notifier.wake("dispatch")
        self._notifier.publish(id)


def told(progress: Progress) -> dict[str, Any]:
    """Put a download's progress into an event's words; rate in bytes a second."""
    whole = progress.total_bytes
    fraction = min(1.0, progress.bytes / whole) if whole else 1.0
    return {"what": "dataset", **asdict(progress), "fraction": fraction}


def _specs(provenance: dict[str, Any]) -> Iterator[Any]:
    runtime = catalogue.runtime(provenance["runtime"]["name"])
    yield runtime.formats[provenance["model"]["format"]].environment
    yield catalogue.simulators()[provenance["simulator"]["name"]]
