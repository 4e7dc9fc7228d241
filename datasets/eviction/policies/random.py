"""Uniformly random, by random lifetimes.

Exponential lifetimes are memoryless: each of the remaining items is equally likely to be the next, however old it is.
"""

import math

import xxhash

from datasets.eviction.policy import Item, Policy


def end_of_lifetime(item: Item, floor: float) -> float:
    """Return the floor plus an exponential lifetime, drawn by a hash of the item's id and last use."""
    uniform = (xxhash.xxh64_intdigest(f"{item.id} {item.used}".encode()) + 1) / (1 << 64)
    return floor - math.log(uniform)


POLICY = Policy(key=end_of_lifetime)
