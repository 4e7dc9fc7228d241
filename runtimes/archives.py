"""The directory of a zip, read by hand: names are had, and refused, without unpacking anything.

A hostile archive must cost no more than a look at its last bytes. What comes out when it is unpacked, in a sandbox, is
counted there again: an archive may lie about its sizes.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from errors import BadArchive

#: The most entries, and bytes of directory, that are looked at.
ENTRIES, DIRECTORY = 100_000, 16 << 20
#: How much larger than packed the whole may announce itself to be, once it is larger than ``SMALL`` bytes.
RATIO, SMALL = 200, 16 << 20
#: Bytes of a path, and of each of its parts.
PATH, PART = 1024, 255

_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY = struct.Struct("<4s4xHH8xIIHHH4xII")
_FULL = 0xFFFFFFFF
_ENCRYPTED = 1
_KIND, _FILE, _FOLDER = 0o170000, 0o100000, 0o040000


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or folder as the directory has it; sizes in bytes, ``at`` is where its data begins."""

    name: str
    packed: int
    size: int
    at: int


def entries(path: Path) -> list[Entry]:
    """Return what the directory lists; raise BadArchive, saying why, if any of it is not to be unpacked."""
    with open(path, "rb") as file:
        count, size, start = _directory(file)
        file.seek(start)
        found = list(_parse(file.read(size), count))
    _check_places(found, start)
    whole, packed = sum(one.size for one in found), sum(one.packed for one in found)
    if whole > SMALL and whole > RATIO * max(1, packed):
        raise BadArchive(f"The zip unpacks to more than {RATIO} times its size. Send what a model needs, and no more.")
    return found


def _directory(file: BinaryIO) -> tuple[int, int, int]:
    """Find the directory: how many entries, how many bytes, and where."""
    length = file.seek(0, 2)
    base = max(0, length - 65_557)
    file.seek(base)
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < 22:
        raise BadArchive("The zip has no directory at its end: it was cut off, or it is no zip. Send it again.")
    count, size, start = struct.unpack_from("<HII", tail, at + 10)
    if count == 0xFFFF or _FULL in (size, start):
        if at < 20 or tail[at - 20 : at - 16] != _LOCATOR:
            raise BadArchive("The zip's directory does not say how large it is.")
        file.seek(struct.unpack_from("<Q", tail, at - 12)[0])
        record = file.read(56)
        if len(record) < 56 or record[:4] != _END64:
            raise BadArchive("The zip's directory does not lie where it says.")
        count, size, start = struct.unpack_from("<QQQ", record, 32)
    if count > ENTRIES or size > DIRECTORY:
        raise BadArchive(f"The zip lists {count:,} entries; at most {ENTRIES:,} (in 16 MB) are looked at.")
    if start + size > base + at:
        raise BadArchive("The zip's directory does not lie where it says.")
    return count, size, start


def _parse(directory: bytes, count: int) -> Iterator[Entry]:
    at = 0
    seen: dict[str, str] = {}
    for _ in range(count):
        if at + _ENTRY.size > len(directory) or directory[at : at + 4] != b"PK\x01\x02":
            raise BadArchive("The zip's directory is damaged. Pack it again.")
        _, flags, _, packed, size, names, extras, remarks, attributes, offset = _ENTRY.unpack_from(directory, at)
        at += _ENTRY.size
        raw, extra = directory[at : at + names], directory[at + names : at + names + extras]
        at += names + extras + remarks
        size, packed, offset = _large(extra, size, packed, offset)
        name = _name(raw)
        kind = attributes >> 16 & _KIND
        if kind not in {0, _FILE, _FOLDER}:
            raise BadArchive(f"The zip's entry {name!r} is a link or a device; only files and folders are taken.")
        if flags & _ENCRYPTED:
            raise BadArchive(f"The zip's entry {name!r} is encrypted.")
        folded = name.rstrip("/").casefold()
        if folded in seen:
            raise BadArchive(f"The zip has both {seen[folded]!r} and {name!r}.")
        seen[folded] = name
        yield Entry(name, packed, size, offset)
    for folded, name in seen.items():
        above = folded.rpartition("/")[0]
        if above in seen and not seen[above].endswith("/"):
            raise BadArchive(f"The zip has {seen[above]!r} as a file, and {name!r} in it.")


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


def _name(raw: bytes) -> str:
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


def _check_places(found: list[Entry], directory: int) -> None:
    """Refuse entries that share their data: that is how a small archive is made to unpack to petabytes."""
    end = 0
    for one in sorted(found, key=lambda entry: entry.at):
        if one.at < end:
            raise BadArchive(f"The zip's entry {one.name!r} shares its data with another.")
        end = one.at + 30 + one.packed
    if end > directory:
        raise BadArchive("The zip's directory does not fit its data. Pack it again.")
