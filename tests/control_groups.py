"""Control groups with a limit of memory, by cgroup v1 or v2, for tests in which the kernel kills a process."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until

ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def limited_group(memory: int) -> Iterator[Path]:
    """Yield the folder of a new group with at most ``memory`` bytes, swap included; skip where none can be made."""
    first = (ROOT / "memory").is_dir()
    parent = ROOT / "memory" if first else ROOT
    group = parent / f"windtunnel-test-{os.getpid()}"
    try:
        if not first and "memory" not in (parent / "cgroup.subtree_control").read_text().split():
            (parent / "cgroup.subtree_control").write_text("+memory")
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs a user and a machine that can make control groups: {error}")
    try:
        (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(memory))
        swap = group / ("memory.memsw.limit_in_bytes" if first else "memory.swap.max")
        if swap.exists():
            swap.write_text(str(memory if first else 0))
        yield group
    finally:
        until(lambda: not (group / "cgroup.procs").read_text(), message="processes of the group have not ended")
        group.rmdir()


def join(group: Path) -> None:
    """Move the calling process into a group; its children are born there."""
    (group / "cgroup.procs").write_text(str(os.getpid()))
