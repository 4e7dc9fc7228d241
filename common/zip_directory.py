"""Zip directory: reads and checks the central directory of a zip (APPNOTE.TXT 6.3.10) without unpacking anything.

The archive is untrusted. Reading costs its last 64 KiB and its directory, of bounded size. Declared sizes serve only as
limits: the bytes are counted again when entries are unpacked.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from common.errors import BadArchive
from common.printable import printable

#: Entries, and bytes of the central directory, at most. An entry costs 10 us and 0.5 KB (with a name of 40 bytes):
#: 250,000 entries of a dataset cost the job that registers them 3 s and 200 MB.
ENTRIES, DIRECTORY = 250_000, 64 << 20
#: Highest declared ratio of unpacked to packed bytes.
RATIO = 200

#: Returns at most ``length`` bytes of the archive from an offset on: ``read(offset, length)``.
ReadAt = Callable[[int, int], bytes]

FEWER = "Pack fewer files, or a dataset as a tar: that has no directory."

_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY = struct.Struct("<4s4xHHHHIIIHHHHHII")
#: The end record with the longest comment.
_TAIL = 22 + 0xFFFF
_FULL = 0xFFFFFFFF
_ENCRYPTED = 1
_KIND, _FILE, _FOLDER = 0o170000, 0o100000, 0o040000
_LOCAL_HEADER = 30


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """A file or folder in the directory; sizes in bytes, ``header_offset`` is that of its local header.

    ``name`` is as stored. ``method``: 0 stored, 8 deflated, others are not refused here.
    """

    name: bytes
    method: int
    crc32: int
    packed: int
    size: int
    header_offset: int

    @property
    def is_folder(self) -> bool:
        """Whether the entry is a folder: its name ends with a slash, and it has no bytes."""
        return self.name.endswith(b"/") and self.size == 0


def read_directory(read: ReadAt, size: int, *, most: int = ENTRIES) -> list[ZipEntry]:
    """Return the entries of a zip of ``size`` bytes, in the directory's order; raise BadArchive if one is forbidden.

    Forbidden are links and devices, encrypted entries, entries whose data overlap each other or the directory, and more
    entries than ``most``.
    """
    count, length, start = _locate(read, size)
    if count > most:
        raise BadArchive(f"The zip lists {count:,} entries; the limit is {most:,}. {FEWER}")
    if length > DIRECTORY:
        raise BadArchive(f"The zip's directory has {length:,} bytes; the limit is {DIRECTORY:,}. {FEWER}")
    entries = list(_parse(read(start, length), count))
    _check_overlaps(entries, start)
    return entries


def check_ratio(entries: Sequence[ZipEntry], *, unchecked: int) -> None:
    """Raise BadArchive if the entries declare more than RATIO times their packed bytes, and more than ``unchecked``."""
    whole, packed = sum(entry.size for entry in entries), sum(entry.packed for entry in entries)
    if whole > unchecked and whole > RATIO * packed:
        raise BadArchive(f"The zip unpacks to more than {RATIO} times its size; such archives are refused.")


def _locate(read: ReadAt, size: int) -> tuple[int, int, int]:
    """Find the central directory; return its number of entries, its size in bytes and its offset."""
    base = max(0, size - _TAIL)
    tail = read(base, _TAIL)
    position = tail.rfind(_END)
    if position < 0 or len(tail) - position < 22:
        raise BadArchive("The zip has no directory at its end: it is truncated, or not a zip. Send it again.")
    count, length, start = struct.unpack_from("<HII", tail, position + 10)
    if count == 0xFFFF or _FULL in (length, start):
        if position < 20 or tail[position - 20 : position - 16] != _LOCATOR:
            raise BadArchive("The zip's directory has no zip64 locator. Create it again.")
        (offset,) = struct.unpack_from("<Q", tail, position - 12)
        record = read(offset, 56) if offset + 56 <= base + position else b""  # an offset beyond any file is an OS error
        if len(record) < 56 or record[:4] != _END64:
            raise BadArchive("The zip's directory is not at its declared offset. Create it again.")
        count, length, start = struct.unpack_from("<QQQ", record, 32)
    if start + length > base + position:
        raise BadArchive("The zip's directory is not at its declared offset. Create it again.")
    return count, length, start


def _parse(directory: bytes, count: int) -> Iterator[ZipEntry]:
    position = 0
    for _ in range(count):
        if position + _ENTRY.size > len(directory) or directory[position : position + 4] != b"PK\x01\x02":
            raise BadArchive("The zip's directory is damaged. Create it again.")
        fields = _ENTRY.unpack_from(directory, position)
        flags, method, crc32, packed, size = fields[1], fields[2], *fields[5:8]
        name_length, extra_length, comment_length = fields[8:11]
        attributes, offset = fields[13:]
        position += _ENTRY.size
        name, extra = (
            directory[position : position + name_length],
            directory[position + name_length : position + name_length + extra_length],
        )
        position += name_length + extra_length + comment_length
        size, packed, offset = _zip64_values(extra, size, packed, offset)
        kind = attributes >> 16 & _KIND
        if kind not in {0, _FILE} and not (kind == _FOLDER and name.endswith(b"/")):
            raise BadArchive(f"The zip's entry {printable(name)} is a link or a device; only files are allowed.")
        if flags & _ENCRYPTED:
            raise BadArchive(f"The zip's entry {printable(name)} is encrypted. Pack it without a password.")
        yield ZipEntry(name=name, method=method, crc32=crc32, packed=packed, size=size, header_offset=offset)


def _zip64_values(extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
    """Return the values with those that are 0xFFFFFFFF replaced from the zip64 extra field, which has only those."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        if kind == 1:
            numbers = iter(struct.unpack_from(f"<{min(length, len(extra) - position - 4) // 8}Q", extra, position + 4))
            size, packed, offset = (
                next(numbers, value) if value == _FULL else value for value in (size, packed, offset)
            )
        position += 4 + length
    return size, packed, offset


def _check_overlaps(entries: Sequence[ZipEntry], directory: int) -> None:
    """Refuse entries with overlapping data: a small archive with such entries can unpack to petabytes."""
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        if entry.header_offset < end:
            name = printable(entry.name)
            raise BadArchive(f"The zip's entry {name} overlaps another entry: it shares its data. Create it again.")
        end = entry.header_offset + _LOCAL_HEADER + entry.packed
    if end > directory:
        raise BadArchive("The zip's directory overlaps its data. Create it again.")
