"""Memory caches of hot objects in the cache service: never stale, also with several processes on one folder."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from datasets.scs.inotify import FileWatch
from datasets.scs.open_files import SMALL, OpenFiles
from datasets.scs.page_cache import PageCache
from datasets.scs.store import Store
from tests.contracts.cache_service import AUTHORIZED, Cache, cache_config, running
from tests.waiting import until

SIZES = [100, SMALL, SMALL + 1, 1 << 20]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cache, Cache]]:
    """Two cache services on one folder; two processes behave the same."""
    config = cache_config(tmp_path_factory.mktemp("scs"))
    with running(config) as first, running(config) as second:
        yield first, second


def get(key: str, *, headers: str = AUTHORIZED, method: str = "GET") -> bytes:
    return f"{method} /v1/objects/private/{key} HTTP/1.1\r\nHost: here\r\n{headers}\r\n".encode()


@pytest.mark.parametrize("size", SIZES)
def test_an_object_stored_by_a_process_is_served_at_once_by_all(pair: tuple[Cache, Cache], size: int) -> None:
    first, second = pair
    connections = [cache.connect() for cache in pair]
    for turn in range(20):
        body = bytes([turn]) * size
        assert (first, second)[turn % 2].put("shared", body).status == 201
        for connection in connections * 3:  # parsed, cached, and answered without parsing
            assert connection.send(get("shared")).answer().body == body


@pytest.mark.parametrize("size", SIZES)
def test_a_deleted_hot_object_is_a_miss_at_once_and_no_descriptor_keeps_its_space(cache: Cache, size: int) -> None:
    cache.put("going", b"x" * size)
    connection = cache.connect()
    for _ in range(4):
        assert len(connection.send(get("going")).answer().body) == size
    open_count = len(cache.server.open_files)
    stored = cache.store.cached(b"/v1/objects/private/going")
    assert stored is not None and open_count
    assert descriptor_count(stored.path) == (1 if size > SMALL else 0)
    os.unlink(stored.path)
    until(lambda: len(cache.server.open_files) == open_count - 1)
    assert descriptor_count(f"{stored.path} (deleted)") == 0
    assert connection.send(get("going")).answer().status == 404


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    with running(cache_config(tmp_path_factory.mktemp("scs"))) as service:
        yield service


def descriptor_count(path: str) -> int:
    """Return the number of descriptors that this process has of a path."""
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{descriptor}") == path
        except FileNotFoundError:
            continue
    return count


def test_a_request_that_differs_from_a_cached_head_is_parsed(cache: Cache) -> None:
    cache.put("key", b"0123456789")
    cache.put("other-key", b"other")
    connection = cache.connect()

    def fetch(raw: bytes) -> tuple[int, bytes]:
        for _ in range(4):
            answer = connection.send(get("key")).answer()
            assert (answer.status, answer.body) == (200, b"0123456789")
            assert answer.headers["date"] and answer.headers["etag"]
        answer = connection.send(raw).answer(head_only=raw.startswith(b"HEAD"))
        return answer.status, answer.body

    assert fetch(get("other-key")) == (200, b"other")
    assert fetch(get("key", method="HEAD")) == (200, b"")
    assert fetch(get("key", headers=f"{AUTHORIZED}Range: bytes=2-4\r\n")) == (206, b"234")
    assert fetch(get("key", headers=f"{AUTHORIZED}If-None-Match: *\r\n")) == (304, b"")
    assert fetch(get("key", headers="Authorization: Bearer stranger\r\n"))[0] == 403
    assert fetch(get("key", headers=""))[0] == 401
    assert fetch(get("key", headers=f"{AUTHORIZED}Origin: null\r\n"))[0] == 403
    assert fetch(get("unknown"))[0] == 404
    assert fetch(b"\r\n" + get("key")) == (200, b"0123456789")
    pipelined = connection.send(get("key") + get("other-key"))
    assert (pipelined.answer().body, pipelined.answer().body) == (b"0123456789", b"other")
    request = get("key")
    connection.send(request[:20])
    assert connection.send(request[20:] + get("other-key")).answer().body == b"0123456789"
    assert connection.answer().body == b"other"
    assert fetch(get("key").replace(b"1.1", b"1.0"))[0] == 200
    assert connection.ended(), "HTTP/1.0 is answered once"


def test_reads_during_puts_return_whole_versions_in_order(
    pair: tuple[Cache, Cache],
) -> None:
    first, second = pair
    finished = threading.Event()
    sizes = (SMALL // 2, SMALL * 3)
    second.put("racing", bytes([0]) * sizes[0])

    def put_versions() -> None:
        for turn in range(1, 100):
            second.put("racing", bytes([turn]) * sizes[turn % 2])
        finished.set()

    writer = threading.Thread(target=put_versions)
    writer.start()
    connection, last = first.connect(), 0
    while not finished.is_set():
        body = connection.send(get("racing")).answer().body
        turn = body[0]
        assert body == bytes([turn]) * sizes[turn % 2] and turn >= last
        last = turn
    writer.join()
    assert connection.send(get("racing")).answer().body[0] == 99


def test_files_are_not_kept_open_without_inotify(cache: Cache) -> None:
    cache.put("unwatched", b"x" * 100_000)
    cache.server.open_files.forget_changed()
    watch = cache.server.open_files.watch
    watch.works = False
    try:
        open_count = len(cache.server.open_files)
        assert [len(cache.get("unwatched").body) for _ in range(3)] == [100_000] * 3
        assert len(cache.server.open_files) == open_count
    finally:
        watch.works = True


def test_an_open_file_in_use_is_not_replaced(tmp_path: Path) -> None:
    store = Store(cache_config(tmp_path))
    open_files = OpenFiles(store.folder, PageCache(store.folder / "temp"), 10)
    size = SMALL + 1
    objects = [
        store.put(store.config.buckets["private"], b"%d" % number, size, lambda: [b"x" * size])[0]
        for number in range(30)
    ]
    for stored in objects[:20] * 3:
        open_files.open(stored)
    open_counts = [descriptor_count(stored.path) for stored in objects]
    assert open_counts == [1] * 10 + [0] * 20, "the first files stay open, however often the others are read"
    open_files.make_room()
    for stored in objects[5:25]:
        open_files.open(stored)
    open_files.make_room()
    assert [descriptor_count(stored.path) for stored in objects[:10]] == [0] * 5 + [1] * 5, (
        "files stay open until they are not used for a while"
    )
    for stored in objects[20:]:
        open_files.open(stored)
    assert [descriptor_count(stored.path) for stored in objects[20:25]] == [1] * 5
    open_files.close()
    assert not any(descriptor_count(stored.path) for stored in objects)
    store.close()


def test_a_file_watch_reports_changes_and_its_own_failure(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    watch = FileWatch([folder])
    assert watch.works and watch.changed_paths() == []
    (folder / "new").write_bytes(b"")
    assert watch.changed_paths() == []
    (folder / "new").write_bytes(b"more")
    assert set(watch.changed_paths()) == {f"{folder}/new"}
    (folder / "new").unlink()
    assert watch.changed_paths() == [f"{folder}/new"]
    folder.rmdir()
    assert None in watch.changed_paths() and not watch.works
    watch.close()
    absent = FileWatch([tmp_path / "nowhere"])
    assert not absent.works
    absent.close()
