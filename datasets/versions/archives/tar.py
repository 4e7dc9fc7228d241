"""Tar, read by hand from front to back (POSIX.1-2017 pax, ustar, GNU long names): files and folders, nothing else.

The standard library keeps every member it has seen, and believes sizes of names; a stranger's archive may have
millions of members and lie about anything.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from datasets.versions import file_names
from datasets.versions.packs import File
from errors import BadArchive

BLOCK = 512
#: Members that are read, and bytes of what is said about one beside its header.
MEMBERS, REMARKS = 2_000_000, 64 << 10

_FILE, _FOLDER = b"0\x007", b"5"
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
    b"S": "a sparse file",
}


@dataclass(slots=True)
class _Said:
    """What pax and GNU headers say of the members that follow."""

    path: bytes | None = None
    size: int | None = None


class Source:
    """A stream of chunks as a reader of exact lengths."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def piece(self, most: int) -> memoryview:
        """Return some bytes, at most so many; raise BadArchive at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                raise BadArchive("The tar ends in the middle of a member: it was cut off. Send it again.")
            self._rest = memoryview(chunk)
        piece, self._rest = self._rest[:most], self._rest[most:]
        return piece

    def exactly(self, size: int) -> bytes:
        """Return so many bytes."""
        taken = bytearray()
        while len(taken) < size:
            taken += self.piece(size - len(taken))
        return bytes(taken)

    def skip(self, size: int) -> None:
        """Pass so many bytes over."""
        while size:
            size -= len(self.piece(size))

    def drained(self) -> None:
        """Read to the end, so that a packed stream is checked to its end."""
        for _ in self._chunks:
            pass


def files(chunks: Iterator[bytes]) -> Iterator[File]:
    """Yield the files of a tar; each must be read before the next is asked for."""
    source = Source(chunks)
    always, once = _Said(), _Said()
    for count in range(MEMBERS + 1):
        header = source.exactly(BLOCK)
        if not any(header):
            source.drained()
            return
        if count == MEMBERS:
            raise BadArchive(f"The tar has more than {MEMBERS:,} members.")
        kind, size, path = _parsed(header)
        if kind in b"xgL":
            if size > REMARKS:
                raise BadArchive("The tar says more about one of its members than is read.")
            remark = source.exactly(size)
            source.skip(-size % BLOCK)
            if kind == b"L":
                once.path = remark.rstrip(b"\0")
            else:
                _hear(remark, once if kind == b"x" else always)
            continue
        if kind == b"K":  # the long target of a link, which the next header will say it is
            source.skip(size + -size % BLOCK)
            continue
        path = once.path or always.path or path
        length = next((said for said in (once.size, always.size) if said is not None), size)
        once = _Said()
        if kind == _FOLDER or (kind in _FILE and path.endswith(b"/")):
            file_names.check_folder(path)
            source.skip(length + -length % BLOCK)
            continue
        if kind not in _FILE:
            what = _KINDS.get(kind, "something unknown")
            raise BadArchive(f"The tar's member {file_names.shown(path)} is {what}; only files and folders are taken.")
        body = _Body(source, length)
        yield File(file_names.checked(path), body)
        body.finish()


class _Body:
    """The bytes of one member; what nobody read is passed over."""

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self._size = size
        self._left = size

    def __iter__(self) -> Iterator[bytes]:
        while self._left:
            piece = self._source.piece(self._left)
            self._left -= len(piece)
            yield bytes(piece)

    def finish(self) -> None:
        """Go to where the next header begins."""
        self._source.skip(self._left + -self._size % BLOCK)


def _parsed(header: bytes) -> tuple[bytes, int, bytes]:
    """Return type, size and name; raise BadArchive where the header's own sum does not fit."""
    said = _number(header[148:156])
    if sum(header) - sum(header[148:156]) + 8 * 32 != said:
        raise BadArchive("The tar is damaged: a header's checksum does not fit.")
    name = header[:100].split(b"\0", 1)[0]
    if header[257:263] == b"ustar\0" and (prefix := header[345:500].split(b"\0", 1)[0]):
        name = prefix + b"/" + name
    return header[156:157], _number(header[124:136]), name


def _number(field: bytes) -> int:
    """Read a number: octal digits, or GNU's binary where the first bit is set."""
    if field[0] == 0x80:
        value = int.from_bytes(field[1:], "big")
    else:
        digits = field.split(b"\0", 1)[0].strip(b" ")
        if not all(48 <= digit < 56 for digit in digits):
            raise BadArchive("The tar is damaged: a header holds no number where one should be.")
        value = int(digits or b"0", 8)
    if value >= 1 << 62:
        raise BadArchive("The tar is damaged: a size is out of all measure.")
    return value


def _hear(remark: bytes, said: _Said) -> None:
    """Take in pax records: `length key=value\\n`, one after the other."""
    while remark:
        digits, blank, _ = remark[:20].partition(b" ")
        if not blank or not digits.isdigit():
            raise BadArchive("The tar is damaged: a pax header cannot be read.")
        length = int(digits)
        record, remark = remark[len(digits) + 1 : length], remark[length:]
        key, equals, value = record.removesuffix(b"\n").partition(b"=")
        if not equals or not record.endswith(b"\n"):
            raise BadArchive("The tar is damaged: a pax header cannot be read.")
        if key == b"path":
            said.path = value
        elif key == b"size":
            said.size = _decimal(value)
        elif key.startswith(b"GNU.sparse"):
            raise BadArchive("The tar has a sparse file in it; pack it without `--sparse`.")


def _decimal(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise BadArchive("The tar is damaged: a pax header gives no size.")
    return int(value)
