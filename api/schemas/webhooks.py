"""Schemas of webhooks: requests, webhooks with and without their secret, and deliveries."""

from marshmallow import fields

from api.schemas.fields import LINE, NAME, Choice, ListField, ObjectField, Open, Strict, Text
from api.schemas.members import array, boolean, dictionary, documents, integer, moment, real, string
from api.schemas.pages import PageSchema
from core.domain.webhooks.delivery_outcomes import DeliveryState, WebhookState
from core.domain.webhooks.event_types import MEANINGS, WANTED_TYPES, EventType

_TYPES = "; ".join(f"`{type.value}`: {MEANINGS[type].rstrip('.')}" for type in WANTED_TYPES)
_URL = (
    "Address that events are sent to: http or https, of the public Internet or of a network that the operator allows."
)
_LABELS = (
    "Labels that a simulation, comparison or pipeline must have, with these values. Quotas have none, and are told of."
)
_DESCRIPTION = "What it is for, in one line."


def _types(*, required: bool) -> ListField:
    choices = Choice(*(type.value for type in WANTED_TYPES))
    return ListField(
        choices, required=required, shortest=1, longest=len(WANTED_TYPES), description=f"Types of events. {_TYPES}."
    )


def _labels() -> ObjectField:
    return ObjectField(most=32, keys=Text(NAME, longest=63), values=Text(shortest=0), description=_LABELS)


class WebhookRequestSchema(Strict):
    """A webhook: an address, and what it is told of."""

    url = Text(longest=2000, required=True, description=_URL)
    types = _types(required=True)
    labels = _labels()
    description = Text(LINE, shortest=0, longest=200, description=_DESCRIPTION)


class WebhookChangeSchema(Strict):
    """Changes of a webhook; what is left out stays."""

    url = Text(longest=2000, description=_URL)
    types = _types(required=False)
    labels = _labels()
    description = Text(LINE, shortest=0, longest=200, description=_DESCRIPTION)
    state = Choice(
        WebhookState.ACTIVE.value,
        WebhookState.PAUSED.value,
        description="`paused`: nothing is sent, and no event of that time is kept for it. `active`: it is told again.",
    )


class WebhookSchema(Open):
    """A webhook, without its secret."""

    id = string("Id of the webhook.")
    url = string("Address that events are sent to; what follows its `?` is left out.")
    description = string("What it is for; empty for nothing.")
    types = array(fields.String(), "Types of events that it is told of.")
    labels = dictionary("Labels that what it is told of must have.", fields.String())
    state = string(
        "`active`; `paused` by a person; `disabled` by the platform, because it has only failed for five days, or has"
        " answered 410.",
        enum=[state.value for state in WebhookState],
    )
    reason = string("Why it is disabled; null otherwise.", allow_none=True)
    failing_since = moment("Since when every request has failed; null: the last one was accepted.", allow_none=True)
    overfull = boolean("Whether so much waits that events are not kept for it at present.")
    delivered = integer("Number of requests that were accepted.")
    failed = integer("Number of requests that failed.")
    former_secret_until = moment(
        "Until when the secret before signs as well; null: there is none that does.", allow_none=True
    )
    created_by = string("Who has made it; null if not recorded.", allow_none=True)
    created_at = moment("When it was made.")


class SecretWebhookSchema(WebhookSchema):
    """A webhook with its secret, which is shown this once."""

    secret = string("Secret that signs what is sent, as Standard Webhooks writes it.", example="whsec_MfKQ9r8GKYqrTwjU")


class WebhookPageSchema(PageSchema):
    """A page of webhooks."""

    items = documents(WebhookSchema, "The webhooks, newest first.")


class DeliverySchema(Open):
    """An event for a webhook, and how its delivery went."""

    id = string("Id of the delivery.")
    event_id = string("Id of the event: `id` of the CloudEvent and the header `webhook-id`, the same at each attempt.")
    type = string(
        "Type of the event, before which a CloudEvent has `org.windtunnel.`.", enum=[t.value for t in EventType]
    )
    subject = string("What it is about, as its address below `/v1`.")
    data = dictionary("What it tells.")
    state = string(
        "`waiting` for its next attempt; `delivered`; `failed` after all attempts.",
        enum=[state.value for state in DeliveryState],
    )
    attempts = integer("Number of attempts so far.")
    next_attempt_at = moment("When it is tried next, at the earliest; null: it is not.", allow_none=True)
    status = integer("HTTP status of the last answer; null: there was none.", allow_none=True)
    error = string("Why the last attempt failed; null: it did not.", allow_none=True)
    excerpt = string("Beginning of the last answer that refused it, at most 300 characters; empty for none.")
    seconds = real("Seconds that the last attempt took; null before the first.", allow_none=True)
    created_at = moment("When the event happened.")
    ended_at = moment("When it was delivered or given up; null before.", allow_none=True)


class DeliveryPageSchema(PageSchema):
    """A page of deliveries."""

    items = documents(DeliverySchema, "The deliveries, newest first.")
