"""Identifiers that sort by time, tokens, and digests."""

import hashlib
import secrets
import threading
from datetime import datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case: valid in DNS labels


_newest = 0
_newest_lock = threading.Lock()


def new_id(now: datetime) -> str:
    """Return a new identifier of 26 characters that sorts by time: milliseconds and 80 random bits (ULID layout).

    Within a process each is greater than those before, also within a millisecond or when the clock steps back.
    """
    global _newest
    number = int(now.timestamp() * 1000) << 80 | secrets.randbits(80)
    with _newest_lock:
        number = _newest = max(number, _newest + 1 + secrets.randbits(64))
    return _text(number)


def first_id(moment: datetime) -> str:
    """Return the identifier that sorts before all that were made at a time or later."""
    return _text(int(moment.timestamp() * 1000) << 80)


def _text(number: int) -> str:
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -5, -5))


def new_token() -> str:
    """Return a new secret of 256 random bits."""
    return secrets.token_urlsafe(32)


def digest_of(data: bytes) -> str:
    """Return the digest of bytes, ``sha256:<hex>``."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def hashed(token: str) -> str:
    """Return the hash under which a token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()
