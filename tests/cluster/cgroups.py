"""The cgroups of a cluster, under the one name that it has in every hierarchy; the only thing that outlives a kill."""

import os
from contextlib import suppress
from pathlib import Path

from tests.waiting import until

ROOT = Path("/sys/fs/cgroup")


def make(name: str) -> None:
    """Make a group in each hierarchy, with its parents."""
    for hierarchy in hierarchies():
        group = hierarchy
        for part in name.strip("/").split("/"):
            offer(group)
            group = group / part
            group.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):
                # of version 1: a new group has no processors and no memory until it is told of some
                if (hierarchy / file).exists() and not (group / file).read_text().strip():
                    (group / file).write_text((group.parent / file).read_text())
        offer(group)


def offer(group: Path) -> None:
    """Let a group's children be limited in everything that it is; version 2 wants to be told."""
    switch = group / "cgroup.subtree_control"
    if switch.exists() and unified():
        switch.write_text(" ".join(f"+{kind}" for kind in (group / "cgroup.controllers").read_text().split()))


def remove(name: str) -> None:
    """Remove a group with all below it, as soon as the last of its processes is really gone."""
    for hierarchy in hierarchies():
        top = hierarchy / name.strip("/")
        for folder, _, _ in os.walk(top, topdown=False):
            until(lambda folder=folder: removed(folder), message=f"the group {folder} does not go")  # type: ignore[misc]


def removed(folder: str) -> bool:
    """Try to remove one group; tell whether it is gone."""
    with suppress(OSError):
        os.rmdir(folder)
    return not Path(folder).exists()


def hierarchies() -> list[Path]:
    """Return where the hierarchies are mounted: one in version 2, one a controller in version 1."""
    if unified():
        return [ROOT]
    return sorted(path for path in ROOT.iterdir() if not path.is_symlink() and (path / "cgroup.procs").exists())


def unified() -> bool:
    """Tell whether the machine has version 2 alone."""
    return (ROOT / "cgroup.controllers").exists()
