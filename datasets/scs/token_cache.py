"""Token cache: recent results of the authenticator, so that it is not called for every read."""

import hashlib
import secrets
from dataclasses import dataclass

from datasets.scs.authenticators.base import Identity

#: Seconds that an accepted and a rejected token are cached; an accepted token at most until it expires.
ACCEPTED_TTL, REJECTED_TTL = 60.0, 5.0
#: Entries, beyond which expired ones are deleted, or else all. And remembered heads, beyond which all are deleted.
_MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class Authentication:
    """Result of an authentication (None: rejected), and its expiry in seconds since 1970."""

    identity: Identity | None
    expires_at: float


class TokenCache:
    """Cache of authentications, keyed by hashes under a random key of the process: it holds no token."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._entries: dict[bytes, Authentication] = {}
        self._heads: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def key(self, token: bytes) -> bytes:
        """Return the keyed hash of a token."""
        return hashlib.blake2b(token, key=self._key, digest_size=16).digest()

    def get(self, key: bytes, now: float) -> Authentication | None:
        """Return the authentication of a token, None if it is unknown or expired."""
        entry = self._entries.get(key)
        return entry if entry is not None and entry.expires_at > now else None

    def remember_head(self, head: bytes, key: bytes) -> None:
        """Remember the token's key for a request head, b"" for no token. Only a hash of the head is kept."""
        if len(self._heads) >= _MAX_ENTRIES:
            self._heads.clear()
        self._heads[self.key(head)] = key

    def token_key_of(self, head: bytes) -> bytes | None:
        """Return the token's key for a remembered head, None if the head is unknown."""
        return self._heads.get(self.key(head))

    def store(self, key: bytes, identity: Identity | None, now: float) -> Authentication:
        """Cache the authenticator's result."""
        expires_at = now + (REJECTED_TTL if identity is None else ACCEPTED_TTL)
        if identity is not None and identity.expires is not None:
            # clocks differ; a result holds at least for the request that asked
            expires_at = min(expires_at, max(identity.expires, now + 1.0))
        if len(self._entries) >= _MAX_ENTRIES:
            self._entries = {known: entry for known, entry in self._entries.items() if entry.expires_at > now}
            if len(self._entries) >= _MAX_ENTRIES:
                self._entries.clear()
        entry = self._entries[key] = Authentication(identity, expires_at)
        return entry
