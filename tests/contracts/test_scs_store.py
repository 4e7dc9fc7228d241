"""Store of the cache service: quotas are never exceeded, shares are fair, files and rows agree."""

import os
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from datasets.eviction.policies import nr, policy_names
from datasets.scs.config import Config
from datasets.scs.object_index import name_of
from datasets.scs.scrub import scrub
from datasets.scs.store import BadDigest, Cut, Full, ObjectTooLarge, Store, Unmet
from tests.contracts.cache_service import cache_config

OpenStore = Callable[..., Store]


class Clock:
    """Clock that tests advance, and that advances a little with every call."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture
def store_clock() -> Clock:
    return Clock()


@pytest.fixture
def open_store(store_clock: Clock) -> Iterator[OpenStore]:
    """Open stores that end with the test."""
    stores: list[Store] = []

    def open_(config: Config) -> Store:
        stores.append(Store(config, clock=store_clock))
        return stores[-1]

    yield open_
    for store in stores:
        if not store.index.closed:
            store.close()


def bucket(name: str = "b", quota: str = "1000", **options: Any) -> dict[str, Any]:
    return {"Name": name, "BucketQuota": quota, "AllowNamespaces": ["team"]} | options


def put(store: Store, key: str, size: int = 100, name: str = "b") -> int:
    """Put an object; return the number of evicted objects."""
    return store.put(store.config.buckets[name], key.encode(), size, lambda: [b"x" * size])[1]


def has(store: Store, key: str, name: str = "b") -> bool:
    return store.index.get_row(name_of(name, key.encode())) is not None


def record_use(store: Store, key: str, at: float, name: str = "b") -> None:
    store.record({name_of(name, key.encode()): at}, {})


def files(store: Store) -> set[str]:
    return {file for file, _ in store.files()}


def rows_and_files_agree(store: Store) -> bool:
    """Return whether rows, files and accounts agree."""
    rows = store.index.rows_after(b"", 1_000_000)
    byte_count = sum(account.bytes for account in store.index.accounts().values())
    object_count = sum(account.objects for account in store.index.accounts().values())
    return (
        {row.file for row in rows} == files(store)
        and byte_count == sum(row.size for row in rows)
        and object_count == len(rows)
    )


def test_twenty_racing_clients_never_overshoot_a_quota(open_store: OpenStore, tmp_path: Path) -> None:
    config = cache_config(
        tmp_path, bucket(quota="20000", Eviction="nr"), bucket("other", "7000", Eviction="nr"), TotalQuota="25000"
    )
    stores = [open_store(config), open_store(config)]  # they behave as two processes do
    highest: list[int] = []
    refused: list[str] = []

    def race(number: int) -> None:
        store = stores[number % 2]
        for turn in range(15):
            try:
                put(store, f"{number}-{turn}", 300, name="b" if number % 3 else "other")
            except Full as error:
                refused.append(str(error))
            accounts = store.index.accounts()
            assert accounts["b"].bytes <= 20000 and accounts["other"].bytes <= 7000
            highest.append(accounts["b"].bytes + accounts["other"].bytes)

    racers = [threading.Thread(target=race, args=(number,)) for number in range(20)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len(highest) == 300 and max(highest) <= 25000 and refused
    assert rows_and_files_agree(stores[0])


def test_an_object_that_can_never_fit_is_too_large_and_evicts_nothing(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(cache_config(tmp_path, bucket()))
    put(store, "small")
    with pytest.raises(ObjectTooLarge):
        put(store, "huge", 1001)
    assert has(store, "small") and rows_and_files_agree(store)


@pytest.mark.parametrize("policy", policy_names())
def test_every_policy_keeps_within_the_quota(open_store: OpenStore, tmp_path: Path, policy: str) -> None:
    store = open_store(cache_config(tmp_path, bucket(Eviction=policy)))
    chance = random.Random(1)
    for turn in range(60):
        try:
            put(store, f"k{chance.randrange(30)}", chance.randrange(1, 300))
        except Full:
            assert policy == "nr", turn
        assert store.index.accounts()["b"].bytes <= 1000
    assert rows_and_files_agree(store)


def test_random_eviction_reaches_every_object(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(cache_config(tmp_path, bucket(Eviction="random")))
    for number in range(200):
        put(store, f"k{number}")
    present = [number for number in range(200) if has(store, f"k{number}")]
    assert len(present) == 10 and present != list(range(190, 200))


def test_nr_keeps_used_objects_and_evicts_idle_ones(open_store: OpenStore, tmp_path: Path, store_clock: Clock) -> None:
    store = open_store(cache_config(tmp_path, bucket(Eviction="nr")))
    for number in range(10):
        put(store, f"k{number}")
    with pytest.raises(Full):
        put(store, "new")
    store_clock.now += nr.IDLE + 1
    record_use(store, "k3", store_clock.now)
    assert put(store, "new", 900) == 9
    assert has(store, "k3") and has(store, "new")


def test_a_new_version_replaces_the_space_of_the_old_version(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(cache_config(tmp_path, bucket(Eviction="nr")))
    for size in (1000, 999, 1000):
        put(store, "only", size)
    assert store.index.accounts()["b"].bytes == 1000 and len(files(store)) == 1 and rows_and_files_agree(store)


@pytest.mark.parametrize("policy", policy_names())
def test_a_bucket_within_its_share_loses_no_object_to_a_bucket_above_its_share(
    open_store: OpenStore, tmp_path: Path, policy: str
) -> None:
    buckets = [bucket("greedy", "1000", Eviction=policy), bucket("modest", "1000", Eviction=policy)]
    store = open_store(cache_config(tmp_path, *buckets, TotalQuota="1000"))  # a share of 500 each
    for number in range(10):
        put(store, f"g{number}", name="greedy")
    for number in range(5):
        put(store, f"m{number}", name="modest")  # takes room back from the greedy bucket, whatever its policy
    assert {name: account.bytes for name, account in store.index.accounts().items()} == {"greedy": 500, "modest": 500}
    for number in range(10, 20):
        try:
            put(store, f"g{number}", name="greedy")
        except Full:
            assert policy == "nr"
    assert all(has(store, f"m{number}", "modest") for number in range(5)) and rows_and_files_agree(store)


@pytest.mark.parametrize("body", [[b"x" * 50], [b"x" * 150], []])
def test_a_body_of_another_length_leaves_nothing(open_store: OpenStore, tmp_path: Path, body: list[bytes]) -> None:
    store = open_store(cache_config(tmp_path, bucket()))
    with pytest.raises(Cut):
        store.put(store.config.buckets["b"], b"k", 100, lambda: body)
    assert store.index.accounts()["b"].bytes == 0 and rows_and_files_agree(store)


def test_a_refused_replacement_leaves_the_old_version(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(cache_config(tmp_path, bucket()))
    put(store, "k")
    with pytest.raises(Unmet):
        store.put(
            store.config.buckets["b"], b"k", 5, lambda: [b"other"], condition=lambda digest, added: digest is None
        )
    with pytest.raises(BadDigest):
        store.put(store.config.buckets["b"], b"k", 5, lambda: [b"other"], digest=b"\0" * 32)
    row = store.index.get_row(name_of("b", b"k"))
    assert row is not None and row.size == 100 and rows_and_files_agree(store)


def test_a_flipped_bit_is_detected_and_becomes_a_miss(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(cache_config(tmp_path, bucket()))
    for number in range(5):
        put(store, f"k{number}")
    row = store.index.get_row(name_of("b", b"k2"))
    assert row is not None
    path = store.folder / row.file
    content = bytearray(path.read_bytes())
    content[50] ^= 1
    path.write_bytes(content)
    assert sorted(scrub(store, threading.Event())) == [False, True, True, True, True]
    assert not has(store, "k2") and not path.exists() and rows_and_files_agree(store)
    assert list(scrub(store, threading.Event())) == [True] * 4


@pytest.mark.parametrize("start", [b"", b"\x80" * 16, b"\xff" * 16])
def test_a_scrub_verifies_every_object_from_any_start(open_store: OpenStore, tmp_path: Path, start: bytes) -> None:
    store = open_store(cache_config(tmp_path, bucket(quota="100000")))
    for number in range(250):
        put(store, f"k{number}", size=10)
    assert list(scrub(store, threading.Event(), start=start)) == [True] * 250


def test_a_scrub_drops_an_unreadable_file_and_continues(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(cache_config(tmp_path, bucket()))
    for number in range(5):
        put(store, f"k{number}")
    row = store.index.get_row(name_of("b", b"k2"))
    assert row is not None
    (store.folder / row.file).unlink()
    (store.folder / row.file).symlink_to(Path(row.file).name)  # a link to itself: even root cannot open it
    assert sorted(scrub(store, threading.Event())) == [False, True, True, True, True]
    assert not has(store, "k2") and rows_and_files_agree(store)


@pytest.mark.parametrize("where", ["head", "pages"])
def test_a_corrupt_index_costs_the_cached_objects_only(open_store: OpenStore, tmp_path: Path, where: str) -> None:
    config = cache_config(tmp_path, bucket(quota="100000"))
    store = open_store(config)
    for number in range(500):
        put(store, f"k{number}", size=10)
    store.close()
    with open(store.folder / "ledger.db", "r+b") as file:
        for offset in range(0 if where == "head" else 4096, os.fstat(file.fileno()).st_size, 4096):
            file.seek(offset)
            file.write(b"\xff" * 100)
    reopened = open_store(config)
    assert rows_and_files_agree(reopened) and not files(reopened)
    put(reopened, "k")
    assert has(reopened, "k")


def test_an_index_that_becomes_corrupt_refuses_writes(open_store: OpenStore, tmp_path: Path) -> None:
    config = cache_config(tmp_path, bucket(quota="100000"))
    store = open_store(config)
    for number in range(500):
        put(store, f"k{number}", size=10)
    store.close()
    open_store(config)  # its page cache holds the whole file, so it sees no corruption yet
    store = open_store(config)
    with open(store.folder / "ledger.db", "r+b") as file:
        for offset in range(4096, os.fstat(file.fileno()).st_size, 4096):
            os.pwrite(file.fileno(), b"\xff" * 100, offset)
    with pytest.raises(sqlite3.DatabaseError):
        for number in range(500):
            put(store, f"n{number}", size=10)
    assert store.index.corrupt
    store.close()


def test_a_start_reconciles_rows_and_files(open_store: OpenStore, tmp_path: Path) -> None:
    config = cache_config(tmp_path, bucket(), bucket("removed", "500"))
    store = open_store(config)
    for number in range(5):
        put(store, f"k{number}")
    put(store, "k", name="removed")
    lost, short = (store.index.get_row(name_of("b", key)) for key in (b"k1", b"k2"))
    assert lost is not None and short is not None
    # as after kill -9, a power cut, and a change of the configuration
    store.index.reserve(config.buckets["b"], b"n" * 16, "ab/announced.1", 77, 0.0)
    store.close()
    (store.folder / lost.file).unlink()
    (store.folder / short.file).write_bytes(b"")
    (store.folder / "ab" / "orphan.1").write_bytes(b"x")
    (store.folder / "temp" / "half").write_bytes(b"x")
    reopened = open_store(cache_config(tmp_path, bucket()))
    assert rows_and_files_agree(reopened) and list((reopened.folder / "temp").iterdir()) == []
    assert [has(reopened, f"k{number}") for number in range(5)] == [True, False, False, True, True]
    assert {name: (account.bytes, account.objects) for name, account in reopened.index.accounts().items()} == {
        "b": (300, 3)
    }


def reserve_and_wait(config: Config, connection: Connection) -> None:
    """Reserve room for an object, write its file, report, and wait to be killed."""
    store = Store(config)
    store.index.reserve(config.buckets["b"], b"n" * 16, "ab/announced.1", 900, 0.0)
    (store.folder / "ab" / "announced.1").write_bytes(b"x" * 900)
    connection.send(True)
    connection.recv()


def test_reservations_of_a_dead_process_are_released_by_others(open_store: OpenStore, tmp_path: Path) -> None:
    config = cache_config(tmp_path, bucket())
    store = open_store(config)
    parent_end, child_end = Pipe()
    process = get_context("spawn").Process(target=reserve_and_wait, args=(config, child_end), daemon=True)
    process.start()
    assert parent_end.poll(60.0) and parent_end.recv()
    store.record({}, {})
    assert store.index.accounts()["b"].bytes == 900, "the reservation holds while its process lives"
    process.kill()
    process.join()
    store.record({}, {})
    assert store.index.accounts()["b"].bytes == 0 and rows_and_files_agree(store)


def test_a_nearly_full_disk_counts_as_full(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(replace(cache_config(tmp_path, bucket(quota="1Gi", Eviction="lru")), free=1 << 62))
    with pytest.raises(Full):
        put(store, "k")
    assert store.index.accounts()["b"].bytes == 0


MIB, KEEP_FREE = 1 << 20, 16 << 20


@pytest.fixture
def free_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Pretend that the folder has a disk of 24 MiB of its own; return a function that returns its free bytes."""

    def free_space() -> int:
        remaining = 24 * MIB
        for path in tmp_path.rglob("*"):
            with suppress(FileNotFoundError):
                remaining -= path.stat().st_blocks * 512 if path.is_file() and "ledger.db" not in path.name else 0
        return remaining

    monkeypatch.setattr(
        os,
        "statvfs",
        lambda _: SimpleNamespace(f_bavail=free_space() // 4096, f_frsize=4096, f_blocks=24 * MIB // 4096),
    )
    return free_space


def test_concurrent_puts_leave_keep_free_bytes_on_the_disk(
    open_store: OpenStore, tmp_path: Path, free_bytes: Callable[[], int]
) -> None:
    store = open_store(replace(cache_config(tmp_path, bucket(quota="1Gi", Eviction="lru")), free=KEEP_FREE))
    barrier = threading.Barrier(4, timeout=30.0)
    stored: list[int] = []
    refused: list[int] = []

    def body() -> Iterator[bytes]:
        barrier.wait()
        yield from [b"x" * MIB] * 6

    def race(number: int) -> None:
        try:
            store.put(store.config.buckets["b"], b"k%d" % number, 6 * MIB, body)
            stored.append(number)
        except Full:
            refused.append(number)
            barrier.wait()

    racers = [threading.Thread(target=race, args=(number,)) for number in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert (len(stored), len(refused)) == (1, 3)
    assert free_bytes() >= KEEP_FREE and rows_and_files_agree(store)


def test_received_bytes_are_not_counted_twice_against_the_disk(
    open_store: OpenStore, tmp_path: Path, free_bytes: Callable[[], int]
) -> None:
    store = open_store(replace(cache_config(tmp_path, bucket(quota="1Gi", Eviction="nr")), free=KEEP_FREE))

    def body() -> Iterator[bytes]:
        yield b"x" * 5 * MIB
        put(store, "concurrent", MIB)
        with pytest.raises(Full):
            put(store, "too-much", 2 * MIB)
        yield b"x" * MIB

    store.put(store.config.buckets["b"], b"slow", 6 * MIB, body)
    assert has(store, "concurrent") and has(store, "slow")
    assert free_bytes() >= KEEP_FREE and rows_and_files_agree(store)
