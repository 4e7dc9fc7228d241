"""Authenticator port: checks bearer tokens of service accounts."""

from dataclasses import dataclass
from typing import Protocol


class Unavailable(Exception):
    """The authenticator cannot tell now whether the token is valid."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Service account of a token; ``expires`` in seconds since 1970, None if unknown."""

    namespace: str
    account: str
    expires: float | None = None


class Authenticator(Protocol):
    """Checks tokens. A call may take seconds; calls come from several threads."""

    def authenticate(self, token: str) -> Identity | None:
        """Return the token's identity, None if it is not valid *for this service*; raise Unavailable if unknown.

        A token is not valid if it is for another audience, has expired, belongs to a deleted account or pod, or names
        no service account. The token appears in no log and no error.
        """


def service_account(username: object) -> tuple[str, str] | None:
    """Return namespace and name of ``system:serviceaccount:<namespace>:<name>``, None for any other user name."""
    parts = username.split(":") if isinstance(username, str) else []
    if len(parts) == 4 and parts[:2] == ["system", "serviceaccount"] and parts[2] and parts[3]:
        return parts[2], parts[3]
    return None
