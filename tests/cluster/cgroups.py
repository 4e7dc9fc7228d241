"""Cgroups of a test cluster, with the same name in every hierarchy; only they outlive a killed session."""

import os
from contextlib import suppress
from pathlib import Path

from tests.waiting import until

ROOT = Path("/sys/fs/cgroup")


def make(name: str) -> None:
    """Create a group in each hierarchy, with its parents."""
    for hierarchy in hierarchies():
        group = hierarchy
        for part in name.strip("/").split("/"):
            enable_controllers(group)
            group = group / part
            group.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):
                # version 1: a new group has no processors and no memory until they are assigned
                if (hierarchy / file).exists() and not (group / file).read_text().strip():
                    (group / file).write_text((group.parent / file).read_text())
        enable_controllers(group)


def enable_controllers(group: Path) -> None:
    """Enable all controllers of a group for its children; only version 2 needs it."""
    switch = group / "cgroup.subtree_control"
    if switch.exists() and unified():
        switch.write_text(" ".join(f"+{kind}" for kind in (group / "cgroup.controllers").read_text().split()))


def remove(name: str) -> None:
    """Remove a group with its children, once the last of its processes has ended."""
    for hierarchy in hierarchies():
        top = hierarchy / name.strip("/")
        for folder, _, _ in os.walk(top, topdown=False):
            until(lambda folder=folder: removed(folder), message=f"the cgroup {folder} is not removed")  # type: ignore[misc]


def removed(folder: str) -> bool:
    """Try to remove a group; return whether it no longer exists."""
    with suppress(OSError):
        os.rmdir(folder)
    return not Path(folder).exists()


def hierarchies() -> list[Path]:
    """Return the mount points of hierarchies: one in version 2, one per controller in version 1."""
    if unified():
        return [ROOT]
    return sorted(path for path in ROOT.iterdir() if not path.is_symlink() and (path / "cgroup.procs").exists())


def unified() -> bool:
    """Return whether the machine has version 2 only."""
    return (ROOT / "cgroup.controllers").exists()
