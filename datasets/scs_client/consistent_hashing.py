"""Which node keeps which key: Maglev's consistent hashing, and the hash ring it is measured against.

Eisenbud et al., Maglev (NSDI 2016), section 3.4: each node walks a permutation of the table's slots of its own (an
offset and a skip) and takes its next free slot in turn, until every slot has an owner.
"""

from array import array
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import xxhash

#: Slots of a table; a prime, so that every skip visits every slot. The paper's smaller size.
SLOTS = 65_537


class Ring(Protocol):
    """Spreads keys over nodes, the same for everyone who knows the same nodes, in whatever order."""

    def owner(self, key: str) -> str:
        """Return the node that keeps this key."""

    def walk(self, key: str) -> Iterator[str]:
        """Yield every node once, the owner first: where to go when it is down."""


class Maglev:
    """A table of slots; the key's hash modulo its size leads to the owner.

    Nodes of one weight own the same number of slots, give or take one. When a node leaves, its keys move, and a few of
    others with them (about 0.6 % at 100 nodes): what the table buys with evenness. A larger table moves fewer.
    """

    def __init__(self, nodes: Iterable[str] | Mapping[str, float], slots: int = SLOTS) -> None:
        weights = weighed(nodes)
        if slots < len(weights) or not is_prime(slots):
            raise ValueError(f"a table needs a prime number of slots and one for each node, not {slots}")
        self.nodes = tuple(weights)
        self.table = populate(self.nodes, tuple(weights.values()), slots)

    def owner(self, key: str) -> str:
        """Return the node that keeps this key."""
        return self.nodes[self.table[number(key) % len(self.table)]]

    def walk(self, key: str) -> Iterator[str]:
        """Yield the nodes in the order in which the slots from the key's on name them.

        Slots that follow one of a node's belong to all the others alike, so the keys of a node that is down spread.
        """
        at = number(key) % len(self.table)
        met: set[int] = set()
        for step in range(len(self.table)):
            if (node := self.table[(at + step) % len(self.table)]) not in met:
                met.add(node)
                yield self.nodes[node]
                if len(met) == len(self.nodes):
                    return


class HashRing:
    """Karger's ring: each node stands at many points of a circle, and a key belongs to the next point after it."""

    def __init__(self, nodes: Iterable[str] | Mapping[str, float], points: int = 100) -> None:
        weights = weighed(nodes)
        heaviest = max(weights.values())
        placed = sorted(
            (number(f"{node}#{point}"), place)
            for place, (node, weight) in enumerate(weights.items())
            for point in range(max(1, round(points * weight / heaviest)))
        )
        self.nodes = tuple(weights)
        self.points = array("Q", (point for point, _ in placed))
        self.owners = array("H", (place for _, place in placed))

    def owner(self, key: str) -> str:
        """Return the node that keeps this key."""
        return self.nodes[self.owners[bisect(self.points, number(key)) % len(self.owners)]]

    def walk(self, key: str) -> Iterator[str]:
        """Yield the nodes in the order in which they stand on the circle after the key."""
        at = bisect(self.points, number(key))
        for place in dict.fromkeys((*self.owners[at:], *self.owners[:at])):
            yield self.nodes[place]


def number(text: str, seed: int = 0) -> int:
    """Return the 64-bit hash that all agree on."""
    return xxhash.xxh64_intdigest(text.encode(), seed)


def weighed(nodes: Iterable[str] | Mapping[str, float]) -> dict[str, float]:
    """Return nodes and weights sorted by name, so that everyone builds the same ring from the same members."""
    given = nodes if isinstance(nodes, Mapping) else dict.fromkeys(nodes, 1.0)
    if not given:
        raise ValueError("a ring needs a node")
    if len(given) > 0xFFFF or not all(weight > 0 for weight in given.values()):
        raise ValueError("a ring has at most 65,535 nodes, each with a weight above 0")
    return dict(sorted(given.items()))


def populate(nodes: tuple[str, ...], weights: tuple[float, ...], slots: int) -> "array[int]":
    """Fill a table with numbers of nodes; a node of half the weight takes a slot every other turn.

    Plain Python on purpose: taking turns cannot be vectorised without resolving conflicts, and numpy was slower.
    """
    places = [number(node, seed=1) % slots for node in nodes]
    skips = [number(node, seed=2) % (slots - 1) + 1 for node in nodes]
    heaviest = max(weights)
    gains = [weight / heaviest for weight in weights]
    credits = [0.0] * len(nodes)
    turns = range(len(nodes))
    table = [-1] * slots
    left = slots
    while True:
        for node in turns:
            credits[node] += gains[node]
            if credits[node] < 1.0:
                continue
            credits[node] -= 1.0
            place, skip = places[node], skips[node]
            while table[place] >= 0:
                place += skip
                if place >= slots:
                    place -= slots
            table[place] = node
            places[node] = place
            left -= 1
            if not left:
                return array("H", table)


def is_prime(value: int) -> bool:
    """Say so by trial division: tables are small."""
    return value > 1 and all(value % divisor for divisor in range(2, int(value**0.5) + 1))
