"""Namespaces, and a file system that holds nothing but what was named, read-only, and a small /tmp.

Sources are taken hold of by descriptor before anything is mounted, so they may lie anywhere, under /tmp too.
"""

import ctypes
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import kernel

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
EVERY = NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS | NEWCGROUP

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 1 << 14, 1 << 18
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
HERE = -100
EMPTY_PATH, RECURSIVE, CLONE_TREE, TREE_CLOEXEC, FROM_DESCRIPTOR = 0x1000, 0x8000, 1, os.O_CLOEXEC, 4

#: Existing on every Linux; hidden only in our own mount namespace, and only until the new root is entered.
STAGE = "/tmp"

#: The namespace's own /proc lies beside the few files of the machine's that are bound; /proc/self leads into it.
OWN_PROC = "/proc/own"

DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user", ctypes.c_uint64),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Where bound paths really are, and the links that lead there under the names they were asked for."""

    real: tuple[str, ...]
    links: tuple[tuple[str, str], ...]


def layout(paths: Iterable[str]) -> Layout:
    """Decide what to bind and which links to make: each real path once, and none below another."""
    wanted = sorted({os.path.abspath(path) for path in paths})
    real: list[str] = []
    for path in sorted({os.path.realpath(path) for path in wanted}):
        if not any(path == other or path.startswith(other.rstrip("/") + "/") for other in real):
            real.append(path)
    links: dict[str, str] = {}
    for path in wanted:
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            prefix = "/".join(parts[:end])
            if any(prefix == other or prefix.startswith(other + "/") for other in real):
                break  # the bound folder brings its own links along
            if os.path.islink(prefix):
                links[prefix] = os.path.realpath(prefix)
                break
    return Layout(real=tuple(real), links=tuple(links.items()))


def leave(*, as_user: bool) -> None:
    """Part from the machine's mounts, processes, network and the rest; an ordinary user maps to itself."""
    user, group = os.getuid(), os.getgid()
    kernel.call("unshare", EVERY | (NEWUSER if as_user else 0))
    if as_user:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def enter(wanted: Layout, *, scratch_mb: int, user: int, group: int) -> str | None:
    """Build the new root and step into it; return where its own /proc is, if it has one.

    Runs as the first process of the new process namespace, because /proc shows the namespace of who mounts it.
    """
    kernel.mount(None, "/", None, MS_REC | MS_PRIVATE)
    trees = {path: _take(path, readonly=True) for path in wanted.real}
    devices = {path: _take(path, readonly=False) for path in DEVICES}
    kernel.mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=4k,mode=755")
    for path in ("/dev", "/proc", OWN_PROC, "/tmp"):
        os.mkdir(STAGE + path)
    if scratch_mb:
        options = f"size={scratch_mb}m,nr_inodes=1000,mode=700,uid={user},gid={group}"
        kernel.mount("tmpfs", f"{STAGE}/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)
    _put(trees | devices)
    for link, target in (*wanted.links, ("/proc/self", "own/self"), ("/proc/thread-self", "own/thread-self")):
        os.makedirs(os.path.dirname(STAGE + link), exist_ok=True)
        os.symlink(target, STAGE + link)
    proc = OWN_PROC if _mount_proc() else None
    os.chdir(STAGE)
    kernel.call("pivot_root", b".", b".")
    kernel.detach(".")
    os.chdir("/")
    # Not recursively: /tmp stays writable.
    _set(HERE, b"/", ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, 0)
    return proc


def _take(path: str, *, readonly: bool) -> int:
    """Take hold of a copy of the mount tree at a path, with what it may be used for."""
    flags = CLONE_TREE | TREE_CLOEXEC | RECURSIVE
    tree = kernel.call("open_tree", HERE, os.fsencode(path), flags)
    # A read-only mount still lets a device be written; nodev would not let it be opened.
    _set(tree, b"", (ATTR_RDONLY | ATTR_NODEV if readonly else ATTR_RDONLY) | ATTR_NOSUID, EMPTY_PATH | RECURSIVE)
    return tree


def _put(trees: dict[str, int]) -> None:
    """Hang the trees into the new root under their own names. No name here has a link in it."""
    for path, tree in trees.items():
        target = STAGE + path
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
        kernel.call("move_mount", tree, b"", HERE, os.fsencode(target), FROM_DESCRIPTOR)
        os.close(tree)


def _mount_proc() -> bool:
    try:
        flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY
        kernel.mount("proc", STAGE + OWN_PROC, "proc", flags, "hidepid=2,subset=pid")
    except PermissionError:
        # In a container whose own /proc is masked a user may not mount a whole one. Nothing here needs it.
        return False
    return True


def _set(place: int, path: bytes, attributes: int, flags: int) -> None:
    structure = _Attributes(attributes, 0, 0, 0)
    kernel.call("mount_setattr", place, path, flags, structure, ctypes.sizeof(structure))


def unreadable(paths: Sequence[str]) -> str | None:
    """Name the first path that this process may not read, or None."""
    for path in paths:
        if not os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)):
            return path
    return None
