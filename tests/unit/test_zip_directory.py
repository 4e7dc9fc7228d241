"""Zip central directory: entries written by Python's zipfile are read unchanged, hostile entries are refused."""

import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadArchive
from common.zip_directory import ENTRIES, ZipEntry, check_ratio, read_directory
from runtimes import archives

NAMES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20), unique=True)


def entries_of(data: bytes) -> list[ZipEntry]:
    return read_directory(lambda offset, length: data[offset : offset + length], len(data))


def zip_of(names: list[str], *, comment: bytes = b"", method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.comment = comment
        for number, name in enumerate(names):
            archive.writestr(zipfile.ZipInfo(name), b"x" * number, method)
    return buffer.getvalue()


def with_zip64_records(data: bytes) -> bytes:
    """Move sizes and offset of the last entry, and the directory's offset, into Zip64 records."""
    entry_start, end_record = data.rindex(b"PK\x01\x02"), data.rindex(b"PK\x05\x06")
    entry = bytearray(data[entry_start:end_record])
    compressed_size, size = struct.unpack_from("<II", entry, 20)
    (offset,) = struct.unpack_from("<I", entry, 42)
    name_length = struct.unpack_from("<H", entry, 28)[0]
    struct.pack_into("<II", entry, 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", entry, 30, 28)
    struct.pack_into("<I", entry, 42, 0xFFFFFFFF)
    extra = struct.pack("<HHQQQ", 1, 24, size, compressed_size, offset)
    count, _, directory_start = struct.unpack_from("<HII", data, end_record + 10)
    directory = data[directory_start:entry_start] + bytes(entry[: 46 + name_length]) + extra
    record = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(directory), directory_start)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, directory_start + len(directory), 1)
    new_end_record = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return data[:directory_start] + directory + record + locator + new_end_record


@given(NAMES, st.binary(max_size=100), st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
def test_entries_equal_the_entries_that_zipfile_wrote(names: list[str], comment: bytes, method: int) -> None:
    data = zip_of(names, comment=comment.replace(b"PK", b"--"), method=method)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
    assert entries_of(data) == [
        ZipEntry(
            name=info.orig_filename.encode(),
            method=info.compress_type,
            crc32=info.CRC,
            packed=info.compress_size,
            size=info.file_size,
            header_offset=info.header_offset,
        )
        for info in infos
    ]


@given(NAMES.filter(bool))
def test_zip64_records_give_the_same_entries(names: list[str]) -> None:
    data = zip_of(names)
    assert entries_of(with_zip64_records(data)) == entries_of(data)


@given(st.data(), st.binary(min_size=1, max_size=1))
def test_a_changed_byte_is_read_or_refused(data: st.DataObject, byte: bytes) -> None:
    archive = bytearray(zip_of(["a", "b/", "c/d"]))
    if data.draw(st.booleans()):
        archive = bytearray(with_zip64_records(bytes(archive)))
    offset = data.draw(st.integers(0, len(archive) - 1))
    archive[offset : offset + 1] = byte
    try:
        entries_of(bytes(archive))
    except BadArchive:
        return


def zip_with_changed_entry(offset: int, format: str, value: int) -> bytes:
    """Return a zip of a single entry, with another value at an offset of its directory entry."""
    data = bytearray(zip_of(["model.py"]))
    struct.pack_into(format, data, data.rindex(b"PK\x01\x02") + offset, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (zip_with_changed_entry(8, "<H", 1), "is encrypted"),
        (zip_with_changed_entry(38, "<I", (stat.S_IFLNK | 0o777) << 16), "is a link or a device"),
        # A folder with a file's name.
        (zip_with_changed_entry(38, "<I", (stat.S_IFDIR | 0o755) << 16), "is a link or a device"),
        (zip_with_changed_entry(38, "<I", (stat.S_IFCHR | 0o666) << 16), "is a link or a device"),
        (zip_with_changed_entry(20, "<I", 1000), "overlaps its data"),
        (b"PK\x03\x04", "no directory at its end"),
    ],
)
def test_an_unsafe_entry_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadArchive, match=reason):
        entries_of(data)


def test_more_entries_than_are_allowed_are_refused_before_they_are_read() -> None:
    data = bytearray(with_zip64_records(zip_of(["a"])))
    struct.pack_into("<Q", data, data.rindex(b"PK\x06\x06") + 32, ENTRIES + 1)
    with pytest.raises(BadArchive, match="250,001 entries"):
        entries_of(bytes(data))


def large_zip(count: int) -> bytes:
    """Return a zip of empty files, written faster than `zipfile` does."""
    data, directory = bytearray(), bytearray()
    for number in range(count):
        name = b"drives/%07d/observations.json" % number
        offset = len(data)
        data += struct.pack("<4s22xHH", b"PK\x03\x04", len(name), 0) + name
        directory += struct.pack("<4s24xH12xI", b"PK\x01\x02", len(name), 0)[:42] + struct.pack("<I", offset) + name
    start = len(data)
    record = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(directory), start)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, start + len(directory), 1)
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return bytes(data + directory + record + locator + end)


def test_a_hundred_thousand_files_are_read_in_a_dataset_and_refused_in_a_model(tmp_path: Path) -> None:
    data = large_zip(100_000)
    assert len(entries_of(data)) == 100_000
    path = tmp_path / "model.zip"
    path.write_bytes(data)
    with pytest.raises(BadArchive, match="100,000 entries; the limit is 10,000"):
        archives.names(path)


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63, 2**64 - 1])
def test_a_zip64_record_beyond_the_file_is_refused_before_it_is_read(offset: int) -> None:
    data = bytearray(with_zip64_records(zip_of(["a"])))
    struct.pack_into("<Q", data, data.rindex(b"PK\x06\x07") + 8, offset)
    reads: list[int] = []

    def recording_read(start: int, length: int) -> bytes:
        reads.append(start)
        return bytes(data[start : start + length])

    with pytest.raises(BadArchive, match="not at its declared offset"):
        read_directory(recording_read, len(data))
    assert reads == [0], "only the end of the file is read, not the offset beyond it"


def test_the_compression_ratio_is_checked_only_above_a_number_of_bytes() -> None:
    entry = ZipEntry(name=b"a", method=8, crc32=0, packed=10, size=2001, header_offset=0)
    check_ratio([entry], unchecked=2001)
    with pytest.raises(BadArchive, match="200 times"):
        check_ratio([entry], unchecked=2000)
