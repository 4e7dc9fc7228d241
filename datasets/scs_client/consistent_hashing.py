"""Consistent hashing of keys to nodes: Maglev.

Eisenbud et al., Maglev (NSDI 2016), section 3.4: each node has its own permutation of the table's slots (an offset and
a skip); the nodes take their next free slot in turn, until every slot has an owner.
"""

from array import array
from collections.abc import Iterable, Iterator

import xxhash

#: Slots of a table; a prime, so that every skip visits every slot. The paper's smaller size.
SLOTS = 65_537


class Maglev:
    """A lookup table of slots; the slot at the key's hash modulo the table size holds the owner.

    The same set of nodes gives the same assignment in every process.

    All nodes own the same number of slots, give or take one. When a node leaves, its keys move, and a few
    keys of other nodes (about 0.6 % at 100 nodes): the price of the even load. A larger table moves fewer keys.
    """

    def __init__(self, nodes: Iterable[str], slots: int = SLOTS) -> None:
        self.nodes = tuple(sorted(set(nodes)))  # so that every process builds the same table from the same nodes
        if not 1 <= len(self.nodes) <= 0xFFFF:
            raise ValueError("consistent hashing needs at least one node, and at most 65,535")
        if slots < len(self.nodes) or not is_prime(slots):
            raise ValueError(
                f"a Maglev table needs a prime number of slots, and at least one slot per node; got {slots}"
            )
        self.table = populate(self.nodes, slots)

    def owner(self, key: str) -> str:
        """Return the node that owns a key."""
        return self.nodes[self.table[number(key) % len(self.table)]]

    def walk(self, key: str) -> Iterator[str]:
        """Yield every node once, the owner first: in the order of the slots from the key's slot on.

        This is the fallback order when nodes are down.
        The slots behind a node's slots are spread over all other nodes, and so are the keys of a node that is down.
        """
        start = number(key) % len(self.table)
        yielded: set[int] = set()
        for step in range(len(self.table)):
            if (node := self.table[(start + step) % len(self.table)]) not in yielded:
                yielded.add(node)
                yield self.nodes[node]
                if len(yielded) == len(self.nodes):
                    return


def number(text: str, seed: int = 0) -> int:
    """Return the 64-bit hash (xxHash) of a text; part of the protocol between clients."""
    return xxhash.xxh64_intdigest(text.encode(), seed)


def populate(nodes: tuple[str, ...], slots: int) -> "array[int]":
    """Return a table of node indexes.

    Plain Python, because the turns cannot be vectorised without resolving conflicts, and numpy was slower.
    """
    positions = [number(node, seed=1) % slots for node in nodes]
    skips = [number(node, seed=2) % (slots - 1) + 1 for node in nodes]
    turns = range(len(nodes))
    table = [-1] * slots
    free = slots
    while True:
        for node in turns:
            position, skip = positions[node], skips[node]
            while table[position] >= 0:
                position += skip
                if position >= slots:
                    position -= slots
            table[position] = node
            positions[node] = position
            free -= 1
            if not free:
                return array("H", table)


def is_prime(value: int) -> bool:
    """Test primality by trial division, which is fast enough for table sizes."""
    return value > 1 and all(value % divisor for divisor in range(2, int(value**0.5) + 1))
