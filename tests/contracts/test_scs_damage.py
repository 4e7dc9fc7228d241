"""Damaged files of the cache service: a response has verified bytes, and a damaged object becomes a miss."""

import mmap
import os
import random
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from datasets.scs.block_checksums import BLOCK
from datasets.scs.config import Config
from datasets.scs.object_index import name_of
from datasets.scs.open_files import SMALL
from datasets.scs.scrub import scrub
from datasets.scs.store import Store
from tests.contracts.cache_service import AUTHORIZED, Answer, Cache, cache_config, running
from tests.waiting import until

LARGE = 5 * (1 << 20) + 12_345
SIZES = [100, SMALL, SMALL + 1, 3 * BLOCK + 1, LARGE]
CONTENT = random.Random(3).randbytes(LARGE)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    with running(cache_config(tmp_path_factory.mktemp("scs"))) as service:
        yield service


def path_of(cache: Cache, key: str) -> Path:
    row = cache.store.index.get_row(name_of("private", key.encode()))
    assert row is not None
    return cache.store.folder / row.file


def flip(path: Path, offset: int) -> None:
    """Change a byte of a file in place."""
    with open(path, "r+b", buffering=0) as file:
        (byte,) = os.pread(file.fileno(), 1, offset)
        os.pwrite(file.fileno(), bytes([byte ^ 1]), offset)


def flip_without_event(path: Path, offset: int) -> None:
    """Change a byte through a memory map, which inotify does not report: so does a disk that returns another byte."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        content[offset] ^= 1


def drop_from_memory(path: Path) -> None:
    """Have the next reader of a file wait for the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def get_range(cache: Cache, key: str, first: int, last: int) -> Answer:
    return cache.get(key, headers=f"{AUTHORIZED}Range: bytes={first}-{last}\r\n")


def damaged_count(cache: Cache) -> float:
    page = cache.request("GET", "/metrics", headers="").body.decode()
    values = [line.split()[1] for line in page.splitlines() if line.startswith('scs_damaged_total{bucket="private"}')]
    return sum(map(float, values))


@pytest.mark.parametrize("read_before", [False, True])
@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_a_range_with_a_flipped_byte_is_a_miss_and_the_object_can_be_stored_again(
    cache: Cache, caplog: pytest.LogCaptureFixture, size: int, cold: bool, read_before: bool
) -> None:
    key, offset, before = f"range-{size}-{cold}-{read_before}", size * 2 // 3, damaged_count(cache)
    cache.put(key, CONTENT[:size])
    if read_before:
        assert get_range(cache, key, offset, offset + 9).body == CONTENT[offset : offset + 10][: size - offset]
    flip(path := path_of(cache, key), offset)
    if cold:
        drop_from_memory(path)
    assert get_range(cache, key, offset, offset + 9).status == 404
    assert not path.exists() and f"{path.parent.name}/{path.name} is damaged" in caplog.text
    assert damaged_count(cache) == before + 1
    assert cache.get(key).status == 404
    assert cache.put(key, CONTENT[:size]).status == 201  # as a client does that has read the origin
    answer = get_range(cache, key, offset, offset + 9)
    assert (answer.status, answer.body) == (206, CONTENT[offset : min(size, offset + 10)])


@pytest.mark.parametrize("cold", [False, True])
def test_ranges_of_other_blocks_are_still_answered(cache: Cache, cold: bool) -> None:
    cache.put(key := f"elsewhere-{cold}", CONTENT)
    flip(path_of(cache, key), 20 * BLOCK + 7)
    if cold:
        drop_from_memory(path_of(cache, key))
    for first, last in ((0, 20 * BLOCK - 1), (19 * BLOCK, 19 * BLOCK), (21 * BLOCK, LARGE - 1)):
        answer = get_range(cache, key, first, last)
        assert (answer.status, answer.body) == (206, CONTENT[first : last + 1])
    assert get_range(cache, key, 20 * BLOCK + BLOCK - 1, LARGE).status == 404


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_a_whole_read_with_a_flipped_byte_at_its_beginning_is_a_miss(cache: Cache, size: int, cold: bool) -> None:
    cache.put(key := f"whole-{size}-{cold}", CONTENT[:size])
    connection = cache.connect()
    request = f"GET /v1/objects/private/{key} HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}\r\n".encode()
    for _ in range(4):  # the later requests are answered without parsing
        assert connection.send(request).answer().body == CONTENT[:size]
    flip(path := path_of(cache, key), 50)
    if cold:
        drop_from_memory(path)
    assert connection.send(request).answer().status == 404
    assert cache.put(key, CONTENT[:size]).status == 201
    assert connection.send(request).answer().body == CONTENT[:size]


@pytest.mark.parametrize("cold", [False, True])
def test_a_response_ends_before_a_damaged_block(cache: Cache, cold: bool) -> None:
    cache.put(key := f"later-{cold}", CONTENT)
    flip(path := path_of(cache, key), LARGE - 1)
    if cold:
        drop_from_memory(path)
    connection = cache.connect()
    connection.send(f"GET /v1/objects/private/{key} HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}\r\n".encode())
    received = b""
    while data := connection.sock.recv(1 << 20):
        received += data
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ") and len(body) < LARGE and CONTENT.startswith(body)
    assert cache.get(key).status == 404 and not path.exists()


@pytest.mark.parametrize("size", [SMALL + 1, 1 << 20, LARGE])
def test_verified_blocks_are_verified_again_after_a_second(cache: Cache, size: int) -> None:
    cache.put(key := f"again-{size}", CONTENT[:size])
    assert cache.get(key).body == CONTENT[:size]
    flip_without_event(path_of(cache, key), 10)
    until(lambda: get_range(cache, key, 0, 99).status == 404)
    assert cache.get(key).status == 404


def test_a_file_of_zeros_of_the_right_length_is_not_served(cache: Cache) -> None:
    cache.put("zeros", CONTENT[:100_000])
    path = path_of(cache, "zeros")
    path.write_bytes(bytes(100_000))  # as after a power cut without Fsync
    assert get_range(cache, "zeros", 0, 9).status == 404


def with_index_of_earlier_version(config: Config, *keys: str) -> None:
    """Store objects as a version without checksums did."""
    store = Store(config)
    for key in keys:
        store.put(config.buckets["private"], key.encode(), LARGE, lambda: [CONTENT])
    store.close()
    with closing(sqlite3.connect(store.folder / "ledger.db")) as connection, connection:
        connection.execute("alter table objects drop column checksums")


def checksums_of(cache: Cache, key: str) -> bytes:
    row = cache.store.index.get_row(name_of("private", key.encode()))
    return b"" if row is None else row.checksums


def test_an_object_of_an_earlier_version_is_verified_as_a_whole_at_its_first_read(tmp_path: Path) -> None:
    config = cache_config(tmp_path)
    with_index_of_earlier_version(config, "sound", "damaged", "unread")
    with running(config) as cache:
        flip(path_of(cache, "damaged"), LARGE - 1)
        assert checksums_of(cache, "sound") == b""
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: get_range(cache, "sound", 5, 99_999), range(8)))
        assert {(answer.status, answer.body) for answer in answers} == {(206, CONTENT[5:100_000])}
        assert len(checksums_of(cache, "sound")) == 8 * -(-LARGE // BLOCK)
        assert get_range(cache, "damaged", 0, 9).status == 404, "its digest differs, wherever the damage is"
        assert checksums_of(cache, "unread") == b""
        flip(path_of(cache, "sound"), 70_000)
        assert get_range(cache, "sound", 69_990, 70_010).status == 404


def test_a_scrub_adds_checksums_and_replaces_damaged_checksums(tmp_path: Path) -> None:
    config = cache_config(tmp_path)
    with_index_of_earlier_version(config, "old", "older")
    store = Store(config)
    assert list(scrub(store, threading.Event())) == [True, True]
    store.close()
    with running(config) as cache:
        expected = checksums_of(cache, "old")
        assert len(expected) == 8 * -(-LARGE // BLOCK) and checksums_of(cache, "older") == expected
        with closing(sqlite3.connect(cache.store.folder / "ledger.db")) as connection, connection:
            connection.execute("update objects set checksums=?", (bytes(len(expected)),))
        assert list(scrub(cache.store, threading.Event())) == [True, True]
        assert checksums_of(cache, "old") == checksums_of(cache, "older") == expected
        assert cache.get("old").body == CONTENT
