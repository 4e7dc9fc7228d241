"""CloudEvents: the body of a delivery, as JSON in the structured mode of CloudEvents 1.0."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from core.domain.webhooks.event_types import TYPE_PREFIX

#: Content type of a delivery.
CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredEvent:
    """An event as a delivery keeps it; ``at`` is in seconds since the epoch."""

    id: str
    type: str
    project: str
    subject: str
    at: float
    data: Mapping[str, object]


def cloud_event(event: StoredEvent, platform_url: str) -> str:
    """Return the body of a delivery.

    ``platform_url``: where clients find the platform, before the addresses of source and subject; empty: not known.
    """
    base = platform_url.rstrip("/")
    moment = datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    document = {
        "specversion": "1.0",
        "id": event.id,
        "source": f"{base}/v1/projects/{event.project}",
        "type": TYPE_PREFIX + event.type,
        "subject": event.subject,
        "time": moment,
        "datacontenttype": "application/json",
        "data": {**event.data, "project": event.project, "address": f"{base}/v1/{event.subject}"},
    }
    return json.dumps(document)
