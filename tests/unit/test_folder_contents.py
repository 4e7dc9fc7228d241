"""Folders that are sent as datasets: the manifest, and an archive that is computed where it is read."""

import hashlib
import io
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.contents import BytesContent, FileContent
from windtunnel.errors import WindtunnelError
from windtunnel.folder_contents import FolderArchive, manifest_lines, safe_target, scan

FILES = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.binary(max_size=1500) | st.just(b"same"), min_size=1, max_size=5
)


def folder_of(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).write_bytes(content)
    return root


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@given(FILES, st.data())
def test_the_archive_has_each_content_once_and_reads_equally_from_any_offset(
    files: dict[str, bytes], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = folder_of(Path(name), files)
        lacking = set(data.draw(st.lists(st.sampled_from([digest(content) for content in files.values()]))))
        archive = FolderArchive(folder, scan(folder), lacking)
        whole = b"".join(archive.read(0, 700))
        assert len(whole) == archive.size and archive.contents == len(lacking)
        with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
            members = {f"sha256:{member.name}": tar.extractfile(member) for member in tar.getmembers()}
            contents = {key: member.read() for key, member in members.items() if member is not None}
        assert contents == {digest(content): content for content in files.values() if digest(content) in lacking}
        offset = data.draw(st.integers(0, archive.size))
        assert b"".join(archive.read(offset, 300)) == whole[offset:]


def test_a_manifest_lists_the_files_by_path(tmp_path: Path) -> None:
    for name in ("b.csv", "a/x.csv", "a-b.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    files = scan(tmp_path)
    assert [file.path for file in files] == ["a-b.csv", "a/x.csv", "b.csv"]
    assert manifest_lines(files).count(b"\n") == 3 and files[2].digest == digest(b"b.csv")


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "link/x"])
def test_a_file_of_a_dataset_is_not_written_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(WindtunnelError, match=r"leads out of (the folder|.* by a link)"):
        safe_target(folder, name)
    assert safe_target(folder, "a/b.csv") == folder / "a/b.csv"


@given(st.binary(max_size=2000), st.integers(1, 700), st.data())
def test_contents_of_uploads_read_equally_from_any_offset(content: bytes, count: int, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(content)))
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        for read in (FileContent(Path(file.name)), BytesContent("x", content)):
            pieces = list(read.read(offset, count))
            assert b"".join(pieces) == content[offset:] and all(len(piece) <= count for piece in pieces)


def test_a_file_that_becomes_shorter_while_it_is_sent_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_bytes(b"x" * 100)
    content = FileContent(file)
    file.write_bytes(b"x" * 10)
    with pytest.raises(WindtunnelError, match="became shorter"):
        list(content.read(0, 50))
