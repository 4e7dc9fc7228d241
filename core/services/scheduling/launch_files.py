"""Files of launches: the model, its environment and the bundle of scenarios, for runners without a shared folder."""

from collections.abc import Iterator

from common.errors import NotFound
from core.domain.access.scopes import PLATFORM
from core.domain.submissions.packed_files import LaunchFile, packed_files_of
from core.services.uploads import shipped_models
from core.services.uploads.models import key_of
from core.store import models, simulations
from core.store.database import Database
from datasets.objectstore.base import ObjectStore

#: Bundles: what an evaluator reads, and the model's own packages.
BUNDLES = ("play", "environment")


class LaunchFiles:
    """Finds and reads the files of launches, which are those of their simulations."""

    def __init__(self, database: Database, store: ObjectStore) -> None:
        self._database = database
        self._store = store

    def find(self, simulation: str, name: str) -> LaunchFile:
        """Return a simulation's file by name: ``model`` or a bundle's. Raises NotFound if its launches need none."""
        with self._database.read() as c:
            row = simulations.find(c, PLATFORM, simulation)
        file = self._model(row) if name == "model" else _bundle(row, name)
        if file is None:
            raise NotFound("This launch has no such file: its executor shares the platform's folders.")
        return file

    def describe(self, row: simulations.SimulationRow) -> dict[str, dict[str, object]]:
        """Return digest and size (bytes) of each file of a simulation, whose row is given, by name."""
        return {
            name: {"digest": file.digest, "size": file.size}
            for name, file in (("model", self._model(row)), *((name, _bundle(row, name)) for name in BUNDLES))
            if file is not None
        }

    def read(self, file: LaunchFile, start: int, stop: int) -> Iterator[bytes]:
        """Yield bytes [start, stop) of a file."""
        return self._store.get(file.key, start, stop - start)

    def link(self, file: LaunchFile, seconds: int) -> str | None:
        """Return a presigned URL of the object store, valid for ``seconds``; None if runners cannot reach the store."""
        return self._store.link(file.key, seconds=seconds)

    def _model(self, row: simulations.SimulationRow) -> LaunchFile | None:
        size = packed_files_of(row.bundle).model_size
        if size is None:
            size = self._model_size(row.digest)
        return LaunchFile(key_of(row.digest), row.digest, size) if size is not None else None

    def _model_size(self, digest: str) -> int | None:
        """Return a model's size; the object store, which may be away, is asked only for a model that was deleted."""
        with self._database.read() as c:
            row = models.find(c, PLATFORM, digest)
        if row is not None:
            return row.size
        if (shipped := shipped_models.find(digest)) is not None:
            return shipped.size
        try:
            return self._store.size(key_of(digest))
        except NotFound:
            return None  # not uploaded to this store: the executor finds the model elsewhere


def _bundle(row: simulations.SimulationRow, name: str) -> LaunchFile | None:
    files = packed_files_of(row.bundle)
    return {"play": files.play, "environment": files.environment}.get(name)
