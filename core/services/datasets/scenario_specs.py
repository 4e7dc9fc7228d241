"""Scenario specs: the lines of the scenarios of a simulation's dataset, one or all of them."""

import json
import logging
from collections.abc import Iterator
from itertools import islice

from common.errors import PlatformError
from core.domain.access.scopes import Caller
from core.domain.submissions.provenance import ResolvedDataset
from core.services.datasets import catalogue
from core.services.datasets.file_sources import Sources
from core.store import datasets as store
from core.store.database import Database
from datasets.objectstore.base import ObjectStore
from datasets.versions import manifest_object
from datasets.versions.manifest import lines
from datasets.versions.scenarios import non_blank

logger = logging.getLogger(__name__)


class ScenarioSpecs:
    """Reads scenarios of built-in datasets and of registered ones."""

    def __init__(self, database: Database, objects: ObjectStore, sources: Sources) -> None:
        self._database = database
        self._objects = objects
        self._sources = sources

    def labels(self, caller: Caller, dataset: ResolvedDataset, index: int) -> dict[str, object]:
        """Return name and groups of a scenario, as evaluators add them to its results.

        ``dataset`` is a simulation's, from its provenance. Empty if the scenario cannot be read: a result without
        labels is better than none.
        """
        try:
            played = catalogue.played(dataset)
            spec = self._spec(caller, dataset, played.declared.listed, index)
        except (PlatformError, OSError, ValueError) as error:
            logger.warning("scenario %d of dataset %s cannot be read: %s", index, dataset.name, error)
            return {}
        keys = ("name", *played.declared.group_by)
        return {key: spec[key] for key in keys if key in spec}

    def all(self, caller: Caller, dataset: ResolvedDataset) -> Iterator[dict[str, object]]:
        """Yield all scenarios of a dataset from index 0 on; none for a dataset whose scenarios differ in seeds alone.

        ``dataset`` is a simulation's, from its provenance. A dataset that was deleted has none.
        """
        played = catalogue.played(dataset)
        if (listed := played.declared.listed) is not None:
            for line in self._lines(caller, dataset, listed):
                yield json.loads(line)
        elif played.declared.scenarios is not None:
            yield from played.scenarios(0, played.declared.max_tasks or 0)

    def _spec(self, caller: Caller, dataset: ResolvedDataset, listed: str | None, index: int) -> dict[str, object]:
        if listed is None:
            return next(catalogue.played(dataset).scenarios(index, 1), {})
        line = next(islice(self._lines(caller, dataset, listed), index, None), b"{}")
        spec: dict[str, object] = json.loads(line)
        return spec

    def _lines(self, caller: Caller, dataset: ResolvedDataset, listed: str) -> Iterator[bytes]:
        """Return the lines of a registered dataset's scenarios; none if it was deleted."""
        with self._database.read() as c:
            row = store.content(c, caller.scope, dataset)
        entry = manifest_object.find(self._objects, row.manifest_key, listed) if row is not None else None
        return iter(()) if entry is None else non_blank(lines(self._sources.read(entry)))
