"""The zip directory: what Python's zipfile writes is read as it was written, and what is hostile is refused."""

import io
import stat
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.zip_directory import ENTRIES, ZipEntry, check_ratio, read_directory
from errors import BadArchive

NAMES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20), unique=True)


def read(data: bytes) -> list[ZipEntry]:
    return read_directory(lambda offset, length: data[offset : offset + length], len(data))


def packed(names: list[str], *, comment: bytes = b"", method: int = zipfile.ZIP_STORED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        archive.comment = comment
        for number, name in enumerate(names):
            archive.writestr(zipfile.ZipInfo(name), b"x" * number, method)
    return target.getvalue()


def beyond_32_bits(data: bytes) -> bytes:
    """Move sizes and offset of the last entry, and the directory's place, into zip64 records."""
    at, end = data.rindex(b"PK\x01\x02"), data.rindex(b"PK\x05\x06")
    entry = bytearray(data[at:end])
    packed_size, size = struct.unpack_from("<II", entry, 20)
    (offset,) = struct.unpack_from("<I", entry, 42)
    name = struct.unpack_from("<H", entry, 28)[0]
    struct.pack_into("<II", entry, 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", entry, 30, 28)
    struct.pack_into("<I", entry, 42, 0xFFFFFFFF)
    extra = struct.pack("<HHQQQ", 1, 24, size, packed_size, offset)
    count, _, start = struct.unpack_from("<HII", data, end + 10)
    directory = data[start:at] + bytes(entry[: 46 + name]) + extra
    record = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(directory), start)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, start + len(directory), 1)
    last = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return data[:start] + directory + record + locator + last


@given(NAMES, st.binary(max_size=100), st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
def test_entries_are_read_as_zipfile_wrote_them(names: list[str], comment: bytes, method: int) -> None:
    data = packed(names, comment=comment.replace(b"PK", b"--"), method=method)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        written = archive.infolist()
    assert read(data) == [
        ZipEntry(
            name=info.orig_filename.encode(),
            method=info.compress_type,
            crc32=info.CRC,
            packed=info.compress_size,
            size=info.file_size,
            at=info.header_offset,
        )
        for info in written
    ]


@given(NAMES.filter(bool))
def test_zip64_records_say_the_same(names: list[str]) -> None:
    data = packed(names)
    assert read(beyond_32_bits(data)) == read(data)


@given(st.data(), st.binary(min_size=1, max_size=1))
def test_a_changed_byte_is_read_or_refused(data: st.DataObject, byte: bytes) -> None:
    whole = bytearray(packed(["a", "b/", "c/d"]))
    if data.draw(st.booleans()):
        whole = bytearray(beyond_32_bits(bytes(whole)))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at : at + 1] = byte
    try:
        read(bytes(whole))
    except BadArchive:
        return


def changed(offset: int, format: str, value: int) -> bytes:
    """Return a zip of one entry whose directory has another value."""
    data = bytearray(packed(["model.py"]))
    struct.pack_into(format, data, data.rindex(b"PK\x01\x02") + offset, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (changed(8, "<H", 1), "is encrypted"),
        (changed(38, "<I", (stat.S_IFLNK | 0o777) << 16), "is a link or a device"),
        (changed(38, "<I", (stat.S_IFDIR | 0o755) << 16), "is a link or a device"),  # a folder with a file's name
        (changed(38, "<I", (stat.S_IFCHR | 0o666) << 16), "is a link or a device"),
        (changed(20, "<I", 1000), "overlaps its data"),
        (b"PK\x03\x04", "no directory at its end"),
    ],
)
def test_what_must_not_be_unpacked_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadArchive, match=reason):
        read(data)


def test_more_entries_than_are_allowed_are_refused_before_they_are_read() -> None:
    data = bytearray(beyond_32_bits(packed(["a"])))
    struct.pack_into("<Q", data, data.rindex(b"PK\x06\x06") + 32, ENTRIES + 1)
    with pytest.raises(BadArchive, match="100,001 entries"):
        read(bytes(data))


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63, 2**64 - 1])
def test_a_zip64_record_beyond_the_file_is_refused_before_it_is_read(offset: int) -> None:
    data = bytearray(beyond_32_bits(packed(["a"])))
    struct.pack_into("<Q", data, data.rindex(b"PK\x06\x07") + 8, offset)
    reads: list[int] = []

    def recorded(at: int, length: int) -> bytes:
        reads.append(at)
        return bytes(data[at : at + length])

    with pytest.raises(BadArchive, match="not at its declared offset"):
        read_directory(recorded, len(data))
    assert reads == [0], "an offset that no file has is an error of the operating system"


def test_the_ratio_counts_only_beyond_some_bytes() -> None:
    entry = ZipEntry(name=b"a", method=8, crc32=0, packed=10, size=2001, at=0)
    check_ratio([entry], unchecked=2001)
    with pytest.raises(BadArchive, match="200 times"):
        check_ratio([entry], unchecked=2000)
