"""Compressed streams: format detection, incremental decompression, limits against decompression bombs."""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from common.errors import BadArchive, TooLarge

CHUNK = 256 << 10
#: Highest ratio of decompressed to compressed bytes, checked beyond ``SMALL`` decompressed bytes.
RATIO, SMALL = 200, 64 << 20
#: Decompressed bytes of an archive, and memory of the xz decompressor, at most.
LARGEST, MEMORY = 4 << 40, 128 << 20
#: Bytes of read-ahead for a small read, because the next small read follows it.
WINDOW = 1 << 20

_MAGIC: Mapping[bytes, str] = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
}


@dataclass(frozen=True, slots=True)
class ByteSource:
    """Random access to stored bytes: ``read(start, stop)`` yields the bytes of ``[start, stop)`` in chunks."""

    size: int
    read: Callable[[int, int], Iterator[bytes]]

    def part(self, start: int, length: int) -> bytes:
        """Return the bytes of a small part."""
        return b"".join(self.read(start, min(self.size, start + length)))


def read_ahead(source: ByteSource) -> ByteSource:
    """Return a source that reads ahead for small sequential reads, each of which may otherwise be a request."""
    begin, window = 0, b""

    def read(start: int, stop: int) -> Iterator[bytes]:
        nonlocal begin, window
        if stop - start > WINDOW:
            yield from source.read(start, stop)
            return
        if not begin <= start <= stop <= begin + len(window):
            begin, window = start, source.part(start, WINDOW)
        yield window[start - begin : stop - begin]

    return ByteSource(source.size, read)


class Decompressor(Protocol):
    """The common interface of the standard library's decompressors."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def detect_format(source: ByteSource) -> str | None:
    """Detect the format by the first bytes; ``plain`` for an uncompressed tar, None if it is unknown."""
    head = source.part(0, 512)
    for magic, format in _MAGIC.items():
        if head.startswith(magic):
            return format
    return "plain" if len(head) == 512 and (head[257:262] == b"ustar" or not any(head)) else None


def decompressed(
    source: ByteSource, format: str, *, ratio_from: int = SMALL, largest: int = LARGEST, limit: str = ""
) -> Iterator[bytes]:
    """Yield the decompressed bytes; raise BadArchive if the stream is damaged, truncated or a decompression bomb.

    ``largest``: bytes beyond which TooLarge is raised; ``limit`` names that.
    """
    compressed = source.read(0, source.size)
    if format == "plain":
        return compressed
    inflation = InflationLimit(ratio_from, largest, limit)
    if format == "zstd":
        return _zstd(source, inflation)
    return _streams(compressed, _DECOMPRESSORS[format], format, inflation)


class _Gzip:
    """zlib's decompressor with the interface of bz2's and lzma's."""

    def __init__(self) -> None:
        self._object = zlib.decompressobj(wbits=31)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._object.decompress(self._object.unconsumed_tail + data, max(0, max_length))

    @property
    def eof(self) -> bool:
        return self._object.eof

    @property
    def unused_data(self) -> bytes:
        return self._object.unused_data


_DECOMPRESSORS: Mapping[str, Callable[[], Decompressor]] = {
    "gzip": _Gzip,
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY),
}


class InflationLimit:
    """Counts compressed and decompressed bytes, and refuses decompression bombs."""

    def __init__(self, ratio_from: int = SMALL, largest: int = LARGEST, limit: str = "") -> None:
        self.compressed = 0
        self.decompressed = 0
        self._ratio_from = ratio_from
        self._largest = largest
        self._limit = limit

    def out(self, size: int) -> None:
        """Count decompressed bytes; raise TooLarge beyond the limit, BadArchive beyond the ratio."""
        self.decompressed += size
        if self.decompressed > self._largest:
            name = f" ({self._limit})" if self._limit else ""
            raise TooLarge(f"The archive unpacks to more than {self._largest:,} bytes{name}.")
        if self.decompressed > self._ratio_from and self.decompressed > RATIO * self.compressed:
            raise BadArchive(
                f"The archive decompresses to more than {RATIO} times its size; such archives are refused."
            )


def _streams(
    compressed: Iterator[bytes], make: Callable[[], Decompressor], format: str, limit: InflationLimit
) -> Iterator[bytes]:
    """Decompress concatenated streams, which gzip, bzip2 and xz allow; zeros at the end are padding."""
    decompressor = make()
    started = False
    for data in compressed:
        limit.compressed += len(data)
        while data or started:
            if not started and not (data := data.lstrip(b"\0")):
                break
            started = True
            try:  # around nothing else: an OSError of the source is not a fault of the archive
                piece = decompressor.decompress(data, CHUNK)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, MemoryError) as error:
                raise BadArchive(f"The {format} stream is damaged: {error}.") from None
            limit.out(len(piece))
            if piece:
                yield piece
            data = b""
            if decompressor.eof:
                data, decompressor, started = decompressor.unused_data, make(), False
            elif len(piece) < CHUNK:
                break  # it needs more input
    if started:
        raise BadArchive(f"The {format} stream is truncated. Upload it again.")


class _SourceFile(io.RawIOBase):
    """A byte source as a sequential file object, for pyarrow."""

    def __init__(self, source: ByteSource, limit: InflationLimit) -> None:
        self._chunks = source.read(0, source.size)
        self._rest = b""
        self._limit = limit

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._rest:
            self._rest = next(self._chunks, b"")
            self._limit.compressed += len(self._rest)
        data, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return data


def _zstd(source: ByteSource, limit: InflationLimit) -> Iterator[bytes]:
    import pyarrow  # imported late, because only zstd archives need it

    try:
        with pyarrow.CompressedInputStream(pyarrow.PythonFile(_SourceFile(source, limit), mode="r"), "zstd") as stream:
            while piece := stream.read(CHUNK):
                limit.out(len(piece))
                yield piece
    except (OSError, pyarrow.ArrowException) as error:
        raise BadArchive(f"The zstd stream is damaged or truncated: {error}.") from None
