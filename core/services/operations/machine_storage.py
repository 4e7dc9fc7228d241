"""Storage of this machine beside the object store: prepared environments, and what its node cache holds, by kind."""

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from core.services.operations.measurement import Measurement
from datasets.nodecache.node_cache import NodeCache

#: Seconds for which sizes are kept: an environment has thousands of files.
INTERVAL = 60.0


class MachineStorage:
    """Measures folders of the machine of the process that answers. ``environments``: of runtimes and simulators."""

    def __init__(self, environments: Path, cache: NodeCache) -> None:
        self._environments, self._cache = environments, cache
        self._sizes = Measurement(self._measure, interval=INTERVAL)

    def describe(self) -> dict[str, object]:
        """Return the sizes with the time at which they were measured."""
        sizes = self._sizes.latest()
        return {"name": socket.gethostname(), "measured_at": sizes.at, "kinds": sizes.value}

    def _measure(self) -> list[Mapping[str, object]]:
        cached = {f"cached_{kind}": size for kind, size in self._cache.sizes().items()}
        kinds = {"environments": environments_in(self._environments)} | cached
        return [{"name": name, "objects": objects, "bytes": total} for name, (objects, total) in kinds.items()]


def environments_in(folder: Path) -> tuple[int, int]:
    """Return the number of environments in a folder, and their bytes: files that several of them share count once."""
    seen: dict[tuple[int, int], int] = {}
    environments = 0
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            environments += not entry.name.startswith(".")
            seen |= {(stat.st_dev, stat.st_ino): stat.st_size for stat in _files(entry.path)}
    return environments, sum(seen.values())


def _files(folder: str | Path) -> Iterator[os.stat_result]:
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
        elif entry.is_file(follow_symlinks=False):
            try:
                yield entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; none if it is not there, or is removed at the moment."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
