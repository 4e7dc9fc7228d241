"""Artifact archive: a zip whose length is known before it is sent, readable at any range."""

import io
import zipfile
import zlib
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from core.domain.results import archive
from core.domain.results.archive import ArchiveMember


def member(name: str, content: bytes) -> ArchiveMember:
    def read(start: int, stop: int) -> Iterator[bytes]:
        yield content[start:stop]

    return ArchiveMember(name, len(content), zlib.crc32(content), read)


files = st.dictionaries(st.text("abcdé/.-", min_size=1, max_size=12), st.binary(max_size=200), max_size=6)


@given(files)
def test_the_zip_has_the_announced_length_and_is_read_by_python(contents: dict[str, bytes]) -> None:
    members = [member(name, content) for name, content in contents.items()]
    size = archive.measure(members)
    content = b"".join(archive.read(lambda: members, 0, size))
    assert len(content) == size
    with zipfile.ZipFile(io.BytesIO(content)) as zip_file:
        assert zip_file.testzip() is None
        assert {info.filename: zip_file.read(info) for info in zip_file.infolist()} == contents


@given(files, st.data())
def test_every_range_is_a_slice_of_the_zip(contents: dict[str, bytes], data: st.DataObject) -> None:
    members = [member(name, content) for name, content in contents.items()]
    size = archive.measure(members)
    content = b"".join(archive.read(lambda: members, 0, size))
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    assert b"".join(archive.read(lambda: members, start, stop)) == content[start:stop]
