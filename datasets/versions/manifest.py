"""A dataset version's manifest: one line a file, sorted by path, read and written as a stream."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a dataset version. ``size`` and ``offset`` in bytes.

    ``source`` names the object that holds its bytes from ``offset`` on: ``store:<key>`` in the platform's own object
    store, or ``s3:<connection>/<bucket>/<key>`` where an operator's connection leads; ``etag`` is what that object had
    when it was read.
    """

    path: str
    size: int
    digest: str
    source: str
    offset: int = 0
    etag: str | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[str, int, str, str, int, str | None])


def encode(entry: Entry) -> bytes:
    """Return the entry's line, its end included."""
    return _encoder.encode((entry.path, entry.size, entry.digest, entry.source, entry.offset, entry.etag)) + b"\n"


def decode(line: bytes) -> Entry:
    """Read one line; raise msgspec.DecodeError if it is none."""
    return Entry(*_decoder.decode(line))


class Digest:
    """The digest of what a version holds, wherever its bytes lie: of paths, sizes and contents, in order."""

    def __init__(self) -> None:
        self._hasher = hashlib.sha256()

    def add(self, entry: Entry) -> None:
        """Take the next entry."""
        self._hasher.update(_encoder.encode((entry.path, entry.size, entry.digest)) + b"\n")

    def __str__(self) -> str:
        return "sha256:" + self._hasher.hexdigest()


def digest_of(entries: Iterable[Entry]) -> str:
    """Return the digest of a version with these entries."""
    digest = Digest()
    for entry in entries:
        digest.add(entry)
    return str(digest)


def lines(chunks: Iterable[bytes], longest: int | None = None) -> Iterator[bytes]:
    """Cut a stream into lines; at most one line and one chunk are held.

    Of a stranger's stream a line of more than ``longest`` bytes comes in pieces, each still too long: to be refused.
    """
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
        if longest is not None and len(rest) > longest:
            yield rest
            rest = b""
    if rest:
        yield rest
