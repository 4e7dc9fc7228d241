"""What is remembered of hot objects is never older than the last answer anybody got."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from datasets.scs.inotify import Watch
from datasets.scs.open_files import SMALL, Recent
from datasets.scs.page_cache import Pages
from datasets.scs.store import Store
from tests.contracts.scs_house import AUTHORIZED, Cache, running, told
from tests.waiting import until

SIZES = [100, SMALL, SMALL + 1, 1 << 20]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cache, Cache]]:
    """Two on one folder; two processes would do the same."""
    config = told(tmp_path_factory.mktemp("scs"))
    with running(config) as one, running(config) as other:
        yield one, other


def get(key: str, *, headers: str = AUTHORIZED, method: str = "GET") -> bytes:
    return f"{method} /v1/objects/private/{key} HTTP/1.1\r\nHost: here\r\n{headers}\r\n".encode()


@pytest.mark.parametrize("size", SIZES)
def test_what_one_process_stored_every_other_answers_with_from_then_on(pair: tuple[Cache, Cache], size: int) -> None:
    one, other = pair
    lines = [each.line() for each in pair]
    for turn in range(20):
        body = bytes([turn]) * size
        assert (one, other)[turn % 2].put("shared", body).status == 201
        for line in lines * 3:  # known, remembered, and known so well that it is not parsed any more
            assert line.send(get("shared")).answer().body == body


@pytest.mark.parametrize("size", SIZES)
def test_a_hot_object_that_goes_is_a_miss_at_once_and_nobody_holds_its_room(cache: Cache, size: int) -> None:
    cache.put("going", b"x" * size)
    line = cache.line()
    for _ in range(4):
        assert len(line.send(get("going")).answer().body) == size
    held = len(cache.server.recent)
    found = cache.store.remembered(b"/v1/objects/private/going")
    assert found is not None and held
    assert open_files(found.path) == (1 if size > SMALL else 0)
    os.unlink(found.path)
    until(lambda: len(cache.server.recent) == held - 1)
    assert open_files(f"{found.path} (deleted)") == 0
    assert line.send(get("going")).answer().status == 404


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    with running(told(tmp_path_factory.mktemp("scs"))) as made:
        yield made


def open_files(path: str) -> int:
    """Return how many descriptors of this process are of a path."""
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{descriptor}") == path
        except FileNotFoundError:
            continue
    return found


def test_a_request_known_by_heart_differs_in_one_thing_and_is_answered_for_that(cache: Cache) -> None:
    cache.put("known", b"0123456789")
    cache.put("known-too", b"other")
    line = cache.line()

    def asked(raw: bytes) -> tuple[int, bytes]:
        for _ in range(4):
            answer = line.send(get("known")).answer()
            assert (answer.status, answer.body) == (200, b"0123456789")
            assert answer.headers["date"] and answer.headers["etag"]
        answer = line.send(raw).answer(head_only=raw.startswith(b"HEAD"))
        return answer.status, answer.body

    assert asked(get("known-too")) == (200, b"other")
    assert asked(get("known", method="HEAD")) == (200, b"")
    assert asked(get("known", headers=f"{AUTHORIZED}Range: bytes=2-4\r\n")) == (206, b"234")
    assert asked(get("known", headers=f"{AUTHORIZED}If-None-Match: *\r\n")) == (304, b"")
    assert asked(get("known", headers="Authorization: Bearer stranger\r\n"))[0] == 403
    assert asked(get("known", headers=""))[0] == 401
    assert asked(get("known", headers=f"{AUTHORIZED}Origin: null\r\n"))[0] == 403
    assert asked(get("unknown"))[0] == 404
    assert asked(b"\r\n" + get("known")) == (200, b"0123456789")
    both = line.send(get("known") + get("known-too"))
    assert (both.answer().body, both.answer().body) == (b"0123456789", b"other")
    half = get("known")
    line.send(half[:20])
    assert line.send(half[20:] + get("known-too")).answer().body == b"0123456789"
    assert line.answer().body == b"other"
    assert asked(get("known").replace(b"1.1", b"1.0"))[0] == 200
    assert line.ended(), "HTTP/1.0 is answered once"


def test_reading_while_another_stores_gives_whole_versions_only_and_never_an_older_one(
    pair: tuple[Cache, Cache],
) -> None:
    one, other = pair
    over = threading.Event()
    sizes = (SMALL // 2, SMALL * 3)
    other.put("racing", bytes([0]) * sizes[0])

    def store() -> None:
        for turn in range(1, 100):
            other.put("racing", bytes([turn]) * sizes[turn % 2])
        over.set()

    storing = threading.Thread(target=store)
    storing.start()
    line, last = one.line(), 0
    while not over.is_set():
        body = line.send(get("racing")).answer().body
        turn = body[0]
        assert body == bytes([turn]) * sizes[turn % 2] and turn >= last
        last = turn
    storing.join()
    assert line.send(get("racing")).answer().body[0] == 99


def test_what_cannot_be_watched_is_not_kept_open(cache: Cache) -> None:
    cache.put("unwatched", b"x" * 100_000)
    cache.server.recent.look()
    watch = cache.server.recent.watch
    watch.works = False
    try:
        held = len(cache.server.recent)
        assert [len(cache.get("unwatched").body) for _ in range(3)] == [100_000] * 3
        assert len(cache.server.recent) == held
    finally:
        watch.works = True


def test_what_is_kept_open_is_not_replaced_while_it_is_used(tmp_path: Path) -> None:
    store = Store(told(tmp_path))
    recent = Recent(store.folder, Pages(store.folder / "temp"), 10)
    size = SMALL + 1
    objects = [
        store.put(store.config.buckets["private"], b"%d" % number, size, lambda: [b"x" * size])[0]
        for number in range(30)
    ]
    for found in objects[:20] * 3:
        recent.open(found)
    kept = [open_files(found.path) for found in objects]
    assert kept == [1] * 10 + [0] * 20, "what came first, however often the others are read"
    recent.sweep()
    for found in objects[5:25]:
        recent.open(found)
    recent.sweep()
    assert [open_files(found.path) for found in objects[:10]] == [0] * 5 + [1] * 5, "until it was not used for a while"
    for found in objects[20:]:
        recent.open(found)
    assert [open_files(found.path) for found in objects[20:25]] == [1] * 5
    recent.close()
    assert not any(open_files(found.path) for found in objects)
    store.close()


def test_a_watch_tells_what_went_and_when_it_cannot_tell(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    watch = Watch([folder])
    assert watch.works and watch.gone() == []
    (folder / "new").write_bytes(b"")
    assert watch.gone() == []
    (folder / "new").write_bytes(b"more")
    assert set(watch.gone()) == {f"{folder}/new"}
    (folder / "new").unlink()
    assert watch.gone() == [f"{folder}/new"]
    folder.rmdir()
    assert None in watch.gone() and not watch.works
    watch.close()
    absent = Watch([tmp_path / "nowhere"])
    assert not absent.works
    absent.close()
