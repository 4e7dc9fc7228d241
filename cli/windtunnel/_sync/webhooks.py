# Generated from windtunnel/_async/webhooks.py by scripts/sync_client.py; change that file.
"""Webhooks: what the project that a client acts in is told of, and how the deliveries went."""

import uuid
from collections.abc import Iterator, Mapping, Sequence

from windtunnel._sync.pages import pages
from windtunnel._sync.transport import Transport, path
from windtunnel.record import read
from windtunnel.webhook_records import ProjectWebhook, SentEvent


class Webhooks:
    """Webhooks; ``types`` are those of `windtunnel.webhook_records.EVENT_TYPES`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None) -> Iterator[ProjectWebhook]:
        """Yield the webhooks of the project, newest first, without their secrets."""
        for document in pages(self._transport, path("webhooks"), {}, limit):
            yield read(ProjectWebhook, document)

    def create(
        self,
        url: str,
        types: Sequence[str],
        *,
        labels: Mapping[str, str] | None = None,
        description: str = "",
        idempotency_key: str | None = None,
    ) -> ProjectWebhook:
        """Make a webhook and return it with its secret, which is shown this once.

        A repeated request with the same ``idempotency_key`` returns the same webhook; by default each call has its own.
        """
        body = {"url": url, "types": [*types], "labels": dict(labels or {}), "description": description}
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        made = self._transport.json("POST", path("webhooks"), json=body, headers=headers)
        return read(ProjectWebhook, made)

    def get(self, id: str) -> ProjectWebhook:
        """Return a webhook, without its secret."""
        return read(ProjectWebhook, self._transport.json("GET", path("webhooks", id)))

    def change(
        self,
        id: str,
        *,
        url: str | None = None,
        types: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        description: str | None = None,
        state: str | None = None,
    ) -> ProjectWebhook:
        """Change what is given; ``state`` is `active` or `paused`."""
        changes: dict[str, object] = {"url": url, "description": description, "state": state}
        changes |= {"types": None if types is None else [*types], "labels": None if labels is None else dict(labels)}
        body = {name: value for name, value in changes.items() if value is not None}
        return read(ProjectWebhook, self._transport.json("PATCH", path("webhooks", id), json=body))

    def rotate(self, id: str) -> ProjectWebhook:
        """Make a new secret and return the webhook with it; for a day the one before signs as well."""
        return read(ProjectWebhook, self._transport.json("POST", path("webhooks", id, "rotate")))

    def ping(self, id: str) -> SentEvent:
        """Send a test and return its delivery, which has not ended yet."""
        return read(SentEvent, self._transport.json("POST", path("webhooks", id, "ping")))

    def remove(self, id: str) -> None:
        """Delete a webhook, with its deliveries."""
        self._transport.request("DELETE", path("webhooks", id))

    def deliveries(self, id: str, *, limit: int | None = None) -> Iterator[SentEvent]:
        """Yield the deliveries of a webhook, newest first."""
        for document in pages(self._transport, path("webhooks", id, "deliveries"), {}, limit):
            yield read(SentEvent, document)

    def retry(self, id: str, delivery: str) -> SentEvent:
        """Send a delivery again, at once."""
        address = path("webhooks", id, "deliveries", delivery, "retry")
        return read(SentEvent, self._transport.json("POST", address))
