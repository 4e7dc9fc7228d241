"""Packs: files one after the other in objects of a useful size, so that a million small files are few objects."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from datasets.versions.manifest import Entry

#: Bytes after which a pack is closed; a larger file makes a larger pack, for no file is cut.
TARGET = 64 << 20
#: Files in a pack, whatever their sizes: what is known of them is held until the pack is durable.
MOST = 50_000


@dataclass(frozen=True, slots=True)
class File:
    """A file on its way in; its bytes are read once, before the next file is asked for."""

    path: str
    chunks: Iterable[bytes]


def pack(
    files: Iterable[File],
    put: Callable[[str, Iterable[bytes]], object],
    new_key: Callable[[], str],
    *,
    target: int = TARGET,
) -> Iterator[Entry]:
    """Write files into packs and yield an entry for each, once the pack that holds it is durable."""
    waiting = iter(files)
    first = next(waiting, None)
    while first is not None:
        key = new_key()
        entries: list[Entry] = []

        def body(key: str = key, entries: list[Entry] = entries) -> Iterator[bytes]:
            nonlocal first
            offset = 0
            while first is not None and offset < target and len(entries) < MOST:
                hasher = hashlib.sha256()
                start = offset
                for chunk in first.chunks:
                    hasher.update(chunk)
                    offset += len(chunk)
                    yield chunk
                digest = "sha256:" + hasher.hexdigest()
                entries.append(Entry(first.path, offset - start, digest, f"store:{key}", start))
                first = next(waiting, None)

        put(key, body())
        yield from entries
