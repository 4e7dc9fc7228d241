"""What can be downloaded: bytes of a known size that are read whole or by byte range."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Download:
    """Bytes; ``read(start, stop)`` yields a part of them. ``etag`` is strong: equal tags, equal bytes."""

    size: int
    media_type: str
    etag: str
    read: Callable[[int, int], Iterator[bytes]]
