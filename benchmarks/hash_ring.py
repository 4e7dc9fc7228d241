"""Karger's hash ring, which the cache client's consistent hashing is measured against."""

from array import array
from bisect import bisect
from collections.abc import Iterable

from datasets.scs_client.consistent_hashing import number


class HashRing:
    """Karger's hash ring: each node has many points on a circle; a key belongs to the node of the next point."""

    def __init__(self, nodes: Iterable[str], points: int = 100) -> None:
        self.nodes = tuple(sorted(nodes))
        points_with_owner = sorted(
            (number(f"{node}#{point}"), index) for index, node in enumerate(self.nodes) for point in range(points)
        )
        self.points = array("Q", (point for point, _ in points_with_owner))
        self.owners = array("H", (index for _, index in points_with_owner))

    def owner(self, key: str) -> str:
        """Return the node that owns a key."""
        return self.nodes[self.owners[bisect(self.points, number(key)) % len(self.owners)]]
