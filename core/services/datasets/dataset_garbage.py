"""Objects of dataset versions that have ended: deleted when no other version refers to them."""

from itertools import chain

from core.domain.access.scopes import PLATFORM
from core.store import datasets as store
from core.store.database import Database
from datasets.objectstore.base import ObjectStore

#: Seconds for which unreferenced objects are kept, because a job that lost its claim may still be writing.
GRACE = 300.0


class DatasetGarbage:
    """Deletes objects of datasets that nothing refers to any more."""

    def __init__(self, database: Database, objects: ObjectStore) -> None:
        self._database = database
        self._objects = objects

    def collect(self, grace: float = GRACE) -> int:
        """Delete objects that only ended versions refer to, after ``grace`` seconds; return their number."""
        with self._database.read() as c:
            over = store.purgeable(c, self._database.now(c) - grace)
        return sum(self.purge(id) for id in over)

    def remove_orphans(self, grace: float = GRACE) -> int:
        """Delete orphans: objects that no row refers to; return their number. Lists all objects."""
        keys = chain(self._objects.list("packs/"), self._objects.list("manifests/"))
        return sum(self._remove_orphan(key, grace) for key in keys)

    def purge(self, id: str) -> int:
        """Delete the objects that only this ended version refers to: each object first, then its reference."""
        removed = 0
        with self._database.read() as c:
            objects = store.objects_of(c, id)
        for object in objects:
            with self._database.read() as c:
                needed = store.needed(c, object, but=id)
            if not needed:
                self._objects.delete(object)
                removed += 1
            self._database.write(lambda c, object=object: store.forget(c, id, object))  # type: ignore[misc]
        return removed

    def _remove_orphan(self, key: str, grace: float) -> int:
        """Delete an object without a reference, left by a job that lost its claim; return 1 if deleted, else 0."""
        version = key.split("/")[1]
        with self._database.read() as c:
            row = store.by_id(c, PLATFORM, version)
            young = row is not None and row.ended_at is not None and row.ended_at > self._database.now(c) - grace
            if young or store.at_work(c, version) or store.needed(c, key):
                return 0
        self._objects.delete(key)
        return 1
