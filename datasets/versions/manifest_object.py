"""Manifest in the object store: written as a stream, read from any path on, never held in memory as a whole.

Beside it lies a sparse index: the byte offset of every thousandth line.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from datasets.objectstore.base import ObjectStore
from datasets.versions.manifest import Digest, ManifestEntry, decode, encode, lines

#: Lines of the manifest per line of the index.
STEP = 1000

_index_line = msgspec.json.Decoder(tuple[str, int])


@dataclass(frozen=True, slots=True)
class ManifestSummary:
    """Digest of a manifest, its number of files, and their total bytes."""

    digest: str
    files: int
    bytes: int


def index_of(key: str) -> str:
    """Return the key of a manifest's index."""
    return f"{key}.index"


def write(store: ObjectStore, key: str, entries: Iterable[ManifestEntry]) -> ManifestSummary:
    """Write a manifest and its index; the entries must be sorted by path, each path once."""
    digest = Digest()
    index: list[bytes] = []
    files = size = 0

    def body() -> Iterator[bytes]:
        nonlocal files, size
        offset = 0
        buffered: list[bytes] = []
        buffered_bytes = 0
        for entry in entries:
            line = encode(entry)
            if files % STEP == 0:
                index.append(msgspec.json.encode((entry.path, offset)) + b"\n")
            digest.add(entry)
            files += 1
            size += entry.size
            offset += len(line)
            buffered.append(line)
            buffered_bytes += len(line)
            if buffered_bytes > 256 << 10:
                yield b"".join(buffered)
                buffered, buffered_bytes = [], 0
        yield b"".join(buffered)

    store.put(key, body())
    store.put(index_of(key), index)
    return ManifestSummary(str(digest), files, size)


def read(store: ObjectStore, key: str, after: str | None = None) -> Iterator[ManifestEntry]:
    """Yield the entries in order; with ``after``, those behind that path, without reading most of what precedes it."""
    if after is None:
        yield from map(decode, lines(store.get(key)))
        return
    last_path = after.encode()
    for line in lines(store.get(key, _offset(store, key, last_path))):
        entry = decode(line)
        if entry.path.encode() > last_path:
            yield entry


def find(store: ObjectStore, key: str, path: str) -> ManifestEntry | None:
    """Return the entry of a path, or None."""
    encoded_path = path.encode()
    for line in lines(store.get(key, _offset(store, key, encoded_path))):
        entry = decode(line)
        if (entry_path := entry.path.encode()) >= encoded_path:
            return entry if entry_path == encoded_path else None
    return None


def _offset(store: ObjectStore, key: str, path: bytes) -> int:
    """Return the byte offset in the manifest from which to search for a path."""
    result = 0
    for line in lines(store.get(index_of(key))):
        first_path, offset = _index_line.decode(line)
        if first_path.encode() > path:
            break
        result = offset
    return result
