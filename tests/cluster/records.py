"""Which clusters there are on this machine: a record each, locked as long as its cluster lives.

A record whose lock is free was left by tests that were killed: whoever takes its place clears up what it names.
"""

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import cgroups
from tests.cluster.network import CLUSTERS, Network
from tests.waiting import until

RECORDS = Path("/run/windtunnel-clusters")
NETWORK = Path("/sys/class/net")


@dataclass(frozen=True)
class Record:
    """A cluster's claim to its number, with what is to be cleared away when it has gone."""

    number: int
    folder: Path
    path: Path
    lock: int = field(repr=False)

    @property
    def cgroup(self) -> str:
        """The name of its group in every hierarchy."""
        return f"windtunnel-{self.number}"

    @property
    def wire(self) -> str:
        """The name of its only network device on the real machine."""
        return Network(self.number).wire

    def say(self, **more: Any) -> None:
        """Write what others may want to know."""
        document = {"pid": os.getpid(), "folder": str(self.folder), "cgroup": self.cgroup, "wire": self.wire} | more
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, json.dumps(document).encode(), 0)

    def release(self) -> None:
        """Clear away what is left and give the number back."""
        clear(self.cgroup, self.wire, self.folder)
        self.path.unlink()
        os.close(self.lock)
        with suppress(OSError):
            RECORDS.rmdir()


def claim() -> Record:
    """Take the first number that is free, having cleared up after all who were killed."""
    sweep()
    for number in range(CLUSTERS):
        path = RECORDS / f"{number}.json"
        lock = locked(path)
        if lock is None:
            continue
        if Network(number).free():
            record = Record(number, Path(tempfile.mkdtemp(prefix="windtunnel-cluster-")), path, lock)
            record.say()
            return record
        path.unlink()
        os.close(lock)
    raise RuntimeError("no addresses are free for another cluster on this machine")


def sweep() -> None:
    """Clear away what the clusters of killed tests left."""
    for path in sorted(RECORDS.glob("*.json")):
        lock = locked(path)
        if lock is None:
            continue
        if left := read(lock):
            clear(left["cgroup"], left["wire"], Path(left["folder"]))
        path.unlink()
        os.close(lock)
    with suppress(OSError):
        RECORDS.rmdir()


def living() -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the clusters that run now, by number."""
    for path in sorted(RECORDS.glob("*.json")):
        with suppress(FileNotFoundError), open(path, "rb+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield int(path.stem), read(file.fileno())


def locked(path: Path) -> int | None:
    """Open and lock a record, or return None while its cluster lives."""
    while True:
        RECORDS.mkdir(exist_ok=True)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue  # the last cluster just took the folder along
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        with suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(handle).st_ino:
                return handle
        os.close(handle)  # it was released between our two steps


def read(handle: int) -> dict[str, Any]:
    """Return what a record says; nothing where it was only begun."""
    content = os.pread(handle, 1 << 16, 0)
    found: dict[str, Any] = json.loads(content) if content else {}
    return found


def clear(cgroup: str, wire: str, folder: Path) -> None:
    """Remove a cluster's groups, device and files, as soon as the last of its processes have let go of them."""
    cgroups.remove(cgroup)
    if (NETWORK / wire).exists():
        # the kernel is about to, with the network at the other end, in its own time
        subprocess.run(["ip", "link", "delete", wire], capture_output=True, timeout=60)
    until(lambda: not (NETWORK / wire).exists(), message=f"the network device {wire} does not go")

    def removed() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    until(removed, message=f"{folder} is not removed")
