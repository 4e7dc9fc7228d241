"""Outcomes of deliveries: when one that failed is tried again, and when a webhook rests or is disabled."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

from common.ages import is_old_enough
from common.backoff import RetryPolicy

#: Seconds between the attempts of a delivery, as Standard Webhooks recommends: three days in all.
PAUSES = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
#: Part of a pause by which it may be longer, so that what failed together is not repeated together.
JITTER = 0.2
#: Rest of a webhook of which every delivery has just failed: one request is all that a dead receiver costs meanwhile.
REST_POLICY = RetryPolicy(first=5.0, longest=300.0)
#: A webhook is disabled that has failed for so many seconds, and so many times in a row: all attempts of two events.
DISABLED_AFTER, DISABLED_FAILURES = 5 * 86_400.0, 2 * (len(PAUSES) + 1)
#: Status by which a receiver says that it wants nothing more.
GONE_STATUS = 410
#: Statuses whose `Retry-After` says when the receiver can take more (RFC 6585, section 4; RFC 9110, section 15.6.4).
BUSY_STATUSES = frozenset({429, 503})


class WebhookState(StrEnum):
    """State of a webhook."""

    ACTIVE = "active"
    PAUSED = "paused"  # by a person: nothing is sent, and no event is kept for it
    DISABLED = "disabled"  # by the platform, because it only failed


class DeliveryState(StrEnum):
    """State of a delivery."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiverAnswer:
    """Outcome of a request to a receiver. ``status``: None without an answer. ``error``: a sentence; None: accepted.

    ``excerpt``: the beginning of what it answered. ``seconds``: how long it took. ``asked_pause``: for how many
    seconds the receiver wants nothing.
    """

    status: int | None = None
    error: str | None = None
    excerpt: str = ""
    seconds: float = 0.0
    asked_pause: float = 0.0


def asked_pause_of(status: int, retry_after: str | None, now: datetime) -> float:
    """Return the seconds for which a receiver wants nothing, by its `Retry-After`: a number of seconds, or a date.

    At most the longest pause between attempts; 0 for other statuses, and for what is neither.
    """
    if status not in BUSY_STATUSES or retry_after is None:
        return 0.0
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        return min(float(text[:12]), PAUSES[-1])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    if moment.tzinfo is None:  # `-0000`: in UTC, of a place that is not told
        moment = moment.replace(tzinfo=UTC)
    return min(max(0.0, (moment - now).total_seconds()), PAUSES[-1])


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryChange:
    """State of a delivery after an attempt; ``pause``: seconds until the next, if it waits."""

    state: DeliveryState
    pause: float = 0.0


def after_attempt(attempts: int, answer: ReceiverAnswer, chance: float) -> DeliveryChange:
    """Return what becomes of a delivery after so many attempts; ``chance``: a random number from 0 to 1."""
    if answer.error is None:
        return DeliveryChange(state=DeliveryState.DELIVERED)
    if attempts > len(PAUSES) or answer.status == GONE_STATUS:
        return DeliveryChange(state=DeliveryState.FAILED)
    pause = max(PAUSES[max(attempts, 1) - 1], answer.asked_pause) * (1 + JITTER * chance)
    return DeliveryChange(state=DeliveryState.WAITING, pause=pause)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiverHealth:
    """Health of a webhook. ``failures``: in a row. ``failing_since``: the first of them; None: it does not fail."""

    failures: int = 0
    failing_since: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookChange:
    """Change of a webhook after some attempts; ``rest``: seconds; ``disabled``: why it is, None if it is not."""

    health: ReceiverHealth
    rest: float = 0.0
    disabled: str | None = None


def after_batch(health: ReceiverHealth, answers: Sequence[ReceiverAnswer], now: float) -> WebhookChange:
    """Return what becomes of a webhook after attempts at the same time, of which a single success ends its failures."""
    asked = max((answer.asked_pause for answer in answers), default=0.0)
    if any(answer.error is None for answer in answers):
        return WebhookChange(health=ReceiverHealth(), rest=asked)
    since = now if health.failing_since is None else health.failing_since
    failures = health.failures + 1
    last = answers[-1].error or ""
    disabled = None
    if any(answer.status == GONE_STATUS for answer in answers):
        disabled = "Its receiver has answered 410: it wants no further events."
    elif is_old_enough(since, DISABLED_AFTER, now) and failures >= DISABLED_FAILURES:
        disabled = f"It has failed for {DISABLED_AFTER / 86_400:.0f} days. The last time: {last}"
    health = ReceiverHealth(failures=failures, failing_since=since)
    return WebhookChange(health=health, rest=max(REST_POLICY.pause(failures), asked), disabled=disabled)
