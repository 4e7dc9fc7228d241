"""The object-store port: immutable objects under keys, written atomically."""

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class ObjectStore(Protocol):
    """Stores bytes under keys. A key consists of parts of ``[A-Za-z0-9._-]`` joined by ``/``.

    Every method raises StoreUnavailable if the store does not respond, or responds inconsistently.
    """

    def put(self, key: str, chunks: Iterable[bytes]) -> int:
        """Store an object and return its size in bytes. On return it is durable; partial objects are never visible.

        A key is immutable: writing it again must be with the same bytes, and has no effect.
        """

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield up to ``length`` bytes from ``start`` on. Raise NotFound before the first chunk."""

    def size(self, key: str) -> int:
        """Return the object's size in bytes, or raise NotFound."""

    def delete(self, key: str) -> None:
        """Remove an object; idempotent."""

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with ``prefix``, sorted."""

    def link(self, key: str, *, seconds: int, verb: str = "GET", filename: str | None = None) -> str | None:
        """Return a presigned URL to ``GET`` or ``PUT`` this object for ``seconds``.

        None if only this platform can reach the store. ``filename``: the name under which a browser saves the object.
        """


def check_key(key: str) -> str:
    """Return a key; raise ValueError if it is invalid."""
    if not all(_PART.fullmatch(part) for part in key.split("/")):
        raise ValueError(f"not an object key: {key!r}")
    return key
