"""The port to whoever knows bearer tokens."""

from dataclasses import dataclass
from typing import Protocol


class Unavailable(Exception):
    """Whether the token is good cannot be told now."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose token it is; ``expires`` in seconds since 1970, None if that is not known."""

    namespace: str
    account: str
    expires: float | None = None


class TokenReviewer(Protocol):
    """Knows which tokens are good. May take seconds; is asked from several threads."""

    def review(self, token: str) -> Identity | None:
        """Return whose token it is, None if it is not good *for this service*; raise Unavailable if nobody can say.

        A token for another audience, past its end, of an account or pod that is gone, or that names no service account
        is not good. The token appears in no log and no error.
        """


def service_account(username: object) -> tuple[str, str] | None:
    """Return the namespace and name in ``system:serviceaccount:<namespace>:<name>``, None if it is no such name."""
    parts = username.split(":") if isinstance(username, str) else []
    if len(parts) == 4 and parts[:2] == ["system", "serviceaccount"] and parts[2] and parts[3]:
        return parts[2], parts[3]
    return None
