"""A version's manifest as it lies in the object store: written as a stream, read from any path on, never held whole.

Beside it lies a sparse index: where every thousandth line begins.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from datasets.objectstore.base import ObjectStore
from datasets.versions.manifest import Digest, Entry, decode, encode, lines

#: Lines between two that the index knows.
STEP = 1000

_index_line = msgspec.json.Decoder(tuple[str, int])


@dataclass(frozen=True, slots=True)
class Written:
    """What a manifest holds: its digest, how many files, and how many bytes in all."""

    digest: str
    files: int
    bytes: int


def index_of(key: str) -> str:
    """Return the key of a manifest's index."""
    return f"{key}.index"


def write(store: ObjectStore, key: str, entries: Iterable[Entry]) -> Written:
    """Write a manifest and its index; the entries come sorted by path, each path once."""
    digest = Digest()
    index: list[bytes] = []
    files = size = 0

    def body() -> Iterator[bytes]:
        nonlocal files, size
        at = 0
        gathered: list[bytes] = []
        held = 0
        for entry in entries:
            line = encode(entry)
            if files % STEP == 0:
                index.append(msgspec.json.encode((entry.path, at)) + b"\n")
            digest.add(entry)
            files += 1
            size += entry.size
            at += len(line)
            gathered.append(line)
            held += len(line)
            if held > 256 << 10:
                yield b"".join(gathered)
                gathered, held = [], 0
        yield b"".join(gathered)

    store.put(key, body())
    store.put(index_of(key), index)
    return Written(str(digest), files, size)


def read(store: ObjectStore, key: str, after: str | None = None) -> Iterator[Entry]:
    """Yield the entries in order; those behind ``after`` only, without reading what comes long before it."""
    if after is None:
        yield from map(decode, lines(store.get(key)))
        return
    behind = after.encode()
    for line in lines(store.get(key, _offset(store, key, behind))):
        entry = decode(line)
        if entry.path.encode() > behind:
            yield entry


def find(store: ObjectStore, key: str, path: str) -> Entry | None:
    """Return the entry of a path."""
    wanted = path.encode()
    for line in lines(store.get(key, _offset(store, key, wanted))):
        entry = decode(line)
        if (found := entry.path.encode()) >= wanted:
            return entry if found == wanted else None
    return None


def _offset(store: ObjectStore, key: str, path: bytes) -> int:
    """Return where to begin to look for a path."""
    at = 0
    for line in lines(store.get(index_of(key))):
        begins, offset = _index_line.decode(line)
        if begins.encode() > path:
            break
        at = offset
    return at
