"""Bytes that are given whole and right, or not to their end: a store's disk may have flipped some."""

import hashlib
from collections.abc import Iterable, Iterator

from errors import Corrupt


def verified(chunks: Iterable[bytes], digest: str, name: str) -> Iterator[bytes]:
    """Yield a whole content, its last chunk only if all of it has the ``digest``; raise Corrupt before that if not."""
    hasher = hashlib.sha256()
    last = b""
    for chunk in chunks:
        hasher.update(chunk)
        if last:
            yield last
        last = chunk
    if f"sha256:{hasher.hexdigest()}" != digest:
        raise Corrupt(f"What is stored of {name} is not what was brought: it was damaged. Bring it again.")
    if last:
        yield last
