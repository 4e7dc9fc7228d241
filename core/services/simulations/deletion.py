"""Deletion of simulations: objects first, rows after them, so that a job that is killed can go on; and orphans."""

import logging
from collections.abc import Iterable
from itertools import groupby

from common.errors import StoreUnavailable
from core.services.claims import Action, ClaimedJob, OnError
from core.services.orphan_search import OrphanSearch
from core.services.scheduling.task_files import CHECKPOINTS
from core.store import results, simulations
from core.store.claims import HeldClaim
from core.store.database import Database
from datasets.objectstore.base import ObjectStore

logger = logging.getLogger(__name__)

#: Prefixes of the objects of simulations; the simulation's id follows.
PREFIXES = ("results/", "logs/", "replays/", CHECKPOINTS)
#: Rows of each kind that one transaction deletes: other transactions wait for it.
ROWS = 5000
#: Seconds after a simulation's end before an object of it that no row refers to counts as an orphan.
GRACE = 3600.0
JOB = ClaimedJob(
    take=simulations.DELETED.take,
    what="the deletion of {id}",
    outcomes=(OnError((StoreUnavailable,), Action.WAIT),),  # until the claim expires
)


class Deletion:
    """Removes the objects and rows of deleted simulations. Idempotent: every step may be repeated."""

    def __init__(self, database: Database, objects: ObjectStore) -> None:
        self._database = database
        self._objects = objects
        self._orphan_search = OrphanSearch()

    def remove(self, id: str) -> None:
        """Remove a deleted simulation; objects that a retry inherited stay with the retry.

        The rows name the objects, so they are deleted last, and a deletion that is interrupted begins again.
        """
        JOB.run(self._database, id, self._remove)

    def _remove(self, claim: HeldClaim) -> None:
        id = claim.id
        try:
            with self._database.read() as c:
                named = results.objects_of(c, id)
            self._remove_objects(named, but=id)
            for prefix in PREFIXES:
                self._remove_objects(self._objects.list(f"{prefix}{id}/"), but=id)
            while not self._database.write(lambda c: results.forget(c, id, ROWS)):
                pass
        except Exception as error:
            logger.warning("the deletion of simulation %s is tried again: %s", id, JOB.failure_of(error).reason)

    def _remove_objects(self, keys: Iterable[str], *, but: str = "") -> int:
        """Delete the objects that no simulation but ``but`` needs; return their number."""
        removed = 0
        for key in list(keys):
            with self._database.read() as c:
                needed = results.needed(c, key, but=but)
            if not needed:
                self._objects.delete(key)
                removed += 1
        return removed

    def sweep(self) -> int:
        """Once an hour, delete the orphans: objects that no row refers to; return their number.

        They are left by a job or a runner API that was killed between an object and its row.
        """
        return self.remove_orphans() if self._orphan_search.begin() else 0

    def remove_orphans(self, grace: float = GRACE) -> int:
        """Delete the orphans of simulations that ended ``grace`` seconds ago, or that do not exist."""
        removed = 0
        for prefix in PREFIXES:
            of_simulations = groupby(self._objects.list(prefix), lambda key: key.split("/")[1])
            removed += sum(self._remove_orphans_of(id, list(keys), grace) for id, keys in of_simulations)
        return removed

    def _remove_orphans_of(self, id: str, keys: Iterable[str], grace: float) -> int:
        with self._database.read() as c:
            row = simulations.any_row(c, id)
            if row is not None and not _ended_before(row, self._database.now(c) - grace):
                return 0
            named = set(results.objects_of(c, id))
        return self._remove_objects(key for key in keys if key not in named and (row is None or not _is_derived(key)))


def _ended_before(row: simulations.EndRow, moment: float) -> bool:
    """Return whether a simulation that is not deleted ended before a moment; a deletion removes its objects itself."""
    return row.deleted_at is None and row.ended_at is not None and row.ended_at < moment


def _is_derived(key: str) -> bool:
    """Return whether an object is made from others, so that no row refers to it: a replay, a cut artifact, a log."""
    return key.startswith("replays/") or "/cut-" in key or "/archive-" in key
