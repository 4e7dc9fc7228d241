"""Disk floor: free space that uploads, models and registrations leave to work in progress (results, SQL)."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from common.errors import StorageFull

#: The default floor: this share of the disk, at least and at most so many bytes, on a small disk at most an eighth.
SHARE, LOWEST, HIGHEST, SMALL_DISK = 50, 1 << 30, 10 << 30, 8
#: Bytes that are written between two checks of the free space.
INTERVAL = 1 << 20


def floor_of(disk: int, least: int = 0) -> int:
    """Return the floor in bytes for a disk of ``disk`` bytes: ``least``, or if that is 0 the default."""
    return least or min(max(disk // SHARE, LOWEST), HIGHEST, disk // SMALL_DISK)


def statvfs(folder: Path) -> tuple[int, int]:
    """Return the free and the total bytes of a folder's disk, as ordinary users may use them."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """A disk of this machine, in bytes. ``holds``: what the platform keeps on it."""

    holds: tuple[str, ...]
    free: int
    size: int
    floor: int


class DiskFloor:
    """Refuses bytes of users while a disk has less free space than the floor.

    ``drafts``: folder of drafts and of the embedded database. ``objects``: folder of the object store, None if that is
    elsewhere. Without folders nothing is refused. ``least``: the floor in bytes; 0: see `floor_of`.
    """

    def __init__(
        self,
        drafts: Path | None = None,
        objects: Path | None = None,
        *,
        least: int = 0,
        measure: Callable[[Path], tuple[int, int]] = statvfs,
    ) -> None:
        contents = {"data": drafts, "objects": objects}
        self._folders = {name: folder for name, folder in contents.items() if folder is not None}
        self._least = least
        self.measure = measure

    def disks(self) -> list[Disk]:
        """Return the disks of the folders as they are now: one for folders of the same file system."""
        holds: dict[int, list[str]] = {}
        measured: dict[int, tuple[int, int]] = {}
        for name, folder in self._folders.items():
            if folder.exists():
                device = folder.stat().st_dev
                holds.setdefault(device, []).append(name)
                measured[device] = self.measure(folder)
        return [
            Disk(holds=tuple(names), free=free, size=size, floor=floor_of(size, self._least))
            for (device, names) in holds.items()
            for free, size in (measured[device],)
        ]

    def check(self, incoming: int = 0) -> None:
        """Raise StorageFull if a disk is below the floor, or would be after ``incoming`` bytes in the object store."""
        for name, folder in self._folders.items():
            try:
                free, size = self.measure(folder)
            except FileNotFoundError:
                continue  # nothing has been written there yet
            floor = floor_of(size, self._least)
            if free - incoming * (name == "objects") < floor:
                raise StorageFull(
                    f"{_megabytes(free)} of the disk are free, and {_megabytes(floor)} have to stay free for running"
                    " simulations (WINDTUNNEL_DISK_FLOOR)."
                    " Free some space, or delete uploads, models and datasets; then try again.",
                    free=free,
                    floor=floor,
                )

    def watched(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield chunks while the disk is above the floor: checked at the start and every INTERVAL bytes."""
        self.check()
        unchecked = 0
        for chunk in chunks:
            unchecked += len(chunk)
            if unchecked >= INTERVAL:
                self.check()
                unchecked = 0
            yield chunk


def _megabytes(size: int) -> str:
    return f"{max(0, size) / 1e6:,.0f} MB"
