"""Untrusted archives: which are read, which are refused, and bounds on the cost of both."""

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

from datasets.versions.archives import ByteSource, files_of
from errors import BadArchive, BadName

FILES = {"a.txt": b"alpha", "deep/b.bin": bytes(range(256)) * 500, "empty": b"", "n" * 200 + "/" + "m" * 200: b"long"}


def blob(data: bytes, piece: int = 1000) -> ByteSource:
    """Return bytes as a source that is read in pieces, as uploads are."""

    def read(start: int, stop: int) -> Iterator[bytes]:
        for at in range(start, min(stop, len(data)), piece):
            yield data[at : min(at + piece, stop)]

    return ByteSource(len(data), read)


def read(data: bytes, piece: int = 1000, **limits: int) -> dict[str, bytes]:
    """Read all files of an archive."""
    return {file.path: b"".join(file.chunks) for file in files_of(blob(data, piece), **limits)}


def tar(members: list[tuple[tarfile.TarInfo, bytes]], format: int = tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=format) as archive:
        for member, body in members:
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return packed.getvalue()


def plain(format: int = tarfile.PAX_FORMAT) -> bytes:
    return tar([(tarfile.TarInfo(name), body) for name, body in FILES.items()], format)


def zipped(files: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", how) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return packed.getvalue()


def zstd(data: bytes) -> bytes:
    packed = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(packed, "zstd") as stream:
        stream.write(data)
    return bytes(packed.getvalue())


PACKED: list[Callable[[bytes], bytes]] = [lambda data: data, gzip.compress, bz2.compress, lzma.compress, zstd]


@pytest.mark.parametrize("pack", PACKED)
@pytest.mark.parametrize("piece", [7, 1000, 1 << 20])
def test_a_tar_is_read_with_every_compression(pack: Callable[[bytes], bytes], piece: int) -> None:
    assert read(pack(plain()), piece) == FILES


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_are_read_in_gnu_and_pax_format(format: int) -> None:
    assert read(plain(format)) == FILES


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_is_read(how: int) -> None:
    assert read(zipped(FILES, how)) == FILES


def test_a_zip_of_the_current_folder_is_read() -> None:
    assert read(zipped({"./": b"", "./deep/": b"", "./a.txt": b"alpha"})) == {"a.txt": b"alpha"}
    with pytest.raises(BadName):
        read(zipped({"../": b"", "a.txt": b"alpha"}))


def test_small_members_of_a_zip_are_read_in_batches() -> None:
    files = {f"{number // 100}/{number}": b"%d" % number for number in range(2000)} | {"z": bytes(3 << 20)}
    whole, reads = blob(zipped(files, zipfile.ZIP_STORED), 1 << 20), []

    def counted(start: int, stop: int) -> Iterator[bytes]:
        reads.append(start)
        return whole.read(start, stop)

    assert {file.path: b"".join(file.chunks) for file in files_of(ByteSource(whole.size, counted))} == files
    assert len(reads) < 20


def test_concatenated_gzip_streams_are_one_archive() -> None:
    data = plain()
    assert read(gzip.compress(data[:700]) + gzip.compress(data[700:]) + b"\0" * 512) == FILES


def test_unread_members_are_skipped() -> None:
    assert [file.path for file in files_of(blob(plain()))] == list(FILES)


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
        assert read(tar([(member, b"")])) == {"x": b""}
        return
    with pytest.raises(BadArchive):
        read(tar([(member, b"")]))


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a\\..\\x", "a\nb", "x" * 10_000, "a//b", "."])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    for data in (tar([(tarfile.TarInfo(name), b"x")]), zipped({name: b"x"})):
        with pytest.raises(BadName):
            read(data)


def test_a_name_that_is_not_utf8_is_refused() -> None:
    data = tar([(tarfile.TarInfo("aaaa"), b"x")], tarfile.USTAR_FORMAT).replace(b"aaaa", b"\xff\xfeaa", 1)
    header = bytearray(data[:512])
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 256 + sum(header[156:]))
    with pytest.raises(BadName):
        read(bytes(header) + data[512:])


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd])
def test_a_decompression_bomb_is_stopped_during_unpacking(pack: Callable[[bytes], bytes]) -> None:
    data = pack(tar([(tarfile.TarInfo("zeros"), bytes(32 << 20))]))
    tracemalloc.start()
    with pytest.raises(BadArchive, match="times its size"):
        for file in files_of(blob(data, 1 << 16), ratio_from=1 << 20):
            for _ in file.chunks:
                pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_zip_bomb_is_refused_before_unpacking() -> None:
    with pytest.raises(BadArchive, match="times its size"):
        read(zipped({"zeros": bytes(32 << 20)}), ratio_from=1 << 20)


def test_members_of_a_zip_that_share_their_data_are_refused() -> None:
    data = bytearray(zipped({"a": b"x" * 100, "b": b"y" * 100}, zipfile.ZIP_STORED))
    second = data.rindex(b"PK\x01\x02")
    data[second + 42 : second + 46] = struct.pack("<I", 0)
    with pytest.raises(BadArchive, match="overlaps"):
        read(bytes(data))


def test_a_zip_that_lies_about_a_size_is_refused() -> None:
    data = bytearray(zipped({"a": b"x" * 1000}))
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", 10)
    with pytest.raises(BadArchive, match="does not match its size or CRC"):
        read(bytes(data))


def test_a_zip_with_a_flipped_bit_is_refused() -> None:
    data = bytearray(zipped({"a": bytes(range(256)) * 10}, zipfile.ZIP_STORED))
    data[100] ^= 1
    with pytest.raises(BadArchive):
        read(bytes(data))


def test_a_directory_of_too_many_entries_is_not_read() -> None:
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 60_000, 60_000, 17 << 20, 0, 0)
    with pytest.raises(BadArchive):
        read(b"PK\x03\x04" + bytes(1000) + end)


@pytest.mark.parametrize("pack", PACKED)
def test_a_truncated_archive_is_refused_wherever_it_ends(pack: Callable[[bytes], bytes]) -> None:
    data = pack(plain())
    last = len(data) - (10_000 if pack is PACKED[0] else 1)  # a plain tar ends in zeros, of which two blocks would do
    for part in (20, len(data) // 3, len(data) // 2, last):
        with pytest.raises(BadArchive):
            read(data[:part])


@given(st.binary(max_size=3000))
def test_random_bytes_are_refused_without_another_error(data: bytes) -> None:
    for head in (b"", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08\x00", b"BZh9", b"\xfd7zXZ\x00"):
        with pytest.raises(BadArchive):
            read(head + data)


@given(st.integers(0, 9000), st.integers(0, 255))
def test_a_tar_with_one_byte_changed_is_read_or_refused(at: int, byte: int) -> None:
    data = bytearray(plain())
    data[at % len(data)] = byte
    try:
        read(bytes(data))
    except BadArchive:
        return


@given(st.integers(0, 3000), st.integers(0, 255))
def test_a_zip_with_one_byte_changed_is_read_or_refused(at: int, byte: int) -> None:
    data = bytearray(zipped({name: body[:300] for name, body in FILES.items()}))
    data[at % len(data)] = byte
    try:
        read(bytes(data))
    except BadArchive:
        return
