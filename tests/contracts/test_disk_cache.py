"""Node cache on disk: reservations count before their data arrives, and only once."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.errors import NodeFull
from datasets.download.downloader import DownloadProgress
from datasets.nodecache.disk_cache import DiskCache, Marker, this_boot
from datasets.nodecache.locks import locked

GIB = 1 << 30
OLD, FIRST, SECOND, THIRD = (letter * 64 for letter in "abcd")


class Disk:
    """A disk with a settable number of free bytes."""

    free = 10 * GIB

    def statvfs(self, _: object) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=self.free // 4096, f_blocks=100 * GIB // 4096, f_frsize=4096)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "statvfs", disk.statvfs)
    return disk


def disk_cache(folder: Path, capacity: int | None = None) -> DiskCache:
    """Return a cache with an unpinned tree of 6 GiB."""
    cache = DiskCache(folder, capacity)
    cache.tree(OLD).mkdir(parents=True)
    cache.write_marker(OLD, Marker(1, 6 * GIB, this_boot()))
    return cache


@contextmanager
def reserved(cache: DiskCache, id: str, size: int) -> Iterator[None]:
    """Reserve as a download does; leave the reservation behind as kill -9 would."""
    with locked(cache.lock(id)):
        cache.pin(id, "sim")
        cache.reserve(id, size)
        yield


def test_reserved_space_is_not_reserved_again(disk: Disk, tmp_path: Path) -> None:
    cache = disk_cache(tmp_path)
    with reserved(cache, FIRST, 8 * GIB):
        assert cache.is_complete(OLD)
        with reserved(cache, SECOND, 7 * GIB):
            assert not cache.is_complete(OLD)
            disk.free += 6 * GIB
            with pytest.raises(NodeFull), reserved(cache, THIRD, 2 * GIB):
                pass


def test_a_pinned_entry_is_not_evicted_for_a_reservation(disk: Disk, tmp_path: Path) -> None:
    cache = disk_cache(tmp_path)
    cache.pin(OLD, "other")
    with reserved(cache, FIRST, 8 * GIB), pytest.raises(NodeFull), reserved(cache, SECOND, 7 * GIB):
        pass
    assert cache.is_complete(OLD)


def test_downloaded_bytes_of_a_reservation_are_not_counted_twice(disk: Disk, tmp_path: Path) -> None:
    cache = disk_cache(tmp_path)
    with reserved(cache, FIRST, 8 * GIB):
        disk.free -= 5 * GIB
        progress = DownloadProgress(files=5, bytes=5 * GIB, total_files=8, total_bytes=8 * GIB, rate=1.0, cached=0)
        cache.partial(FIRST, "progress").write_text(json.dumps(asdict(progress)))
        with reserved(cache, SECOND, GIB):
            assert cache.is_complete(OLD)
            with reserved(cache, THIRD, 2 * GIB):
                assert not cache.is_complete(OLD)


@pytest.mark.parametrize("capacity", [None, 15 * GIB])
def test_a_download_resumed_after_a_kill_replaces_its_reservation(
    disk: Disk, tmp_path: Path, capacity: int | None
) -> None:
    cache = disk_cache(tmp_path, capacity)
    with reserved(cache, FIRST, 8 * GIB):
        pass
    with reserved(cache, FIRST, 8 * GIB):
        assert cache.is_complete(OLD)
