"""Permissions at rest: after a real run no other user can read anything of a home, old or new."""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.system.platform_process import MODELS, PlatformProcess

NOBODY = 65534


def opened_by_nobody(paths: Sequence[Path]) -> list[str]:
    """Return the paths that a user without any rights of its own can open; runs as root."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            for path in paths:
                with contextlib.suppress(OSError):
                    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
                    os.write(writer, f"{path}\n".encode())
            os.write(writer, b"done\n")
        os._exit(0)
    os.close(writer)
    with open(reader) as output:
        *opened, done = output.read().splitlines()
    os.waitpid(child, 0)
    assert done == "done"
    return opened


@pytest.fixture
def loose_home() -> Iterator[Path]:
    """A home of an earlier version, below folders that every user may pass."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        home = Path(name) / "home"
        (home / "objects").mkdir(parents=True)
        (home / "objects" / "old").write_text("secret")
        for path in (home, home / "objects"):
            path.chmod(0o755)
        yield home


def mode(path: Path) -> int:
    """Return the permissions of a file; none of one that the platform has removed meanwhile."""
    try:
        return stat.S_IMODE(path.lstat().st_mode)
    except FileNotFoundError:
        return 0


def test_after_a_run_no_other_user_can_read_anything_of_a_home(prepared_environments: None, loose_home: Path) -> None:
    process = PlatformProcess(loose_home)
    try:
        process.start()
        ended = process.run(model=MODELS / "echo.py", dataset="noop", scenarios={"range": [0, 20]})
        assert (ended["state"], ended["tasks"]["failed"]) == ("succeeded", 0), "the sandbox reads what it needs"
        paths = [path for path in loose_home.rglob("*") if not path.is_symlink()]
        assert mode(loose_home) == 0o700
        # What the sandbox reads is readable by everyone, in folders that are closed. Connecting to a socket needs the
        # folder, which is closed as well.
        loose = {path.relative_to(loose_home) for path in paths if mode(path) & 0o077 and not path.is_socket()}
        assert {path.parts[0] for path in loose} <= {"cache", "terminal.log", "objects"}
        assert {path for path in loose if path.parts[0] == "objects"} == {Path("objects/old")}
        for name in ("windtunnel.db", "objects", "cache", "logs", "run", "uploads", "valkey"):
            assert mode(loose_home / name) & 0o077 == 0, name
        if os.geteuid() == 0:
            assert opened_by_nobody([loose_home, *paths]) == []
    finally:
        process.stop()
