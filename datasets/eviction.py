"""Cache eviction: admission and victim selection. Policies are sort keys; NR also shares capacity between datasets.

A newcomer is admitted while there is room. Victims are items of unpinned datasets, least key first; a pinned dataset
never replaces its own items. Under NR, a pinned dataset that is below its share (capacity / pinned
datasets) then takes the youngest items of the largest pinned dataset, which is above its share. Otherwise the newcomer
is served without being cached. So the oldest items of a dataset in use stay (each epoch hits them), and no dataset is
shut out permanently.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, heapreplace

import xxhash


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a cache. ``group``: its dataset; ``size`` in bytes; ``added``, ``used``: times in any monotonic unit.

    A group with a pinned item is a pinned group: its items are evicted only by the share rule.
    """

    id: str
    group: str
    size: int
    added: float
    used: float
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class EvictionDecision:
    """Whether the newcomer is admitted, and the ids of the items evicted for it, in order."""

    admitted: bool
    victims: tuple[str, ...] = ()


#: A sort key of an item: the least is evicted first. ``floor``: highest key evicted so far, for policies with aging.
Key = Callable[[Item, float], float]


@dataclass(frozen=True, slots=True)
class Policy:
    """A sort key, and whether pinned datasets share the capacity (otherwise each keeps the items that it has)."""

    key: Key
    shares: bool = False


def by_last_use(item: Item, floor: float) -> float:
    """Least recently used first."""
    return item.used


def by_age(item: Item, floor: float) -> float:
    """First in, first out."""
    return item.added


def by_random_lifetime(item: Item, floor: float) -> float:
    """Uniformly random. Exponential lifetimes are memoryless: each remaining item is equally likely to be the next."""
    uniform = (xxhash.xxh64_intdigest(f"{item.id} {item.used}".encode()) + 1) / (1 << 64)
    return floor - math.log(uniform)


POLICIES: Mapping[str, Policy] = {
    "nr": Policy(by_last_use, shares=True),
    "lru": Policy(by_last_use),
    "fifo": Policy(by_age),
    "random": Policy(by_random_lifetime),
}


def _policy(policy: str | Policy) -> Policy:
    return policy if isinstance(policy, Policy) else POLICIES[policy]


def admit(
    entries: Iterable[Item], newcomer: Item, capacity: int, policy: str | Policy = "nr", floor: float = 0.0
) -> EvictionDecision:
    """Decide by scanning all entries. ``CacheAccounts`` makes the same decision without a scan."""
    chosen = _policy(policy)
    items = list(entries)
    pinned = {item.group for item in (*items, newcomer) if item.pinned}
    need = sum(item.size for item in items) + newcomer.size - capacity
    victims: list[Item] = []
    unpinned = [item for item in items if item.group not in pinned]
    for item in sorted(unpinned, key=lambda item: (chosen.key(item, floor), item.id)):
        if need <= 0:
            break
        victims.append(item)
        need -= item.size
    if need > 0:
        sizes = Counter({newcomer.group: 0})
        for item in items:
            sizes[item.group] += item.size
        below = (sizes[newcomer.group] + newcomer.size) * len(pinned) <= capacity
        if not (chosen.shares and newcomer.group in pinned and below):
            return EvictionDecision(False)
        remaining = [item for item in items if item.group in pinned]
        # the other pinned datasets together hold more than their shares (pigeonhole), so the largest is above its share
        # and the loop ends
        while need > 0:
            largest = max((item.group for item in remaining), key=lambda group: (sizes[group], group))
            youngest = max((i for i in remaining if i.group == largest), key=lambda i: (i.added, i.id))
            remaining.remove(youngest)
            victims.append(youngest)
            sizes[largest] -= youngest.size
            need -= youngest.size
    return EvictionDecision(True, tuple(item.id for item in victims))


class _Group:
    """One dataset's items: their bytes, a heap by key, a heap by age. Heap entries of removed items are deleted lazily.

    An item's entry in ``order`` is never above its key; an entry below its key is corrected when it reaches the top.
    """

    __slots__ = ("by_age", "bytes", "items", "order")

    def __init__(self) -> None:
        self.items: dict[str, tuple[Item, float]] = {}
        self.bytes = 0
        self.order: list[tuple[float, str]] = []
        self.by_age: list[tuple[float, _ReversedId]] = []

    def put(self, item: Item, key: float) -> None:
        self.items[item.id] = item, key
        self.bytes += item.size
        heappush(self.order, (key, item.id))
        heappush(self.by_age, (-item.added, _ReversedId(item.id)))
        if len(self.order) > 2 * len(self.items) + 64:
            self.order = [(key, id) for id, (_, key) in self.items.items()]
            heapify(self.order)
        if len(self.by_age) > 2 * len(self.items) + 64:
            self.by_age = [(-item.added, _ReversedId(item.id)) for item, _ in self.items.values()]
            heapify(self.by_age)

    def touch(self, id: str, item: Item, key: float) -> bool:
        """Replace an item after a use; return whether its key became smaller."""
        decreased = key < self.items[id][1]
        self.items[id] = item, key
        if decreased:
            heappush(self.order, (key, id))
        return decreased

    def pop(self, id: str) -> Item:
        item, _ = self.items.pop(id)
        self.bytes -= item.size
        return item

    def first(self) -> tuple[float, str]:
        """Return key and id of the item that is evicted first."""
        while True:
            key, id = self.order[0]
            if id not in self.items:
                heappop(self.order)
            elif (current := self.items[id][1]) > key:
                heapreplace(self.order, (current, id))
            elif current < key:
                heappop(self.order)  # the item has another entry with its smaller key
            else:
                return key, id

    def youngest(self) -> str:
        """Return the id of the item that was added last."""
        while True:
            added, entry = self.by_age[0]
            if entry.id in self.items and self.items[entry.id][0].added == -added:
                return entry.id
            heappop(self.by_age)


@dataclass(frozen=True, slots=True)
class _ReversedId:
    """An id with reversed order: of two items of the same age, the greater id counts as the younger."""

    id: str

    def __lt__(self, other: "_ReversedId") -> bool:
        return self.id > other.id


class CacheAccounts:
    """Index of a cache's items, in which a decision costs a few heap operations per victim, whatever their number.

    It does not touch the files; the caller does. Not thread-safe.
    """

    def __init__(self, capacity: int, policy: str | Policy = "nr", items: Iterable[Item] = ()) -> None:
        self.capacity = capacity
        self.used = 0
        self._policy = _policy(policy)
        self._floor = 0.0
        self._group_of: dict[str, str] = {}
        self._groups: dict[str, _Group] = {}
        self._pinned: set[str] = set()
        self._unpinned_bytes = 0  # bytes of unpinned groups
        # per unpinned group an entry not above its first item's; entries of pinned or removed groups are deleted lazily
        self._unpinned_heap: list[tuple[float, str, str]] = []
        for item in items:
            if item.pinned:
                self.pin(item.group)
            self._add(item)

    def __contains__(self, id: str) -> bool:
        return id in self._group_of

    def __len__(self) -> int:
        return len(self._group_of)

    def group_bytes(self, group: str) -> int:
        """Return the cached bytes of a dataset."""
        return self._groups[group].bytes if group in self._groups else 0

    def admit(self, newcomer: Item) -> EvictionDecision:
        """Decide and apply the decision: remove the victims, add an admitted newcomer.

        A pinned newcomer pins its group until ``unpin``. Raise ValueError if its id is present.
        """
        if newcomer.id in self._group_of:
            raise ValueError(f"{newcomer.id} is in the cache already; remove it first")
        if newcomer.pinned:
            self.pin(newcomer.group)
        need = self.used + newcomer.size - self.capacity
        if need > self._unpinned_bytes and not self._below_share(newcomer):
            return EvictionDecision(False)
        victims = []
        while self.used + newcomer.size > self.capacity:
            victims.append(self._first_unpinned() if self._has_unpinned() else self._youngest_of_largest())
            self.remove(victims[-1])
        self._add(newcomer)
        return EvictionDecision(True, tuple(victims))

    def touch(self, id: str, used: float) -> None:
        """Record a use; ignored if it is earlier than the last use, or the id is unknown."""
        if (name := self._group_of.get(id)) is None:
            return
        group = self._groups[name]
        item, _ = group.items[id]
        if used > item.used:
            updated = replace(item, used=used)
            if group.touch(id, updated, self._policy.key(updated, self._floor)) and name not in self._pinned:
                self._push_first(name)

    def remove(self, id: str) -> None:
        """Remove an item; ignored if the id is unknown."""
        if (name := self._group_of.pop(id, None)) is None:
            return
        group = self._groups[name]
        size = group.pop(id).size
        self.used -= size
        if name not in self._pinned:
            self._unpinned_bytes -= size
        if not group.items:
            del self._groups[name]

    def pin(self, group: str) -> None:
        """Pin a dataset: its present and future items."""
        if group not in self._pinned:
            self._pinned.add(group)
            self._unpinned_bytes -= self.group_bytes(group)

    def unpin(self, group: str) -> None:
        """Unpin a dataset: its items may be evicted."""
        if group in self._pinned:
            self._pinned.remove(group)
            self._unpinned_bytes += self.group_bytes(group)
            if group in self._groups:
                self._push_first(group)

    def _add(self, item: Item) -> None:
        self._group_of[item.id] = item.group
        group = self._groups.setdefault(item.group, _Group())
        key = self._policy.key(item, self._floor)
        group.put(item, key)
        self.used += item.size
        if item.group not in self._pinned:
            self._unpinned_bytes += item.size
            if group.first() == (key, item.id):
                self._push_first(item.group)

    def _below_share(self, newcomer: Item) -> bool:
        if not self._policy.shares or newcomer.group not in self._pinned:
            return False
        pinned_groups = sum(group in self._groups for group in self._pinned | {newcomer.group})
        pinned_groups += newcomer.group not in self._groups
        return (self.group_bytes(newcomer.group) + newcomer.size) * pinned_groups <= self.capacity

    def _push_first(self, name: str) -> None:
        heappush(self._unpinned_heap, (*self._groups[name].first(), name))
        if len(self._unpinned_heap) > 2 * len(self._groups) + 64:
            unpinned = self._groups.keys() - self._pinned
            self._unpinned_heap = [(*self._groups[name].first(), name) for name in unpinned]
            heapify(self._unpinned_heap)

    def _has_unpinned(self) -> bool:
        while self._unpinned_heap:
            *first, name = self._unpinned_heap[0]
            if name in self._pinned or name not in self._groups:
                heappop(self._unpinned_heap)
                continue
            key, id = self._groups[name].first()
            if [key, id] == first:
                return True
            heapreplace(self._unpinned_heap, (key, id, name))
        return False

    def _first_unpinned(self) -> str:
        key, id, _ = self._unpinned_heap[0]
        self._floor = max(self._floor, key)
        return id

    def _youngest_of_largest(self) -> str:
        # only datasets of running simulations are pinned, so there are few; their items are in heaps
        largest = max((self._groups[name].bytes, name) for name in self._pinned if name in self._groups)[1]
        return self._groups[largest].youngest()
