"""Tar reader, sequential (POSIX.1-2017 pax, ustar, GNU long names): files and folders only.

The standard library's `tarfile` keeps every member in memory, and trusts the sizes of names; an untrusted archive may
have millions of members and any field may be false.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from common.errors import BadArchive
from common.printable import printable
from datasets.versions import file_names
from datasets.versions.packs import SourceFile

BLOCK = 512
#: Members of an archive, and bytes of a pax or GNU extension header, at most.
MEMBERS, EXTENSION = 2_000_000, 64 << 10

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
class _Overrides:
    """Values of pax and GNU extension headers, which override those of the ustar headers that follow."""

    path: bytes | None = None
    size: int | None = None


class ChunkReader:
    """Reads exact lengths from a stream of chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def piece(self, most: int) -> memoryview:
        """Return between 1 and ``most`` bytes; raise BadArchive at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                raise BadArchive("The tar is truncated: it ends in the middle of a member. Upload it again.")
            self._rest = memoryview(chunk)
        piece, self._rest = self._rest[:most], self._rest[most:]
        return piece

    def exactly(self, size: int) -> bytes:
        """Return exactly ``size`` bytes."""
        data = bytearray()
        while len(data) < size:
            data += self.piece(size - len(data))
        return bytes(data)

    def skip(self, size: int) -> None:
        """Skip ``size`` bytes."""
        while size:
            size -= len(self.piece(size))

    def drain(self) -> None:
        """Read to the end, so that a compressed stream is verified to its end."""
        for _ in self._chunks:
            pass


def files(chunks: Iterator[bytes]) -> Iterator[SourceFile]:
    """Yield the files of a tar; a file's chunks must be read before the next file is taken from the iterator."""
    source = ChunkReader(chunks)
    defaults, overrides = _Overrides(), _Overrides()  # for all following members, for the next member
    for count in range(MEMBERS + 1):
        header = source.exactly(BLOCK)
        if not any(header):
            source.drain()
            return
        if count == MEMBERS:
            raise BadArchive(f"The tar has more than {MEMBERS:,} members.")
        kind, size, path = _parse_header(header)
        if kind in b"xgL":
            if size > EXTENSION:
                raise BadArchive(f"The tar has an extension header of more than {EXTENSION:,} bytes.")
            extension = source.exactly(size)
            source.skip(-size % BLOCK)
            if kind == b"L":
                overrides.path = extension.rstrip(b"\0")
            else:
                _parse_pax(extension, overrides if kind == b"x" else defaults)
            continue
        if kind == b"K":  # GNU long link target; the link itself follows, and is refused
            source.skip(size + -size % BLOCK)
            continue
        path = overrides.path or defaults.path or path
        length = next((value for value in (overrides.size, defaults.size) if value is not None), size)
        overrides = _Overrides()
        if kind == _FOLDER or (kind in _FILE and path.endswith(b"/")):
            file_names.check_folder(path)
            source.skip(length + -length % BLOCK)
            continue
        if kind not in _FILE:
            kind_name = _KINDS.get(kind, "of an unknown type")
            raise BadArchive(f"The tar's member {printable(path)} is {kind_name}; only files and folders are allowed.")
        body = _MemberBody(source, length)
        yield SourceFile(file_names.validated(path), body)
        body.finish()


def begins(chunks: Iterator[bytes]) -> bool:
    """Tell whether a stream begins like a tar: with a header whose checksum is right."""
    try:
        _parse_header(ChunkReader(chunks).exactly(BLOCK))
    except BadArchive:
        return False
    return True


class _MemberBody:
    """The bytes of one member; ``finish`` skips those that were not read."""

    def __init__(self, source: ChunkReader, size: int) -> None:
        self._source = source
        self._size = size
        self._left = size

    def __iter__(self) -> Iterator[bytes]:
        while self._left:
            piece = self._source.piece(self._left)
            self._left -= len(piece)
            yield bytes(piece)

    def finish(self) -> None:
        """Skip to the next header."""
        self._source.skip(self._left + -self._size % BLOCK)


def _parse_header(header: bytes) -> tuple[bytes, int, bytes]:
    """Return type, size and name; raise BadArchive if the header's checksum is wrong."""
    checksum = _number(header[148:156])
    if sum(header) - sum(header[148:156]) + 8 * 32 != checksum:
        raise BadArchive("The tar is damaged: a header's checksum is wrong.")
    name = header[:100].split(b"\0", 1)[0]
    if header[257:263] == b"ustar\0" and (prefix := header[345:500].split(b"\0", 1)[0]):
        name = prefix + b"/" + name
    return header[156:157], _number(header[124:136]), name


def _number(field: bytes) -> int:
    """Parse a numeric field: octal digits, or GNU base-256 if the first bit is set."""
    if field[0] == 0x80:
        value = int.from_bytes(field[1:], "big")
    else:
        digits = field.split(b"\0", 1)[0].strip(b" ")
        if not all(48 <= digit < 56 for digit in digits):
            raise BadArchive("The tar is damaged: a numeric header field is invalid.")
        value = int(digits or b"0", 8)
    if value >= 1 << 62:
        raise BadArchive("The tar is damaged: a numeric header field is too large.")
    return value


def _parse_pax(records: bytes, overrides: _Overrides) -> None:
    """Parse concatenated pax records, `length key=value\\n`, into ``overrides``."""
    while records:
        digits, blank, _ = records[:20].partition(b" ")
        if not blank or not digits.isdigit():
            raise BadArchive("The tar is damaged: a pax header cannot be read.")
        length = int(digits)
        record, records = records[len(digits) + 1 : length], records[length:]
        key, equals, value = record.removesuffix(b"\n").partition(b"=")
        if not equals or not record.endswith(b"\n"):
            raise BadArchive("The tar is damaged: a pax header cannot be read.")
        if key == b"path":
            overrides.path = value
        elif key == b"size":
            overrides.size = _decimal(value)
        elif key.startswith(b"GNU.sparse"):
            raise BadArchive("The tar contains a sparse file; create it without `--sparse`.")


def _decimal(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise BadArchive("The tar is damaged: the size in a pax header is invalid.")
    return int(value)
