"""Eviction: hit rates of non-replacing, LRU, FIFO and random when a whole dataset is read repeatedly."""

import random
import statistics
import time
from typing import Any

from benchmarks.results import number, table
from datasets.eviction import POLICIES, CacheAccounts, Item

UNITS, EPOCHS, SEEDS = 160, 12, 200
CAPACITIES = (10, 50, 100, 160, 200)


def epochs(policy: str, capacity: int, seed: int, *, shuffled: bool = True) -> list[float]:
    """Read each unit once per epoch, in a new random order; return hit rates in percent from the second epoch on.

    Only NR (non-replacing) uses the pin of the dataset; the other policies do not know datasets.
    """
    order, pinned = random.Random(seed), policy == "nr"
    accounts, rates, now = CacheAccounts(capacity, policy), [], 0
    names = [f"{seed}/{unit}" for unit in range(UNITS)]
    order.shuffle(names)
    for _ in range(EPOCHS):
        if shuffled:
            order.shuffle(names)
        hits = 0
        for name in names:
            now += 1
            if name in accounts:
                hits += 1
                accounts.touch(name, now)
            else:
                accounts.admit(Item(name, "dataset", 1, now, now, pinned))
        rates.append(100 * hits / UNITS)
    return rates[1:]


def found(policy: str, capacity: int, seeds: int, *, shuffled: bool = True) -> dict[str, float]:
    """Return mean, minimum and maximum over all epochs and seeds."""
    rates = [rate for seed in range(seeds) for rate in epochs(policy, capacity, seed, shuffled=shuffled)]
    return {"mean": statistics.mean(rates), "min": min(rates), "max": max(rates)}


def decisions(items: int = 100_000, steps: int = 100_000) -> float:
    """Return eviction decisions per second on a full cache where each insertion evicts."""
    accounts = CacheAccounts(items, "lru", (Item(str(unit), str(unit % 100), 1, unit, unit) for unit in range(items)))
    began = time.perf_counter()
    for unit in range(items, items + steps):
        accounts.admit(Item(str(unit), str(unit % 100), 1, unit, unit))
    return steps / (time.perf_counter() - began)


def measure(seeds: int = SEEDS) -> dict[str, Any]:
    """Measure each policy at each capacity, in random order and in a fixed order."""
    tables = {
        kind: {
            str(capacity): {
                policy: found(policy, capacity, seeds if shuffled else 3, shuffled=shuffled) for policy in POLICIES
            }
            for capacity in CAPACITIES
        }
        for kind, shuffled in (("random", True), ("fixed", False))
    }
    return {"units": UNITS, "epochs": EPOCHS, "seeds": seeds, **tables, "decisions": decisions()}


def section(figures: dict[str, Any]) -> str:
    """Return the section: the table, and the cost of a decision."""
    rows = [
        [
            capacity,
            *(f"{each['mean']:.4g} ({each['min']:.3g} to {each['max']:.3g})" for each in policies.values()),
        ]
        for capacity, policies in figures["random"].items()
    ]
    fixed = [
        [capacity, *(f"{each['mean']:.4g}" for each in policies.values())]
        for capacity, policies in figures["fixed"].items()
    ]
    names = list(next(iter(figures["random"].values())))
    return "\n\n".join(
        [
            f"Hit rate in percent when all {figures['units']} units of a dataset are read once per epoch, by capacity "
            f"in units: mean (least and most epoch) of {figures['seeds']} seeds and epochs 2 to {figures['epochs']}, "
            "in a new random order each epoch. The benchmark runs the eviction rule itself, without files.",
            table(["capacity", *names], rows),
            "In the same order in every epoch:",
            table(["capacity", *names], fixed),
            f"A decision on a full cache of 100,000 items in 100 datasets: {number(figures['decisions'])} per "
            "second, each with an eviction.",
        ]
    )
