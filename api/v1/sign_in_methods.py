"""Routes /v1/users/{user}/sign-in-methods: the password, the passkeys and the identity providers of a user."""

from collections.abc import Mapping

import msgspec

from api.blueprint import Blueprint, Success
from api.body import json_body, validated
from api.context import caller, sign_in_services
from api.schemas.sign_in import (
    InvitationSchema,
    NewPasskeySchema,
    NewPasswordSchema,
    PasskeyQuestionSchema,
    PasskeySchema,
    UserSignInMethodsSchema,
)
from api.v1.sign_in import PasskeyAnswer, origin
from common.errors import (
    AccountsOff,
    Invalid,
    NotPermitted,
    SignInRefused,
    TooLarge,
    UnknownPasskey,
    UnknownProvider,
    UnknownUser,
    UnsupportedMedia,
)
from common.moments import moment_of
from core.domain.access.roles import Verb
from core.store.sign_ins import PasskeyRow, ProvidedUserRow

blueprint = Blueprint("sign_in_methods", __name__, url_prefix="/v1", description="The ways in which users sign in.")

_ERRORS = [AccountsOff, NotPermitted, UnknownUser]
_BODY_ERRORS = [Invalid, TooLarge, UnsupportedMedia, *_ERRORS]


class _NewPassword(msgspec.Struct):
    """A password to set, as its schema has accepted it."""

    password: str
    current: str


def _passkey_document(row: PasskeyRow) -> dict[str, object]:
    used_at = moment_of(row.used_at)
    return {"id": row.id, "name": row.name, "created_at": moment_of(row.created_at), "used_at": used_at}


def _provided_document(row: ProvidedUserRow) -> dict[str, object]:
    return {"provider": row.provider, "subject": row.subject, "read_at": moment_of(row.read_at)}


@blueprint.operation(
    "GET /users/<name:user>/sign-in-methods",
    Success(schema=UserSignInMethodsSchema, plain=True, description="The ways to sign in."),
    errors=_ERRORS,
    verb=None,
)
def get_sign_in_methods(user: str) -> dict[str, object]:
    """Show how a user signs in

    Oneself, or for an operator any user.
    """
    known = sign_in_services().sign_in_methods.of_user(caller(), user)
    described = {"passkeys": [_passkey_document(row) for row in known.passkeys]}
    return described | {"password": known.password, "providers": [_provided_document(row) for row in known.providers]}


@blueprint.operation(
    "PUT /users/<name:user>/password",
    Success(status=204, description="The password is set."),
    body={"application/json": NewPasswordSchema},
    errors=_BODY_ERRORS,
    verb=None,
)
def put_password(user: str) -> None:
    """Set one's own password

    It takes the place of the one before. Sessions go on: end those that are not yours.
    """
    body = msgspec.convert(validated(NewPasswordSchema(), json_body()), _NewPassword)
    sign_in_services().sign_in_methods.set_password(caller(), user, body.password, body.current)


@blueprint.operation(
    "DELETE /users/<name:user>/password",
    Success(status=204, description="There is no password."),
    errors=_ERRORS,
    verb=None,
)
def delete_password(user: str) -> None:
    """Remove a password

    One's own, or for an operator that of any user.
    """
    sign_in_services().sign_in_methods.drop_password(caller(), user)


@blueprint.operation(
    "POST /users/<name:user>/passkeys/question",
    Success(schema=PasskeyQuestionSchema, plain=True, description="What the browser is asked."),
    errors=[Invalid, SignInRefused, *_ERRORS],
    verb=None,
)
def ask_for_new_passkey(user: str) -> Mapping[str, object]:
    """Begin to make a passkey

    For oneself, in the browser that is to keep it (W3C WebAuthn).
    """
    asked = sign_in_services().sign_in_methods.ask_passkey(caller(), user, origin())
    return {"ticket": asked.ticket, "options": asked.options}


@blueprint.operation(
    "POST /users/<name:user>/passkeys",
    Success(status=201, schema=PasskeySchema, plain=True, description="The passkey."),
    body={"application/json": NewPasskeySchema},
    errors=[SignInRefused, *_BODY_ERRORS],
    verb=None,
)
def create_passkey(user: str) -> dict[str, object]:
    """Keep a passkey that a browser has made

    From then on its user signs in with it, in each browser that has it.
    """
    answer = msgspec.convert(validated(NewPasskeySchema(), json_body()), PasskeyAnswer)
    made = (answer.ticket, answer.credential)
    return _passkey_document(
        sign_in_services().sign_in_methods.add_passkey(caller(), user, origin(), answer.name, made)
    )


@blueprint.operation(
    "DELETE /users/<name:user>/passkeys/<passkey>",
    Success(status=204, description="The passkey is removed."),
    errors=[UnknownPasskey, *_ERRORS],
    verb=None,
)
def delete_passkey(user: str, passkey: str) -> None:
    """Remove a passkey

    One's own, or for an operator that of any user.
    """
    sign_in_services().sign_in_methods.drop_passkey(caller(), user, passkey)


@blueprint.operation(
    "DELETE /users/<name:user>/providers/<name:provider>",
    Success(status=204, description="The user is nobody at this provider."),
    errors=[UnknownProvider, *_ERRORS],
    verb=None,
)
def delete_provided_user(user: str, provider: str) -> None:
    """Part a user from his person at an identity provider

    What its groups gave him ends. One's own, or for an operator that of any user.
    """
    sign_in_services().sign_in_methods.drop_provider(caller(), user, provider)


@blueprint.operation(
    "POST /users/<name:user>/invitation",
    Success(status=201, schema=InvitationSchema, plain=True, description="The invitation, which is shown this once."),
    errors=_ERRORS,
    verb=Verb.OPERATE,
)
def invite_again(user: str) -> dict[str, object]:
    """Invite a user again

    For who has lost his passkey or his password. An invitation that was made before is void.
    """
    return {"user": user, "invitation": sign_in_services().sign_in_methods.invite_again(caller(), user)}
