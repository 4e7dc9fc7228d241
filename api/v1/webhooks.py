"""Routes of webhooks: what a project is told of, the secrets that sign it, tests, and deliveries."""

import hashlib

import msgspec
from flask import Response

from api.blueprint import Blueprint, Success, header, json_response
from api.body import json_body, validated
from api.context import caller, context
from api.paging import LINK, page
from api.schemas.pages import PageQuery
from api.schemas.submissions import IdempotencyHeaders
from api.schemas.webhooks import (
    DeliveryPageSchema,
    DeliverySchema,
    SecretWebhookSchema,
    WebhookChangeSchema,
    WebhookPageSchema,
    WebhookRequestSchema,
    WebhookSchema,
)
from api.submissions import RequestKey, replay_headers
from common.errors import (
    Conflict,
    Gone,
    IdempotencyMismatch,
    Invalid,
    TooLarge,
    UnknownDelivery,
    UnknownWebhook,
    UnsupportedMedia,
)
from common.moments import moment_of
from core.domain.access.roles import Verb
from core.domain.submissions.stored_documents import load_document
from core.domain.webhooks.delivery_outcomes import DeliveryState, WebhookState
from core.services.webhooks.webhooks import NewWebhook, WebhookChanges, Webhooks
from core.store.webhook_deliveries import DeliveryRow
from core.store.webhooks import WebhookRow

blueprint = Blueprint(
    "webhooks", __name__, url_prefix="/v1/webhooks", description="Addresses that are told of events, signed."
)

_BODY_ERRORS = [Invalid, TooLarge, UnsupportedMedia]
_DELIVERY = Success(schema=DeliverySchema, plain=True, status=202, description="It is sent within seconds.")


class _WebhookBody(msgspec.Struct):
    """A request as its schema has accepted it."""

    url: str
    types: list[str]
    labels: dict[str, str] = {}
    description: str = ""


class _WebhookChangeBody(msgspec.Struct):
    """Changes as their schema has accepted them."""

    url: str | None = None
    types: list[str] | None = None
    labels: dict[str, str] | None = None
    description: str | None = None
    state: WebhookState | None = None


class _WebhookListQuery(msgspec.Struct):
    """The query of a list as its schema has accepted it."""

    limit: int = 50
    after: str | None = None


def services() -> Webhooks:
    """Return the service of webhooks."""
    return context().operations.webhooks


@blueprint.operation(
    "GET", Success(schema=WebhookPageSchema, description="A page of webhooks, newest first.", headers=LINK)
)
@blueprint.takes(PageQuery)
def list_webhooks(query: object) -> Response:
    """List the webhooks of a project

    Without their secrets, which are shown once.
    """
    listed = msgspec.convert(query, _WebhookListQuery)
    rows, after = services().page(caller(), after=listed.after, limit=listed.limit)
    return page([_document(row) for row in rows], after)


@blueprint.operation(
    "POST",
    Success(
        status=201,
        schema=SecretWebhookSchema,
        description="The webhook, with its secret.",
        headers={"Location": header("Address of the webhook.")},
        links={"get_webhook": {"id": "$response.body#/id"}, "ping_webhook": {"id": "$response.body#/id"}},
    ),
    body={"application/json": WebhookRequestSchema},
    errors=[Gone, IdempotencyMismatch, *_BODY_ERRORS],
    verb=Verb.ADMINISTER,
)
@blueprint.takes(IdempotencyHeaders, location="headers")
def create_webhook(headers: object) -> Response:
    """Make a webhook

    Events that follow are sent to its address, as CloudEvents, signed with its secret as Standard Webhooks says. The
    secret is shown this once; a request that is repeated with its `Idempotency-Key` has the same answer.
    """
    body = msgspec.convert(validated(WebhookRequestSchema(), json_body()), _WebhookBody)
    asked = NewWebhook(url=body.url, types=body.types, labels=body.labels, description=body.description)
    digest = hashlib.sha256(msgspec.json.encode(body, order="deterministic")).hexdigest()
    key = msgspec.convert(headers, RequestKey).idempotency_key
    try:
        row, secret, replayed = services().create(caller(), asked, key=key, request_digest=f"webhook:{digest}")
    except UnknownWebhook:
        raise Gone("The webhook of this Idempotency-Key has been deleted. Use a new key for a new request.") from None
    location = {"Location": f"/v1/webhooks/{row.id}"}
    return json_response(_document(row) | {"secret": secret}, 201, location | replay_headers(replayed))


@blueprint.operation(
    "GET /<id:id>",
    Success(schema=WebhookSchema, plain=True, description="The webhook."),
    errors=[UnknownWebhook],
)
def get_webhook(id: str) -> dict[str, object]:
    """Get a webhook

    With its state, and since when it fails.
    """
    return _document(services().get(caller(), id))


@blueprint.operation(
    "PATCH /<id:id>",
    Success(schema=WebhookSchema, plain=True, description="The webhook as it is now."),
    body={"application/json": WebhookChangeSchema},
    errors=[UnknownWebhook, *_BODY_ERRORS],
    verb=Verb.ADMINISTER,
)
def patch_webhook(id: str) -> dict[str, object]:
    """Change, pause or activate a webhook

    What waits is sent to the new address. A webhook that was disabled is told again once it is active.
    """
    body = msgspec.convert(validated(WebhookChangeSchema(), json_body()), _WebhookChangeBody)
    changes = WebhookChanges(
        url=body.url, types=body.types, labels=body.labels, description=body.description, state=body.state
    )
    return _document(services().change(caller(), id, changes))


@blueprint.operation(
    "DELETE /<id:id>",
    Success(status=204, description="The webhook is deleted."),
    errors=[UnknownWebhook],
    verb=Verb.ADMINISTER,
)
def delete_webhook(id: str) -> None:
    """Delete a webhook

    With its deliveries: what waits is not sent.
    """
    services().remove(caller(), id)


@blueprint.operation(
    "POST /<id:id>/rotate",
    Success(schema=SecretWebhookSchema, plain=True, description="The webhook, with its new secret."),
    errors=[UnknownWebhook],
    verb=Verb.ADMINISTER,
)
def rotate_webhook(id: str) -> dict[str, object]:
    """Make a new secret of a webhook

    It is shown this once. For a day what is sent is signed with the one before as well.
    """
    row, secret = services().rotate(caller(), id)
    return _document(row) | {"secret": secret}


@blueprint.operation("POST /<id:id>/ping", _DELIVERY, errors=[UnknownWebhook, Conflict], verb=Verb.ADMINISTER)
def ping_webhook(id: str) -> dict[str, object]:
    """Send a test to a webhook

    An event of the type `webhook.ping`, whatever the webhook is told of. Its delivery says how it went.
    """
    return _delivery(services().ping(caller(), id))


@blueprint.operation(
    "GET /<id:id>/deliveries",
    Success(schema=DeliveryPageSchema, description="A page of deliveries, newest first.", headers=LINK),
    errors=[UnknownWebhook],
)
@blueprint.takes(PageQuery)
def list_deliveries(query: object, id: str) -> Response:
    """List the deliveries of a webhook

    Of the last seven days.
    """
    listed = msgspec.convert(query, _WebhookListQuery)
    rows, after = services().deliveries(caller(), id, after=listed.after, limit=listed.limit)
    return page([_delivery(row) for row in rows], after)


@blueprint.operation(
    "POST /<id:id>/deliveries/<id:delivery>/retry",
    _DELIVERY,
    errors=[UnknownWebhook, UnknownDelivery, Conflict],
    verb=Verb.ADMINISTER,
)
def retry_delivery(id: str, delivery: str) -> dict[str, object]:
    """Send a delivery again

    At once, and with all its attempts, whether it was delivered, has failed or waits. The id of the event is the same.
    """
    return _delivery(services().retry(caller(), id, delivery))


def _document(row: WebhookRow) -> dict[str, object]:
    address, query, _ = row.url.partition("?")
    return {
        "id": row.id,
        "url": address + ("?…" if query else ""),
        "description": row.description,
        "types": row.wanted_types,
        "labels": row.wanted_labels,
        "state": row.state,
        "reason": row.reason,
        "failing_since": moment_of(row.failing_since),
        "overfull": bool(row.overfull),
        "delivered": row.delivered,
        "failed": row.failed,
        "former_secret_until": moment_of(row.former_until or None),
        "created_by": row.created_by or None,
        "created_at": moment_of(row.created_at),
    }


def _delivery(row: DeliveryRow) -> dict[str, object]:
    return {
        "id": row.id,
        "event_id": row.event_id,
        "type": row.type,
        "subject": row.subject,
        "data": load_document(row.data),
        "state": row.state,
        "attempts": row.attempts,
        "next_attempt_at": moment_of(row.due_at) if row.state == DeliveryState.WAITING else None,
        "status": row.status,
        "error": row.error,
        "excerpt": row.excerpt,
        "seconds": None if row.milliseconds is None else row.milliseconds / 1000,
        "created_at": moment_of(row.created_at),
        "ended_at": moment_of(row.ended_at),
    }
