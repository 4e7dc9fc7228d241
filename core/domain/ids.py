"""Names of things: identifiers that sort by time, and digests."""

import hashlib
import secrets
from datetime import datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case: fit for DNS labels


def new_id(now: datetime) -> str:
    """Make an identifier of 26 characters that sorts by time (milliseconds, then 80 random bits; the ULID layout)."""
    number = int(now.timestamp() * 1000) << 80 | secrets.randbits(80)
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -5, -5))


def new_token() -> str:
    """Make a secret of 256 random bits."""
    return secrets.token_urlsafe(32)


def digest_of(data: bytes) -> str:
    """Name bytes by their content, ``sha256:<hex>``."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def hashed(token: str) -> str:
    """Return what is kept of a token at rest."""
    return hashlib.sha256(token.encode()).hexdigest()
