"""Tokens that were written into the configuration: for a laptop, and for tests."""

import hashlib
from collections.abc import Mapping

from datasets.scs.authenticators.base import Identity


class StaticReviewer:
    """Compares digests, so that how long a comparison takes says nothing of a token."""

    def __init__(self, tokens: Mapping[str, Identity]) -> None:
        self._known = {_digest(token): identity for token, identity in tokens.items()}

    def review(self, token: str) -> Identity | None:
        """Look the token up."""
        return self._known.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
