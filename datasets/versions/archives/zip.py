"""Zip, its directory read by hand before anything is unpacked (APPNOTE.TXT 6.3.10): stored and deflated files.

Sizes that the directory tells are believed as limits only; what comes out is counted again.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from datasets.versions import file_names
from datasets.versions.archives.streams import CHUNK, RATIO, SMALL, Blob, near
from datasets.versions.packs import File
from errors import BadArchive

#: The most entries, and bytes of directory, that are looked at.
ENTRIES, DIRECTORY = 100_000, 16 << 20

_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY = struct.Struct("<4s4xHHHHIIIHHHHHII")
_LOCAL = struct.Struct("<4s22xHH")
_FULL = 0xFFFFFFFF
_ENCRYPTED = 1
_KIND, _REGULAR, _DIRECTORY = 0o170000, 0o100000, 0o040000


@dataclass(frozen=True, slots=True)
class Member:
    """One file as the directory has it; sizes in bytes, ``at`` is where its local header begins."""

    path: str
    deflated: bool
    crc32: int
    packed: int
    size: int
    at: int


def files(blob: Blob, *, ratio_from: int = SMALL) -> Iterator[File]:
    """Yield the files of a zip in the order of their data."""
    blob = near(blob)  # members lie in the order in which they are read
    for member in members(blob, ratio_from=ratio_from):
        yield File(member.path, _bytes_of(blob, member))


def members(blob: Blob, *, ratio_from: int = SMALL) -> list[Member]:
    """Return what the directory lists; raise BadArchive, saying why, if any of it is not to be unpacked."""
    count, size, start = _directory(blob)
    found = sorted(_parse(blob.at(start, size), count), key=lambda member: member.at)
    end = 0
    for member in found:
        if member.at < end:
            raise BadArchive(f"The zip's entry {file_names.shown(member.path)} shares its data with another.")
        end = member.at + 30 + member.packed
    if end > start:
        raise BadArchive("The zip's directory does not fit its data. Pack it again.")
    whole, packed = sum(one.size for one in found), sum(one.packed for one in found)
    if whole > ratio_from and whole > RATIO * packed:
        raise BadArchive(f"The zip unpacks to more than {RATIO} times its size; that is not taken.")
    return found


def _directory(blob: Blob) -> tuple[int, int, int]:
    """Find the directory: how many entries, how many bytes, and where."""
    base = max(0, blob.size - 65_557)
    tail = blob.at(base, 65_557)
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < 22:
        raise BadArchive("The zip has no directory at its end: it was cut off. Send it again.")
    count, size, start = struct.unpack_from("<HII", tail, at + 10)
    if count == 0xFFFF or _FULL in (size, start):
        if at < 20 or tail[at - 20 : at - 16] != _LOCATOR:
            raise BadArchive("The zip's directory does not say how large it is.")
        record = blob.at(struct.unpack_from("<Q", tail, at - 12)[0], 56)
        if len(record) < 56 or record[:4] != _END64:
            raise BadArchive("The zip's directory does not lie where it says.")
        count, size, start = struct.unpack_from("<QQQ", record, 32)
    if count > ENTRIES or size > DIRECTORY:
        raise BadArchive(f"The zip lists {count:,} entries; at most {ENTRIES:,} (in 16 MB) are read. Send a tar.")
    if start + size > base + at:
        raise BadArchive("The zip's directory does not lie where it says.")
    return count, size, start


def _parse(directory: bytes, count: int) -> Iterator[Member]:
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > len(directory) or directory[at : at + 4] != b"PK\x01\x02":
            raise BadArchive("The zip's directory is damaged. Pack it again.")
        fields = _ENTRY.unpack_from(directory, at)
        _, flags, method, _, _, crc32, packed, size, named, extras, remarks, _, _, attributes, offset = fields
        at += _ENTRY.size
        raw, extra = directory[at : at + named], directory[at + named : at + named + extras]
        at += named + extras + remarks
        size, packed, offset = _large(extra, size, packed, offset)
        if raw.endswith(b"/") and size == 0:
            file_names.check_folder(raw)
            continue
        path = file_names.checked(raw)
        if attributes >> 16 & _KIND not in {0, _REGULAR}:
            raise BadArchive(f"The zip's entry {file_names.shown(path)} is a link or a device; only files are taken.")
        if flags & _ENCRYPTED:
            raise BadArchive(f"The zip's entry {file_names.shown(path)} is encrypted.")
        if method not in {0, 8}:
            raise BadArchive(f"The zip's entry {file_names.shown(path)} is neither stored nor deflated.")
        yield Member(path, method == 8, crc32, packed, size, offset)


def _large(extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
    """Read sizes of more than 32 bits, which stand in an extra field, those that are needed and no others."""
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


def _bytes_of(blob: Blob, member: Member) -> Iterator[bytes]:
    """Yield a member's bytes; raise BadArchive where they are not what the directory says."""
    header = blob.at(member.at, 30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise BadArchive(f"The zip's entry {file_names.shown(member.path)} does not lie where the directory says.")
    _, named, extras = _LOCAL.unpack(header)
    start = member.at + 30 + named + extras
    if start + member.packed > blob.size:
        raise BadArchive(f"The zip's entry {file_names.shown(member.path)} reaches beyond its end.")
    packed = blob.read(start, start + member.packed)
    crc = size = 0
    for piece in _inflated(packed, member) if member.deflated else packed:
        crc = zlib.crc32(piece, crc)
        size += len(piece)
        if size > member.size:
            break
        yield piece
    if size != member.size or crc != member.crc32:
        raise BadArchive(f"The zip's entry {file_names.shown(member.path)} is not what the directory says it is.")


def _inflated(packed: Iterator[bytes], member: Member) -> Iterator[bytes]:
    inflater = zlib.decompressobj(wbits=-15)
    try:
        for data in packed:
            while data:
                yield inflater.decompress(data, CHUNK)
                data = inflater.unconsumed_tail
        while piece := inflater.decompress(inflater.unconsumed_tail, CHUNK):
            yield piece
    except zlib.error as error:
        raise BadArchive(f"The zip's entry {file_names.shown(member.path)} is damaged: {error}.") from None
