"""Records of the clusters on this machine, each locked as long as its cluster lives.

A record whose lock is free belongs to killed tests: the next cluster with its number removes the resources in it.
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
    """A cluster's claim to its number, and the resources to remove after its end."""

    number: int
    folder: Path
    path: Path
    lock: int = field(repr=False)

    @property
    def cgroup(self) -> str:
        """Name of its cgroup in every hierarchy."""
        return f"windtunnel-{self.number}"

    @property
    def wire(self) -> str:
        """Name of its network device on the real machine."""
        return Network(self.number).wire

    def write(self, **more: Any) -> None:
        """Write the record: what `scripts/cluster status` shows, and what must be removed after a kill."""
        document = {"pid": os.getpid(), "folder": str(self.folder), "cgroup": self.cgroup, "wire": self.wire} | more
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, json.dumps(document).encode(), 0)

    def release(self) -> None:
        """Remove remaining resources and release the number."""
        clear(self.cgroup, self.wire, self.folder)
        self.path.unlink()
        os.close(self.lock)
        with suppress(OSError):
            RECORDS.rmdir()


def claim() -> Record:
    """Claim the first free number, after cleaning up after killed tests."""
    sweep()
    for number in range(CLUSTERS):
        path = RECORDS / f"{number}.json"
        lock = locked(path)
        if lock is None:
            continue
        if Network(number).free():
            record = Record(number, Path(tempfile.mkdtemp(prefix="windtunnel-cluster-")), path, lock)
            record.write()
            return record
        path.unlink()
        os.close(lock)
    raise RuntimeError("no addresses are free for another cluster on this machine")


def sweep() -> None:
    """Remove the resources of killed tests' clusters."""
    for path in sorted(RECORDS.glob("*.json")):
        lock = locked(path)
        if lock is None:
            continue
        if record := read(lock):
            clear(record["cgroup"], record["wire"], Path(record["folder"]))
        path.unlink()
        os.close(lock)
    with suppress(OSError):
        RECORDS.rmdir()


def running_clusters() -> Iterator[tuple[int, dict[str, Any]]]:
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
            continue  # the last cluster has just removed the folder
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        with suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(handle).st_ino:
                return handle
        os.close(handle)  # the record was released between opening and locking


def read(handle: int) -> dict[str, Any]:
    """Return a record's content; empty if it is incomplete."""
    content = os.pread(handle, 1 << 16, 0)
    record: dict[str, Any] = json.loads(content) if content else {}
    return record


def clear(cgroup: str, wire: str, folder: Path) -> None:
    """Remove a cluster's cgroups, device and files, once its last processes have released them."""
    cgroups.remove(cgroup)
    if (NETWORK / wire).exists():
        # the kernel removes the device with the network namespace of its other end, with a delay
        subprocess.run(["ip", "link", "delete", wire], capture_output=True, timeout=60)
    until(lambda: not (NETWORK / wire).exists(), message=f"the network device {wire} is not removed")

    def removed() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    until(removed, message=f"{folder} is not removed")
