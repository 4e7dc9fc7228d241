"""Mutated archives for fuzzing: real zips and tars with changed fields, cut, repeated and moved slices."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping

import pyarrow
from hypothesis import strategies as st

from tests.unit.test_zip_directory import with_zip64_records

FILES = {"model.py": b"class Model: ...\n" * 9, "deep/": b"", "deep/b.bin": bytes(range(256)), "ä" * 40: b"", "e": b"x"}
#: Values at which sizes, offsets and counts overflow, by their width in bytes.
EDGES: Mapping[int, list[int]] = {
    width: sorted({0, 1, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits) - 2, (1 << bits) - 1, 22, 512})
    for width, bits in ((2, 16), (4, 32), (8, 64))
}


def zip_of(method: int = zipfile.ZIP_DEFLATED, *, streamed: bool = False) -> bytes:
    """Return a zip of FILES; ``streamed``: with data descriptors and zip64 extra fields."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.comment = b"comment"
        for name, body in FILES.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=streamed) as file:
                file.write(body)
    return buffer.getvalue()


def tar_of(format: int) -> bytes:
    """Return a tar of FILES, with a long name and a large pax header."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for name, body in (FILES | {"n" * 120 + "/" + "m" * 90: b"long"}).items():
            member = tarfile.TarInfo(name.rstrip("/"))
            member.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            member.size = len(body)
            if format == tarfile.PAX_FORMAT:
                member.pax_headers = {"comment": "c" * 50, "size": str(len(body))}
            archive.addfile(member, io.BytesIO(body))
    return buffer.getvalue()


def zstd_of(data: bytes) -> bytes:
    """Return data, compressed by zstd."""
    buffer = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(buffer, "zstd") as stream:
        stream.write(data)
    return bytes(buffer.getvalue())


ZIPS = [
    zip_of(),
    zip_of(zipfile.ZIP_STORED),
    zip_of(zipfile.ZIP_LZMA),
    zip_of(streamed=True),
    with_zip64_records(zip_of(zipfile.ZIP_STORED)),
]
TARS = [tar_of(format) for format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)]
COMPRESSIONS: list[Callable[[bytes], bytes]] = [bytes, gzip.compress, bz2.compress, lzma.compress, zstd_of]
#: Signatures of a zip's records, from which fields are counted.
_RECORDS = (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08")


@st.composite
def mutated(draw: st.DrawFn, archives: list[bytes]) -> bytes:
    """Draw an archive with one to six mutations."""
    data = bytearray(draw(st.sampled_from(archives)))
    for _ in range(draw(st.integers(1, 6))):
        if data:
            _mutate(draw, data)
    return bytes(data)


def _mutate(draw: st.DrawFn, data: bytearray) -> None:
    kind = draw(st.sampled_from(["field", "record", "record", "byte", "cut", "repeat", "remove", "insert"]))
    offset = draw(st.integers(0, len(data) - 1))
    if kind == "record" and (starts := _records(data)):
        offset = min(draw(st.sampled_from(starts)) + draw(st.integers(4, 110)), len(data) - 1)
    if kind in {"field", "record"}:
        width = draw(st.sampled_from([2, 4, 8]))
        value = draw(st.one_of(st.sampled_from(EDGES[width]), st.integers(0, (1 << 8 * width) - 1)))
        data[offset : offset + width] = struct.pack("<Q", value)[:width]
    elif kind == "byte":
        data[offset] = draw(st.integers(0, 255))
    elif kind == "cut":
        del data[offset:]
    else:
        end = offset + draw(st.integers(1, 600))
        if kind == "repeat":
            data[end:end] = data[offset:end] * draw(st.integers(1, 3))
        elif kind == "remove":
            del data[offset:end]
        else:
            data[offset:offset] = draw(st.binary(max_size=60))


def _records(data: bytearray) -> list[int]:
    return [at for record in _RECORDS for at in range(len(data)) if data.startswith(record, at)]


@st.composite
def mutated_tars(draw: st.DrawFn) -> bytes:
    """Draw a tar with changed header fields and valid checksums, compressed or not, and then perhaps mutated again."""
    data = bytearray(draw(st.sampled_from(TARS)))
    for _ in range(draw(st.integers(0, 3))):
        header = 512 * draw(st.integers(0, len(data) // 512 - 1))
        offset, width = draw(st.sampled_from([(0, 100), (100, 8), (124, 12), (148, 8), (156, 1), (257, 8), (345, 155)]))
        field = draw(st.one_of(st.binary(max_size=width), st.sampled_from(_TAR_FIELDS)))[:width]
        data[header + offset : header + offset + len(field)] = field
        if draw(st.booleans()):
            block = data[header : header + 512]
            data[header + 148 : header + 156] = b"%06o\0 " % (sum(block) - sum(block[148:156]) + 256)
    if draw(st.booleans()):
        _mutate(draw, data)
    packed = bytearray(draw(st.sampled_from(COMPRESSIONS))(bytes(data)))
    if packed and draw(st.booleans()):
        _mutate(draw, packed)
    return bytes(packed)


_TAR_FIELDS = [
    *(bytes([kind]) for kind in b"01234567xgLKSVMN\0"),
    b"\x80" + b"\xff" * 11,
    b"\xff" * 12,
    b"77777777777\0",
    b"-1\0",
    b"+7\0",
    b" 7_7 \0",
    "٣\0".encode(),
    b"21 path=../../etc/x\n",
    b"99999999999999999999 path=x\n",
    b"0 path=x\n",
    b"1 \n",
    b"\xb2 path=x\n",
    b"20 size=-00000000001\n",
    b"30 size=99999999999999999999\n",
]
