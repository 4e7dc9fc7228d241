"""Zip directory parser: lists and checks the entries of a zip without unpacking it.

A hostile archive costs no more than reading its last bytes. The sandbox counts the bytes again when it unpacks the
archive, because declared sizes may be wrong.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from errors import BadArchive

#: The most entries, and bytes of directory, that are parsed.
ENTRIES, DIRECTORY = 100_000, 16 << 20
#: The highest declared compression ratio of the unpacked zip; not checked up to ``SMALL`` unpacked bytes.
RATIO, SMALL = 200, 16 << 20
#: Longest path, and longest part of a path, in bytes.
PATH, PART = 1024, 255

_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY = struct.Struct("<4s4xHH8xIIHHH4xII")
_FULL = 0xFFFFFFFF
_ENCRYPTED = 1
_KIND, _FILE, _FOLDER = 0o170000, 0o100000, 0o040000


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """A file or folder in the zip's directory; sizes in bytes, ``at`` is the offset of its local header."""

    name: str
    packed: int
    size: int
    at: int


def entries(path: Path) -> list[ZipEntry]:
    """Return the entries of the zip's directory; raise BadArchive, with the reason, if one must not be unpacked."""
    with open(path, "rb") as file:
        count, size, start = _directory(file)
        file.seek(start)
        zip_entries = list(_parse(file.read(size), count))
    _check_overlaps(zip_entries, start)
    unpacked, packed = sum(entry.size for entry in zip_entries), sum(entry.packed for entry in zip_entries)
    if unpacked > SMALL and unpacked > RATIO * max(1, packed):
        raise BadArchive(f"The zip unpacks to more than {RATIO} times its size. Send what a model needs, and no more.")
    return zip_entries


def _directory(file: BinaryIO) -> tuple[int, int, int]:
    """Find the directory; return its number of entries, its size in bytes and its offset."""
    length = file.seek(0, 2)
    base = max(0, length - 65_557)
    file.seek(base)
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < 22:
        raise BadArchive("The zip has no directory at its end: it was cut off, or it is not a zip. Send it again.")
    count, size, start = struct.unpack_from("<HII", tail, at + 10)
    if count == 0xFFFF or _FULL in (size, start):
        if at < 20 or tail[at - 20 : at - 16] != _LOCATOR:
            raise BadArchive("The zip's directory does not declare its size. Pack it again.")
        file.seek(struct.unpack_from("<Q", tail, at - 12)[0])
        record = file.read(56)
        if len(record) < 56 or record[:4] != _END64:
            raise BadArchive("The zip's directory is not at the declared offset. Pack it again.")
        count, size, start = struct.unpack_from("<QQQ", record, 32)
    if count > ENTRIES or size > DIRECTORY:
        raise BadArchive(f"The zip lists {count:,} entries; at most {ENTRIES:,} (in 16 MB) are accepted.")
    if start + size > base + at:
        raise BadArchive("The zip's directory is not at the declared offset. Pack it again.")
    return count, size, start


def _parse(directory: bytes, count: int) -> Iterator[ZipEntry]:
    at = 0
    names_by_key: dict[str, str] = {}
    for _ in range(count):
        if at + _ENTRY.size > len(directory) or directory[at : at + 4] != b"PK\x01\x02":
            raise BadArchive("The zip's directory is damaged. Pack it again.")
        _, flags, _, packed, size, names, extras, remarks, attributes, offset = _ENTRY.unpack_from(directory, at)
        at += _ENTRY.size
        raw, extra = directory[at : at + names], directory[at + names : at + names + extras]
        at += names + extras + remarks
        size, packed, offset = _zip64_values(extra, size, packed, offset)
        name = _decode_name(raw)
        kind = attributes >> 16 & _KIND
        if kind not in {0, _FILE, _FOLDER}:
            raise BadArchive(f"The zip's entry {name!r} is a link or a device; only files and folders are accepted.")
        if flags & _ENCRYPTED:
            raise BadArchive(f"The zip's entry {name!r} is encrypted. Pack it without a password.")
        folded = name.rstrip("/").casefold()
        if folded in names_by_key:
            raise BadArchive(f"The zip has both {names_by_key[folded]!r} and {name!r}. Rename one of them.")
        names_by_key[folded] = name
        yield ZipEntry(name, packed, size, offset)
    for folded, name in names_by_key.items():
        above = folded.rpartition("/")[0]
        if above in names_by_key and not names_by_key[above].endswith("/"):
            raise BadArchive(f"The zip has {names_by_key[above]!r} as a file, and {name!r} in it.")


def _zip64_values(extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
    """Read the 64-bit sizes and offset from the zip64 extra field; it has only the values that do not fit 32 bits."""
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


def _decode_name(raw: bytes) -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        name = raw.decode("cp437")
    parts = name.removesuffix("/").split("/")
    if (
        not name
        or name.startswith("/")
        or "\\" in name
        or ":" in parts[0]
        or any(part in {"", ".", ".."} for part in parts)
    ):
        raise BadArchive(f"The zip's entry {name[:100]!r} leads out of its folder. Pack it with relative names.")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        raise BadArchive("The zip has a name with control characters in it.")
    if len(raw) > PATH or any(len(part.encode()) > PART for part in parts):
        raise BadArchive(f"The zip has a name that is too long: {name[:60]!r}...")
    return name


def _check_overlaps(zip_entries: list[ZipEntry], directory: int) -> None:
    """Refuse entries with overlapping data: a small archive with such entries can unpack to petabytes."""
    end = 0
    for entry in sorted(zip_entries, key=lambda entry: entry.at):
        if entry.at < end:
            raise BadArchive(f"The zip's entry {entry.name!r} shares its data with another. Pack it again.")
        end = entry.at + 30 + entry.packed
    if end > directory:
        raise BadArchive("The zip's directory does not fit its data. Pack it again.")
