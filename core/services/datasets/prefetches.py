"""Prefetches: downloads of dataset versions to a node's cache, before a simulation uses them."""

import json
import logging

from common.errors import NotFound, OriginFailed, OriginRefused, PlatformError, StoreUnavailable
from core.domain.access.scopes import OPERATION, Caller
from core.notifications.notifier import Notifier
from core.services.claims import Action, ClaimedJob, OnError
from core.services.datasets.datasets import Datasets, find_built_in
from core.services.download_events import at_intervals, download_event
from core.store import datasets as store
from core.store.claims import HeldClaim
from core.store.database import Database
from datasets.nodecache.node_cache import DownloadProgress, NodeCache

logger = logging.getLogger(__name__)

#: The holder of what a prefetch keeps in a cache begins so, and goes on with the version's id.
PREFETCH_HOLDER = "prefetch-"
PREFETCH = ClaimedJob(
    take=store.PREFETCHES.take,
    what="the prefetch of {id}",
    outcomes=(
        OnError((OriginRefused,), Action.FAIL),
        OnError((StoreUnavailable, OriginFailed), Action.WAIT),  # until the claim expires
        OnError((PlatformError,), Action.FAIL),
    ),
)


class Prefetches:
    """Requests of prefetches, and the job that downloads them to a node's cache."""

    def __init__(self, database: Database, notifier: Notifier, datasets: Datasets, cache: NodeCache) -> None:
        self._database = database
        self._notifier = notifier
        self._datasets = datasets
        self._cache = cache

    def request(self, caller: Caller, ref: str) -> dict[str, object]:
        """Request the download of a version; return its progress."""
        if find_built_in(ref) is not None:
            return self.progress(caller, ref)
        row = self._datasets.ready_version(caller, ref)
        self._database.write(lambda c: store.ask_prefetch(c, row.id, self._database.now(c)))
        self._notifier.enqueue("prefetch", row.id)
        return self.progress(caller, row.id)

    def progress(self, caller: Caller, ref: str) -> dict[str, object]:
        """Return the progress of a prefetch. Raise NotFound if none was requested."""
        if find_built_in(ref) is not None:
            return {"state": "ready", "files": 0, "bytes": 0}
        row = self._datasets.ready_version(caller, ref)
        with self._database.read() as c:
            prefetch = store.prefetch(c, row.id)
        if prefetch is None:
            raise NotFound("No prefetch of this version was requested; POST to this address.")
        totals: dict[str, object] = {"state": prefetch.state, "total_files": row.files, "total_bytes": row.bytes}
        if prefetch.state == "ready":  # not what the node had already: that may be of another project's dataset
            return totals | {"what": "dataset", "files": row.files, "bytes": row.bytes, "fraction": 1.0}
        return {**totals, **json.loads(prefetch.progress)}

    def download(self, id: str) -> None:
        """Download a version whose prefetch was requested; nothing if another job does."""
        PREFETCH.run(self._database, id, self._download)

    def _download(self, claim: HeldClaim) -> None:
        try:
            state, progress = "ready", self._fill_cache(claim.id)
        except Exception as error:
            failure = PREFETCH.failure_of(error)
            state, progress = "failed" if failure.action is Action.FAIL else "fetching", {"reason": failure.reason}
            logger.warning("the prefetch of %s has failed and is %s: %s", claim.id, state, failure.reason)
        self._database.write(lambda c: store.tell_prefetch(c, claim.id, state, progress))

    def _fill_cache(self, id: str) -> dict[str, object]:
        """Download a version's files and record the progress; return the last progress."""
        digest = self._datasets.digest(OPERATION, id)
        last: dict[str, object] = {}

        def say(progress: DownloadProgress) -> None:
            nonlocal last
            last = download_event(progress)
            self._database.write(lambda c: store.tell_prefetch(c, id, "fetching", last), durable=False)
            self._datasets.digest(OPERATION, id)  # raises if the version was deleted meanwhile

        holder = PREFETCH_HOLDER + id
        try:
            self._cache.tree(
                digest, lambda: self._datasets.entries(OPERATION, id), holder=holder, on_progress=at_intervals(say)
            )
        finally:
            self._cache.release(holder)
        return last
