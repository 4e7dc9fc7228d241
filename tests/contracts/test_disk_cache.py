"""What a node's shelf promises of its disk: what is reserved has its place before it comes, and only once."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from datasets.download.downloads import Progress
from datasets.nodecache.disk_cache import Marker, Shelf, this_boot
from datasets.nodecache.locks import locked
from errors import NodeFull

GIB = 1 << 30
OLD, FIRST, SECOND, THIRD = (letter * 64 for letter in "abcd")


class Disk:
    """A disk of which so much is free as is said."""

    free = 10 * GIB

    def statvfs(self, _: object) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=self.free // 4096, f_frsize=4096)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(os, "statvfs", made.statvfs)
    return made


def shelf(folder: Path, capacity: int | None = None) -> Shelf:
    """Return a shelf with an old tree of 6 GiB, which nobody needs."""
    made = Shelf(folder, capacity)
    made.tree(OLD).mkdir(parents=True)
    made.mark(OLD, Marker(1, 6 * GIB, this_boot()))
    return made


@contextmanager
def reserved(shelf: Shelf, id: str, size: int) -> Iterator[None]:
    """Reserve as who fetches does; leave it as kill -9 would."""
    with locked(shelf.lock(id)):
        shelf.pin(id, "sim")
        shelf.reserve(id, size)
        yield


def test_what_is_promised_to_one_is_not_promised_to_the_next(disk: Disk, tmp_path: Path) -> None:
    one = shelf(tmp_path)
    with reserved(one, FIRST, 8 * GIB):
        assert one.whole(OLD)
        with reserved(one, SECOND, 7 * GIB):
            assert not one.whole(OLD)
            disk.free += 6 * GIB
            with pytest.raises(NodeFull), reserved(one, THIRD, 2 * GIB):
                pass


def test_what_is_pinned_does_not_go_for_a_second_promise(disk: Disk, tmp_path: Path) -> None:
    one = shelf(tmp_path)
    one.pin(OLD, "other")
    with reserved(one, FIRST, 8 * GIB), pytest.raises(NodeFull), reserved(one, SECOND, 7 * GIB):
        pass
    assert one.whole(OLD)


def test_what_has_come_of_something_reserved_is_not_counted_twice(disk: Disk, tmp_path: Path) -> None:
    one = shelf(tmp_path)
    with reserved(one, FIRST, 8 * GIB):
        disk.free -= 5 * GIB
        progress = Progress(files=5, bytes=5 * GIB, total_files=8, total_bytes=8 * GIB, rate=1.0, cached=0)
        one.partial(FIRST, "progress").write_text(json.dumps(asdict(progress)))
        with reserved(one, SECOND, GIB):
            assert one.whole(OLD)
            with reserved(one, THIRD, 2 * GIB):
                assert not one.whole(OLD)


@pytest.mark.parametrize("capacity", [None, 15 * GIB])
def test_who_goes_on_after_one_that_was_killed_needs_no_room_beside_it(
    disk: Disk, tmp_path: Path, capacity: int | None
) -> None:
    one = shelf(tmp_path, capacity)
    with reserved(one, FIRST, 8 * GIB):
        pass
    with reserved(one, FIRST, 8 * GIB):
        assert one.whole(OLD)
