"""Records of webhooks, as the platform describes them, and of the events that were sent to them."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from windtunnel.record import Record

#: Types of events that a webhook may be told of.
EVENT_TYPES = (
    *("simulation.ended", "simulation.failed", "comparison.decided", "comparison.ended", "comparison.failed"),
    *("pipeline.ended", "pipeline.failed", "quota.reached"),
)


class ProjectWebhook(Record, frozen=True, kw_only=True):
    """A webhook. ``secret``: shown once, when it is made. ``delivered`` and ``failed``: numbers of requests."""

    id: str
    url: str
    state: str
    types: list[str] = msgspec.field(default_factory=list)
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    description: str = ""
    reason: str | None = None
    failing_since: datetime | None = None
    overfull: bool = False
    delivered: int = 0
    failed: int = 0
    former_secret_until: datetime | None = None
    created_by: str | None = None
    created_at: datetime | None = None
    secret: str | None = None

    def __repr__(self) -> str:
        return f"ProjectWebhook(id={self.id!r}, state={self.state!r})"  # its secret is one


class SentEvent(Record, frozen=True, kw_only=True):
    """An event that was sent to a webhook, or waits for its next attempt."""

    id: str
    event_id: str
    type: str
    subject: str
    state: str
    data: Mapping[str, object] = msgspec.field(default_factory=dict)
    attempts: int = 0
    next_attempt_at: datetime | None = None
    status: int | None = None
    error: str | None = None
    excerpt: str = ""
    seconds: float | None = None
    created_at: datetime | None = None
    ended_at: datetime | None = None
