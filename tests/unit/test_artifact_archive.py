"""Archive of artifacts: a zip whose length and bytes are known before it is sent."""

import io
import zipfile
import zlib
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from core.domain import archive
from core.domain.archive import ArchiveMember


def member(name: str, content: bytes) -> ArchiveMember:
    def read(start: int, stop: int) -> Iterator[bytes]:
        yield content[start:stop]

    return ArchiveMember(name, len(content), zlib.crc32(content), read)


files = st.dictionaries(st.text("abcdé/.-", min_size=1, max_size=12), st.binary(max_size=200), max_size=6)


@given(files)
def test_the_zip_has_the_announced_length_and_python_reads_it(contents: dict[str, bytes]) -> None:
    members = [member(name, content) for name, content in contents.items()]
    size = archive.measure(members)
    whole = b"".join(archive.read(lambda: members, 0, size))
    assert len(whole) == size
    with zipfile.ZipFile(io.BytesIO(whole)) as opened:
        assert opened.testzip() is None
        assert {info.filename: opened.read(info) for info in opened.infolist()} == contents


@given(files, st.data())
def test_every_range_of_a_zip_is_a_slice_of_it(contents: dict[str, bytes], data: st.DataObject) -> None:
    members = [member(name, content) for name, content in contents.items()]
    size = archive.measure(members)
    whole = b"".join(archive.read(lambda: members, 0, size))
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    assert b"".join(archive.read(lambda: members, start, stop)) == whole[start:stop]
