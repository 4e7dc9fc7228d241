"""Contract of the object store: quotas are never exceeded, shares are fair, files and rows agree."""

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
from datasets.scs.store import BadDigest, Cut, Full, ObjectTooLarge, Store, Unmet
from tests.contracts.cache_service import cache_config

Opened = Callable[..., Store]


class Clock:
    """Clock that tests advance, and that advances a little with every call."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture
def ticking() -> Clock:
    return Clock()


@pytest.fixture
def opened(ticking: Clock) -> Iterator[Opened]:
    """Open stores that end with the test."""
    stores: list[Store] = []

    def open_(config: Config) -> Store:
        stores.append(Store(config, clock=ticking))
        return stores[-1]

    yield open_
    for store in stores:
        if not store.index.closed:
            store.close()


def bucket(name: str = "b", quota: str = "1000", **more: Any) -> dict[str, Any]:
    return {"Name": name, "BucketQuota": quota, "AllowNamespaces": ["team"]} | more


def put(store: Store, key: str, size: int = 100, name: str = "b") -> int:
    """Put an object; return the number of evicted objects."""
    return store.put(store.config.buckets[name], key.encode(), size, lambda: [b"x" * size])[1]


def has(store: Store, key: str, name: str = "b") -> bool:
    return store.index.get_row(name_of(name, key.encode())) is not None


def use(store: Store, key: str, at: float, name: str = "b") -> None:
    store.record({name_of(name, key.encode()): at}, {})


def files(store: Store) -> set[str]:
    return {file for file, _ in store.files()}


def agree(store: Store) -> bool:
    """Return whether rows, files and accounts agree."""
    rows = store.index.rows_after(b"", 1_000_000)
    used = sum(account.bytes for account in store.index.accounts().values())
    counted = sum(account.objects for account in store.index.accounts().values())
    return {row.file for row in rows} == files(store) and used == sum(row.size for row in rows) and counted == len(rows)


def test_twenty_racing_clients_never_overshoot_a_quota(opened: Opened, tmp_path: Path) -> None:
    config = cache_config(
        tmp_path, bucket(quota="20000", Eviction="nr"), bucket("other", "7000", Eviction="nr"), TotalQuota="25000"
    )
    stores = [opened(config), opened(config)]  # they behave as two processes do
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
    assert agree(stores[0])


def test_an_object_that_can_never_fit_is_too_large_and_evicts_nothing(opened: Opened, tmp_path: Path) -> None:
    store = opened(cache_config(tmp_path, bucket()))
    put(store, "small")
    with pytest.raises(ObjectTooLarge):
        put(store, "huge", 1001)
    assert has(store, "small") and agree(store)


@pytest.mark.parametrize("policy", policy_names())
def test_every_policy_keeps_within_the_quota(opened: Opened, tmp_path: Path, policy: str) -> None:
    store = opened(cache_config(tmp_path, bucket(Eviction=policy)))
    chance = random.Random(1)
    for turn in range(60):
        try:
            put(store, f"k{chance.randrange(30)}", chance.randrange(1, 300))
        except Full:
            assert policy == "nr", turn
        assert store.index.accounts()["b"].bytes <= 1000
    assert agree(store)


def test_random_eviction_reaches_every_object(opened: Opened, tmp_path: Path) -> None:
    store = opened(cache_config(tmp_path, bucket(Eviction="random")))
    for number in range(200):
        put(store, f"k{number}")
    left = [number for number in range(200) if has(store, f"k{number}")]
    assert len(left) == 10 and left != list(range(190, 200))


def test_nr_keeps_used_objects_and_evicts_idle_ones(opened: Opened, tmp_path: Path, ticking: Clock) -> None:
    store = opened(cache_config(tmp_path, bucket(Eviction="nr")))
    for number in range(10):
        put(store, f"k{number}")
    with pytest.raises(Full):
        put(store, "new")
    ticking.now += nr.IDLE + 1
    use(store, "k3", ticking.now)
    assert put(store, "new", 900) == 9
    assert has(store, "k3") and has(store, "new")


def test_a_new_version_takes_the_old_ones_room(opened: Opened, tmp_path: Path) -> None:
    store = opened(cache_config(tmp_path, bucket(Eviction="nr")))
    for size in (1000, 999, 1000):
        put(store, "only", size)
    assert store.index.accounts()["b"].bytes == 1000 and len(files(store)) == 1 and agree(store)


@pytest.mark.parametrize("policy", policy_names())
def test_a_bucket_within_its_share_is_never_the_victim_of_one_above(
    opened: Opened, tmp_path: Path, policy: str
) -> None:
    buckets = [bucket("greedy", "1000", Eviction=policy), bucket("modest", "1000", Eviction=policy)]
    store = opened(cache_config(tmp_path, *buckets, TotalQuota="1000"))  # a share of 500 each
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
    assert all(has(store, f"m{number}", "modest") for number in range(5)) and agree(store)


@pytest.mark.parametrize("body", [[b"x" * 50], [b"x" * 150], []])
def test_a_body_of_another_length_leaves_nothing(opened: Opened, tmp_path: Path, body: list[bytes]) -> None:
    store = opened(cache_config(tmp_path, bucket()))
    with pytest.raises(Cut):
        store.put(store.config.buckets["b"], b"k", 100, lambda: body)
    assert store.index.accounts()["b"].bytes == 0 and agree(store)


def test_a_refused_replacement_leaves_the_old_version(opened: Opened, tmp_path: Path) -> None:
    store = opened(cache_config(tmp_path, bucket()))
    put(store, "k")
    with pytest.raises(Unmet):
        store.put(
            store.config.buckets["b"], b"k", 5, lambda: [b"other"], condition=lambda digest, added: digest is None
        )
    with pytest.raises(BadDigest):
        store.put(store.config.buckets["b"], b"k", 5, lambda: [b"other"], digest=b"\0" * 32)
    row = store.index.get_row(name_of("b", b"k"))
    assert row is not None and row.size == 100 and agree(store)


def test_a_flipped_bit_is_found_and_becomes_a_miss(opened: Opened, tmp_path: Path) -> None:
    store = opened(cache_config(tmp_path, bucket()))
    for number in range(5):
        put(store, f"k{number}")
    row = store.index.get_row(name_of("b", b"k2"))
    assert row is not None
    path = store.folder / row.file
    content = bytearray(path.read_bytes())
    content[50] ^= 1
    path.write_bytes(content)
    assert sorted(store.verify(threading.Event())) == [False, True, True, True, True]
    assert not has(store, "k2") and not path.exists() and agree(store)
    assert list(store.verify(threading.Event())) == [True] * 4


@pytest.mark.parametrize("start", [b"", b"\x80" * 16, b"\xff" * 16])
def test_a_search_for_damage_comes_round_to_every_object_wherever_it_begins(
    opened: Opened, tmp_path: Path, start: bytes
) -> None:
    store = opened(cache_config(tmp_path, bucket(quota="100000")))
    for number in range(250):
        put(store, f"k{number}", size=10)
    assert list(store.verify(threading.Event(), start=start)) == [True] * 250


def test_a_file_that_cannot_be_read_is_dropped_and_the_search_goes_on(opened: Opened, tmp_path: Path) -> None:
    store = opened(cache_config(tmp_path, bucket()))
    for number in range(5):
        put(store, f"k{number}")
    row = store.index.get_row(name_of("b", b"k2"))
    assert row is not None
    (store.folder / row.file).unlink()
    (store.folder / row.file).symlink_to(Path(row.file).name)  # a link to itself: even root cannot open it
    assert sorted(store.verify(threading.Event())) == [False, True, True, True, True]
    assert not has(store, "k2") and agree(store)


@pytest.mark.parametrize("where", ["head", "pages"])
def test_a_corrupt_index_costs_the_cached_objects_only(opened: Opened, tmp_path: Path, where: str) -> None:
    config = cache_config(tmp_path, bucket(quota="100000"))
    store = opened(config)
    for number in range(500):
        put(store, f"k{number}", size=10)
    store.close()
    with open(store.folder / "ledger.db", "r+b") as file:
        for at in range(0 if where == "head" else 4096, os.fstat(file.fileno()).st_size, 4096):
            file.seek(at)
            file.write(b"\xff" * 100)
    again = opened(config)
    assert agree(again) and not files(again)
    put(again, "k")
    assert has(again, "k")


def test_an_index_that_becomes_corrupt_refuses_writes(opened: Opened, tmp_path: Path) -> None:
    config = cache_config(tmp_path, bucket(quota="100000"))
    store = opened(config)
    for number in range(500):
        put(store, f"k{number}", size=10)
    store.close()
    opened(config)  # its page cache holds the whole file, so it sees no corruption yet
    store = opened(config)
    with open(store.folder / "ledger.db", "r+b") as file:
        for at in range(4096, os.fstat(file.fileno()).st_size, 4096):
            os.pwrite(file.fileno(), b"\xff" * 100, at)
    with pytest.raises(sqlite3.DatabaseError):
        for number in range(500):
            put(store, f"n{number}", size=10)
    assert store.index.corrupt
    store.close()


def test_a_start_reconciles_rows_and_files(opened: Opened, tmp_path: Path) -> None:
    config = cache_config(tmp_path, bucket(), bucket("gone", "500"))
    store = opened(config)
    for number in range(5):
        put(store, f"k{number}")
    put(store, "k", name="gone")
    lost, short = (store.index.get_row(name_of("b", key)) for key in (b"k1", b"k2"))
    assert lost is not None and short is not None
    # as after kill -9, a power cut, and a change of the configuration
    store.index.reserve(config.buckets["b"], b"n" * 16, "ab/announced.1", 77, 0.0)
    store.close()
    (store.folder / lost.file).unlink()
    (store.folder / short.file).write_bytes(b"")
    (store.folder / "ab" / "orphan.1").write_bytes(b"x")
    (store.folder / "temp" / "half").write_bytes(b"x")
    again = opened(cache_config(tmp_path, bucket()))
    assert agree(again) and list((again.folder / "temp").iterdir()) == []
    assert [has(again, f"k{number}") for number in range(5)] == [True, False, False, True, True]
    assert {name: (account.bytes, account.objects) for name, account in again.index.accounts().items()} == {
        "b": (300, 3)
    }


def announce(config: Config, reserved: Connection) -> None:
    """Reserve room for an object, write its file, report, and wait to be killed."""
    store = Store(config)
    store.index.reserve(config.buckets["b"], b"n" * 16, "ab/announced.1", 900, 0.0)
    (store.folder / "ab" / "announced.1").write_bytes(b"x" * 900)
    reserved.send(True)
    reserved.recv()


def test_intents_of_a_dead_process_are_undone_by_others(opened: Opened, tmp_path: Path) -> None:
    config = cache_config(tmp_path, bucket())
    living = opened(config)
    parent_end, child_end = Pipe()
    dying = get_context("spawn").Process(target=announce, args=(config, child_end), daemon=True)
    dying.start()
    assert parent_end.poll(60.0) and parent_end.recv()
    living.record({}, {})
    assert living.index.accounts()["b"].bytes == 900, "while it lives, its intent holds"
    dying.kill()
    dying.join()
    living.record({}, {})
    assert living.index.accounts()["b"].bytes == 0 and agree(living)


def test_a_nearly_full_disk_counts_as_full(opened: Opened, tmp_path: Path) -> None:
    store = opened(replace(cache_config(tmp_path, bucket(quota="1Gi", Eviction="lru")), free=1 << 62))
    with pytest.raises(Full):
        put(store, "k")
    assert store.index.accounts()["b"].bytes == 0


MIB, KEEP_FREE = 1 << 20, 16 << 20


@pytest.fixture
def free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Pretend that the folder has a disk of 24 MiB of its own; return a function that returns its free bytes."""

    def left() -> int:
        free_bytes = 24 * MIB
        for path in tmp_path.rglob("*"):
            with suppress(FileNotFoundError):
                free_bytes -= path.stat().st_blocks * 512 if path.is_file() and "ledger" not in path.name else 0
        return free_bytes

    monkeypatch.setattr(
        os, "statvfs", lambda _: SimpleNamespace(f_bavail=left() // 4096, f_frsize=4096, f_blocks=24 * MIB // 4096)
    )
    return left


def test_concurrent_puts_leave_keep_free_bytes_on_the_disk(
    opened: Opened, tmp_path: Path, free: Callable[[], int]
) -> None:
    store = opened(replace(cache_config(tmp_path, bucket(quota="1Gi", Eviction="lru")), free=KEEP_FREE))
    decided = threading.Barrier(4, timeout=30.0)
    kept: list[int] = []
    refused: list[int] = []

    def body() -> Iterator[bytes]:
        decided.wait()
        yield from [b"x" * MIB] * 6

    def race(number: int) -> None:
        try:
            store.put(store.config.buckets["b"], b"k%d" % number, 6 * MIB, body)
            kept.append(number)
        except Full:
            refused.append(number)
            decided.wait()

    racers = [threading.Thread(target=race, args=(number,)) for number in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert (len(kept), len(refused)) == (1, 3)
    assert free() >= KEEP_FREE and agree(store)


def test_received_bytes_are_not_counted_twice_against_the_disk(
    opened: Opened, tmp_path: Path, free: Callable[[], int]
) -> None:
    store = opened(replace(cache_config(tmp_path, bucket(quota="1Gi", Eviction="nr")), free=KEEP_FREE))

    def body() -> Iterator[bytes]:
        yield b"x" * 5 * MIB
        put(store, "meanwhile", MIB)
        with pytest.raises(Full):
            put(store, "too-much", 2 * MIB)
        yield b"x" * MIB

    store.put(store.config.buckets["b"], b"slow", 6 * MIB, body)
    assert has(store, "meanwhile") and has(store, "slow")
    assert free() >= KEEP_FREE and agree(store)
