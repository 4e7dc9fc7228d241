"""Passkeys: key pairs that a person's device keeps, and that only this host name can use (W3C WebAuthn Level 3)."""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

import msgspec
import webauthn
from webauthn.helpers import base64url_to_bytes, bytes_to_base64url
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialCreationOptions,
    PublicKeyCredentialDescriptor,
    PublicKeyCredentialRequestOptions,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from common.errors import Invalid, Unauthorized

#: Bytes of a challenge.
_CHALLENGE_BYTES = 32
_REFUSAL = "This passkey was not accepted. Try again, or sign in another way."


@dataclass(frozen=True, slots=True)
class PasskeyChallenge:
    """Question to a browser, as JSON for `PublicKeyCredential.parse...OptionsFromJSON`, and what its answer has."""

    options: Mapping[str, object]
    challenge: str


@dataclass(frozen=True, slots=True)
class Passkey:
    """A passkey: its id (base64url), its public key (COSE) and how often it was used, if its device counts that."""

    id: str
    public_key: bytes
    sign_count: int


class _NamedCredential(msgspec.Struct):
    """The answer of a browser's authenticator, as far as it names a passkey."""

    id: str = ""


def id_of(credential: Mapping[str, object]) -> str:
    """Return the id that a browser's answer names; empty if it names none."""
    try:
        return msgspec.convert(dict(credential), _NamedCredential).id
    except msgspec.ValidationError:
        return ""


def relying_party(origin: str) -> str:
    """Return the host name of an origin. Raise Invalid for one that passkeys are not for."""
    host = origin.partition("://")[2].rpartition("]")[0] + "]" if "[" in origin else origin.partition("://")[2]
    host = host.partition(":")[0] if not host.startswith("[") else host
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        pass
    else:
        raise Invalid("Passkeys belong to a host name, not to an address of numbers: open this page as `localhost`.")
    if origin.startswith("http:") and host != "localhost":
        raise Invalid("Browsers have passkeys on pages with https, and on `localhost`. Open this page so.")
    return host


def registration(origin: str, user: str, known: Collection[str]) -> PasskeyChallenge:
    """Return what a browser is asked in order to make a passkey; ``known``: ids of those that the user has."""
    challenge = secrets.token_bytes(_CHALLENGE_BYTES)
    options = webauthn.generate_registration_options(
        rp_id=relying_party(origin),
        rp_name="Windtunnel",
        user_name=user,
        user_id=user.encode(),
        challenge=challenge,
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.REQUIRED, user_verification=UserVerificationRequirement.REQUIRED
        ),
        exclude_credentials=[PublicKeyCredentialDescriptor(id=base64url_to_bytes(id)) for id in known],
    )
    return _challenge_of(options, challenge)


def verify_registration(origin: str, challenge: str, credential: Mapping[str, object]) -> Passkey:
    """Return the passkey that a browser has made. Raise Invalid."""
    try:
        verified = webauthn.verify_registration_response(
            credential=dict(credential),
            expected_challenge=base64url_to_bytes(challenge),
            expected_rp_id=relying_party(origin),
            expected_origin=origin,
            require_user_verification=True,
        )
    except (WebAuthnException, ValueError, KeyError, TypeError) as error:
        raise Invalid(f"The passkey was not accepted: {error}. Try again.") from None
    return Passkey(bytes_to_base64url(verified.credential_id), verified.credential_public_key, verified.sign_count)


def authentication(origin: str) -> PasskeyChallenge:
    """Return what a browser is asked in order to sign in with any passkey that it has for this host."""
    challenge = secrets.token_bytes(_CHALLENGE_BYTES)
    options = webauthn.generate_authentication_options(
        rp_id=relying_party(origin), challenge=challenge, user_verification=UserVerificationRequirement.REQUIRED
    )
    return _challenge_of(options, challenge)


def verify_authentication(origin: str, challenge: str, credential: Mapping[str, object], known: Passkey) -> int:
    """Return how often a passkey was used, with this time, if it has signed the challenge. Raise Unauthorized."""
    try:
        verified = webauthn.verify_authentication_response(
            credential=dict(credential),
            expected_challenge=base64url_to_bytes(challenge),
            expected_rp_id=relying_party(origin),
            expected_origin=origin,
            credential_public_key=known.public_key,
            credential_current_sign_count=known.sign_count,
            require_user_verification=True,
        )
    except (WebAuthnException, ValueError, KeyError, TypeError):
        raise Unauthorized(_REFUSAL) from None
    return verified.new_sign_count


def _challenge_of(
    options: PublicKeyCredentialCreationOptions | PublicKeyCredentialRequestOptions, challenge: bytes
) -> PasskeyChallenge:
    return PasskeyChallenge(msgspec.json.decode(webauthn.options_to_json(options)), bytes_to_base64url(challenge))
