"""Namespaces, and a root file system that contains only the listed paths, read-only, and a small /tmp.

Source trees are opened as descriptors before anything is mounted, so they may be anywhere, also under /tmp.
"""

import ctypes
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from . import kernel
from .allowances import SCRATCH_FILES, SHARED_FILES

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
ALL_NAMESPACES = NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS | NEWCGROUP

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 1 << 14, 1 << 18
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
AT_FDCWD = -100
EMPTY_PATH, RECURSIVE, CLONE_TREE, TREE_CLOEXEC, MOVE_MOUNT_F_EMPTY_PATH = 0x1000, 0x8000, 1, os.O_CLOEXEC, 4

#: Where the new root is mounted: exists on every Linux; covered only in the new mount namespace, until pivot_root.
NEW_ROOT = "/tmp"

#: The writable folder.
SCRATCH = "/tmp"

#: Mount point of the new process namespace's /proc, beside a few bound files of the host's; /proc/self links into it.
OWN_PROC = "/proc/own"

DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")

#: Memory that processes share by name (shm_open).
SHARED_MEMORY = "/dev/shm"

#: In a sandbox whose root is a folder of packages: where it has what is this machine's, each at its real path.
MACHINE = "/windtunnel"


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user", ctypes.c_uint64),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The real paths to bind, and the symbolic links (name, target) from the requested names to them.

    ``copies``: paths at which a real path (or a path in it) is bound a second time. ``writable``: real paths of folders
    that are bound to be written to.
    """

    real: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    copies: tuple[tuple[str, str], ...] = ()
    writable: tuple[str, ...] = ()

    @property
    def sources(self) -> dict[str, str]:
        """What to bind at each path."""
        return dict(zip(self.real, self.real, strict=True)) | dict(self.copies)


def layout(paths: Iterable[str]) -> Layout:
    """Resolve which paths to bind and which links to create: each real path once, none below another."""
    requested = sorted({os.path.abspath(path) for path in paths})
    real: list[str] = []
    for path in sorted({os.path.realpath(path) for path in requested}):
        if not any(path == other or path.startswith(other.rstrip("/") + "/") for other in real):
            real.append(path)
    links: dict[str, str] = {}
    for path in requested:
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            prefix = "/".join(parts[:end])
            if any(prefix == other or prefix.startswith(other + "/") for other in real):
                break  # the bound folder contains its own links
            if os.path.islink(prefix):
                links[prefix] = os.path.realpath(prefix)
                break
    return Layout(real=tuple(real), links=tuple(links.items()))


def root_layout(root: str, machine: Iterable[str]) -> Layout:
    """Return the layout whose root is a folder of packages: its folders, and its links, at their names.

    ``machine``: paths of this machine, each of which is bound at its real path below MACHINE.
    """
    entries = [entry for entry in os.scandir(root) if f"/{entry.name}" not in ("/dev", "/proc", "/sys", SCRATCH)]
    copies = {f"/{entry.name}": entry.path for entry in entries if entry.is_dir(follow_symlinks=False)}
    links = tuple((f"/{entry.name}", os.readlink(entry.path)) for entry in entries if entry.is_symlink())
    copies |= {MACHINE + path: path for path in layout(machine).real}
    return Layout(real=(), links=links, copies=tuple(copies.items()))


def without_links_in_scratch(requested: Layout) -> Layout:
    """Bind a path twice where a symbolic link would lie in the scratch itself: the model could replace the link."""
    copies: dict[str, str] = {}
    links = []
    for link, target in requested.links:
        if os.path.dirname(link) != SCRATCH:
            links.append((link, target))
            continue
        copies |= {link + path[len(target) :]: path for path in requested.real if f"{path}/".startswith(f"{target}/")}
        if any(target.startswith(f"{path}/") for path in requested.real):
            copies[link] = target
    return replace(requested, links=tuple(links), copies=(*requested.copies, *copies.items()))


def unshare(*, as_user: bool, network: bool = True) -> None:
    """Unshare all namespaces; with ``as_user`` also the user namespace, in which the user is mapped to itself.

    ``network``: also the network's.
    """
    user, group = os.getuid(), os.getgid()
    kernel.call("unshare", (ALL_NAMESPACES if network else ALL_NAMESPACES & ~NEWNET) | (NEWUSER if as_user else 0))
    if as_user:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def enter_root(
    new_layout: Layout, *, scratch_mb: int, user: int, group: int, hosts: Mapping[str, str] | None = None
) -> str | None:
    """Build the new root and pivot into it; return the path of its own /proc, or None if it could not be mounted.

    Runs as the first process of the new process namespace, because /proc shows the namespace of the mounting process.
    ``hosts``: for the ranks of a coupled program, names of hosts with their addresses; they may also execute what is in
    the scratch, and share as much memory by name.
    """
    kernel.mount(None, "/", None, MS_REC | MS_PRIVATE)
    if scratch_mb:
        new_layout = without_links_in_scratch(new_layout)
    trees = {path: _open_tree(source, readonly=True) for path, source in new_layout.sources.items()}
    trees |= {path: _open_tree(path, readonly=False, devices=False) for path in new_layout.writable}
    devices = {path: _open_tree(path, readonly=False) for path in DEVICES}
    kernel.mount("tmpfs", NEW_ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=4k,mode=755")
    for path in ("/dev", "/proc", OWN_PROC, SCRATCH):
        os.mkdir(NEW_ROOT + path)
    covers: Sequence[str] = ()
    if scratch_mb:
        files, flags = (SCRATCH_FILES, MS_NOEXEC) if hosts is None else (SHARED_FILES, 0)
        options = f"size={scratch_mb}m,nr_inodes={files},mode=700,uid={user},gid={group}"
        kernel.mount("tmpfs", f"{NEW_ROOT}{SCRATCH}", "tmpfs", MS_NOSUID | MS_NODEV | flags, options)
        covers = _cover((*trees, *dict(new_layout.links)))
        if hosts is not None:
            os.mkdir(NEW_ROOT + SHARED_MEMORY)
            kernel.mount("tmpfs", NEW_ROOT + SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)
            accounts = _write_accounts(hosts, user=user, group=group, covering="/etc" in trees)
            trees |= accounts  # after /etc, which they are in
    _mount_trees(trees | devices)
    for link, target in (*new_layout.links, ("/proc/self", "own/self"), ("/proc/thread-self", "own/thread-self")):
        os.makedirs(os.path.dirname(NEW_ROOT + link), exist_ok=True)
        os.symlink(target, NEW_ROOT + link)
    for cover in covers:
        _set_attributes(AT_FDCWD, os.fsencode(cover), ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, 0)
    proc = OWN_PROC if _mount_proc() else None
    os.chdir(NEW_ROOT)
    kernel.call("pivot_root", b".", b".")
    kernel.detach(".")
    os.chdir("/")
    # Not recursively: /tmp stays writable.
    _set_attributes(AT_FDCWD, b"/", ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, 0)
    return proc


def _write_accounts(hosts: Mapping[str, str], *, user: int, group: int, covering: bool) -> dict[str, int]:
    """Write what a program looks up by name: the hosts, one user and one group.

    ``covering``: they go over files of a folder that is bound at /etc; return the trees to be mounted there.
    """
    folder = f"{NEW_ROOT}/{'.accounts' if covering else 'etc'}"
    os.mkdir(folder)
    texts = {
        "hosts": "127.0.0.1 localhost\n::1 localhost\n"
        + "".join(f"{address} {name}\n" for name, address in hosts.items()),
        "passwd": f"ranks:x:{user}:{group}::{SCRATCH}:/bin/sh\n",
        "group": f"ranks:x:{group}:\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
    for name, text in texts.items():
        with open(f"{folder}/{name}", "w") as file:
            file.write(text)
    return {f"/etc/{name}": _open_tree(f"{folder}/{name}", readonly=True) for name in texts} if covering else {}


def _cover(paths: Iterable[str]) -> Sequence[str]:
    """Mount a small file system over each folder of the scratch that leads to one of these paths; return them.

    Otherwise the mount points would be folders that the confined process may rename and, as their owner, write to.
    Each cover is made read-only once the mount points are in it.
    """
    below = (path.removeprefix(f"{SCRATCH}/") for path in paths if path.startswith(f"{SCRATCH}/"))
    covers = sorted({f"{NEW_ROOT}{SCRATCH}/{path.partition('/')[0]}" for path in below if "/" in path})
    for cover in covers:
        os.mkdir(cover)
        kernel.mount("tmpfs", cover, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=4k,mode=755")
    return covers


def _open_tree(path: str, *, readonly: bool, devices: bool = True) -> int:
    """Open a detached copy of the mount tree at a path and set its mount attributes."""
    flags = CLONE_TREE | TREE_CLOEXEC | RECURSIVE
    tree = kernel.call("open_tree", AT_FDCWD, os.fsencode(path), flags)
    # A device on a read-only mount can still be written; on a nodev mount it could not be opened.
    attributes = ATTR_NOSUID
    attributes |= ATTR_RDONLY if readonly or devices else 0
    attributes |= ATTR_NODEV if readonly or not devices else 0
    _set_attributes(tree, b"", attributes, EMPTY_PATH | RECURSIVE)
    return tree


def _mount_trees(trees: dict[str, int]) -> None:
    """Mount the trees in the new root under their own paths, which contain no symbolic links."""
    for path, tree in trees.items():
        target = NEW_ROOT + path
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not os.path.lexists(target):  # else it covers a file of a folder that is bound read-only
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
        kernel.call("move_mount", tree, b"", AT_FDCWD, os.fsencode(target), MOVE_MOUNT_F_EMPTY_PATH)
        os.close(tree)


def _mount_proc() -> bool:
    try:
        flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY
        kernel.mount("proc", NEW_ROOT + OWN_PROC, "proc", flags, "hidepid=2,subset=pid")
    except PermissionError:
        # In a container with a masked /proc a user may not mount an unmasked /proc. The sandbox works without.
        return False
    return True


def _set_attributes(directory: int, path: bytes, attributes: int, flags: int) -> None:
    structure = _Attributes(attributes, 0, 0, 0)
    kernel.call("mount_setattr", directory, path, flags, structure, ctypes.sizeof(structure))


def first_unreadable(paths: Sequence[str]) -> str | None:
    """Return the first path that this process may not read, or None."""
    for path in paths:
        if not os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)):
            return path
    return None
