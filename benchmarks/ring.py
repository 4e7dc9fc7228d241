"""Consistent hashing: how evenly Maglev and the hash ring spread keys, and how many move when a node leaves."""

import time
from typing import Any

import numpy as np

from benchmarks.figures import spread
from benchmarks.hash_ring import HashRing
from benchmarks.results import aim, milliseconds, number, spanned, table
from datasets.scs_client.consistent_hashing import Maglev
from datasets.scs_client.consistent_hashing import number as hashed

NODES, LEAVER, KEYS, SEED = 100, 50, 10_000_000, 1
#: Slots of the paper's two tables, and points per node of two rings.
TABLES, POINTS = (65_537, 655_373), (100, 1000)
RUNS = 5


def names(count: int) -> list[str]:
    """Return node names as in a cluster."""
    return [f"http://scs-{node}.scs.windtunnel.svc:5080" for node in range(count)]


def owners(ring: Maglev | HashRing, keys: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, Any]:
    """Look up many hashes at once, like ``owner`` for a single hash."""
    if isinstance(ring, Maglev):
        return np.frombuffer(ring.table, dtype=np.uint16)[keys % np.uint64(len(ring.table))]
    points = np.frombuffer(ring.points, dtype=np.uint64)
    return np.frombuffer(ring.owners, dtype=np.uint16)[np.searchsorted(points, keys, side="right") % len(points)]


def evenness(owned: np.ndarray[Any, Any]) -> dict[str, float]:
    """Return by how many percent the fullest and the emptiest node differ from the mean."""
    counts = np.bincount(owned, minlength=NODES)
    return {
        "above": float(counts.max() / counts.mean() - 1) * 100,
        "below": float(1 - counts.min() / counts.mean()) * 100,
    }


def measure_scheme(
    scheme: type[Maglev] | type[HashRing], size: int, keys: np.ndarray[Any, np.dtype[np.uint64]]
) -> dict[str, Any]:
    """Measure one hashing scheme."""
    nodes, times = names(NODES), []
    for _ in range(RUNS):
        began = time.perf_counter()
        ring = scheme(nodes, size)
        times.append(time.perf_counter() - began)
    fewer = scheme(nodes[:LEAVER] + nodes[LEAVER + 1 :], size)
    before, after = owners(ring, keys), owners(fewer, keys)
    # without the leaver, indexes refer to other nodes: compare positions of names in the full list
    positions = {name: position for position, name in enumerate(nodes)}
    before = np.array([positions[name] for name in ring.nodes], dtype=np.uint16)[before]
    after = np.array([positions[name] for name in fewer.nodes], dtype=np.uint16)[after]
    slots = evenness(np.frombuffer(ring.table, dtype=np.uint16)) if isinstance(ring, Maglev) else None
    return {
        "build": spread(times),
        "slots": slots,
        "keys": evenness(before),
        "must": float((before == LEAVER).mean()) * 100,
        "moved": float((before != after).mean()) * 100,
    }


def lookups(count: int = 200_000) -> dict[str, float]:
    """Return the seconds of a lookup, from key to node."""
    keys = [f"{key:064x}" for key in range(count)]
    result = {}
    for name, ring in (("Maglev", Maglev(names(NODES))), ("hash ring", HashRing(names(NODES)))):
        began = time.perf_counter()
        for key in keys:
            ring.owner(key)
        result[name] = (time.perf_counter() - began) / count
    return result


def measure(count: int = KEYS) -> dict[str, Any]:
    """Measure both schemes in two sizes each on the same keys: random hashes with a fixed seed."""
    hashes = np.array([hashed(f"{key:064x}") for key in range(1000)], dtype=np.uint64)
    keys = np.random.default_rng(SEED).integers(0, 2**64, count, dtype=np.uint64)
    maglev = Maglev(names(NODES))
    if [maglev.nodes[index] for index in owners(maglev, hashes)] != [
        maglev.owner(f"{key:064x}") for key in range(1000)
    ]:
        raise RuntimeError("the vectorised lookup differs from the product's")
    schemes = {f"Maglev, {size:,} slots": measure_scheme(Maglev, size, keys) for size in TABLES}
    schemes |= {f"hash ring, {points:,} points per node": measure_scheme(HashRing, points, keys) for points in POINTS}
    return {"nodes": NODES, "keys": count, "ways": schemes, "lookup": lookups()}


def section(figures: dict[str, Any]) -> str:
    """Return the section: evenness, moved keys, cost."""
    rows = []
    for name, row in figures["ways"].items():
        slots = f"+{row['slots']['above']:.2f} −{row['slots']['below']:.2f}" if row["slots"] else ""
        moved = [f"{row['must']:.2f}", f"{row['moved']:.2f}"]
        keys = f"+{row['keys']['above']:.2f} −{row['keys']['below']:.2f}"
        rows.append([name, slots, keys, *moved, spanned(row["build"], milliseconds)])
    maglev = next(iter(figures["ways"].values()))
    even = max(maglev["slots"].values()) <= 0.1 and max(maglev["keys"].values()) <= 1.5
    floor = 100 / (figures["keys"] / figures["nodes"]) ** 0.5
    costs = ", ".join(f"{name} {number(seconds * 1e6)} µs" for name, seconds in figures["lookup"].items())
    return "\n\n".join(
        [
            f"{figures['nodes']} nodes and {figures['keys']:,} keys; fullest and emptiest node in percent of the mean "
            f"(random keys have a standard deviation of {floor:.2f} %), and percent of the keys that must "
            "move, and that move, when one node leaves.",
            table(["", "slots", "keys", "must move", "move", "to build"], rows),
            f"One lookup, key to node: {costs}.",
            aim("slots within 0.1 %, keys within 1.5 % with the table that is used (65,537)", even),
        ]
    )
