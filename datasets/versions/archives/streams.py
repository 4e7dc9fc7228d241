"""Bytes that wait to be unpacked: told by how they begin, inflated piece by piece, and counted as they come out."""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from errors import BadArchive

CHUNK = 256 << 10
#: How much larger than packed a whole may come out, once it is larger than ``SMALL`` bytes.
RATIO, SMALL = 200, 64 << 20
#: Bytes that unpacking may bring forth in all, and that xz may hold.
LARGEST, MEMORY = 4 << 40, 128 << 20
#: How much is read for a small part, for the next one lies behind it.
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
class Blob:
    """Bytes that lie somewhere: ``read(start, stop)`` yields a part of them."""

    size: int
    read: Callable[[int, int], Iterator[bytes]]

    def at(self, start: int, length: int) -> bytes:
        """Return a small part, whole."""
        return b"".join(self.read(start, min(self.size, start + length)))


def near(blob: Blob) -> Blob:
    """Return a blob whose small parts, asked for one after the other, cost a read for many: each may be a request."""
    begin, held = 0, b""

    def read(start: int, stop: int) -> Iterator[bytes]:
        nonlocal begin, held
        if stop - start > WINDOW:
            yield from blob.read(start, stop)
            return
        if not begin <= start <= stop <= begin + len(held):
            begin, held = start, blob.at(start, WINDOW)
        yield held[start - begin : stop - begin]

    return Blob(blob.size, read)


class Inflater(Protocol):
    """What the standard library's decompressors have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def sniffed(blob: Blob) -> str | None:
    """Tell a kind of archive or packing from its first bytes; ``plain`` for a tar that is not packed."""
    head = blob.at(0, 512)
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    return "plain" if len(head) == 512 and (head[257:262] == b"ustar" or not any(head)) else None


def inflated(blob: Blob, kind: str, *, ratio_from: int = SMALL) -> Iterator[bytes]:
    """Yield what a packed blob unpacks to; raise BadArchive where it is damaged, cut off or a bomb."""
    packed = blob.read(0, blob.size)
    if kind == "plain":
        return packed
    meter = Meter(ratio_from)
    return _zstd(blob, meter) if kind == "zstd" else _members(packed, _INFLATERS[kind], kind, meter)


class _Gzip:
    """zlib's object with the face of the other two."""

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


_INFLATERS: Mapping[str, Callable[[], Inflater]] = {
    "gzip": _Gzip,
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY),
}


class Meter:
    """Counts what goes in and comes out, and stops a bomb."""

    def __init__(self, ratio_from: int = SMALL) -> None:
        self.packed = 0
        self.whole = 0
        self._ratio_from = ratio_from

    def out(self, size: int) -> None:
        """Count bytes that came out."""
        self.whole += size
        if self.whole > LARGEST or (self.whole > self._ratio_from and self.whole > RATIO * self.packed):
            raise BadArchive(f"The archive unpacks to more than {RATIO} times its size; that is not taken.")


def _members(packed: Iterator[bytes], make: Callable[[], Inflater], kind: str, meter: Meter) -> Iterator[bytes]:
    """Inflate one packed stream after the other, as gzip and its kin allow; zeros at the end are padding."""
    inflater = make()
    begun = False
    try:
        for data in packed:
            meter.packed += len(data)
            while data or begun:
                if not begun and not (data := data.lstrip(b"\0")):
                    break
                begun = True
                piece = inflater.decompress(data, CHUNK)
                meter.out(len(piece))
                if piece:
                    yield piece
                data = b""
                if inflater.eof:
                    data, inflater, begun = inflater.unused_data, make(), False
                elif len(piece) < CHUNK:
                    break  # it wants more
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
        raise BadArchive(f"The {kind} stream is damaged: {error}.") from None
    if begun:
        raise BadArchive(f"The {kind} stream ends too early: it was cut off. Send it again.")


class _Reader(io.RawIOBase):
    """A blob as a file to be read from front to back."""

    def __init__(self, blob: Blob, meter: Meter) -> None:
        self._chunks = blob.read(0, blob.size)
        self._rest = b""
        self._meter = meter

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._rest:
            self._rest = next(self._chunks, b"")
            self._meter.packed += len(self._rest)
        taken, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return taken


def _zstd(blob: Blob, meter: Meter) -> Iterator[bytes]:
    import pyarrow  # only those who send zstd wait for it

    try:
        with pyarrow.CompressedInputStream(pyarrow.PythonFile(_Reader(blob, meter), mode="r"), "zstd") as stream:
            while piece := stream.read(CHUNK):
                meter.out(len(piece))
                yield piece
    except OSError as error:
        raise BadArchive(f"The zstd stream is damaged or cut off: {error}.") from None
