"""Zip reader: the files of an uploaded zip, stored or deflated, in the order of their data.

The directory is checked before anything is read (common/zip_directory.py); decompressed bytes are counted again.
"""

import struct
import zlib
from collections.abc import Iterator

from common.errors import BadArchive
from common.printable import printable
from common.zip_directory import ZipEntry, check_ratio, read_directory
from datasets.versions import file_names
from datasets.versions.archives.decompression import CHUNK, SMALL, ByteSource, read_ahead
from datasets.versions.packs import SourceFile

STORED, DEFLATED = 0, 8
_LOCAL = struct.Struct("<4s22xHH")


def files(source: ByteSource, *, ratio_from: int = SMALL) -> Iterator[SourceFile]:
    """Yield the files of a zip in the order of their data."""
    source = read_ahead(source)  # members are read in the order of their offsets
    for path, entry in members(source, ratio_from=ratio_from):
        yield SourceFile(path, _bytes_of(source, path, entry))


def members(source: ByteSource, *, ratio_from: int = SMALL) -> list[tuple[str, ZipEntry]]:
    """Return the directory's files with their paths, by offset; raise BadArchive or BadName if one is not allowed."""
    entries = read_directory(source.part, source.size)
    check_ratio(entries, unchecked=ratio_from)
    by_offset = []
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        if entry.is_folder:
            file_names.check_folder(entry.name)
            continue
        path = file_names.validated(entry.name)
        if entry.method not in {STORED, DEFLATED}:
            raise BadArchive(f"The zip's entry {printable(path)} is neither stored nor deflated.")
        by_offset.append((path, entry))
    return by_offset


def _bytes_of(source: ByteSource, path: str, entry: ZipEntry) -> Iterator[bytes]:
    """Yield a file's bytes; raise BadArchive if size or CRC differ from the directory's."""
    header = source.part(entry.header_offset, 30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise BadArchive(f"The zip's entry {printable(path)} has no local header at its declared offset.")
    _, name_length, extra_length = _LOCAL.unpack(header)
    start = entry.header_offset + 30 + name_length + extra_length
    if start + entry.packed > source.size:
        raise BadArchive(f"The zip's entry {printable(path)} extends beyond the end of the file.")
    packed = source.read(start, start + entry.packed)
    crc = size = 0
    for piece in _inflate(packed, path) if entry.method == DEFLATED else packed:
        crc = zlib.crc32(piece, crc)
        size += len(piece)
        if size > entry.size:
            break
        yield piece
    if size != entry.size or crc != entry.crc32:
        raise BadArchive(f"The zip's entry {printable(path)} does not match its size or CRC in the directory.")


def _inflate(packed: Iterator[bytes], path: str) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(wbits=-15)
    try:
        for data in packed:
            while data:
                yield decompressor.decompress(data, CHUNK)
                data = decompressor.unconsumed_tail
        while piece := decompressor.decompress(decompressor.unconsumed_tail, CHUNK):
            yield piece
    except zlib.error as error:
        raise BadArchive(f"The zip's entry {printable(path)} is damaged: {error}.") from None
