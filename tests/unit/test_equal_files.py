"""Equal files of environments become one file, and only those that are equal in every byte."""

import os
from pathlib import Path

import pytest

from runtimes.equal_files import SMALLEST, link_equal_files

LARGE = b"x" * SMALLEST


@pytest.fixture
def environments(tmp_path: Path) -> tuple[Path, Path]:
    """An environment that stands, and a new one, both with a folder `package`."""
    folders = tmp_path / "first", tmp_path / "second"
    for folder in folders:
        (folder / "package").mkdir(parents=True)
    return folders


def write(folder: Path, content: bytes, *, name: str = "package/library.so", mode: int = 0o444) -> Path:
    path = folder / name
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_equal_libraries_are_one_file_afterwards(environments: tuple[Path, Path]) -> None:
    first, second = environments
    kept, replaced = write(first, LARGE), write(second, LARGE)
    inode = kept.stat().st_ino
    assert link_equal_files(second, [first]) == len(LARGE)
    assert replaced.samefile(kept) and kept.stat().st_ino == inode and replaced.read_bytes() == LARGE
    assert [path.name for path in replaced.parent.iterdir()] == ["library.so"]


@pytest.mark.parametrize(
    ("content", "others", "mode"),
    [
        (LARGE, LARGE[:-1] + b"y", 0o444),
        (LARGE, LARGE + b"x", 0o444),
        (LARGE[:-1], LARGE[:-1], 0o444),
        (LARGE, LARGE, 0o644),
    ],
    ids=["another last byte", "longer", "small", "writable"],
)
def test_other_files_stay_what_they_are(
    environments: tuple[Path, Path], content: bytes, others: bytes, mode: int
) -> None:
    first, second = environments
    write(first, others, mode=mode)
    path = write(second, content, mode=mode)
    assert link_equal_files(second, [first]) == 0
    assert path.stat().st_nlink == 1 and path.read_bytes() == content


def test_a_library_that_may_be_executed_is_not_one_that_may_not(environments: tuple[Path, Path]) -> None:
    first, second = environments
    write(first, LARGE, mode=0o555)
    assert not os.access(write(second, LARGE), os.X_OK)
    assert link_equal_files(second, [first]) == 0


def test_links_are_not_followed(environments: tuple[Path, Path]) -> None:
    first, second = environments
    (first / "package" / "library.so").symlink_to(write(first, LARGE, name="outside.so"))
    path = write(second, LARGE)
    assert link_equal_files(second, [first]) == 0
    assert path.stat().st_nlink == 1


def test_a_file_system_without_links_keeps_copies(
    environments: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = environments
    write(first, LARGE)
    path = write(second, LARGE)

    def refuse(*_: object) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert link_equal_files(second, [first]) == 0
    assert path.read_bytes() == LARGE
