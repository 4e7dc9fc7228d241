"""Downloads: content of a known size that is read as a whole or by byte range."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Download:
    """Content; ``read(start, stop)`` yields a range of it. ``etag`` is a strong validator (RFC 9110, section 8.8.1)."""

    size: int
    media_type: str
    etag: str
    read: Callable[[int, int], Iterator[bytes]]
