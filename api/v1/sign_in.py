"""Routes /v1/sign-in: by password, passkey, invitation or identity provider to a session, and of devices to a token."""

from collections.abc import Mapping

import msgspec
from flask import Response, request

from api.blueprint import Blueprint, Success, header, json_response
from api.body import json_body, validated
from api.context import caller, client_address, context, identity, sign_in_services
from api.credentials import BROWSER_COOKIE, TICKET_COOKIE, cookie_of, set_browser, set_cookie, set_ticket
from api.schemas.sign_in import (
    DeviceAnswerSchema,
    DeviceCodeSchema,
    DeviceCodesSchema,
    DeviceTokenSchema,
    InvitationSignInSchema,
    NewDeviceSchema,
    OpenedSessionSchema,
    PasskeyAnswerSchema,
    PasskeyQuestionSchema,
    PasswordSignInSchema,
    ProviderAnswerSchema,
    ProviderQuestionSchema,
    ProviderSignInSchema,
    SignInWaysSchema,
    WaitingDeviceSchema,
)
from api.v1.session import secure
from common.errors import (
    AccountsOff,
    BadRequest,
    Invalid,
    NotPermitted,
    ProviderUnavailable,
    SignInRefused,
    TooLarge,
    TooManyPasswords,
    Unauthorized,
    UnknownDevice,
    UnknownProvider,
    UnsupportedMedia,
)
from common.moments import moment_of
from core.services.access.device_sign_ins import CODE_LIFE, INTERVAL, shown_code
from core.services.access.provider_sign_ins import ProviderAnswer
from core.services.access.sign_ins import OpenedSession

blueprint = Blueprint("sign_in", __name__, url_prefix="/v1", description="Sign-in of people and of their programs.")

_ERRORS = [AccountsOff, Invalid, TooLarge, UnsupportedMedia]
_SESSION_HEADER = {"Set-Cookie": header("The session cookie: `HttpOnly`, `SameSite=Strict`, and `Secure` over https.")}
_SESSION = Success(status=201, schema=OpenedSessionSchema, plain=True, headers=_SESSION_HEADER)
_QUESTION = Success(schema=PasskeyQuestionSchema, plain=True, description="What the browser is asked.")


class PasskeyAnswer(msgspec.Struct):
    """The answer of an authenticator, as its schema has accepted it."""

    ticket: str
    credential: dict[str, object]
    name: str = ""


class _PasswordSignInBody(msgspec.Struct):
    """A user and his password, as their schema has accepted them."""

    user: str
    password: str


class _InvitationSignInBody(msgspec.Struct):
    """A user and his invitation, as their schema has accepted them."""

    user: str
    invitation: str


class _NewDeviceBody(msgspec.Struct):
    """A program that asks to be signed in, as its schema has accepted it."""

    client: str


class _DeviceCodeBody(msgspec.Struct):
    """The code of a program, as its schema has accepted it."""

    device_code: str


class _DeviceAnswerBody(msgspec.Struct):
    """A person's answer, as its schema has accepted it."""

    approve: bool


class _ProviderSignIn(msgspec.Struct):
    """A sign-in with a provider, as its schema has accepted it."""

    next: str
    user: str | None = None
    invitation: str | None = None


class _ProviderParameters(msgspec.Struct):
    """The parameters of a provider's answer, as their schema has accepted them."""

    state: str
    code: str | None = None
    iss: str | None = None
    error: str | None = None


def origin() -> str:
    """Return the origin of the page that this request comes from, which was checked; of a program, this server's."""
    return request.headers.get("Origin") or request.host_url.rstrip("/")


def session_response(session: OpenedSession, *, ended: bool = False, **members: object) -> Response:
    """Answer with a session that has begun; ``ended``: the ticket of this browser is used up."""
    response = json_response({"user": session.user} | members, 201)
    response.headers.add("Set-Cookie", set_cookie(session.session, secure=secure()))
    if session.browser:
        response.headers.add("Set-Cookie", set_browser(session.browser, secure=secure()))
    if ended:
        response.headers.add("Set-Cookie", set_ticket("", secure=secure()))
    return response


@blueprint.operation(
    "GET /sign-in", Success(schema=SignInWaysSchema, plain=True, description="The ways to sign in."), verb=None
)
def get_sign_in_ways() -> Mapping[str, object]:
    """List the ways to sign in

    Whether there are passwords, passkeys and codes for programs, and the identity providers. Needs no token.
    """
    sign_in = context().sign_in
    offered = sign_in.provider_sign_ins.offers() if sign_in is not None else []
    people = dict.fromkeys(("accounts", "password", "passkey", "device"), sign_in is not None)
    providers = [{"name": one.name, "title": one.shown} for one in offered]
    return people | {"token": not context().identification.open_to_all, "providers": providers}


@blueprint.operation(
    "POST /sign-in/password",
    _SESSION,
    body={"application/json": PasswordSignInSchema},
    errors=[SignInRefused, TooManyPasswords, Unauthorized, *_ERRORS],
    verb=None,
)
def sign_in_with_password() -> Response:
    """Sign in with a password

    After ten wrong passwords of a user, one is checked every half minute; a browser that has signed in as this user
    before is not held up by those of others.
    """
    body = msgspec.convert(validated(PasswordSignInSchema(), json_body()), _PasswordSignInBody)
    browser = cookie_of(request.headers.get("Cookie", ""), BROWSER_COOKIE)
    return session_response(sign_in_services().sign_ins.by_password(body.user, body.password, browser))


@blueprint.operation(
    "POST /sign-in/invitation",
    _SESSION,
    body={"application/json": InvitationSignInSchema},
    errors=[SignInRefused, Unauthorized, *_ERRORS],
    verb=None,
)
def sign_in_with_invitation() -> Response:
    """Sign in with an invitation

    It can be used once: set a password or make a passkey next, in the session that begins.
    """
    body = msgspec.convert(validated(InvitationSignInSchema(), json_body()), _InvitationSignInBody)
    return session_response(sign_in_services().sign_ins.by_invitation(body.user, body.invitation))


@blueprint.operation("POST /sign-in/passkey/question", _QUESTION, errors=[SignInRefused, *_ERRORS], verb=None)
def ask_for_passkey() -> Mapping[str, object]:
    """Begin a sign-in with a passkey

    The browser shows those that it has for this host name (W3C WebAuthn).
    """
    asked = sign_in_services().sign_ins.ask_passkey(origin())
    return {"ticket": asked.ticket, "options": asked.options}


@blueprint.operation(
    "POST /sign-in/passkey",
    _SESSION,
    body={"application/json": PasskeyAnswerSchema},
    errors=[SignInRefused, Unauthorized, *_ERRORS],
    verb=None,
)
def sign_in_with_passkey() -> Response:
    """Sign in with a passkey

    The browser's answer is signed by the passkey, which belongs to this host name. A ticket is answered once.
    """
    answer = msgspec.convert(validated(PasskeyAnswerSchema(), json_body()), PasskeyAnswer)
    return session_response(sign_in_services().sign_ins.by_passkey(origin(), answer.ticket, answer.credential))


@blueprint.operation(
    "POST /sign-in/providers/<name:provider>",
    Success(status=201, schema=ProviderQuestionSchema, plain=True, headers=_SESSION_HEADER),
    body={"application/json": ProviderSignInSchema},
    errors=[NotPermitted, ProviderUnavailable, SignInRefused, Unauthorized, UnknownProvider, *_ERRORS],
    verb=None,
)
def begin_provider_sign_in(provider: str) -> Response:
    """Begin a sign-in with an identity provider

    The browser is led to the address of the answer, and comes back to `/sign-in/callback/{provider}` of this server.
    Of who is signed in, or has an invitation, the person at the provider is another way to sign in from then on.
    """
    body = msgspec.convert(validated(ProviderSignInSchema(), json_body()), _ProviderSignIn)
    who = identity().user
    if (body.user is None) is not (body.invitation is None):
        raise BadRequest("`user` and `invitation` belong together: send both, or neither.")
    if who:
        sign_in_services().sign_in_methods.of_user(caller(), who)  # a limited token makes no way to sign in
    asked = sign_in_services().provider_sign_ins.begin(
        provider,
        f"{origin()}/sign-in/callback/{provider}",
        user=body.user or who,
        invitation=body.invitation or "",
        next_page=body.next,
    )
    return json_response({"address": asked.address}, 201, {"Set-Cookie": set_ticket(asked.ticket, secure=secure())})


@blueprint.operation(
    "POST /sign-in/providers/<name:provider>/answer",
    _SESSION,
    body={"application/json": ProviderAnswerSchema},
    errors=[ProviderUnavailable, SignInRefused, Unauthorized, UnknownProvider, *_ERRORS],
    verb=None,
)
def end_provider_sign_in(provider: str) -> Response:
    """Sign in with the answer of an identity provider

    The cookie of the beginning has to come with it: an answer that another browser has got is worth nothing.
    """
    sent = msgspec.convert(validated(ProviderAnswerSchema(), json_body()), _ProviderParameters)
    ticket = cookie_of(request.headers.get("Cookie", ""), TICKET_COOKIE)
    session, next_page = sign_in_services().provider_sign_ins.finish(
        provider, ticket, ProviderAnswer(sent.state, sent.code, sent.iss, sent.error)
    )
    return session_response(session, ended=True, next=next_page)


@blueprint.operation(
    "POST /sign-in/devices",
    Success(status=201, schema=DeviceCodesSchema, plain=True, description="The codes."),
    body={"application/json": NewDeviceSchema},
    errors=[SignInRefused, *_ERRORS],
    verb=None,
)
def begin_device_sign_in() -> dict[str, object]:
    """Begin the sign-in of a program

    It shows the code, which a person approves who is signed in on the page (RFC 8628).
    """
    body = msgspec.convert(validated(NewDeviceSchema(), json_body()), _NewDeviceBody)
    codes = sign_in_services().device_sign_ins.begin(body.client, client_address())
    page, code = f"{origin()}/device", shown_code(codes.user_code)
    return {
        "device_code": codes.device_code,
        "user_code": code,
        "verification_uri": page,
        "verification_uri_complete": f"{page}?code={code}",
        "expires_in": int(CODE_LIFE),
        "interval": INTERVAL,
    }


@blueprint.operation(
    "POST /sign-in/devices/tokens",
    Success(schema=DeviceTokenSchema, plain=True, description="What has become of it."),
    body={"application/json": DeviceCodeSchema},
    errors=[UnknownDevice, *_ERRORS],
    verb=None,
)
def fetch_device_token() -> dict[str, object]:
    """Ask for the token of a program

    Once it is approved, the answer has a personal token. Asked again, the answer has another one in its place.
    """
    body = msgspec.convert(validated(DeviceCodeSchema(), json_body()), _DeviceCodeBody)
    state, user, token = sign_in_services().device_sign_ins.fetch(body.device_code)
    return {"state": state.value, "user": user or None, "token": token or None}


@blueprint.operation(
    "GET /sign-in/devices/<name:code>",
    Success(schema=WaitingDeviceSchema, plain=True, description="The program that waits."),
    errors=[AccountsOff, UnknownDevice],
    verb=None,
)
def get_waiting_device(code: str) -> dict[str, object]:
    """Show which program waits for an answer

    What it says of itself, and where its request came from: approve it only if it is yours.
    """
    row = sign_in_services().device_sign_ins.waiting_device(caller(), code)
    until = moment_of(row.expires_at)
    return {"code": shown_code(row.code), "client": row.client, "address": row.address, "expires_at": until}


@blueprint.operation(
    "POST /sign-in/devices/<name:code>",
    Success(status=204, description="It is answered."),
    body={"application/json": DeviceAnswerSchema},
    errors=[NotPermitted, UnknownDevice, *_ERRORS],
    verb=None,
)
def answer_device(code: str) -> None:
    """Approve or refuse a program

    An approved program gets a personal token of who has approved it.
    """
    body = msgspec.convert(validated(DeviceAnswerSchema(), json_body()), _DeviceAnswerBody)
    sign_in_services().device_sign_ins.answer(caller(), code, approve=body.approve)
