"""Checksum stream: passes content on and withholds its end unless the digest is right (a disk may flip bits)."""

import hashlib
from collections.abc import Iterable, Iterator

from common.errors import Corrupt


def verified(chunks: Iterable[bytes], digest: str, name: str) -> Iterator[bytes]:
    """Yield content; raise Corrupt instead of yielding the last chunk if its digest is not ``digest``."""
    hasher = hashlib.sha256()
    last = b""
    for chunk in chunks:
        hasher.update(chunk)
        if last:
            yield last
        last = chunk
    if f"sha256:{hasher.hexdigest()}" != digest:
        raise Corrupt(f"The stored bytes of {name} are damaged: their digest has changed. Upload it again.")
    if last:
        yield last
