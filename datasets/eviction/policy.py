"""Eviction policy: a sort key of items, and from which key on items are kept from newcomers."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """Item of a cache; ``size`` in bytes, ``added`` and ``used`` in seconds since 1970."""

    id: str
    size: int
    added: float
    used: float


def nothing_kept(now: float) -> float:
    """Return the key from which items are kept, above all keys: every item may be evicted."""
    return math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """The order in which items are evicted, and which of them are not evicted.

    ``key`` is called when an item is added and when it is used, and the cache stores its result: the item with the
    least key is evicted first. Its second argument, the *floor*, is the highest key evicted so far (0 at first), for
    policies that age: a key above the floor counts from now on, a key below it is evicted next.

    ``kept_from`` is called with the time of a decision, in seconds since 1970. Items with this key or a higher one
    stay, and the newcomer is not admitted; unless the newcomer is in a group within its share, or must be admitted.
    """

    key: Callable[[Item, float], float]
    kept_from: Callable[[float], float] = nothing_kept
