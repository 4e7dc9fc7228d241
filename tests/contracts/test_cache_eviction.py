"""Eviction of both caches: the same victims as a scan of all items, by every policy, across restarts."""

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import eviction as benchmark
from common.errors import NodeFull
from datasets.eviction import policies
from datasets.eviction.policies import load_policy, nr, policy_names
from datasets.nodecache.disk_cache import DiskCache
from datasets.nodecache.locks import locked
from datasets.scs.config import Config
from datasets.scs.object_index import Full, ObjectIndex, Row, name_of
from tests.contracts.cache_service import cache_config
from tests.reference_cache import ReferenceCache

#: Policies beside those of the package: with a floor (ageing), in reversed order, and with `kept_from`.
ADDED_POLICIES = {
    "gds": "lambda item, floor: floor + 1 / max(1, item.size)",
    "mru": "lambda item, floor: -item.used",
    "first": "lambda item, floor: item.added, kept_from=lambda now: now - 200",
}
NAMES = [*policy_names(), *ADDED_POLICIES]


@pytest.fixture(scope="module", autouse=True)
def added_policies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Add policies to the package for the tests of this file."""
    folder = tmp_path_factory.mktemp("policies")
    for name, key in ADDED_POLICIES.items():
        (folder / f"{name}.py").write_text(
            f"from datasets.eviction.policy import Policy\n\nPOLICY = Policy(key={key})\n"
        )
    policies.__path__.append(str(folder))
    importlib.invalidate_caches()
    yield
    policies.__path__.remove(str(folder))
    for name in ADDED_POLICIES:
        sys.modules.pop(f"{policies.__name__}.{name}", None)


class Clock:
    """Time in seconds since 1970, which the test advances."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def bucket_config(name: str, quota: int, policy: str) -> dict[str, object]:
    """Return a bucket's configuration."""
    return {"Name": name, "BucketQuota": quota, "AllowNamespaces": ["team"], "Eviction": policy}


# -- the cache service

INDEX_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "use", "delete", "wait", "restart"]),
        st.integers(0, 12),
        st.sampled_from("ab"),
        st.integers(0, 12),
    ),
    max_size=50,
)


@pytest.mark.parametrize("policy", NAMES)
@settings(deadline=None)
@given(other=st.sampled_from(NAMES), capacity=st.integers(5, 40), steps=INDEX_STEPS)
def test_the_object_index_evicts_as_a_scan_would(
    policy: str, other: str, capacity: int, steps: list[tuple[str, int, str, int]]
) -> None:
    names = (policy, other)
    quotas = {"a": 30, "b": 15}
    model = ReferenceCache(
        capacity, {name: (load_policy(policy), quotas[name]) for name, policy in zip("ab", names, strict=True)}
    )
    buckets = [bucket_config(name, quotas[name], policy) for name, policy in zip("ab", names, strict=True)]
    now, files, ids = 1_800_000_000.0, dict[str, tuple[str, int]](), dict[str, str]()
    with tempfile.TemporaryDirectory() as folder:
        config = cache_config(Path(folder), *buckets, TotalQuota=str(capacity))
        index = ObjectIndex(Path(folder, "ledger.db"), config, "p")
        index.reconcile(lambda: [])
        for turn, (step, number, group, size) in enumerate(steps):
            now += 11  # later than the resolution of uses
            key = b"%d" % number
            name = name_of(group, key)
            id = name.hex()
            if step == "put":
                expected = model.add(id, group, size, now)
                file = f"ab/{turn}"
                try:
                    evicted = index.reserve(config.buckets[group], name, file, size, now)
                except Full:
                    assert expected is None
                    continue
                assert expected is not None
                assert sorted(ids.pop(file) for file in evicted) == sorted(expected)
                replaced = index.commit_object(
                    config.buckets[group], key, Row(name=name, file=file, size=size, digest=b"", added=now), None
                )
                ids.pop(replaced or "", None)
                ids[file], files[id] = id, (file, size)
            elif step == "use":
                model.use(id, now)
                index.record({name: now}, {})
            elif step == "delete" and id in model.items:
                del model.items[id]
                index.delete(name, files[id][0])
                ids.pop(files[id][0])
            elif step == "wait":
                now += 100 * size * (100 if number % 2 else 1)
            elif step == "restart":
                index.close()
                index = ObjectIndex(Path(folder, "ledger.db"), config, "p")
                assert index.reconcile(lambda: [files[id] for id in model.items]) == []
            assert {row.name.hex() for row in index.rows_after(b"", 100)} == set(model.items)
            assert {name: account.bytes for name, account in index.accounts().items()} == {
                name: model.used(name) for name in "ab"
            }
        index.close()


@pytest.mark.parametrize("policy", ["nr", "first"])
def test_a_bucket_above_its_share_loses_its_last_objects_under_policies_that_keep_the_first(
    tmp_path: Path, policy: str
) -> None:
    config = cache_config(tmp_path, bucket_config("a", 8, policy), bucket_config("b", 8, policy), TotalQuota="8")
    index = ObjectIndex(tmp_path / "ledger.db", config, "p")
    index.reconcile(lambda: [])
    evicted = []
    for bucket, count in (("a", 8), ("b", 4)):
        for number in range(count):
            name, file, time = name_of(bucket, b"%d" % number), f"{bucket}/{number}", 100.0 + number
            evicted += index.reserve(config.buckets[bucket], name, file, 1, time)
            index.commit_object(
                config.buckets[bucket], b"%d" % number, Row(name=name, file=file, size=1, digest=b"", added=time), None
            )
    assert evicted == ["a/7", "a/6", "a/5", "a/4"]
    with pytest.raises(Full, match=rf"bucket b is full.*Eviction: {policy}"):
        index.reserve(config.buckets["b"], b"n", "b/n", 1, 110.0)
    index.close()


@pytest.mark.parametrize(("policy", "victim"), [("fifo", "f/0"), ("lru", "f/1"), ("mru", "f/0"), ("gds", "f/2")])
def test_a_changed_policy_of_a_bucket_applies_to_its_present_objects(tmp_path: Path, policy: str, victim: str) -> None:
    def open_index(policy: str) -> tuple[Config, ObjectIndex]:
        config = cache_config(tmp_path, bucket_config("a", 6, policy))
        index = ObjectIndex(tmp_path / "ledger.db", config, "p")
        index.reconcile(lambda: [(f"f/{number}", number + 1) for number in range(3)])
        return config, index

    config, index = open_index("fifo")
    for number in range(3):
        name, file = name_of("a", b"%d" % number), f"f/{number}"
        index.reserve(config.buckets["a"], name, file, number + 1, 100.0 * number)
        index.commit_object(
            config.buckets["a"],
            b"%d" % number,
            Row(name=name, file=file, size=number + 1, digest=b"", added=100.0 * number),
            None,
        )
    index.record({name_of("a", b"0"): 1000.0}, {})
    index.close()
    config, index = open_index(policy)
    assert index.reserve(config.buckets["a"], b"n", "f/n", 1, 2000.0) == [victim]
    index.close()


# -- the node cache

DISK_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "use", "pin", "release", "wait", "restart"]),
        st.integers(0, 12),
        st.integers(0, 12),
    ),
    max_size=40,
)


@pytest.mark.parametrize("policy", NAMES)
@settings(deadline=None)
@given(capacity=st.integers(5, 30), steps=DISK_STEPS)
def test_the_node_cache_evicts_as_a_scan_would(policy: str, capacity: int, steps: list[tuple[str, int, int]]) -> None:
    model, clock = ReferenceCache(capacity, {"node": (load_policy(policy), capacity)}), Clock()
    with tempfile.TemporaryDirectory() as folder:
        cache = DiskCache(Path(folder), capacity, policy, clock=clock)
        for step, number, size in steps:
            clock.now += 1
            id = f"{number:064x}"
            if step == "add" and id not in model.items:
                expected = model.add(id, "node", size, clock.now, required=True)
                assert add_to_cache(cache, id, size) is (expected is not None)
            elif step == "use":
                model.use(id, clock.now)
                cache.touch(id)
            elif step == "pin" and id in model.items:
                model.pinned.add(id)
                model.use(id, clock.now)
                cache.pin(id, f"holder of {number}")
            elif step == "release":
                model.pinned.discard(id)
                cache.release(f"holder of {number}")
            elif step == "wait":
                clock.now += 10 * size * (1000 if number % 2 else 1)
            elif step == "restart":
                cache = DiskCache(Path(folder), capacity, policy, clock=clock)
            present = set(os.listdir(Path(folder, "objects"))) if Path(folder, "objects").exists() else set()
            assert present == set(model.items)


def add_to_cache(cache: DiskCache, id: str, size: int) -> bool:
    """Add an object as a download does; return whether there was room."""
    with locked(cache.lock(id)):
        try:
            cache.reserve(id, size)
        except NodeFull:
            return False
        cache.object(id).parent.mkdir(exist_ok=True)
        cache.object(id).write_bytes(b"x" * size)
        cache.record_added(id)
        cache.release_reservation(id)
        return True


def present(cache: DiskCache, ids: str) -> str:
    """Return which of these entries are present."""
    return "".join(id for id in ids if cache.object(id * 64).exists())


def test_an_entry_with_a_damaged_record_of_use_is_ordered_by_its_modification_time(tmp_path: Path) -> None:
    clock = Clock()
    cache = DiskCache(tmp_path, 3, "fifo", clock=clock)
    for id in "abc":
        clock.now += 1
        assert add_to_cache(cache, id * 64, 1)
    (tmp_path / "uses" / ("b" * 64)).write_bytes(b"\0\0")
    os.utime(cache.object("b" * 64), (clock.now - 100, clock.now - 100))
    assert add_to_cache(cache, "d" * 64, 1) and present(cache, "abcd") == "acd"
    assert add_to_cache(cache, "e" * 64, 1) and present(cache, "abcde") == "cde"


def test_a_changed_policy_of_the_node_cache_applies_to_its_present_entries(tmp_path: Path) -> None:
    clock = Clock()
    first = DiskCache(tmp_path, 3, "fifo", clock=clock)
    for id in "abc":
        clock.now += 1
        assert add_to_cache(first, id * 64, 1)
    clock.now += 1
    first.touch("a" * 64)
    clock.now += 1
    assert add_to_cache(DiskCache(tmp_path, 3, "lru", clock=clock), "d" * 64, 1) and present(first, "abcd") == "acd"
    clock.now += 1
    assert add_to_cache(DiskCache(tmp_path, 3, "mru", clock=clock), "e" * 64, 1) and present(first, "abcde") == "ace", (
        "d was used last"
    )


def test_the_node_cache_stores_a_required_tree_under_a_policy_that_keeps_everything(tmp_path: Path) -> None:
    clock = Clock()
    cache = DiskCache(tmp_path, 3, "nr", clock=clock)
    for id in "abc":
        clock.now += 1
        assert add_to_cache(cache, id * 64, 1)
    clock.now += 1
    assert add_to_cache(cache, "d" * 64, 1) and present(cache, "abcd") == "abd", (
        "all were used within a day: the youngest"
    )
    clock.now += nr.IDLE
    cache.touch("a" * 64)
    assert add_to_cache(cache, "e" * 64, 1) and present(cache, "abcde") == "ade", "the longest unused"


# -- hit rates

CAPACITIES = (1, 5, 10, 16)
#: Mean hit rates in percent of epochs 2 to 6 and 4 seeds: 16 units, each read once an epoch in a new random order.
HIT_RATES = {
    "nr": [6.25, 31.25, 62.5, 100.0],
    "random": [0.0, 10.0, 41.875, 100.0],
    "fifo": [0.0, 8.4375, 37.5, 100.0],
    "lru": [0.0, 7.8125, 25.0, 100.0],
}


@pytest.mark.parametrize("capacity", [1, 5, 10, 16, 20])
def test_the_hit_rate_of_the_nr_policy_is_the_capacity_over_the_data_set(capacity: int) -> None:
    for seed in range(3):
        rates = benchmark.epochs("nr", capacity, seed, units=16, count=6)
        assert rates == [0.0] + [min(100.0, 100 * capacity / 16)] * 5


def mean_hit_rate(policy: str, capacity: int) -> float:
    """Return the mean of HIT_RATES, through the store of the cache service."""
    return mean(rate for seed in range(4) for rate in benchmark.epochs(policy, capacity, seed, units=16, count=6)[1:])


def test_the_hit_rates_of_the_policies_are_as_recorded() -> None:
    rates = {policy: [mean_hit_rate(policy, capacity) for capacity in CAPACITIES] for policy in benchmark.POLICIES}
    assert rates == HIT_RATES
    for index in (1, 2):
        assert rates["nr"][index] > rates["random"][index] > rates["fifo"][index] > rates["lru"][index]


@pytest.mark.parametrize("policy", ["lru", "fifo"])
def test_lru_and_fifo_never_hit_in_a_fixed_order_unless_everything_fits(policy: str) -> None:
    assert benchmark.epochs(policy, 15, 0, units=16, count=4, shuffled=False) == [0.0] * 4
    assert benchmark.epochs(policy, 16, 0, units=16, count=4, shuffled=False) == [0.0] + [100.0] * 3
