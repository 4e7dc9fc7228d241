"""What reviewers said lately, kept briefly, so that not every read asks them."""

import hashlib
import secrets
from dataclasses import dataclass

from datasets.scs.authenticators.base import Identity

#: Seconds a yes and a no are believed; a yes at most as long as its token lives.
YES, NO = 60.0, 5.0
#: Verdicts kept; then those that are over go, and if none is, all. And heads that are known; then all go.
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a reviewer said, and until when it is believed."""

    identity: Identity | None
    until: float


class Verdicts:
    """Keyed by digests under a key of the process's own: no token stays in memory for it."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._kept: dict[bytes, Verdict] = {}
        self._heads: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def key(self, token: bytes) -> bytes:
        """Return what stands for a token."""
        return hashlib.blake2b(token, key=self._key, digest_size=16).digest()

    def get(self, key: bytes, now: float) -> Verdict | None:
        """Return a verdict that still holds."""
        found = self._kept.get(key)
        return found if found is not None and found.until > now else None

    def learn(self, head: bytes, key: bytes) -> None:
        """Remember which token's key a plain request's head had, b"" for none. The head is not kept, either."""
        if len(self._heads) >= _MOST:
            self._heads.clear()
        self._heads[self.key(head)] = key

    def known(self, head: bytes) -> bytes | None:
        """Return the key of the token in a head that was learnt, None if it was not."""
        return self._heads.get(self.key(head))

    def keep(self, key: bytes, identity: Identity | None, now: float) -> Verdict:
        """Keep what a reviewer said."""
        until = now + (NO if identity is None else YES)
        if identity is not None and identity.expires is not None:
            until = min(until, max(identity.expires, now + 1.0))  # clocks differ; a verdict holds for its own answer
        if len(self._kept) >= _MOST:
            self._kept = {known: verdict for known, verdict in self._kept.items() if verdict.until > now}
            if len(self._kept) >= _MOST:
                self._kept.clear()
        verdict = self._kept[key] = Verdict(identity, until)
        return verdict
