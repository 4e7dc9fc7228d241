"""Fuzzed archives: every reader of untrusted archives reads a mutated zip or tar, or refuses it with its own error."""

import errno
import gzip
import random
import struct
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadArchive
from datasets.versions.archives import ByteSource, files_of
from runtimes import archives
from runtimes.harness.models.base import Misfit
from runtimes.harness.models.unpacking import unpack
from tests.mutated_archives import ZIPS, mutated, mutated_tars, with_zip64_records, zip_of


class ReadBeyondEnd(Exception):
    """A reader asked for bytes that no file can have, which the operating system answers with an error."""


def source_of(data: bytes) -> ByteSource:
    """Return bytes as a source that is as strict as a file about offsets."""

    def read(start: int, stop: int) -> Iterator[bytes]:
        if not 0 <= start <= stop < 1 << 63:
            raise ReadBeyondEnd(f"{start} to {stop}")
        yield data[start:stop]

    return ByteSource(len(data), read)


def read_all(data: bytes) -> None:
    """Read every file of an archive, as a registration does."""
    for file in files_of(source_of(data), ratio_from=1 << 20):
        for _ in file.chunks:
            pass


@given(st.one_of(mutated(ZIPS), mutated_tars()))
def test_a_dataset_archive_is_read_or_refused(data: bytes) -> None:
    try:
        read_all(data)
    except BadArchive as error:
        assert error.detail


@given(mutated(ZIPS))
def test_the_names_of_a_models_zip_are_read_or_refused(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            archives.names(Path(file.name))
        except BadArchive as error:
            assert error.detail


@given(mutated(ZIPS))
def test_a_models_zip_is_unpacked_inside_its_folder_or_refused(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as outside:
        folder = Path(outside) / "inside"
        folder.mkdir()
        try:
            unpack(data, folder, most=1 << 20)
        except Misfit:
            pass
        assert [path.name for path in Path(outside).iterdir()] == ["inside"]
        assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= 1 << 20
        assert not any(path.is_symlink() for path in folder.rglob("*"))


@pytest.mark.parametrize("offset", [2**31, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("field", range(3))  # size, packed size, offset of the local header
def test_an_entry_beyond_the_file_is_refused_by_every_reader(tmp_path: Path, field: int, offset: int) -> None:
    data = bytearray(with_zip64_records(zip_of(zipfile.ZIP_STORED)))
    extra = data.index(struct.pack("<HH", 1, 24), data.rindex(b"PK\x01\x02"))
    struct.pack_into("<Q", data, extra + 4 + 8 * field, offset)
    path = tmp_path / "model.zip"
    path.write_bytes(data)
    with pytest.raises(BadArchive):
        archives.names(path)
    with pytest.raises(BadArchive):
        read_all(bytes(data))
    if field == 2:  # declared sizes are not used: the unpacked bytes are counted
        with pytest.raises(Misfit):
            unpack(bytes(data), tmp_path / "inside", most=1 << 20)


def test_an_error_of_the_source_is_not_a_damaged_archive() -> None:
    data = gzip.compress(random.Random(1).randbytes(5000))

    def read(start: int, stop: int) -> Iterator[bytes]:
        if stop < len(data):  # the first bytes, by which the format is detected
            yield data[start:stop]
        else:
            raise OSError(errno.EIO, "the disk fails")

    with pytest.raises(OSError, match="the disk fails"):
        list(files_of(ByteSource(len(data), read)))
