"""Pages of webhooks: what the project is told of, forms that make and change webhooks, and the deliveries of one."""

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus

import msgspec
from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from web.acting_project import visitor
from web.api_client import Refused, api, path_of
from web.refusals import FormAnswer, answer_form, refusal_of

blueprint = Blueprint("webhooks", __name__, url_prefix="/operations/webhooks")

#: Types of events, in the words of the form.
EVENT_TYPES: Mapping[str, str] = {
    "simulation.ended": "a simulation has ended",
    "simulation.failed": "a simulation has failed",
    "comparison.decided": "a model of a comparison has its verdict",
    "comparison.ended": "a comparison has ended",
    "comparison.failed": "a comparison has failed",
    "pipeline.ended": "a pipeline has ended",
    "pipeline.failed": "a pipeline has failed",
    "quota.reached": "80 % of a quota are used",
}
#: Webhooks of the page, which are all that a project may have, and deliveries of a page.
MOST_WEBHOOKS, PAGE_LENGTH = 100, 50


class ShownWebhook(msgspec.Struct, frozen=True):
    """A webhook as the pages show it."""

    id: str
    url: str
    description: str
    types: list[str]
    labels: dict[str, str]
    state: str
    reason: str | None
    failing_since: str | None
    overfull: bool
    delivered: int
    failed: int


class ShownWebhooks(msgspec.Struct, frozen=True):
    """The webhooks of a project."""

    items: list[ShownWebhook]


class ShownDelivery(msgspec.Struct, frozen=True):
    """A delivery as its page shows it."""

    id: str
    type: str
    subject: str
    state: str
    attempts: int
    next_attempt_at: str | None
    status: int | None
    error: str | None
    excerpt: str
    created_at: str


class ShownDeliveries(msgspec.Struct, frozen=True):
    """A page of deliveries."""

    items: list[ShownDelivery]
    next: str | None = None


class DeliveryQuery(msgspec.Struct, frozen=True):
    """The query of the page of deliveries: where the list goes on."""

    after: str = ""


class WebhookFields(msgspec.Struct, frozen=True):
    """The fields of the forms of webhooks; each form has some of them."""

    url: str = ""
    description: str = ""
    label: str = ""
    webhook: str = ""
    delivery: str = ""
    state: str = ""


def may_change() -> bool:
    """Return whether the API accepts changes of webhooks; without accounts it does of everybody."""
    known = visitor()
    return known is None or known.may("administer")


def webhook_fields() -> WebhookFields:
    """Return the fields of the form of this request, without spaces around them."""
    return msgspec.convert({name: value.strip() for name, value in request.form.items()}, WebhookFields)


@blueprint.get("")
def show() -> str:
    """List webhooks."""
    return page()


@blueprint.post("")
def create() -> tuple[str, int]:
    """Make a webhook, and show its secret this once."""
    fields = webhook_fields()
    body: dict[str, object] = {"url": fields.url, "types": request.form.getlist("types")}
    body["description"] = fields.description
    name, equals, value = fields.label.partition("=")
    try:
        if fields.label and not equals:
            detail = "Write a label as NAME=VALUE, such as suite=nightly, or nothing."
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, {"title": "A field cannot be read", "detail": detail})
        made = api().post("/v1/webhooks", body | {"labels": {name: value} if equals else {}}).json()
    except Refused as error:
        problem, status = refusal_of(error)
        return page("webhook", problem), status
    return page(made=made), HTTPStatus.CREATED


@blueprint.post("/state")
def set_state() -> FormAnswer:
    """Pause a webhook, or let it be told again."""
    fields = webhook_fields()
    act = partial(api().send, "PATCH", path_of("webhooks", fields.webhook), body={"state": fields.state})
    return answer_form(act, partial(page, "webhooks"), "webhooks.show")


@blueprint.post("/remove")
def remove() -> FormAnswer:
    """Delete a webhook."""
    path = path_of("webhooks", webhook_fields().webhook)
    return answer_form(lambda: api().delete(path), partial(page, "webhooks"), "webhooks.show")


@blueprint.post("/rotate")
def rotate() -> tuple[str, int]:
    """Make a new secret, and show it this once."""
    try:
        made = api().post(path_of("webhooks", webhook_fields().webhook, "rotate")).json()
    except Refused as error:
        problem, status = refusal_of(error)
        return page("webhooks", problem), status
    return page(made=made), HTTPStatus.CREATED


@blueprint.post("/ping")
def ping() -> FormAnswer:
    """Send a test, and show the deliveries."""
    id = webhook_fields().webhook
    return _answer_delivery(id, path_of("webhooks", id, "ping"))


@blueprint.post("/retry")
def retry() -> FormAnswer:
    """Send a delivery again."""
    fields = webhook_fields()
    return _answer_delivery(fields.webhook, path_of("webhooks", fields.webhook, "deliveries", fields.delivery, "retry"))


def _answer_delivery(id: str, path: str) -> FormAnswer:
    try:
        api().post(path)
    except Refused as error:
        problem, status = refusal_of(error)
        return page("webhooks", problem), status
    answer: Response = redirect(url_for("webhooks.deliveries", id=id), HTTPStatus.SEE_OTHER)
    return answer


@blueprint.get("/<id>")
def deliveries(id: str) -> str:
    """List the deliveries of a webhook, newest first."""
    webhook = msgspec.convert(api().get(path_of("webhooks", id)), ShownWebhook)
    path = path_of("webhooks", id, "deliveries")
    asked = msgspec.convert(request.args.to_dict(), DeliveryQuery)
    found = msgspec.convert(api().get(path, after=asked.after, limit=PAGE_LENGTH), ShownDeliveries)
    return render_template(
        "operations/deliveries.html",
        webhook=webhook,
        deliveries=found.items,
        following=found.next,
        administers=may_change(),
    )


def page(form: str = "", problem: Mapping[str, object] | None = None, made: Mapping[str, object] | None = None) -> str:
    """Return the page; ``form``: which was refused, with the ``problem``; ``made``: a webhook with its secret."""
    return render_template(
        "operations/webhooks.html",
        webhooks=msgspec.convert(api().get("/v1/webhooks", limit=MOST_WEBHOOKS), ShownWebhooks).items,
        types=EVENT_TYPES,
        administers=may_change(),
        refused=form,
        problem=problem,
        made=made,
        fields=request.form if form else {},
        chosen=request.form.getlist("types") if form else [],
    )
