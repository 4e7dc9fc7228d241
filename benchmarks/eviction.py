"""Eviction: hit rates of the cache service's store when a whole dataset is read repeatedly, and its cost per eviction.

It is the service's own store, with its files and its object index; only its clock is set by the benchmark.
"""

import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.results import number, table
from datasets.scs.config import Config, parse
from datasets.scs.object_index import USE_RESOLUTION, ObjectIndex, name_of
from datasets.scs.store import Full, Store

POLICIES = ("nr", "random", "fifo", "lru")
UNITS, EPOCHS, SEEDS = 160, 12, 20
CAPACITIES = (10, 50, 100, 160, 200)
#: Objects of the index in which evictions are timed, and evictions.
OBJECTS, EVICTIONS = 1_000_000, 2_000
#: Seconds between two reads: an index records each use, because it is later than the resolution of uses.
_STEP = USE_RESOLUTION + 1
_TEMP = "/dev/shm"


class Clock:
    """Time in seconds since 1970, which only the benchmark advances."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def open_store(config: Config, clock: Clock) -> Iterator[Store]:
    """Open a store in an empty folder, and delete the folder at the end."""
    store = Store(config, clock=clock)
    try:
        yield store
    finally:
        store.close()
        shutil.rmtree(store.folder)


def config_of(folder: Path, policy: str, quota: int) -> Config:
    """Return the configuration of a service with one bucket, of a policy and a quota in bytes."""
    bucket = {"Name": "b", "BucketQuota": quota, "AllowNamespaces": ["team"], "Eviction": policy}
    return parse({"Bucket": [bucket], "Directory": str(folder), "KeepFree": "0"})


def epochs(
    policy: str, capacity: int, seed: int, *, units: int = UNITS, count: int = EPOCHS, shuffled: bool = True
) -> list[float]:
    """Read each unit once per epoch through a store, in a new random order; put it after a miss.

    Return the hit rate of each epoch in percent. A unit is an object of one byte.
    """
    clock, order, rates = Clock(), random.Random(seed), []
    with (
        tempfile.TemporaryDirectory(prefix="eviction-", dir=_TEMP) as folder,
        open_store(config_of(Path(folder, "scs"), policy, capacity), clock) as store,
    ):
        bucket = store.config.buckets["b"]
        keys = [f"{seed}/{unit}".encode() for unit in range(units)]
        order.shuffle(keys)
        for _ in range(count):
            if shuffled:
                order.shuffle(keys)
            rates.append(100 * sum(_read(store, clock, key) for key in keys) / units)
        account = store.index.accounts()["b"]
        assert account.objects == len(list(store.files())) <= capacity and bucket.quota == capacity
    return rates


def _read(store: Store, clock: Clock, key: bytes) -> bool:
    """Read an object, or put it if it is absent and admitted; return whether it was there."""
    clock.now += _STEP
    bucket = store.config.buckets["b"]
    row = store.index.get_row(name_of("b", key))
    if row is not None:
        store.record({row.name: clock.now}, {})
        return True
    try:
        store.put(bucket, key, 1, lambda: [b"x"])
    except Full:
        return False
    return False


def hit_rates(policy: str, capacity: int, seeds: int, *, shuffled: bool = True) -> dict[str, float]:
    """Return mean, minimum and maximum over all seeds, and all epochs from the second on."""
    rates = [rate for seed in range(seeds) for rate in epochs(policy, capacity, seed, shuffled=shuffled)[1:]]
    return {"mean": statistics.mean(rates), "min": min(rates), "max": max(rates)}


def costs(policies: Sequence[str] = POLICIES, objects: int = OBJECTS, evictions: int = EVICTIONS) -> dict[str, Any]:
    """Return microseconds per reservation in a full index, which evicts an object, and seconds to change the policy."""
    costs: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="eviction-", dir=_TEMP) as temp:
        folder = Path(temp)
        index = ObjectIndex(folder / "ledger.db", config_of(folder, "lru", objects), "p")
        _fill(index, objects)
        files = [(row.file, row.size) for row in index.rows_after(b"", objects)]
        index.close()
        for policy in policies:
            config = config_of(folder, policy, objects)
            index = ObjectIndex(folder / "ledger.db", config, "p")
            began = time.perf_counter()
            index.reconcile(lambda: files)
            start_seconds = time.perf_counter() - began
            # a day and a second after the last use, so that non-replacing evicts, too
            now, evicting, refusing = Clock.now + objects + 86401.0, [], []
            for number in range(evictions):
                index.write(lambda connection: connection.execute("update accounts set bytes=?", (objects,)))
                began = time.perf_counter()
                victims = index.reserve(config.buckets["b"], b"n%d" % number, f"{policy}/{number}", 1, now)
                evicting.append(time.perf_counter() - began)
                assert len(victims) == 1
                index.cancel_intent(f"{policy}/{number}")
            index.write(lambda connection: connection.execute("update accounts set bytes=?", (objects,)))
            for number in range(evictions if policy == "nr" else 0):
                began = time.perf_counter()
                try:
                    index.reserve(config.buckets["b"], b"n%d" % number, f"{policy}/{number}", 1, Clock.now)
                except Full:
                    refusing.append(time.perf_counter() - began)
            assert len(refusing) == (evictions if policy == "nr" else 0)
            costs[policy] = {
                "evicting": statistics.median(evicting) * 1e6,
                "refusing": statistics.median(refusing) * 1e6 if refusing else None,
                "start": start_seconds,
            }
            index.close()
    return costs


def _fill(index: ObjectIndex, objects: int) -> None:
    def step(connection: Any) -> None:
        rows = ((name_of("b", b"%d" % unit), unit) for unit in range(objects))
        connection.executemany(
            "insert into objects values(?1,'b',?1,hex(?1),1,?1,?2,?2,?2)",
            ((name, Clock.now + unit) for name, unit in rows),
        )
        connection.execute("update accounts set bytes=?1, objects=?1", (objects,))

    index.write(step)


def measure(seeds: int = SEEDS) -> dict[str, Any]:
    """Measure each policy at each capacity, in random order and in a fixed order, and the cost of decisions."""
    tables = {
        kind: {
            str(capacity): {
                policy: hit_rates(policy, capacity, seeds if shuffled else 1, shuffled=shuffled) for policy in POLICIES
            }
            for capacity in CAPACITIES
        }
        for kind, shuffled in (("random", True), ("fixed", False))
    }
    return {"units": UNITS, "epochs": EPOCHS, "seeds": seeds, **tables, "objects": OBJECTS, "costs": costs()}


def section(figures: dict[str, Any]) -> str:
    """Return the section: the tables of hit rates, and the cost of a decision."""
    rows = [
        [
            capacity,
            *(f"{row['mean']:.4g} ({row['min']:.3g} to {row['max']:.3g})" for row in policies.values()),
        ]
        for capacity, policies in figures["random"].items()
    ]
    fixed = [
        [capacity, *(f"{row['mean']:.4g}" for row in policies.values())]
        for capacity, policies in figures["fixed"].items()
    ]
    names = list(next(iter(figures["random"].values())))
    costs = [
        [policy, number(row["evicting"]), number(row["refusing"]) if row["refusing"] else "", number(row["start"])]
        for policy, row in figures["costs"].items()
    ]
    return "\n\n".join(
        [
            f"Hit rate in percent when all {figures['units']} units of a dataset are read once per epoch, by capacity "
            f"in units: mean (least and most epoch) of {figures['seeds']} seeds and epochs 2 to {figures['epochs']}, "
            "in a new random order each epoch. Every read and every PUT goes through the store of the cache service, "
            "with its files and its object index; only the clock is the benchmark's.",
            table(["capacity", *names], rows),
            "In the same order in every epoch:",
            table(["capacity", *names], fixed),
            f"Reserving room in a full bucket of {figures['objects']:,} objects, each time for one evicted object or "
            "refused, with its commit, in microseconds; and a start (rows and files reconciled) with a policy that "
            "differs from the last, in seconds:",
            table(["policy", "evicting", "refusing", "start"], costs),
        ]
    )
