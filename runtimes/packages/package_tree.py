"""Package tree: the folder that Debian packages are unpacked into, and that becomes the root of a sandbox.

Refused: devices, pipes, sockets, paths and links that lead out, and two packages with a file of the same name, which
only a diversion permits. Left out: what a case cannot need, `setuid` and other special bits, owners, and documents.
Links to absolute paths become relative: they mean paths of the tree, on this machine too.
"""

import os
import posixpath
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from runtimes.environments import OutOfSpace
from runtimes.packages.deb_archive import BadPackage, DebArchive

#: Most files, folders and links of a tree.
MOST_ENTRIES = 500_000
#: Folders at the top that Debian has merged into /usr, which links of their names lead to.
MERGED_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
#: Files that the sandbox writes for its one user and its hosts; they are there to be covered.
ACCOUNTS = ("hosts", "passwd", "group", "nsswitch.conf")
#: Folders of the sandbox's own, or of documents, that a program does not need.
LEFT_OUT = ("dev", "proc", "sys", "run", "tmp", "boot", "usr/share/doc", "usr/share/man", "usr/share/locale")


class PackageTree:
    """A folder that packages are unpacked into. ``largest``: most bytes of all files."""

    def __init__(self, root: Path, *, largest: int) -> None:
        self._root = root
        self._largest = largest
        self._owners: dict[str, str] = {}
        self._bytes = 0

    def add(self, package: str, archive: DebArchive) -> None:
        """Unpack a package. Raise BadPackage for what must not be in a tree, OutOfSpace if the tree is too large."""
        for member, content in archive.members():
            path = tree_path(member.name, package)
            if not path or path.startswith(tuple(f"{folder}/" for folder in LEFT_OUT)) or path in LEFT_OUT:
                continue
            if len(self._owners) >= MOST_ENTRIES:
                raise BadPackage(f"the packages have more than {MOST_ENTRIES:,} files")
            self._place(package, member, path, content)

    def _place(self, package: str, member: tarfile.TarInfo, path: str, content: IO[bytes] | None) -> None:
        target = self._root / path
        if member.isdir():
            self._make_folder(path, package)
            return
        if (owner := self._owners.get(path)) is not None:
            raise BadPackage(f"the packages {owner} and {package} both have {path}, which needs a diversion")
        self._make_folder(posixpath.dirname(path), package)
        if os.path.lexists(target):
            raise BadPackage(f"{path} of {package} is a folder of another package")
        if member.issym():
            os.symlink(relative_link(path, member.linkname, package), target)
        elif member.islnk():
            source = tree_path(member.linkname, package)
            if self._owners.get(source) != package:
                raise BadPackage(f"{path} of {package} is a link to {member.linkname}, which the package does not have")
            os.link(self._root / source, target, follow_symlinks=False)
        elif content is not None:
            self._bytes += member.size
            if self._bytes > self._largest:
                raise OutOfSpace(
                    f"the packages have more than {self._largest:,} bytes unpacked (WINDTUNNEL_MAX_ENVIRONMENT)"
                )
            with open(target, "xb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
            target.chmod(0o755 if member.mode & 0o100 else 0o644)
        else:
            raise BadPackage(f"{path} of {package} is a device, a pipe or a socket")
        self._owners[path] = package

    def _make_folder(self, path: str, package: str) -> None:
        """Make a folder and those above; none of them may be a link, which could lead anywhere."""
        folder = self._root
        for part in path.split("/") if path else ():
            folder = folder / part
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                raise BadPackage(f"{path} of {package} leads through {folder.name}, which is not a folder")
            folder.mkdir(exist_ok=True)

    def finish(self, links: Iterable[tuple[str, str]]) -> None:
        """Make what maintainer scripts would: links, those of merged folders, and a shell of the name `sh`."""
        for path, target in links:
            place = self._root / tree_path(path, "the lock")
            if os.path.lexists(place) or not os.path.lexists(self._root / tree_path(target, "the lock")):
                continue
            self._make_folder(posixpath.dirname(tree_path(path, "the lock")), "the lock")
            os.symlink(relative_link(tree_path(path, "the lock"), target, "the lock"), place)
        for name in MERGED_FOLDERS:
            if (self._root / "usr" / name).is_dir():
                os.symlink(f"usr/{name}", self._root / name)
        shell = self._root / "usr/bin/sh"
        if not os.path.lexists(shell) and (self._root / "usr/bin/dash").exists():
            os.symlink("dash", shell)
        (self._root / "etc").mkdir(exist_ok=True)
        for name in ACCOUNTS:
            account = self._root / "etc" / name
            account.unlink(missing_ok=True)
            account.touch()


def tree_path(path: str, package: str) -> str:
    """Return the place of a package's path in the tree; "" for its root. Raise BadPackage if it leads out."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\x00" in path:
        raise BadPackage(f"{path!r:.200} of {package} leads out of the tree")
    if parts and parts[0] in MERGED_FOLDERS:
        parts = ["usr", *parts]
    return "/".join(parts)


def relative_link(path: str, target: str, package: str) -> str:
    """Return the target of a link at ``path``, relative to its folder. Raise BadPackage if it leads out of the tree.

    An absolute target is a path of the tree.
    """
    folder = posixpath.dirname(path)
    whole = target if target.startswith("/") else f"/{folder}/{target}"
    depth = 0
    for part in whole.split("/"):
        depth += {"": 0, ".": 0, "..": -1}.get(part, 1)
        if depth < 0:
            raise BadPackage(f"{path} of {package} is a link to {target!r:.200}, which leads out of the tree")
    inside = posixpath.normpath(whole).lstrip("/")
    if target.startswith("/"):
        inside = tree_path(inside, package)
    return posixpath.relpath(f"/{inside}", f"/{folder}")
