"""Untrusted archives: accepted and refused archives, and bounds on the cost of reading them."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadArchive, BadName
from datasets.versions.archives import ByteSource, files_of

FILES = {"a.txt": b"alpha", "deep/b.bin": bytes(range(256)) * 500, "empty": b"", "n" * 200 + "/" + "m" * 200: b"long"}


def byte_source(data: bytes, piece: int = 1000) -> ByteSource:
    """Return bytes as a source that yields them in pieces, like an upload."""

    def read(start: int, stop: int) -> Iterator[bytes]:
        for offset in range(start, min(stop, len(data)), piece):
            yield data[offset : min(offset + piece, stop)]

    return ByteSource(len(data), read)


def files_in(data: bytes, piece: int = 1000, **limits: int) -> dict[str, bytes]:
    """Return the content of each file of an archive."""
    return {file.path: b"".join(file.chunks) for file in files_of(byte_source(data, piece), **limits)}


def tar_of(members: list[tuple[tarfile.TarInfo, bytes]], format: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for member, body in members:
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return buffer.getvalue()


def sample_tar(format: int = tarfile.PAX_FORMAT) -> bytes:
    return tar_of([(tarfile.TarInfo(name), body) for name, body in FILES.items()], format)


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return buffer.getvalue()


def zstd_compressed(data: bytes) -> bytes:
    buffer = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(buffer, "zstd") as stream:
        stream.write(data)
    return bytes(buffer.getvalue())


COMPRESSIONS: list[Callable[[bytes], bytes]] = [
    lambda data: data,
    gzip.compress,
    bz2.compress,
    lzma.compress,
    zstd_compressed,
]


@pytest.mark.parametrize("pack", COMPRESSIONS)
@pytest.mark.parametrize("piece", [7, 1000, 1 << 20])
def test_a_tar_is_read_with_each_compression(pack: Callable[[bytes], bytes], piece: int) -> None:
    assert files_in(pack(sample_tar()), piece) == FILES


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_are_read_in_gnu_and_pax_format(format: int) -> None:
    assert files_in(sample_tar(format)) == FILES


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_is_read(method: int) -> None:
    assert files_in(zip_of(FILES, method)) == FILES


def test_a_zip_of_the_current_folder_is_read() -> None:
    assert files_in(zip_of({"./": b"", "./deep/": b"", "./a.txt": b"alpha"})) == {"a.txt": b"alpha"}
    with pytest.raises(BadName):
        files_in(zip_of({"../": b"", "a.txt": b"alpha"}))


def test_small_members_of_a_zip_are_read_in_batches() -> None:
    files = {f"{number // 100}/{number}": b"%d" % number for number in range(2000)} | {"z": bytes(3 << 20)}
    source, reads = byte_source(zip_of(files, zipfile.ZIP_STORED), 1 << 20), []

    def counting_read(start: int, stop: int) -> Iterator[bytes]:
        reads.append(start)
        return source.read(start, stop)

    assert {file.path: b"".join(file.chunks) for file in files_of(ByteSource(source.size, counting_read))} == files
    assert len(reads) < 20


def test_concatenated_gzip_streams_are_read_as_a_single_archive() -> None:
    data = sample_tar()
    assert files_in(gzip.compress(data[:700]) + gzip.compress(data[700:]) + b"\0" * 512) == FILES


def test_members_whose_content_is_not_read_are_skipped() -> None:
    assert [file.path for file in files_of(byte_source(sample_tar()))] == list(FILES)


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CONTTYPE,
        b"S",
        b"Z",
    ],
)
def test_members_that_are_not_files_are_refused(kind: bytes) -> None:
    member = tarfile.TarInfo("x")
    member.type = kind
    member.linkname = "/etc/passwd"
    if kind == b"7":  # contiguous files are files
        assert files_in(tar_of([(member, b"")])) == {"x": b""}
        return
    with pytest.raises(BadArchive):
        files_in(tar_of([(member, b"")]))


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a\\..\\x", "a\nb", "x" * 10_000, "a//b", "."])
def test_unsafe_member_names_are_refused(name: str) -> None:
    for data in (tar_of([(tarfile.TarInfo(name), b"x")]), zip_of({name: b"x"})):
        with pytest.raises(BadName):
            files_in(data)


def test_a_name_that_is_not_utf8_is_refused() -> None:
    data = tar_of([(tarfile.TarInfo("aaaa"), b"x")], tarfile.USTAR_FORMAT).replace(b"aaaa", b"\xff\xfeaa", 1)
    header = bytearray(data[:512])
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 256 + sum(header[156:]))
    with pytest.raises(BadName):
        files_in(bytes(header) + data[512:])


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd_compressed])
def test_a_decompression_bomb_is_stopped_during_unpacking(pack: Callable[[bytes], bytes]) -> None:
    data = pack(tar_of([(tarfile.TarInfo("zeros"), bytes(32 << 20))]))
    tracemalloc.start()
    with pytest.raises(BadArchive, match="times its size"):
        for file in files_of(byte_source(data, 1 << 16), ratio_from=1 << 20):
            for _ in file.chunks:
                pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_zip_bomb_is_refused_before_unpacking() -> None:
    with pytest.raises(BadArchive, match="times its size"):
        files_in(zip_of({"zeros": bytes(32 << 20)}), ratio_from=1 << 20)


def test_members_of_a_zip_that_share_their_data_are_refused() -> None:
    data = bytearray(zip_of({"a": b"x" * 100, "b": b"y" * 100}, zipfile.ZIP_STORED))
    second = data.rindex(b"PK\x01\x02")
    data[second + 42 : second + 46] = struct.pack("<I", 0)
    with pytest.raises(BadArchive, match="overlaps"):
        files_in(bytes(data))


def test_a_zip_with_a_wrong_size_in_its_directory_is_refused() -> None:
    data = bytearray(zip_of({"a": b"x" * 1000}))
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", 10)
    with pytest.raises(BadArchive, match="does not match its size or CRC"):
        files_in(bytes(data))


def test_a_zip_with_a_flipped_bit_is_refused() -> None:
    data = bytearray(zip_of({"a": bytes(range(256)) * 10}, zipfile.ZIP_STORED))
    data[100] ^= 1
    with pytest.raises(BadArchive):
        files_in(bytes(data))


def test_a_directory_of_too_many_entries_is_not_read() -> None:
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 60_000, 60_000, 17 << 20, 0, 0)
    with pytest.raises(BadArchive):
        files_in(b"PK\x03\x04" + bytes(1000) + end)


@pytest.mark.parametrize("pack", COMPRESSIONS)
def test_a_truncated_archive_is_refused(pack: Callable[[bytes], bytes]) -> None:
    data = pack(sample_tar())
    # A plain tar ends in more zero blocks than the two that it needs.
    last = len(data) - (10_000 if pack is COMPRESSIONS[0] else 1)
    for part in (20, len(data) // 3, len(data) // 2, last):
        with pytest.raises(BadArchive):
            files_in(data[:part])


@given(st.binary(max_size=3000))
def test_random_bytes_are_refused_without_another_error(data: bytes) -> None:
    for head in (b"", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08\x00", b"BZh9", b"\xfd7zXZ\x00"):
        with pytest.raises(BadArchive):
            files_in(head + data)


@given(st.integers(0, 9000), st.integers(0, 255))
def test_a_tar_with_one_byte_changed_is_read_or_refused(offset: int, byte: int) -> None:
    data = bytearray(sample_tar())
    data[offset % len(data)] = byte
    try:
        files_in(bytes(data))
    except BadArchive:
        return


@given(st.integers(0, 3000), st.integers(0, 255))
def test_a_zip_with_one_byte_changed_is_read_or_refused(offset: int, byte: int) -> None:
    data = bytearray(zip_of({name: body[:300] for name, body in FILES.items()}))
    data[offset % len(data)] = byte
    try:
        files_in(bytes(data))
    except BadArchive:
        return
