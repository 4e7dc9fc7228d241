"""Packs: objects with many concatenated files each, so that a million small files are few objects."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from datasets.versions.manifest import ManifestEntry

#: Bytes after which a pack is closed; a larger file makes a larger pack, because files are not split.
TARGET = 64 << 20
#: Files in a pack at most, whatever their sizes: their entries are held in memory until the pack is durable.
MOST = 50_000


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file being registered; its bytes are read once, before the next file is taken from the iterator."""

    path: str
    chunks: Iterable[bytes]


def pack(
    files: Iterable[SourceFile],
    put: Callable[[str, Iterable[bytes]], object],
    new_key: Callable[[], str],
    *,
    target: int = TARGET,
) -> Iterator[ManifestEntry]:
    """Write files into packs and yield an entry for each file, once the pack that holds it is durable."""
    remaining = iter(files)
    file = next(remaining, None)
    while file is not None:
        key = new_key()
        entries: list[ManifestEntry] = []

        def body(key: str = key, entries: list[ManifestEntry] = entries) -> Iterator[bytes]:
            nonlocal file
            offset = 0
            while file is not None and offset < target and len(entries) < MOST:
                hasher = hashlib.sha256()
                start = offset
                for chunk in file.chunks:
                    hasher.update(chunk)
                    offset += len(chunk)
                    yield chunk
                digest = "sha256:" + hasher.hexdigest()
                entries.append(
                    ManifestEntry(
                        path=file.path, size=offset - start, digest=digest, source=f"store:{key}", offset=start
                    )
                )
                file = next(remaining, None)

        put(key, body())
        yield from entries
