"""Static authenticator: tokens from the configuration, for a laptop and for tests."""

import hashlib
from collections.abc import Mapping

from datasets.scs.authenticators.base import Identity


class StaticAuthenticator:
    """Compares digests, so that the time of a comparison reveals nothing about a token."""

    def __init__(self, tokens: Mapping[str, Identity]) -> None:
        self._identities = {_digest(token): identity for token, identity in tokens.items()}

    def authenticate(self, token: str) -> Identity | None:
        """Return the identity of a configured token."""
        return self._identities.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
