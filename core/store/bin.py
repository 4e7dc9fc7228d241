"""Bin in SQL: things that were deleted and may come back. They are found nowhere else, and stay charged."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, func, insert, or_, select, update

from common.ids import new_id
from core.domain.access.scopes import Scope
from core.domain.retention.retention_rules import BinnedKind
from core.domain.submissions.stored_documents import decode_document
from core.store.owned import within
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import bin_items


class BinRow(StoredRow, frozen=True, gc=False):
    """Something in the bin. ``bytes``: its size; ``rule``: which took it; ``document``: its row, which comes back."""

    id: str
    project: str
    place: str
    kind: str
    name: str
    version: int | None
    digest: str | None
    bytes: int
    made_by: str
    binned_by: str
    rule: str | None
    document: str | None
    binned_at: float


class _BinnedTags(msgspec.Struct):
    """Part that the documents of models and of datasets share."""

    tags: list[str] = []


class BinAct(NamedTuple):
    """An act that puts something into the bin. ``by``: Caller.name; empty: a rule, which is in words then."""

    at: float
    by: str
    rule: str | None = None

    def columns(self) -> dict[str, object]:
        """Return the columns that say so."""
        return {"place": new_id(datetime.now(UTC)), "binned_at": self.at, "binned_by": self.by, "rule": self.rule}


_COLUMNS = columns_of(bin_items, BinRow)


def add(c: Connection, values: Mapping[str, object]) -> None:
    """Insert an item; what is in it is deleted by the caller, in the same transaction."""
    c.execute(insert(bin_items).values(**values))


def find(c: Connection, scope: Scope, id: str, since: float) -> BinRow | None:
    """Return an item that may come back, binned after ``since``, and lock it until the transaction ends; or None."""
    query = select(*_COLUMNS).where(within(bin_items, scope), bin_items.c.id == id, *_alive(since))
    return read_row(c.execute(query.with_for_update()).first(), BinRow)


def tags_of(item: BinRow) -> list[str]:
    """Return the tags that a model or a dataset had, and has again when it comes back."""
    return decode_document(item.document, _BinnedTags).tags if item.document else []


def page(c: Connection, scope: Scope, since: float, after: str | None, limit: int) -> list[BinRow]:
    """Return items that may come back, the last deleted first; ``after``: the place of the page before's last."""
    query = select(*_COLUMNS).where(within(bin_items, scope), *_alive(since))
    if after is not None:
        query = query.where(bin_items.c.place < after)
    return read_rows(c.execute(query.order_by(bin_items.c.place.desc()).limit(limit)), BinRow)


def totals(c: Connection, scope: Scope) -> tuple[int, int]:
    """Return the number of items, and the sum of their bytes: with those that have expired and are still stored."""
    query = select(func.count(), func.coalesce(func.sum(bin_items.c.bytes), 0)).where(within(bin_items, scope))
    number, size = c.execute(query).one()
    return int(number), int(size)


def take(c: Connection, scope: Scope, id: str) -> BinRow | None:
    """Take an item out, and return it; None if it was taken already."""
    taking = delete(bin_items).where(within(bin_items, scope), bin_items.c.id == id)
    return read_row(c.execute(taking.returning(*_COLUMNS)).first(), BinRow)


def empty(c: Connection, scope: Scope, id: str | None, since: float) -> int:
    """Let an item, or all, come back no more; return how many. The next sweep purges them."""
    emptying = update(bin_items).where(within(bin_items, scope), *_alive(since))
    if id is not None:
        emptying = emptying.where(bin_items.c.id == id)
    return len(c.execute(emptying.values(emptied=1).returning(bin_items.c.id)).all())


def due(c: Connection, since: float, limit: int) -> Sequence[tuple[str, str]]:
    """Return projects and ids of items that come back no more."""
    over = or_(bin_items.c.emptied == 1, bin_items.c.binned_at <= since)
    query = select(bin_items.c.project, bin_items.c.id).where(over)
    return [(project, id) for project, id in c.execute(query.order_by(bin_items.c.binned_at).limit(limit))]


def newest_version(c: Connection, scope: Scope, name: str) -> int:
    """Return the highest version of a model's name that is in the bin, so that no other gets it; 0: none is."""
    of_name = (bin_items.c.kind == BinnedKind.MODELS.value, bin_items.c.name == name)
    query = select(func.max(bin_items.c.version)).where(within(bin_items, scope), *of_name)
    return int(c.scalar(query) or 0)


def _alive(since: float) -> tuple[ColumnElement[bool], ...]:
    return bin_items.c.emptied == 0, bin_items.c.binned_at > since
