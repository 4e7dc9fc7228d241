"""Home folder: closed to other users, with ways to what sandboxed processes of other users read."""

import os
import stat
import tempfile
from pathlib import Path

from common.full_disks import is_disk_full

#: umask of every process of the platform: its files are for its own user.
UMASK = 0o077
#: Mode of folders that other users may pass, without listing them.
PASSABLE = 0o711
#: Folders of a home above what sandboxed processes read: packages, models and datasets, scenario folders.
READ_BY_SANDBOX = (
    "environments",
    "openenv",
    "cache",
    "cache/model_folders",
    "cache/objects",
    "cache/partial",
    "cache/trees",
    "packages",
    "plays",
)


class UnusableHome(Exception):
    """The home folder cannot be made, or written to; the text has the next step."""


def make(home: Path) -> None:
    """Make a home and its folder of sockets and locks, closed to other users; raise UnusableHome if that fails."""
    run_dir = home / "run"
    try:
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Permissions of the folder alone do not tell whether the file system can be written to, least of all to root.
        descriptor, name = tempfile.mkstemp(dir=run_dir)
        os.close(descriptor)
        os.unlink(name)
    except OSError as error:
        if is_disk_full(error):  # the platform runs, and refuses what needs space
            return
        raise UnusableHome(
            f"The home folder {home} cannot be used: {error.strerror}. Set WINDTUNNEL_HOME (--home) to a folder that"
            " you may write to."
        ) from None


def close(home: Path, *, passable: bool) -> None:
    """Create a home, or tighten an existing home, so that no other user reads anything in it.

    What the sandbox reads is readable by everyone (its processes may have a user of their own), and lies in folders
    that are closed. At level 3 they are bound by root, or by the same user, and nothing has to be opened. At level 2 a
    process of another user passes every folder above its files: with ``passable`` it may, and only the names of the
    files, which are digests, protect them. Whatever belongs to another user, or is a link, stays as it is.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (home, *home.iterdir()):
        _close(path)
    for name in ("", *READ_BY_SANDBOX) if passable else ():
        folder = home / name
        folder.mkdir(exist_ok=True)
        if _is_own(folder):
            folder.chmod(PASSABLE)


def close_folder(folder: Path) -> None:
    """Close a folder outside the home, such as that of the object store, if it exists."""
    if folder.is_dir():
        _close(folder)


def open_bytecode(code: Path) -> None:
    """Let other users read the bytecode of modules that they may read: sandboxed processes would compile them again."""
    for folder in code.rglob("__pycache__"):
        for path, mode in ((folder, 0o755), *((file, 0o644) for file in folder.iterdir())):
            if _is_own(path):
                path.chmod(mode)


def _close(path: Path) -> None:
    if _is_own(path):
        path.chmod(stat.S_IMODE(path.stat().st_mode) & 0o700)


def _is_own(path: Path) -> bool:
    """Tell whether this user may set a path's mode, and the path is not a link to elsewhere."""
    try:
        status = path.lstat()
    except FileNotFoundError:  # another process has removed it
        return False
    return not stat.S_ISLNK(status.st_mode) and status.st_uid == os.geteuid()
