"""Node cache on disk: reservations count before the data arrives, and only once."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from datasets.download.downloader import DownloadProgress
from datasets.nodecache.disk_cache import DiskCache, Marker, this_boot
from datasets.nodecache.locks import locked
from errors import NodeFull

GIB = 1 << 30
OLD, FIRST, SECOND, THIRD = (letter * 64 for letter in "abcd")


class Disk:
    """A disk with a settable number of free bytes."""

    free = 10 * GIB

    def statvfs(self, _: object) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=self.free // 4096, f_frsize=4096)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(os, "statvfs", made.statvfs)
    return made


def disk_cache(folder: Path, capacity: int | None = None) -> DiskCache:
    """Return a cache with an unpinned tree of 6 GiB."""
    made = DiskCache(folder, capacity)
    made.tree(OLD).mkdir(parents=True)
    made.write_marker(OLD, Marker(1, 6 * GIB, this_boot()))
    return made


@contextmanager
def reserved(disk_cache: DiskCache, id: str, size: int) -> Iterator[None]:
    """Reserve as a download does; leave the reservation behind as kill -9 would."""
    with locked(disk_cache.lock(id)):
        disk_cache.pin(id, "sim")
        disk_cache.reserve(id, size)
        yield


def test_what_is_promised_to_one_is_not_promised_to_the_next(disk: Disk, tmp_path: Path) -> None:
    one = disk_cache(tmp_path)
    with reserved(one, FIRST, 8 * GIB):
        assert one.is_complete(OLD)
        with reserved(one, SECOND, 7 * GIB):
            assert not one.is_complete(OLD)
            disk.free += 6 * GIB
            with pytest.raises(NodeFull), reserved(one, THIRD, 2 * GIB):
                pass


def test_what_is_pinned_does_not_go_for_a_second_promise(disk: Disk, tmp_path: Path) -> None:
    one = disk_cache(tmp_path)
    one.pin(OLD, "other")
    with reserved(one, FIRST, 8 * GIB), pytest.raises(NodeFull), reserved(one, SECOND, 7 * GIB):
        pass
    assert one.is_complete(OLD)


def test_what_has_come_of_something_reserved_is_not_counted_twice(disk: Disk, tmp_path: Path) -> None:
    one = disk_cache(tmp_path)
    with reserved(one, FIRST, 8 * GIB):
        disk.free -= 5 * GIB
        progress = DownloadProgress(files=5, bytes=5 * GIB, total_files=8, total_bytes=8 * GIB, rate=1.0, cached=0)
        one.partial(FIRST, "progress").write_text(json.dumps(asdict(progress)))
        with reserved(one, SECOND, GIB):
            assert one.is_complete(OLD)
            with reserved(one, THIRD, 2 * GIB):
                assert not one.is_complete(OLD)


@pytest.mark.parametrize("capacity", [None, 15 * GIB])
def test_who_goes_on_after_one_that_was_killed_needs_no_room_beside_it(
    disk: Disk, tmp_path: Path, capacity: int | None
) -> None:
    one = disk_cache(tmp_path, capacity)
    with reserved(one, FIRST, 8 * GIB):
        pass
    with reserved(one, FIRST, 8 * GIB):
        assert one.is_complete(OLD)
