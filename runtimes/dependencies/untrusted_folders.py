"""Folders that a confined program has filled: measured, read and removed, whatever their depth, names and links."""

import contextlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common.ages import is_old_enough

#: Folders within each other at most: code of the standard library that walks folders calls itself for each.
DEPTH = 100
#: Seconds after which a workspace belongs to a job that was killed.
ABANDONED = 3600.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What a folder takes: bytes on disk, files with folders, and the depth. Counting ends beyond ``DEPTH``."""

    bytes: int
    entries: int
    depth: int


def usage_of(folder: Path, *, most: int) -> Usage:
    """Return what a folder takes; counting ends beyond ``most`` entries."""
    total = entries = deepest = 0
    pending = [(str(folder), 1)]
    while pending and entries <= most and deepest <= DEPTH:
        path, depth = pending.pop()
        deepest = max(deepest, depth)
        with contextlib.suppress(OSError), os.scandir(path) as found:  # it may be removed meanwhile
            for entry in found:
                entries += 1
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    total += max(status.st_size, status.st_blocks * 512)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((entry.path, depth + 1))
    return Usage(total, entries, deepest)


def read_text(path: Path, *, largest: int) -> str:
    """Return a file's text. Raise ValueError if it is not a regular file, or is too large, and OSError for a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path.name} is not a regular file")
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"{path.name} has more than {largest:,} bytes")
    return data.decode()


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it; no link is followed. What cannot be removed is left."""
    if not stat.S_ISDIR(_mode(folder)):
        return
    emptied, pending, name = [], [str(folder)], secrets.token_hex(8)
    while pending:
        current = pending.pop()
        emptied.append(current)
        with contextlib.suppress(OSError):
            os.chmod(current, 0o700)
            for entry in list(os.scandir(current)):
                with contextlib.suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                        continue
                    os.chmod(entry.path, 0o700)
                    above = f"{folder}/{name}-{len(emptied)}-{len(pending)}"  # moved up: no path becomes too long
                    if current != str(folder):
                        os.rename(entry.path, above)
                    pending.append(above if current != str(folder) else entry.path)
    for path in reversed(emptied):
        with contextlib.suppress(OSError):
            os.rmdir(path)


def _mode(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


@contextlib.contextmanager
def workspace(scratch: Path, prefix: str) -> Iterator[Path]:
    """Yield an empty folder for a confined program, and remove it; with it those of killed jobs, by ``prefix``."""
    scratch.mkdir(parents=True, exist_ok=True)
    for abandoned in scratch.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if is_old_enough(abandoned.lstat().st_mtime, ABANDONED, time.time()):
                remove(abandoned)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=scratch))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        remove(folder)
