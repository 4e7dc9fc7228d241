"""Zip reader (APPNOTE.TXT 6.3.10): validates the central directory first; stored and deflated files only.

The sizes in the directory serve only as limits; decompressed bytes are counted again.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from datasets.versions import file_names
from datasets.versions.archives.streams import CHUNK, RATIO, SMALL, ByteSource, read_ahead
from datasets.versions.packs import SourceFile
from errors import BadArchive

#: Entries, and bytes of the central directory, at most.
ENTRIES, DIRECTORY = 100_000, 16 << 20

_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY = struct.Struct("<4s4xHHHHIIIHHHHHII")
_LOCAL = struct.Struct("<4s22xHH")
_FULL = 0xFFFFFFFF
_ENCRYPTED = 1
_KIND, _REGULAR, _DIRECTORY = 0o170000, 0o100000, 0o040000


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A file's entry in the central directory; sizes in bytes; ``at`` is the offset of its local header."""

    path: str
    deflated: bool
    crc32: int
    packed: int
    size: int
    at: int


def files(source: ByteSource, *, ratio_from: int = SMALL) -> Iterator[SourceFile]:
    """Yield the files of a zip in the order of their data."""
    source = read_ahead(source)  # members are read in the order of their offsets
    for member in members(source, ratio_from=ratio_from):
        yield SourceFile(member.path, _bytes_of(source, member))


def members(source: ByteSource, *, ratio_from: int = SMALL) -> list[ZipMember]:
    """Return the directory's files by offset; raise BadArchive with the reason if any entry is not allowed."""
    count, size, start = _directory(source)
    entries = sorted(_parse(source.at(start, size), count), key=lambda member: member.at)
    end = 0
    for member in entries:
        if member.at < end:
            raise BadArchive(f"The zip's entry {file_names.printable(member.path)} overlaps another entry.")
        end = member.at + 30 + member.packed
    if end > start:
        raise BadArchive("The zip's directory overlaps its data. Create it again.")
    whole, packed = sum(member.size for member in entries), sum(member.packed for member in entries)
    if whole > ratio_from and whole > RATIO * packed:
        raise BadArchive(f"The zip decompresses to more than {RATIO} times its size; such archives are refused.")
    return entries


def _directory(source: ByteSource) -> tuple[int, int, int]:
    """Find the central directory; return its number of entries, size in bytes and offset."""
    base = max(0, source.size - 65_557)
    tail = source.at(base, 65_557)
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < 22:
        raise BadArchive("The zip has no directory at its end: it is truncated. Upload it again.")
    count, size, start = struct.unpack_from("<HII", tail, at + 10)
    if count == 0xFFFF or _FULL in (size, start):
        if at < 20 or tail[at - 20 : at - 16] != _LOCATOR:
            raise BadArchive("The zip's directory has no zip64 locator.")
        record = source.at(struct.unpack_from("<Q", tail, at - 12)[0], 56)
        if len(record) < 56 or record[:4] != _END64:
            raise BadArchive("The zip's directory is not at its declared offset.")
        count, size, start = struct.unpack_from("<QQQ", record, 32)
    if count > ENTRIES or size > DIRECTORY:
        raise BadArchive(f"The zip lists {count:,} entries; the limit is {ENTRIES:,} (in 16 MB). Upload a tar instead.")
    if start + size > base + at:
        raise BadArchive("The zip's directory is not at its declared offset.")
    return count, size, start


def _parse(directory: bytes, count: int) -> Iterator[ZipMember]:
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > len(directory) or directory[at : at + 4] != b"PK\x01\x02":
            raise BadArchive("The zip's directory is damaged. Create it again.")
        fields = _ENTRY.unpack_from(directory, at)
        (
            _,
            flags,
            method,
            _,
            _,
            crc32,
            packed,
            size,
            name_length,
            extra_length,
            comment_length,
            _,
            _,
            attributes,
            offset,
        ) = fields
        at += _ENTRY.size
        raw, extra = directory[at : at + name_length], directory[at + name_length : at + name_length + extra_length]
        at += name_length + extra_length + comment_length
        size, packed, offset = _zip64(extra, size, packed, offset)
        if raw.endswith(b"/") and size == 0:
            file_names.check_folder(raw)
            continue
        path = file_names.validated(raw)
        if attributes >> 16 & _KIND not in {0, _REGULAR}:
            raise BadArchive(
                f"The zip's entry {file_names.printable(path)} is a link or a device; only files are allowed."
            )
        if flags & _ENCRYPTED:
            raise BadArchive(f"The zip's entry {file_names.printable(path)} is encrypted.")
        if method not in {0, 8}:
            raise BadArchive(f"The zip's entry {file_names.printable(path)} is neither stored nor deflated.")
        yield ZipMember(path, method == 8, crc32, packed, size, offset)


def _zip64(extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
    """Return the values with those that are 0xFFFFFFFF replaced from the zip64 extra field, which has only those."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            numbers = iter(struct.unpack_from(f"<{min(length, len(extra) - at - 4) // 8}Q", extra, at + 4))
            size, packed, offset = (
                next(numbers, value) if value == _FULL else value for value in (size, packed, offset)
            )
        at += 4 + length
    return size, packed, offset


def _bytes_of(source: ByteSource, member: ZipMember) -> Iterator[bytes]:
    """Yield a member's bytes; raise BadArchive if size or CRC differ from the directory's."""
    header = source.at(member.at, 30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise BadArchive(
            f"The zip's entry {file_names.printable(member.path)} has no local header at its declared offset."
        )
    _, name_length, extra_length = _LOCAL.unpack(header)
    start = member.at + 30 + name_length + extra_length
    if start + member.packed > source.size:
        raise BadArchive(f"The zip's entry {file_names.printable(member.path)} extends beyond the end of the file.")
    packed = source.read(start, start + member.packed)
    crc = size = 0
    for piece in _inflate(packed, member) if member.deflated else packed:
        crc = zlib.crc32(piece, crc)
        size += len(piece)
        if size > member.size:
            break
        yield piece
    if size != member.size or crc != member.crc32:
        raise BadArchive(
            f"The zip's entry {file_names.printable(member.path)} does not match its size or CRC in the directory."
        )


def _inflate(packed: Iterator[bytes], member: ZipMember) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(wbits=-15)
    try:
        for data in packed:
            while data:
                yield decompressor.decompress(data, CHUNK)
                data = decompressor.unconsumed_tail
        while piece := decompressor.decompress(decompressor.unconsumed_tail, CHUNK):
            yield piece
    except zlib.error as error:
        raise BadArchive(f"The zip's entry {file_names.printable(member.path)} is damaged: {error}.") from None
