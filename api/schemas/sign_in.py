"""Schemas of sign-ins: the ways to show who one is, what browsers and devices are asked, and what begins with it."""

from marshmallow import fields

from api.schemas.accounts import LABEL
from api.schemas.fields import Flag, Open, Strict, Text
from api.schemas.members import boolean, documents, integer, moment, string

#: Longest password, code of a provider, and answer of a browser's authenticator.
_LONGEST_PASSWORD, _LONGEST_CODE = 1000, 10_000


class ProviderSchema(Open):
    """An identity provider."""

    name = string("Its name.")
    title = string("What people read.")


class SignInWaysSchema(Open):
    """How one signs in to this platform."""

    accounts = boolean("Whether there are users; otherwise there is one token, or none.")
    token = boolean("Whether a token begins a session.")
    password = boolean("Whether users may have passwords.")
    passkey = boolean("Whether users may have passkeys.")
    device = boolean("Whether programs sign in with a code that is approved on the page.")
    providers = documents(ProviderSchema, "The identity providers.")


class PasswordSignInSchema(Strict):
    """A user and his password."""

    user = Text(LABEL, longest=40, required=True, description="Name of the user.")
    password = Text(longest=_LONGEST_PASSWORD, required=True, description="His password.")


class InvitationSignInSchema(Strict):
    """A user and his invitation."""

    user = Text(LABEL, longest=40, required=True, description="Name of the user.")
    invitation = Text(longest=100, required=True, description="His invitation, which is used up.")


class OpenedSessionSchema(Open):
    """A session that has begun, whose cookie is in the header."""

    user = string("Who is signed in.")
    next = string("The page that was wanted before the sign-in.", required=False)


class PasskeyQuestionSchema(Open):
    """Question to a browser."""

    ticket = string("Sent back with the answer, once.")
    options = fields.Dict(
        keys=fields.String(),
        required=True,
        metadata={
            "description": "For `PublicKeyCredential.parseRequestOptionsFromJSON` or `parseCreationOptionsFromJSON`."
        },
    )


class PasskeyAnswerSchema(Strict):
    """The answer of a browser's authenticator."""

    ticket = Text(longest=100, required=True, description="The ticket of the question.")
    credential = fields.Dict(
        keys=fields.String(), required=True, metadata={"description": "`toJSON()` of the browser's credential."}
    )


class NewPasskeySchema(PasskeyAnswerSchema):
    """A passkey that a browser has made."""

    name = Text(longest=100, required=True, description="What its user calls it, such as the device that has it.")


class ProviderSignInSchema(Strict):
    """A sign-in with an identity provider to begin."""

    user = Text(LABEL, longest=40, description="With `invitation`: the user who is this person from then on.")
    invitation = Text(longest=100, description="The invitation of this user, which is used up.")
    next = Text(longest=2000, load_default="/", description="Path of the page that is wanted.")


class ProviderQuestionSchema(Open):
    """Where a browser is led."""

    address = string("Address of the identity provider. The cookie in the header is sent with the answer.")


class ProviderAnswerSchema(Strict):
    """The parameters of the address to which the identity provider has led the browser back."""

    state = Text(longest=1000, required=True, description="The `state` that was sent.")
    code = Text(longest=_LONGEST_CODE, description="The `code`.")
    iss = Text(longest=1000, description="The issuer, where it names itself (RFC 9207).")
    error = Text(longest=1000, description="The error, in place of a code.")


class NewDeviceSchema(Strict):
    """A program that asks to be signed in."""

    client = Text(longest=100, required=True, description="What the person reads of it: the program and the machine.")


class DeviceCodesSchema(Open):
    """Codes of a program: the one that it shows, and the one with which it asks (RFC 8628)."""

    device_code = string("With it the program asks for its token; it is not shown.")
    user_code = string("The code that the person enters.")
    verification_uri = string("Where the person enters it.")
    verification_uri_complete = string("The same with the code in it.")
    expires_in = integer("Seconds for which the codes are valid.")
    interval = integer("Number of seconds between two questions.")


class DeviceCodeSchema(Strict):
    """The code by which a program asks."""

    device_code = Text(longest=100, required=True, description="The code that the program was given.")


class DeviceTokenSchema(Open):
    """State of the sign-in of a program."""

    state = string("Whether a person has answered.", enum=["waiting", "approved", "refused"])
    user = string("Whose token it is; null until it is approved.", allow_none=True)
    token = string("Shown once: a personal token, valid for 90 days; null until it is approved.", allow_none=True)


class WaitingDeviceSchema(Open):
    """A program that waits for a person."""

    code = string("The code that it shows.")
    client = string("What it says of itself.")
    address = string("Where its request came from.")
    expires_at = moment("Until when it waits.")


class DeviceAnswerSchema(Strict):
    """A person's answer."""

    approve = Flag(required=True, description="Whether the program gets a token of the person who answers.")


class PasskeySchema(Open):
    """A passkey."""

    id = string("Id, by which it is removed.")
    name = string("What its user calls it.")
    created_at = moment("When it was made.")
    used_at = moment("When it was used last; null: never.", allow_none=True)


class ProvidedUserSchema(Open):
    """Who a user is at an identity provider."""

    provider = string("Name of the identity provider.")
    subject = string("What it calls him.")
    read_at = moment("When his groups were read last.")


class UserSignInMethodsSchema(Open):
    """How a user signs in."""

    password = boolean("Whether there is a password.")
    passkeys = documents(PasskeySchema, "The passkeys, oldest first.")
    providers = documents(ProvidedUserSchema, "Who he is at identity providers.")


class NewPasswordSchema(Strict):
    """A password to set."""

    password = Text(
        shortest=12, longest=_LONGEST_PASSWORD, required=True, description="The password: 12 characters at least."
    )
    current = Text(longest=_LONGEST_PASSWORD, load_default="", description="The one before, if there is one.")


class InvitationSchema(Open):
    """An invitation."""

    user = string("Name of the user.")
    invitation = string("Shown once. Valid for a week; one that was made before is void.")
