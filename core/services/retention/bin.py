"""Bin: what was deleted comes back from it for some days, as it was; then, or when it is emptied, it is purged."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from common.errors import Conflict, NotFound
from core.domain.access.scopes import Caller, Scope
from core.domain.access.shared_kinds import SharedKind
from core.domain.retention.retention_rules import BinnedKind
from core.notifications.notifier import Notifier
from core.services.due_jobs import SWEEP
from core.services.uploads.models import Models
from core.store import bin as store
from core.store import datasets, models, simulations
from core.store.bin import BinRow
from core.store.database import Connection, Database

logger = logging.getLogger(__name__)

#: Items that a sweep reads at once.
PAGE = 100


class Bin:
    """Service of the bin. ``term``: seconds after which what is in it is purged."""

    def __init__(self, database: Database, notifier: Notifier, content: Models, *, term: float) -> None:
        self._database = database
        self._notifier = notifier
        self._models = content
        self._term = term

    def page(self, caller: Caller, *, after: str | None = None, limit: int = 50) -> tuple[list[BinRow], str | None]:
        """Return a page of the caller's project's bin, the last deleted first, and the cursor of the next."""
        with self._database.read() as c:
            rows = store.page(c, caller.scope, self._since(c), after, limit + 1)
        return rows[:limit], rows[limit - 1].place if len(rows) > limit else None

    def totals(self, caller: Caller) -> tuple[int, int]:
        """Return how many things the bin has, and how many bytes are stored for them."""
        with self._database.read() as c:
            return store.totals(c, caller.scope)

    def until(self, item: BinRow) -> datetime:
        """Return until when something may come back."""
        return datetime.fromtimestamp(item.binned_at, UTC) + timedelta(seconds=self._term)

    def restore(self, caller: Caller, id: str) -> BinRow:
        """Take something back, as it was but for its shares. Raise NotFound, NotPermitted, Conflict."""

        def write(c: Connection) -> BinRow:
            item = store.find(c, caller.scope, id, self._since(c))
            if item is None:
                raise _absent(id)
            caller.require_change(item.made_by)
            if item.kind != BinnedKind.SIMULATIONS:  # a token for some models and datasets brings back no other
                versions = [] if item.version is None else [str(item.version)]
                caller.patterns.require(SharedKind(item.kind), item.name, versions + store.tags_of(item))
            store.take(c, caller.scope, id)
            if item.kind != BinnedKind.SIMULATIONS:
                tag = models.restore(c, item) if item.kind == BinnedKind.MODELS else datasets.restore(c, item)
                if tag is not None:
                    raise Conflict(
                        f"The tag {item.name}@{tag} refers to another version now. Delete that tag, restore this one,"
                        " and then let the tag refer to the version that you mean."
                    )
            elif not simulations.restore(c, caller.scope, id, self._database.now(c)):
                raise Conflict("It is being removed already, by an earlier version of the platform.")
            return item

        item = self._database.write(write)
        self._notifier.publish(id)
        return item

    def empty(self, caller: Caller, id: str | None = None) -> None:
        """Let one thing, or all, come back no more, and have it purged now. Raise NotFound."""
        emptied = self._database.write(lambda c: store.empty(c, caller.scope, id, self._since(c)))
        if id is not None and not emptied:
            raise _absent(id)
        self._notifier.enqueue("sweep", SWEEP)

    def purge(self, caller: Caller, id: str) -> None:
        """Take something out of the bin for good. Idempotent: rows first, then bytes that nothing refers to."""

        def write(c: Connection) -> bool:
            item = store.take(c, caller.scope, id)
            if item is None or item.kind == BinnedKind.MODELS:
                raise _absent(id)
            if item.kind == BinnedKind.DATASETS:
                datasets.purge(c, item, self._database.now(c))
                return False
            simulations.purge(c, caller.scope, id)
            return True

        try:
            removable = self._database.write(write)
        except NotFound:
            self._models.purge(caller.scope, id)
        else:
            if removable:
                self._notifier.enqueue("delete", id)

    def sweep(self) -> int:
        """Purge what has expired or was emptied; return how much."""
        purged = 0
        while True:
            with self._database.read() as c:
                expired: Sequence[tuple[str, str]] = store.due(c, self._since(c), PAGE)
            for project, id in expired:
                self.purge(Caller(Scope(project)), id)
            purged += len(expired)
            if len(expired) < PAGE:
                return purged

    def _since(self, c: Connection) -> float:
        return self._database.now(c) - self._term


def _absent(id: str) -> NotFound:
    return NotFound(f"There is no {id[:64]!r} in the bin. `GET /v1/bin` lists what is.")
