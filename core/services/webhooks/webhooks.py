"""Webhooks: made, changed and tested by maintainers of a project, with the deliveries of each."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from common.ages import seconds_since
from common.errors import Conflict, Invalid
from common.ids import new_id
from core.domain.access.scopes import Caller
from core.domain.webhooks.delivery_outcomes import DeliveryState, WebhookState
from core.domain.webhooks.event_types import MEANINGS, EventType
from core.notifications.notifier import Notifier
from core.services.webhooks.receiver_posts import ReceiverPosts
from core.services.webhooks.webhook_secrets import FORMER_SECRET_TERM, WebhookSecrets
from core.store import idempotency_keys, webhook_deliveries, webhooks
from core.store.database import Connection, Database
from core.store.webhook_deliveries import DeliveryRow
from core.store.webhooks import WebhookRow

_NEXT_STEP = (
    "nothing is sent to them. Set WINDTUNNEL_WEBHOOK_KEY to that key, or bring the file webhook-key of HOME back, and"
    " start the platform again; if the key is lost, make each a new secret (`windtunnel webhooks rotate ID`)"
)
_NO_KEY = (
    f"there are webhooks, and the key of which their secrets were made is not there, or cannot be read: {_NEXT_STEP}"
)
_OTHER_KEY = f"secrets of webhooks were made of another key than this process has: {_NEXT_STEP}"
#: Most webhooks of a project.
MOST_WEBHOOKS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class NewWebhook:
    """A webhook that is asked for."""

    url: str
    types: Sequence[str]
    labels: Mapping[str, str]
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookChanges:
    """Changes of a webhook; None: it stays. ``state``: active or paused."""

    url: str | None = None
    types: Sequence[str] | None = None
    labels: Mapping[str, str] | None = None
    description: str | None = None
    state: WebhookState | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryLoad:
    """Requests to the webhooks of all projects by outcome, and for how many seconds an event is due to one."""

    delivered: int
    failed: int
    oldest_due: float


class Webhooks:
    """Service of webhooks."""

    def __init__(
        self, database: Database, notifier: Notifier, webhook_secrets: WebhookSecrets, posts: ReceiverPosts
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._secrets = webhook_secrets
        self._posts = posts

    def create(
        self, caller: Caller, asked: NewWebhook, *, key: str | None = None, request_digest: str = ""
    ) -> tuple[WebhookRow, str, bool]:
        """Make a webhook; return it with its first secret, and whether ``key`` was used before. Raise Invalid.

        A repeated request gets the webhook and the secret that the first one got. Raise IdempotencyMismatch if the key
        was used with another request, UnknownWebhook if the webhook of the key was deleted.
        """
        url, description = asked.url, asked.description
        self._posts.check(url)
        id = new_id(datetime.now(UTC))
        values = {"project": caller.scope.owner, "url": url, "description": description}
        values |= {"types": json.dumps([*dict.fromkeys(asked.types)]), "labels": json.dumps(dict(asked.labels))}
        made = {"state": WebhookState.ACTIVE.value, "key_mark": self._secrets.mark(), "created_by": caller.name}

        def write(c: Connection) -> tuple[WebhookRow, bool]:
            now = self._database.now(c)
            if key is not None:
                known = idempotency_keys.remember(c, caller, key, request_digest, id, now)
                if known is not None:
                    return webhooks.find(c, caller.scope, known), True
            if webhooks.count(c, caller.scope) >= MOST_WEBHOOKS:
                raise Invalid(f"The project has {MOST_WEBHOOKS} webhooks, the most that it may have. Delete one first.")
            webhooks.add(c, id, values | made | {"created_at": now})
            return webhooks.find(c, caller.scope, id), False

        row, replayed = self._database.write(write)
        return row, self._secrets.secret(row.id, 1), replayed

    def key_problem(self) -> str | None:
        """Return why this process cannot sign for the webhooks that there are, and what to do; None if it can."""
        try:
            mark = self._secrets.present_mark()
        except OSError:  # its file cannot be read
            mark = None
        with self._database.read() as c:
            if not webhooks.has_other_keys(c, mark):
                return None
        return _NO_KEY if mark is None else _OTHER_KEY

    def page(self, caller: Caller, *, after: str | None, limit: int) -> tuple[Sequence[WebhookRow], str | None]:
        """Return a page of the webhooks of the caller's project, newest first, and the cursor of the next."""
        with self._database.read() as c:
            rows = webhooks.page(c, caller.scope, after, limit + 1)
        return rows[:limit], rows[limit - 1].id if len(rows) > limit else None

    def get(self, caller: Caller, id: str) -> WebhookRow:
        """Return a webhook; raise UnknownWebhook."""
        with self._database.read() as c:
            return webhooks.find(c, caller.scope, id)

    def change(self, caller: Caller, id: str, changes: WebhookChanges) -> WebhookRow:
        """Change a webhook. It begins without failures if it becomes active, or has another address. Raise Invalid."""
        if changes.url is not None:
            self._posts.check(changes.url)
        values: dict[str, object] = {
            name: value
            for name, value in (("url", changes.url), ("description", changes.description))
            if value is not None
        }
        if changes.types is not None:
            values["types"] = json.dumps([*dict.fromkeys(changes.types)])
        if changes.labels is not None:
            values["labels"] = json.dumps(dict(changes.labels))
        if changes.state is not None:
            values |= {"state": changes.state.value, "reason": None, "claim": None, "claim_until": 0.0}
        if changes.url is not None or changes.state is WebhookState.ACTIVE:
            values |= {"failures": 0, "failing_since": None, "not_before": 0.0}

        def write(c: Connection) -> WebhookRow:
            webhooks.find(c, caller.scope, id, lock=True)
            if values:
                webhooks.change(c, caller.scope, id, **values)
            return webhooks.find(c, caller.scope, id)

        row = self._database.write(write)
        self._notifier.enqueue("deliver", id)
        return row

    def remove(self, caller: Caller, id: str) -> None:
        """Delete a webhook with its deliveries; what waits is not sent. Raise UnknownWebhook."""
        self._database.write(lambda c: webhooks.remove(c, caller.scope, id))

    def rotate(self, caller: Caller, id: str) -> tuple[WebhookRow, str]:
        """Make a new secret, shown this once; for a day, the one before signs as well."""
        mark = self._secrets.mark()

        def write(c: Connection) -> WebhookRow:
            row = webhooks.find(c, caller.scope, id, lock=True)
            until = self._database.now(c) + FORMER_SECRET_TERM if row.key_mark == mark else 0.0
            number = {"secret_number": row.secret_number + 1, "former_until": until, "key_mark": mark}
            webhooks.change(c, caller.scope, id, **number)
            return webhooks.find(c, caller.scope, id)

        row = self._database.write(write)
        return row, self._secrets.secret(id, row.secret_number)

    def ping(self, caller: Caller, id: str) -> DeliveryRow:
        """Send a test; return its delivery. Raise UnknownWebhook, Conflict for one that is not active."""
        delivery, event = new_id(datetime.now(UTC)), new_id(datetime.now(UTC))

        def write(c: Connection) -> DeliveryRow:
            row = _active(c, caller, id)
            now = self._database.now(c)
            data = {"id": row.id, "text": MEANINGS[EventType.PING], "by": caller.name or None}
            values = {"id": delivery, "project": row.project, "webhook_id": id, "event_id": event, "due_at": now}
            what = {"type": EventType.PING.value, "subject": f"webhooks/{id}", "data": json.dumps(data)}
            webhook_deliveries.add(c, [values | what | {"created_at": now}])
            webhooks.change(c, caller.scope, id, not_before=0.0)
            return webhook_deliveries.find(c, caller.scope, id, delivery)

        row = self._database.write(write)
        self._notifier.enqueue("deliver", id)
        return row

    def deliveries(
        self, caller: Caller, id: str, *, after: str | None, limit: int
    ) -> tuple[Sequence[DeliveryRow], str | None]:
        """Return a page of the deliveries of a webhook, newest first, and the cursor of the next."""
        with self._database.read() as c:
            webhooks.find(c, caller.scope, id)
            rows = webhook_deliveries.page(c, caller.scope, id, after, limit + 1)
        return rows[:limit], rows[limit - 1].id if len(rows) > limit else None

    def load(self) -> DeliveryLoad:
        """Return how deliveries go, for the metrics of an operator."""
        with self._database.read() as c:
            now = self._database.now(c)
            (delivered, failed), since = webhooks.attempts(c), webhooks.oldest_due(c, now)
        return DeliveryLoad(
            delivered=delivered, failed=failed, oldest_due=0.0 if since is None else seconds_since(since, now)
        )

    def retry(self, caller: Caller, id: str, delivery: str) -> DeliveryRow:
        """Send a delivery again, at once, with all its attempts; raise UnknownWebhook, UnknownDelivery, Conflict."""

        def write(c: Connection) -> DeliveryRow:
            _active(c, caller, id)
            webhook_deliveries.find(c, caller.scope, id, delivery)
            again = {"state": DeliveryState.WAITING.value, "attempts": 0, "due_at": self._database.now(c)}
            webhook_deliveries.change(c, caller.scope, delivery, ended_at=None, **again)
            webhooks.change(c, caller.scope, id, not_before=0.0)
            return webhook_deliveries.find(c, caller.scope, id, delivery)

        row = self._database.write(write)
        self._notifier.enqueue("deliver", id)
        return row


def _active(c: Connection, caller: Caller, id: str) -> WebhookRow:
    row = webhooks.find(c, caller.scope, id, lock=True)
    if row.state != WebhookState.ACTIVE.value:
        raise Conflict(f"The webhook is {row.state}, and nothing is sent to it. Set its `state` to active first.")
    return row
