"""Manifest of a dataset version: a line (JSON array) per file, sorted by path, read and written as a stream."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One file of a dataset version. ``size`` and ``offset`` in bytes.

    ``source`` names the object whose bytes from ``offset`` on are the file: ``store:<key>`` in the platform's own
    object store, or ``s3:<connection>/<bucket>/<key>`` through an operator's connection. ``etag`` is the ETag that the
    object had when it was registered.
    """

    path: str
    size: int
    digest: str
    source: str
    offset: int = 0
    etag: str | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[str, int, str, str, int, str | None])


def encode(entry: ManifestEntry) -> bytes:
    """Return the entry's line, with its line break."""
    return _encoder.encode((entry.path, entry.size, entry.digest, entry.source, entry.offset, entry.etag)) + b"\n"


def decode(line: bytes) -> ManifestEntry:
    """Parse a line; raise msgspec.DecodeError if it is invalid."""
    return ManifestEntry(*_decoder.decode(line))


class Digest:
    """The digest of a version's content, wherever its bytes are stored: of paths, sizes and file digests, in order."""

    def __init__(self) -> None:
        self._hasher = hashlib.sha256()

    def add(self, entry: ManifestEntry) -> None:
        """Add the next entry."""
        self._hasher.update(_encoder.encode((entry.path, entry.size, entry.digest)) + b"\n")

    def __str__(self) -> str:
        return "sha256:" + self._hasher.hexdigest()


def digest_of(entries: Iterable[ManifestEntry]) -> str:
    """Return the digest of a version with these entries."""
    digest = Digest()
    for entry in entries:
        digest.add(entry)
    return str(digest)


def lines(chunks: Iterable[bytes], longest: int | None = None) -> Iterator[bytes]:
    """Split a stream into lines; at most one line and one chunk are held in memory.

    A line of more than ``longest`` bytes is yielded in pieces that are each longer than ``longest``, so that the
    caller can refuse it: the limit for untrusted streams.
    """
    rest = b""
    for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        yield from complete
        if longest is not None and len(rest) > longest:
            yield rest
            rest = b""
    if rest:
        yield rest
