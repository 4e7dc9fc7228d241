"""Staging: bring a simulation's environments, files and model near, and say so in its events."""

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.domain.states import State
from core.errors import Conflict, PlatformError
from core.services.bells import Bell
from core.services.catalogue import find_dataset
from core.services.claims import claimed
from core.services.models import key_of
from core.store import simulations
from core.store.database import Database
from datasets.staging import stage
from datasets.stores.base import ObjectStore
from runtimes import catalogue, environments

logger = logging.getLogger(__name__)

#: Seconds between two progress events of one download.
PACE = 0.5


class Staging:
    """Makes ready what is not; both kinds of thing are content-addressed, and usually there already."""

    def __init__(
        self, database: Database, store: ObjectStore, bell: Bell, *, environments_folder: Path, cache: Path
    ) -> None:
        self._database = database
        self._store = store
        self._bell = bell
        self._environments = environments_folder
        self._cache = cache

    def ready(self, provenance: dict[str, Any]) -> bool:
        """Tell whether nothing is left to be done, so that the dispatcher can go on by itself."""
        return all(environments.ready(spec, self._environments) is not None for spec in _specs(provenance))

    def stage(self, id: str) -> None:
        """Make a simulation's environments and files ready and move it on; a second ring does nothing."""
        with claimed(self._database, id, State.STAGING) as ours:
            if ours:
                self._stage(id)

    def _stage(self, id: str) -> None:
        with self._database.read() as c:
            provenance = json.loads(simulations.find(c, id).provenance)
        model = provenance["model"]["digest"]
        try:
            for spec in _specs(provenance):
                self._prepare(id, spec)
            find_dataset(provenance["dataset"]["name"], provenance["dataset"]["version"]).verify()
            stage(self._store, key_of(model), model, self._cache / "models")
        except environments.CannotPrepare as error:
            self._move(id, State.FAILED, f"the environment could not be prepared: {error}")
        except PlatformError as error:
            self._move(id, State.ERRORED, error.detail or "staging failed")
        else:
            self._move(id, State.LAUNCHING, None)

    def _prepare(self, id: str, spec: Any) -> None:
        if environments.ready(spec, self._environments) is not None:
            return
        said_at = -PACE

        def progress(message: str, fraction: float | None) -> None:
            nonlocal said_at
            if time.monotonic() - said_at < PACE and fraction != 1.0:
                return
            said_at = time.monotonic()
            body = {"what": "environment", "name": spec.name, "message": message, "fraction": fraction}

            self._database.write(lambda c: simulations.say(c, id, "staging", body, self._database.now(c)))
            self._bell.announce(id)

        environments.prepare(spec, self._environments, progress)

    def _move(self, id: str, following: State, reason: str | None) -> None:
        changes = {"reason": reason} if reason else {}
        try:
            self._database.write(
                lambda c: simulations.move(c, id, State.STAGING, following, self._database.now(c), **changes)
            )
        except Conflict:
            logger.info("simulation %s was no longer staging", id)  # cancelled in the meantime
        self._bell.ring("dispatch")
        self._bell.announce(id)


def _specs(provenance: dict[str, Any]) -> Iterator[Any]:
    runtime = catalogue.runtime(provenance["runtime"]["name"])
    yield runtime.formats[provenance["model"]["format"]].environment
    yield catalogue.simulators()[provenance["simulator"]["name"]]
