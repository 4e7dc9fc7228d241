"""The non-replacing cache beside LRU, FIFO and random: hit rates of a dataset read whole, again and again."""

import random
import statistics
import time
from typing import Any

from benchmarks.results import number, table
from datasets.eviction import POLICIES, Item, Ledger

UNITS, EPOCHS, SEEDS = 160, 12, 200
CAPACITIES = (10, 50, 100, 160, 200)


def epochs(policy: str, capacity: int, seed: int, *, shuffled: bool = True) -> list[float]:
    """Read every unit once an epoch, in a new random order; return the hit rate in percent from the second epoch on.

    Only NR knows that somebody reads the dataset; the others are what they are elsewhere, and know no datasets.
    """
    order, pinned = random.Random(seed), policy == "nr"
    ledger, rates, now = Ledger(capacity, policy), [], 0
    names = [f"{seed}/{unit}" for unit in range(UNITS)]
    order.shuffle(names)
    for _ in range(EPOCHS):
        if shuffled:
            order.shuffle(names)
        hits = 0
        for name in names:
            now += 1
            if name in ledger:
                hits += 1
                ledger.touch(name, now)
            else:
                ledger.admit(Item(name, "dataset", 1, now, now, pinned))
        rates.append(100 * hits / UNITS)
    return rates[1:]


def found(policy: str, capacity: int, seeds: int, *, shuffled: bool = True) -> dict[str, float]:
    """Return mean, least and most of all epochs of all seeds."""
    rates = [rate for seed in range(seeds) for rate in epochs(policy, capacity, seed, shuffled=shuffled)]
    return {"mean": statistics.mean(rates), "min": min(rates), "max": max(rates)}


def decisions(items: int = 100_000, steps: int = 100_000) -> float:
    """Return decisions a second on a full cache in which everything must make room for everything."""
    ledger = Ledger(items, "lru", (Item(str(unit), str(unit % 100), 1, unit, unit) for unit in range(items)))
    began = time.perf_counter()
    for unit in range(items, items + steps):
        ledger.admit(Item(str(unit), str(unit % 100), 1, unit, unit))
    return steps / (time.perf_counter() - began)


def measure(seeds: int = SEEDS) -> dict[str, Any]:
    """Measure every policy at every capacity, in random order and in one that never changes."""
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
    """Show the table, and what one decision costs."""
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
            f"Hit rate in percent when all {figures['units']} units of a dataset are read once an epoch, by capacity "
            f"in units: mean (least and most epoch) of {figures['seeds']} seeds and epochs 2 to {figures['epochs']}, "
            "in a new random order each epoch. It is the rule itself that is run, without files.",
            table(["capacity", *names], rows),
            "In one order that never changes:",
            table(["capacity", *names], fixed),
            f"A decision on a full cache of 100,000 items in 100 datasets: {number(figures['decisions'])} a second, "
            "each with a victim.",
        ]
    )
