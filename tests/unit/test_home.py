"""Home folder: modes after a start, on a new and on an existing home."""

import os
import stat
from pathlib import Path

import pytest

from runtimes.environments import freeze
from server.home import READ_BY_SANDBOX, close, open_bytecode


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def loose_home(tmp_path: Path) -> Path:
    """A home of an earlier version, which every user could read."""
    home = tmp_path / "home"
    for folder in ("objects/models", "cache/objects", "logs"):
        (home / folder).mkdir(parents=True)
    for file in ("windtunnel.db", "objects/models/m", "connections.json"):
        (home / file).write_text("secret")
        (home / file).chmod(0o644)
    (tmp_path / "shared").mkdir()
    (home / "environments").symlink_to(tmp_path / "shared")
    for folder, _, _ in os.walk(home):
        os.chmod(folder, 0o755)
    return home


def test_an_existing_home_is_tightened(loose_home: Path) -> None:
    shared = mode(loose_home.parent / "shared")
    close(loose_home, passable=False)
    assert mode(loose_home) == 0o700
    assert {path.name: mode(path) for path in loose_home.iterdir() if not path.is_symlink()} == {
        "objects": 0o700, "cache": 0o700, "logs": 0o700, "windtunnel.db": 0o600, "connections.json": 0o600,
    }  # fmt: skip
    assert mode(loose_home.parent / "shared") == shared, "a folder that several homes share stays as it is"


def test_at_level_2_only_the_folders_above_what_the_sandbox_reads_can_be_passed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    close(home, passable=True)
    assert {path.relative_to(home).as_posix(): mode(path) for path in home.rglob("*")} == dict.fromkeys(
        READ_BY_SANDBOX, 0o711
    )
    (home / "windtunnel.db").touch(0o644)
    close(home, passable=True)
    assert (mode(home), mode(home / "windtunnel.db")) == (0o711, 0o600)
    close(home, passable=False)
    assert mode(home) == mode(home / "cache") == 0o700


def test_an_environment_can_be_read_by_every_user_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        package = tmp_path / "draft" / "site" / "package"
        package.mkdir(parents=True)
        (package / "module.py").touch()
        (package / "library.so").touch(0o700)
        freeze(tmp_path / "draft")
    finally:
        os.umask(before)
    assert mode(package) == mode(tmp_path / "draft") == 0o755
    assert mode(package / "module.py") == 0o444 and mode(package / "library.so") == 0o555


def test_bytecode_can_be_read_by_every_user(tmp_path: Path) -> None:
    folder = tmp_path / "harness" / "__pycache__"
    folder.mkdir(mode=0o700, parents=True)
    (folder / "module.pyc").touch(0o600)
    open_bytecode(tmp_path)
    assert mode(folder) == 0o755 and mode(folder / "module.pyc") == 0o644
