"""Deliveries in SQL: an outbox, whose rows are inserted with what they tell of and kept until they are too old."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, insert, select, text, update

from common.errors import UnknownDelivery
from core.domain.access.scopes import Scope
from core.domain.submissions.stored_documents import load_document
from core.domain.webhooks.cloud_events import StoredEvent
from core.domain.webhooks.delivery_outcomes import DeliveryState
from core.store.owned import within
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import webhook_deliveries as deliveries


class DeliveryRow(StoredRow, frozen=True, gc=False):
    """A delivery of an event to a webhook; ``status``, ``error``, ``excerpt`` and ``milliseconds``: of the last try."""

    id: str
    project: str
    webhook_id: str
    event_id: str
    type: str
    subject: str
    data: str
    state: str
    attempts: int
    due_at: float
    status: int | None
    error: str | None
    excerpt: str
    milliseconds: int | None
    created_at: float
    ended_at: float | None

    @property
    def event(self) -> StoredEvent:
        """The event that it delivers."""
        return StoredEvent(
            id=self.event_id,
            type=self.type,
            project=self.project,
            subject=self.subject,
            at=self.created_at,
            data=load_document(self.data),
        )


_WAITING_CONDITION = deliveries.c.state == DeliveryState.WAITING.value
_FORGET = text(
    "DELETE FROM webhook_deliveries WHERE id IN"
    " (SELECT id FROM webhook_deliveries WHERE created_at<:before ORDER BY created_at LIMIT :most)"
)
_COUNT_WAITING = text(
    "SELECT count(*) FROM"
    " (SELECT 1 FROM webhook_deliveries WHERE webhook_id=:w AND state='waiting' LIMIT :most) AS first_ones"
)


def add(c: Connection, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert deliveries that are due."""
    c.execute(insert(deliveries), [{"state": DeliveryState.WAITING.value, **row} for row in rows])


def take(c: Connection, scope: Scope, webhook: str, now: float, most: int) -> list[DeliveryRow]:
    """Count an attempt for the deliveries of a webhook that are due, the longest due first, and return them.

    The webhook is claimed. An attempt counts before it is made: if it ends the process, it is not repeated for ever.
    """
    due = (deliveries.c.webhook_id == webhook, _WAITING_CONDITION, deliveries.c.due_at <= now)
    query = select(deliveries.c.id).where(within(deliveries, scope), *due)
    ids = list(c.scalars(query.order_by(deliveries.c.due_at, deliveries.c.id).limit(most)))
    if not ids:
        return []
    counting = update(deliveries).where(deliveries.c.id.in_(ids)).values(attempts=deliveries.c.attempts + 1)
    taken = read_rows(c.execute(counting.returning(*columns_of(deliveries, DeliveryRow))), DeliveryRow)
    return sorted(taken, key=lambda row: (row.due_at, row.id))


def change(c: Connection, scope: Scope, id: str, **values: object) -> None:
    """Change columns of a delivery."""
    c.execute(update(deliveries).where(within(deliveries, scope), deliveries.c.id == id).values(**values))


def find(c: Connection, scope: Scope, webhook: str, id: str) -> DeliveryRow:
    """Return a delivery of a webhook, or raise UnknownDelivery."""
    named = (deliveries.c.webhook_id == webhook, deliveries.c.id == id)
    query = select(*columns_of(deliveries, DeliveryRow)).where(within(deliveries, scope), *named)
    row = read_row(c.execute(query).first(), DeliveryRow)
    if row is None:
        raise UnknownDelivery(f"There is no delivery {id[:64]!r}. `GET /v1/webhooks/{{id}}/deliveries` lists them.")
    return row


def page(c: Connection, scope: Scope, webhook: str, after: str | None, limit: int) -> list[DeliveryRow]:
    """Return deliveries of a webhook, newest first, older than ``after``."""
    query = select(*columns_of(deliveries, DeliveryRow))
    query = query.where(within(deliveries, scope), deliveries.c.webhook_id == webhook)
    if after is not None:
        query = query.where(deliveries.c.id < after)
    return read_rows(c.execute(query.order_by(deliveries.c.id.desc()).limit(limit)), DeliveryRow)


def count_waiting(c: Connection, scope: Scope, webhook: str, most: int) -> int:
    """Return how many deliveries of a webhook wait, ``most`` at most; the webhook was found in the scope."""
    return int(c.scalar(_COUNT_WAITING, {"w": webhook, "most": most}) or 0)


def give_up(c: Connection, scope: Scope, webhook: str, error: str, now: float) -> None:
    """Let the deliveries of a webhook fail that wait."""
    of_webhook = (within(deliveries, scope), deliveries.c.webhook_id == webhook, _WAITING_CONDITION)
    values = {"state": DeliveryState.FAILED.value, "error": error, "ended_at": now}
    c.execute(update(deliveries).where(*of_webhook).values(**values))


def forget(c: Connection, before: float, most: int) -> int:
    """Delete deliveries of events before a time, ``most`` at most; return how many."""
    return int(c.execute(_FORGET, {"before": before, "most": most}).rowcount)
