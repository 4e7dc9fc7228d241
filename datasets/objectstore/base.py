"""The object-store port: immutable objects under keys, written whole or not at all."""

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class ObjectStore(Protocol):
    """Keeps bytes. A key is made of parts of ``[A-Za-z0-9._-]`` joined by ``/``.

    Every method raises StoreUnavailable if the store does not answer, or answers what cannot be true.
    """

    def put(self, key: str, chunks: Iterable[bytes]) -> int:
        """Store an object and return its size. On return it is durable; half an object is never seen.

        A key is written once: the same key again is for the same bytes, and harmless.
        """

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from ``start`` on. Raise NotFound before the first chunk if there is no such object."""

    def size(self, key: str) -> int:
        """Return the object's size in bytes, or raise NotFound."""

    def delete(self, key: str) -> None:
        """Remove an object; not an error if it is already gone."""

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with ``prefix``, sorted."""

    def link(self, key: str, *, seconds: int, verb: str = "GET", filename: str | None = None) -> str | None:
        """Return a URL that lets whoever has it ``GET`` or ``PUT`` this one object, for so long.

        None where the store cannot be reached by others than this platform. ``filename`` is what a browser saves as.
        """


def check_key(key: str) -> str:
    """Return a key that is one; raise ValueError for anything else."""
    if not all(_PART.fullmatch(part) for part in key.split("/")):
        raise ValueError(f"not an object key: {key!r}")
    return key
