"""Zip layout computed in advance: stored members, always ZIP64, fixed dates (APPNOTE.TXT 6.3.10).

Any byte range follows from the members' names, sizes and CRCs, so a zip is streamed without being built first; at most
one member's header is in memory.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_EXTRA64_LOCAL = struct.Struct("<HHQQ")
_EXTRA64_CENTRAL = struct.Struct("<HHQQQ")
_END64 = struct.Struct("<IQHHIIQQQQ")
_LOCATOR = struct.Struct("<IIQI")
_END = struct.Struct("<IHHHHIIH")
_NEEDED = 45
_UTF8 = 1 << 11
_DATE = 0x21  # 1980-01-01
_FULL32, _FULL16 = 0xFFFFFFFF, 0xFFFF


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A file of the zip. ``read(start, stop)`` yields a range of its bytes."""

    name: str
    size: int
    crc32: int
    read: Callable[[int, int], Iterator[bytes]]


def header(member: ArchiveMember) -> bytes:
    """Return a member's local file header."""
    name = member.name.encode()
    extra = _EXTRA64_LOCAL.pack(1, 16, member.size, member.size)
    return (
        _LOCAL.pack(0x04034B50, _NEEDED, _UTF8, 0, 0, _DATE, member.crc32, _FULL32, _FULL32, len(name), len(extra))
        + name
        + extra
    )


def entry(member: ArchiveMember, offset: int) -> bytes:
    """Return a member's entry in the central directory."""
    name = member.name.encode()
    extra = _EXTRA64_CENTRAL.pack(1, 24, member.size, member.size, offset)
    made_by = 3 << 8 | _NEEDED
    return (
        _CENTRAL.pack(
            0x02014B50,
            made_by,
            _NEEDED,
            _UTF8,
            0,
            0,
            _DATE,
            member.crc32,
            _FULL32,
            _FULL32,
            len(name),
            len(extra),
            0,
            0,
            0,
            0o100644 << 16,
            _FULL32,
        )
        + name
        + extra
    )


def ending(count: int, start: int, size: int) -> bytes:
    """Return the end records that follow a central directory of ``size`` bytes at ``start``."""
    return (
        _END64.pack(0x06064B50, 44, _NEEDED, _NEEDED, 0, 0, count, count, size, start)
        + _LOCATOR.pack(0x07064B50, 0, start + size, 1)
        + _END.pack(0x06054B50, 0, 0, _FULL16, _FULL16, _FULL32, _FULL32, 0)
    )


def size_within(member: ArchiveMember) -> int:
    """Return the bytes by which a member makes a zip longer."""
    return len(header(member)) + member.size + len(entry(member, 0))


def measure(members: Iterable[ArchiveMember]) -> int:
    """Return the size of the whole zip in bytes."""
    bodies = directory = count = 0
    for member in members:
        directory += len(entry(member, 0))
        bodies += len(header(member)) + member.size
        count += 1
    return bodies + directory + len(ending(count, bodies, directory))


def whole(members: Callable[[], Iterable[ArchiveMember]]) -> Iterator[bytes]:
    """Yield the bytes of the whole zip; ``members`` is called three times and yields the same order."""
    return read(members, 0, measure(members()))


def read(members: Callable[[], Iterable[ArchiveMember]], start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes [start, stop) of the zip; ``members`` is called twice and yields the same order."""
    position = 0
    count = 0

    def clipped(piece: bytes) -> bytes:
        return piece[max(0, start - position) : max(0, stop - position)]

    for member in members():
        if position >= stop:
            return
        piece = header(member)
        if cut := clipped(piece):
            yield cut
        position += len(piece)
        low, high = max(0, start - position), min(member.size, stop - position)
        if low < high:
            yield from member.read(low, high)
        position += member.size
        count += 1
    begin, offset = position, 0
    if start < stop and stop > begin:
        for member in members():
            piece = entry(member, offset)
            if cut := clipped(piece):
                yield cut
            position += len(piece)
            offset += len(header(member)) + member.size
        if cut := clipped(ending(count, begin, position - begin)):
            yield cut
