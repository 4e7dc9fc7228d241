"""Delivery of events to webhooks: a job on each webhook, under a claim, that sends what is due and records the outcome.

A process that is killed between a request and its record sends the event again, with the same id: at least once.
"""

import logging
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import UTC, datetime

from common.version import VERSION
from core.domain.access.audit import AuditEntry
from core.domain.access.scopes import PLATFORM, Scope
from core.domain.webhooks.cloud_events import CONTENT_TYPE, cloud_event
from core.domain.webhooks.delivery_outcomes import (
    DeliveryState,
    ReceiverAnswer,
    ReceiverHealth,
    WebhookChange,
    WebhookState,
    after_attempt,
    after_batch,
)
from core.services.claims import ClaimedJob, ClaimLost
from core.services.webhooks.receiver_posts import ReceiverPosts
from core.services.webhooks.webhook_secrets import WebhookSecrets
from core.store import audit, webhook_deliveries, webhooks
from core.store.claims import HeldClaim
from core.store.database import Connection, Database
from core.store.webhook_deliveries import DeliveryRow
from core.store.webhooks import CLAIMS, WebhookRow

logger = logging.getLogger(__name__)

#: Requests to a webhook at the same time; to one that fails it is one.
BATCH = 8
#: Seconds after which a job leaves what is still due to its next attempt, so that other webhooks have their turn.
TURN = 20.0
#: Waiting deliveries of a webhook above which no further events are kept for it, and below which they are again.
FULL_COUNT, EMPTIED_COUNT = 10_000, 8_000
#: Seconds that deliveries are kept, most that a transaction deletes, and most transactions of a sweep.
RETENTION, SWEPT, MOST_SWEEPS = 7 * 86_400.0, 1000, 100
#: The act of the audit log when the platform disables a webhook.
DISABLE_ACT = "disable_webhook"
JOB = ClaimedJob(take=CLAIMS.take, what="webhook {id}")


class WebhookDelivery:
    """Delivers events. ``platform_url``: where clients find the platform; empty: not known."""

    def __init__(
        self,
        database: Database,
        webhook_secrets: WebhookSecrets,
        posts: ReceiverPosts,
        *,
        platform_url: str = "",
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._database = database
        self._secrets = webhook_secrets
        self._posts = posts
        self._platform_url = platform_url
        self._chance = chance

    def deliver(self, id: str) -> None:
        """Send what is due to a webhook, for a while, unless another job does."""
        JOB.run(self._database, id, self._deliver)

    def sweep(self) -> int:
        """Delete deliveries that are too old, in transactions of bounded size; return how many."""
        with self._database.read() as c:
            before = self._database.now(c) - RETENTION
        total = 0
        for _ in range(MOST_SWEEPS):
            deleted = self._database.write(lambda c: webhook_deliveries.forget(c, before, SWEPT))
            total += deleted
            if deleted < SWEPT:
                break
        return total

    def _deliver(self, claim: HeldClaim) -> None:
        turn = time.monotonic() + TURN
        with ThreadPoolExecutor(BATCH, thread_name_prefix="deliver") as threads:
            while time.monotonic() < turn and self._deliver_batch(claim, threads):
                pass
        self._database.write(lambda c: self._release(c, claim), durable=False)

    def _deliver_batch(self, claim: HeldClaim, threads: Executor) -> bool:
        """Send what is due, a batch at most; return whether more may be sent now."""
        row, taken, now = self._database.write(lambda c: self._take(c, claim), durable=False)
        if not taken:
            return False
        if row.key_mark == self._secrets.mark():
            answers = [*threads.map(lambda delivery: self._send(row, delivery, now), taken)]
        else:
            answers = [ReceiverAnswer(error=_OTHER_KEY)] * len(taken)
        change = self._database.write(lambda c: self._record(c, claim, taken, answers))
        return not change.rest

    def _take(self, c: Connection, claim: HeldClaim) -> tuple[WebhookRow, Sequence[DeliveryRow], float]:
        """Return the webhook and the deliveries that are sent next, each with an attempt more."""
        if not CLAIMS.lock(c, claim):
            raise ClaimLost
        row, now = webhooks.find(c, PLATFORM, claim.id), self._database.now(c)
        if row.not_before > now:
            return row, [], now
        most = 1 if row.failures else BATCH
        return row, webhook_deliveries.take(c, Scope(row.project), row.id, now, most), now

    def _send(self, row: WebhookRow, delivery: DeliveryRow, now: float) -> ReceiverAnswer:
        body = cloud_event(delivery.event, self._platform_url)
        headers = {"Content-Type": CONTENT_TYPE, "User-Agent": f"windtunnel/{VERSION}", "Accept": "*/*"}
        signed = self._secrets.headers(row, delivery.event_id, body, datetime.now(UTC), now)
        return self._posts.post(row.url, body.encode(), headers | signed)

    def _record(
        self, c: Connection, claim: HeldClaim, taken: Sequence[DeliveryRow], answers: Sequence[ReceiverAnswer]
    ) -> WebhookChange:
        """Store what the requests came to, and what becomes of the webhook."""
        if not CLAIMS.lock(c, claim):
            raise ClaimLost
        row, now = webhooks.find(c, PLATFORM, claim.id), self._database.now(c)
        scope = Scope(row.project)
        for delivery, answer in zip(taken, answers, strict=True):
            self._record_delivery(c, scope, delivery, answer, now)
        change = after_batch(ReceiverHealth(failures=row.failures, failing_since=row.failing_since), answers, now)
        accepted = sum(answer.error is None for answer in answers)
        values: dict[str, object] = {
            "failures": change.health.failures,
            "failing_since": change.health.failing_since,
            "not_before": now + change.rest if change.rest else 0.0,
            "delivered": row.delivered + accepted,
            "failed": row.failed + len(answers) - accepted,
        }
        if change.disabled is not None:
            logger.warning("webhook %s of project %s is disabled: %s", row.id, row.project, change.disabled)
            webhook_deliveries.give_up(c, scope, row.id, "The webhook was disabled.", now)
            values |= {"state": WebhookState.DISABLED.value, "reason": change.disabled}
            entry = AuditEntry(act=DISABLE_ACT, project=row.project, subject=f"webhooks/{row.id}")
            audit.add(c, [(entry, 1)], now)
        webhooks.change(c, scope, row.id, **values)
        return change

    def _record_delivery(
        self, c: Connection, scope: Scope, delivery: DeliveryRow, answer: ReceiverAnswer, now: float
    ) -> None:
        after = after_attempt(delivery.attempts, answer, self._chance())
        ended = {} if after.state is DeliveryState.WAITING else {"ended_at": now}
        last: dict[str, object] = {"status": answer.status, "error": answer.error, "excerpt": answer.excerpt}
        last |= {"milliseconds": round(answer.seconds * 1000), "due_at": now + after.pause}
        webhook_deliveries.change(c, scope, delivery.id, state=after.state.value, **last, **ended)

    def _release(self, c: Connection, claim: HeldClaim) -> None:
        """End the claim, and decide whether further events are kept."""
        if not CLAIMS.lock(c, claim):  # it was deleted, paused or disabled
            return
        row = webhooks.find(c, PLATFORM, claim.id)
        waiting = webhook_deliveries.count_waiting(c, Scope(row.project), row.id, FULL_COUNT)
        overfull = waiting >= FULL_COUNT or (bool(row.overfull) and waiting >= EMPTIED_COUNT)
        CLAIMS.release(c, claim, overfull=int(overfull))


_OTHER_KEY = (
    "The key of the platform is not the one with which the secret was made. Make a new secret, or let the operator set"
    " WINDTUNNEL_WEBHOOK_KEY to the same text for all processes."
)
