"""Pages of sign-in: by password, passkey, identity provider, invitation or token; and of signing out."""

from collections.abc import Mapping
from http import HTTPStatus

import httpx
import msgspec
from flask import Blueprint, Response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from web.acting_project import COOKIE
from web.api_client import Refused, api, path_of
from web.paths import SIGN_IN, is_page
from web.token_request import SignInFields, sign_in_fields

blueprint = Blueprint("session", __name__)

#: What the page says of a session that does not begin, by the status of the API's answer.
WRONG_TOKEN = "This is not the token of the server, nor that of a user: it may be revoked, or have expired."


class OfferedProvider(msgspec.Struct, frozen=True):
    """An identity provider on the page."""

    name: str
    title: str


class PageSignInWays(msgspec.Struct, frozen=True):
    """How one signs in here."""

    accounts: bool
    providers: list[OfferedProvider]


class ProviderAddress(msgspec.Struct, frozen=True):
    """Address of an identity provider."""

    address: str


class BegunSession(msgspec.Struct, frozen=True):
    """Session that has begun, with the page that was wanted."""

    next: str = "/"


def target(address: str) -> str:
    """Return the page to show after a session has begun: one of this server, whatever the query says."""
    ours = address.startswith("/") and "\\" not in address and is_page(address.partition("?")[0])
    return address if ours else url_for("simulations.index")


def ways() -> PageSignInWays:
    """Return how one signs in here."""
    return msgspec.convert(api().get("/v1/sign-in"), PageSignInWays)


def with_cookies(response: AnyResponse, answer: httpx.Response) -> AnyResponse:
    """Return a response with the cookies of an answer of the API."""
    for cookie in answer.headers.get_list("Set-Cookie"):
        response.headers.add("Set-Cookie", cookie)
    return response


def sign_in_page(next_address: str, problem: str | None = None, field: str = "token") -> str:
    """Return the page; ``field``: the one that the problem is about."""
    return render_template(
        "sign-in.html", next=next_address, problem=problem, field=field, ways=ways(), user=sign_in_fields().user
    )


@blueprint.get(SIGN_IN)
def sign_in() -> str:
    """Ask who it is."""
    return sign_in_page(target(sign_in_fields().next))


@blueprint.post(SIGN_IN)
def begin() -> AnyResponse | tuple[str, int]:
    """Begin a session if the password, or the token, is right."""
    fields = sign_in_fields()
    address = target(fields.next)
    if fields.user:
        return _begin_with_password(fields, address)
    if not fields.token:
        return sign_in_page(address, "Enter the token."), 422
    if not fields.token.isascii() or not fields.token.isprintable():
        problem = "This is not a valid token: a token has only letters, digits and signs of ASCII."
        return sign_in_page(address, problem), 422
    try:
        answer = api().post("/v1/session", headers={"Authorization": f"Bearer {fields.token}"})
    except Refused as error:
        if error.status != HTTPStatus.UNAUTHORIZED:
            raise
        return sign_in_page(address, WRONG_TOKEN), error.status
    return with_cookies(redirect(address, 303), answer)


def _begin_with_password(fields: SignInFields, address: str) -> AnyResponse | tuple[str, int]:
    try:
        answer = api().post("/v1/sign-in/password", {"user": fields.user, "password": fields.password})
    except Refused as error:
        return sign_in_page(address, str(error), "password"), error.status
    return with_cookies(redirect(address, 303), answer)


@blueprint.post("/sign-in/with/<provider>")
def begin_with_provider(provider: str) -> AnyResponse | tuple[str, int]:
    """Lead to an identity provider.

    By a page that leads on, not by a redirect: the policy of forms allows this server alone.
    """
    fields = sign_in_fields()
    body: dict[str, object] = {"next": target(fields.next)}
    if fields.invitation:
        body |= {"user": fields.user, "invitation": fields.invitation}
    answer = api().post(path_of("sign-in", "providers", provider), body)
    asked = msgspec.json.decode(answer.content, type=ProviderAddress)
    page = render_template("reload.html", address=asked.address)
    return with_cookies(Response(page), answer)


@blueprint.get("/sign-in/callback/<provider>")
def end_with_provider(provider: str) -> AnyResponse | tuple[str, int]:
    """Begin a session with the answer of an identity provider.

    The page is loaded again from this site: the browser does not send a `SameSite=Strict` cookie on a way that began on
    another one.
    """
    body = {name: text for name in ("state", "code", "iss", "error") if (text := request.args.get(name))}
    try:
        answer = api().post(path_of("sign-in", "providers", provider, "answer"), body)
    except Refused as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            return sign_in_page("/", str(error)), error.status
        raise
    page = render_template("reload.html", address=target(msgspec.json.decode(answer.content, type=BegunSession).next))
    return with_cookies(Response(page), answer)


@blueprint.get("/invitation")
def invitation() -> str:
    """Ask a new user for his invitation, which the part of the address after `#` may have."""
    return invitation_page(sign_in_fields().user)


@blueprint.post("/invitation")
def accept() -> AnyResponse | tuple[str, int]:
    """Begin the first session of a user, in which he chooses how to sign in from then on."""
    fields = sign_in_fields()
    try:
        answer = api().post("/v1/sign-in/invitation", {"user": fields.user, "invitation": fields.invitation})
    except Refused as error:
        return invitation_page(fields.user, error.problem), error.status
    return with_cookies(redirect(url_for("sign_in_methods.show"), 303), answer)


def invitation_page(user: str, problem: Mapping[str, object] | None = None) -> str:
    """Return the page of invitations."""
    return render_template("invitation.html", user=user, problem=problem, ways=ways())


@blueprint.post("/sign-out")
def end() -> AnyResponse:
    """End the session."""
    answer = api().delete("/v1/session")
    response = with_cookies(redirect(url_for("session.sign_in"), 303), answer)
    if COOKIE in request.cookies:
        response.delete_cookie(COOKIE)  # the next user of this browser has other projects
    return response
