"""Webhooks in SQL: what each wants, how it does, and which have deliveries that are due."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, func, insert, select, text, update

from common.errors import UnknownWebhook
from core.domain.access.scopes import Scope
from core.domain.submissions.stored_documents import decode_document
from core.domain.webhooks.delivery_outcomes import WebhookState
from core.store.claims import Claims
from core.store.owned import within
from core.store.recording import note
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import webhook_deliveries as deliveries
from core.store.tables import webhooks


class WebhookRow(StoredRow, frozen=True, gc=False):
    """A webhook. ``failures``: batches that failed, in a row. ``delivered``, ``failed``: attempts, in all."""

    id: str
    project: str
    url: str
    description: str
    types: str
    labels: str
    state: str
    reason: str | None
    secret_number: int
    key_mark: str
    former_until: float
    failures: int
    failing_since: float | None
    overfull: int
    delivered: int
    failed: int
    not_before: float
    created_by: str
    created_at: float

    @property
    def wanted_types(self) -> list[str]:
        """Types of events that it wants."""
        return decode_document(self.types, list[str])

    @property
    def wanted_labels(self) -> dict[str, str]:
        """Labels that what it is told of must have."""
        return decode_document(self.labels, dict[str, str])


#: One job delivers to a webhook at a time: a slow receiver has one worker, and others have the rest.
CLAIMS = Claims(
    table=webhooks,
    needed="state='active'",
    ready="not_before<=:now AND EXISTS(SELECT 1 FROM webhook_deliveries d"
    " WHERE d.webhook_id=webhooks.id AND d.state='waiting' AND d.due_at<=:now)",
)
_OLDEST_QUERY = text(
    "SELECT min(CASE WHEN due_at>not_before THEN due_at ELSE not_before END) FROM (SELECT not_before, (SELECT"
    " min(due_at) FROM webhook_deliveries d WHERE d.webhook_id=webhooks.id AND d.state='waiting') AS due_at"
    " FROM webhooks WHERE state='active' AND not_before<=:now) AS firsts WHERE due_at<=:now"
)


def add(c: Connection, id: str, values: Mapping[str, object]) -> None:
    """Insert a webhook."""
    c.execute(insert(webhooks).values(id=id, **values))
    note(c, f"webhooks/{id}")


def find(c: Connection, scope: Scope, id: str, *, lock: bool = False) -> WebhookRow:
    """Return a webhook, or raise UnknownWebhook; ``lock``: until the transaction ends."""
    query = select(*columns_of(webhooks, WebhookRow)).where(within(webhooks, scope), webhooks.c.id == id)
    row = read_row(c.execute(query.with_for_update() if lock else query).first(), WebhookRow)
    if row is None:
        raise UnknownWebhook(f"There is no webhook {id[:64]!r}. `GET /v1/webhooks` lists them.")
    return row


def page(c: Connection, scope: Scope, after: str | None, limit: int) -> list[WebhookRow]:
    """Return webhooks of a scope, newest first, older than ``after``."""
    query = select(*columns_of(webhooks, WebhookRow)).where(within(webhooks, scope))
    if after is not None:
        query = query.where(webhooks.c.id < after)
    return read_rows(c.execute(query.order_by(webhooks.c.id.desc()).limit(limit)), WebhookRow)


def count(c: Connection, scope: Scope) -> int:
    """Return how many webhooks a scope has."""
    return int(c.scalar(select(func.count()).where(within(webhooks, scope))) or 0)


def has_other_keys(c: Connection, mark: str | None) -> bool:
    """Return whether a webhook that is not disabled has a secret of another key than this; None: of any key."""
    query = select(webhooks.c.id).where(webhooks.c.state != WebhookState.DISABLED.value)
    if mark is not None:
        query = query.where(webhooks.c.key_mark != mark)
    return c.execute(query.limit(1)).first() is not None


def change(c: Connection, scope: Scope, id: str, **values: object) -> None:
    """Change columns of a webhook that was found."""
    c.execute(update(webhooks).where(within(webhooks, scope), webhooks.c.id == id).values(**values))


def remove(c: Connection, scope: Scope, id: str) -> None:
    """Delete a webhook with its deliveries; raise UnknownWebhook."""
    find(c, scope, id, lock=True)
    c.execute(delete(deliveries).where(within(deliveries, scope), deliveries.c.webhook_id == id))
    c.execute(delete(webhooks).where(within(webhooks, scope), webhooks.c.id == id))


def listeners(c: Connection, project: str) -> Sequence[WebhookRow]:
    """Return the webhooks of a project for which events are kept."""
    return read_rows(c.execute(_LISTENER_QUERY, {"p": project}), WebhookRow)


_LISTENER_QUERY = text(
    f"SELECT {', '.join(WebhookRow.__struct_fields__)} FROM webhooks WHERE project=:p AND state='active' AND overfull=0"
).columns(*columns_of(webhooks, WebhookRow))


def attempts(c: Connection) -> tuple[int, int]:
    """Return how many attempts were accepted and how many failed, of the webhooks that there are."""
    delivered, failed = c.execute(
        text("SELECT coalesce(sum(delivered), 0), coalesce(sum(failed), 0) FROM webhooks")
    ).one()
    return int(delivered), int(failed)


def oldest_due(c: Connection, now: float) -> float | None:
    """Return since when the delivery is due that is due longest, of webhooks that do not rest; None: none is."""
    since = c.scalar(_OLDEST_QUERY, {"now": now})
    return None if since is None else float(since)
