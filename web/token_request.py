"""Token that a form asks for, as the body of a request of the API, and the fields of the forms of accounts."""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from flask import request

from web.api_client import Refused
from web.form_fields import number_of

#: Roles in a project, from the least to the most.
ROLES = ("viewer", "submitter", "maintainer")
#: Verbs to which a token may be limited, in the words of the page.
VERBS: Mapping[str, str] = {
    "read": "read",
    "upload": "upload",
    "submit": "submit",
    "change": "change what is its own",
    "change-others": "change what is everybody's",
    "administer": "decide about members and tokens",
}
DAY_SECONDS = 86_400


class AccountFields(msgspec.Struct, frozen=True):
    """The fields of the forms of accounts; each form has some of them."""

    user: str = ""
    name: str = ""
    role: str = ""
    days: str = ""
    service: str = ""
    models: str = ""
    datasets: str = ""
    token: str = ""
    operator: str = ""
    thing: str = ""
    reader: str = ""
    to: str = ""
    here: str = "/"
    next: str | None = None


class SignInFields(msgspec.Struct, frozen=True):
    """The fields of the forms of sign-in; each form has some of them."""

    user: str = ""
    password: str = ""
    current: str = ""
    token: str = ""
    invitation: str = ""
    passkey: str = ""
    provider: str = ""
    code: str = ""
    answer: str = ""
    done: str = ""
    next: str = "/"


def sign_in_fields() -> SignInFields:
    """Return the fields of the form of this request, or of a page's query, without spaces around all but passwords."""
    sent = request.form if request.method == "POST" else request.args
    fields = {name: value if name in ("password", "current") else value.strip() for name, value in sent.items()}
    return msgspec.convert(fields, SignInFields)


def account_fields() -> AccountFields:
    """Return the fields of the form of this request, without spaces around them."""
    fields = {name: value.strip() for name, value in request.form.items()}
    return msgspec.convert(fields, AccountFields)


def token_request() -> dict[str, object]:
    """Return the body of the request for a token. Raise Refused for days that are not a number."""
    fields = account_fields()
    body: dict[str, object] = {"name": fields.name}
    body |= {name: value for name, value in (("role", fields.role), ("service", fields.service)) if value}
    days = number_of(fields.days)
    if isinstance(days, str) or (days is not None and days * DAY_SECONDS < 1):
        detail = "Write in how many days the token expires as a number, such as 90, or nothing."
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, {"title": "A field cannot be read", "detail": detail})
    if days is not None:
        body["expires_in"] = round(days * DAY_SECONDS)
    limits = {
        "verbs": request.form.getlist("verbs"),
        "models": fields.models.split(),
        "datasets": fields.datasets.split(),
    }
    if scope := {name: values for name, values in limits.items() if values}:
        body["scope"] = scope
    return body
