"""Who makes room for whom in a cache: policies are sort keys, and NR shares what is left between datasets in use.

The rule: admit while there is room. Victims are items of datasets that nobody has pinned, least key first; a pinned
dataset never replaces its own items. Under NR, a pinned dataset that is below its share (capacity / pinned datasets)
then takes the youngest items of the largest one, which is above its own. Else the newcomer is served through and not
kept. So the oldest items of a dataset in use stay (each epoch hits them), and no dataset is shut out for ever.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, heapreplace

import xxhash


@dataclass(frozen=True, slots=True)
class Item:
    """Something a cache holds. ``group``: its dataset; ``added`` and ``used`` are times, in any unit that grows.

    A group with a pinned item is a pinned group: none of its items is replaced but by the share rule.
    """

    id: str
    group: str
    size: int
    added: float
    used: float
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the newcomer is kept, and what goes for it, in order."""

    admitted: bool
    victims: tuple[str, ...] = ()


#: A sort key of an item: the least goes first. ``floor`` is the key of the last victim, for policies that age.
Key = Callable[[Item, float], float]


@dataclass(frozen=True, slots=True)
class Policy:
    """A sort key, and whether pinned datasets share the room between them (else they keep what they have)."""

    key: Key
    shares: bool = False


def by_use(item: Item, floor: float) -> float:
    """Whatever was not used for longest goes first."""
    return item.used


def by_age(item: Item, floor: float) -> float:
    """Whatever came first goes first."""
    return item.added


def by_lot(item: Item, floor: float) -> float:
    """Any may go. A lifetime that is exponential is memoryless: each survivor is as likely as the next to follow."""
    lot = (xxhash.xxh64_intdigest(f"{item.id} {item.used}".encode()) + 1) / (1 << 64)
    return floor - math.log(lot)


POLICIES: Mapping[str, Policy] = {
    "nr": Policy(by_use, shares=True),
    "lru": Policy(by_use),
    "fifo": Policy(by_age),
    "random": Policy(by_lot),
}


def _rule(policy: str | Policy) -> Policy:
    return policy if isinstance(policy, Policy) else POLICIES[policy]


def admit(
    entries: Iterable[Item], newcomer: Item, capacity: int, policy: str | Policy = "nr", floor: float = 0.0
) -> Verdict:
    """Decide over all entries at once. ``Ledger`` decides the same without looking at each."""
    rule = _rule(policy)
    held = list(entries)
    pinned = {item.group for item in (*held, newcomer) if item.pinned}
    need = sum(item.size for item in held) + newcomer.size - capacity
    victims: list[Item] = []
    loose = [item for item in held if item.group not in pinned]
    for item in sorted(loose, key=lambda item: (rule.key(item, floor), item.id)):
        if need <= 0:
            break
        victims.append(item)
        need -= item.size
    if need > 0:
        sizes = Counter({newcomer.group: 0})
        for item in held:
            sizes[item.group] += item.size
        below = (sizes[newcomer.group] + newcomer.size) * len(pinned) <= capacity
        if not (rule.shares and newcomer.group in pinned and below):
            return Verdict(False)
        staying = [item for item in held if item.group in pinned]
        # the others together hold more than their shares (pigeonhole), so the largest is above its own: this ends
        while need > 0:
            largest = max((item.group for item in staying), key=lambda group: (sizes[group], group))
            youngest = max((i for i in staying if i.group == largest), key=lambda i: (i.added, i.id))
            staying.remove(youngest)
            victims.append(youngest)
            sizes[largest] -= youngest.size
            need -= youngest.size
    return Verdict(True, tuple(item.id for item in victims))


class _Group:
    """One dataset's items: how much they are, a heap by key, and a heap by youth. Entries of the gone are left in.

    No item's entry in ``order`` is above its key; one below it is put right when it comes to the top.
    """

    __slots__ = ("bytes", "items", "order", "youth")

    def __init__(self) -> None:
        self.items: dict[str, tuple[Item, float]] = {}
        self.bytes = 0
        self.order: list[tuple[float, str]] = []
        self.youth: list[tuple[float, _Last]] = []

    def put(self, item: Item, key: float) -> None:
        self.items[item.id] = item, key
        self.bytes += item.size
        heappush(self.order, (key, item.id))
        heappush(self.youth, (-item.added, _Last(item.id)))
        if len(self.order) > 2 * len(self.items) + 64:
            self.order = [(key, id) for id, (_, key) in self.items.items()]
            heapify(self.order)
        if len(self.youth) > 2 * len(self.items) + 64:
            self.youth = [(-item.added, _Last(item.id)) for item, _ in self.items.values()]
            heapify(self.youth)

    def touch(self, id: str, item: Item, key: float) -> bool:
        """Take over a later use; whether it now goes before it would have gone."""
        sooner = key < self.items[id][1]
        self.items[id] = item, key
        if sooner:
            heappush(self.order, (key, id))
        return sooner

    def pop(self, id: str) -> Item:
        item, _ = self.items.pop(id)
        self.bytes -= item.size
        return item

    def first(self) -> tuple[float, str]:
        """Return key and id of the item that goes first."""
        while True:
            key, id = self.order[0]
            if id not in self.items:
                heappop(self.order)
            elif (current := self.items[id][1]) > key:
                heapreplace(self.order, (current, id))
            elif current < key:
                heappop(self.order)  # it has an entry further up already
            else:
                return key, id

    def youngest(self) -> str:
        """Return the id of the item that came last."""
        while True:
            added, last = self.youth[0]
            if last.id in self.items and self.items[last.id][0].added == -added:
                return last.id
            heappop(self.youth)


@dataclass(frozen=True, slots=True)
class _Last:
    """An id that sorts backwards: of two of the same age, the greater is the younger."""

    id: str

    def __lt__(self, other: "_Last") -> bool:
        return self.id > other.id


class Ledger:
    """What a cache holds, kept so that a decision costs a few heap steps a victim, however much there is.

    Only an account: the files are its owner's affair. Not for several threads at once.
    """

    def __init__(self, capacity: int, policy: str | Policy = "nr", items: Iterable[Item] = ()) -> None:
        self.capacity = capacity
        self.used = 0
        self._rule = _rule(policy)
        self._floor = 0.0
        self._where: dict[str, str] = {}
        self._groups: dict[str, _Group] = {}
        self._pinned: set[str] = set()
        self._loose = 0  # bytes of groups that are not pinned
        # per loose group an entry that is not above its first item's; those of groups that are pinned or gone are left
        self._next: list[tuple[float, str, str]] = []
        for item in items:
            if item.pinned:
                self.pin(item.group)
            self._add(item)

    def __contains__(self, id: str) -> bool:
        return id in self._where

    def __len__(self) -> int:
        return len(self._where)

    def held(self, group: str) -> int:
        """Return how many bytes of this dataset are kept."""
        return self._groups[group].bytes if group in self._groups else 0

    def admit(self, newcomer: Item) -> Verdict:
        """Decide and enter the decision: victims are taken out, an admitted newcomer is put in.

        A pinned newcomer pins its group, until ``unpin``.
        """
        if newcomer.id in self._where:
            raise ValueError(f"{newcomer.id} is held already; remove it first")
        if newcomer.pinned:
            self.pin(newcomer.group)
        need = self.used + newcomer.size - self.capacity
        if need > self._loose and not self._below_its_share(newcomer):
            return Verdict(False)
        victims = []
        while self.used + newcomer.size > self.capacity:
            victims.append(self._first_loose() if self._loose_items() else self._youngest_of_the_largest())
            self.remove(victims[-1])
        self._add(newcomer)
        return Verdict(True, tuple(victims))

    def touch(self, id: str, used: float) -> None:
        """Note a use; one that is earlier than the last, or of something unknown, changes nothing."""
        if (name := self._where.get(id)) is None:
            return
        group = self._groups[name]
        item, _ = group.items[id]
        if used > item.used:
            later = replace(item, used=used)
            if group.touch(id, later, self._rule.key(later, self._floor)) and name not in self._pinned:
                self._announce(name)

    def remove(self, id: str) -> None:
        """Take something out; harmless if it is not there."""
        if (name := self._where.pop(id, None)) is None:
            return
        group = self._groups[name]
        size = group.pop(id).size
        self.used -= size
        if name not in self._pinned:
            self._loose -= size
        if not group.items:
            del self._groups[name]

    def pin(self, group: str) -> None:
        """Keep what there is of a dataset, and what will come."""
        if group not in self._pinned:
            self._pinned.add(group)
            self._loose -= self.held(group)

    def unpin(self, group: str) -> None:
        """Let a dataset go, when room is needed."""
        if group in self._pinned:
            self._pinned.remove(group)
            self._loose += self.held(group)
            if group in self._groups:
                self._announce(group)

    def _add(self, item: Item) -> None:
        self._where[item.id] = item.group
        group = self._groups.setdefault(item.group, _Group())
        key = self._rule.key(item, self._floor)
        group.put(item, key)
        self.used += item.size
        if item.group not in self._pinned:
            self._loose += item.size
            if group.first() == (key, item.id):
                self._announce(item.group)

    def _below_its_share(self, newcomer: Item) -> bool:
        if not self._rule.shares or newcomer.group not in self._pinned:
            return False
        sharing = sum(group in self._groups for group in self._pinned | {newcomer.group})
        sharing += newcomer.group not in self._groups
        return (self.held(newcomer.group) + newcomer.size) * sharing <= self.capacity

    def _announce(self, name: str) -> None:
        heappush(self._next, (*self._groups[name].first(), name))
        if len(self._next) > 2 * len(self._groups) + 64:
            loose = self._groups.keys() - self._pinned
            self._next = [(*self._groups[name].first(), name) for name in loose]
            heapify(self._next)

    def _loose_items(self) -> bool:
        while self._next:
            *first, name = self._next[0]
            if name in self._pinned or name not in self._groups:
                heappop(self._next)
                continue
            key, id = self._groups[name].first()
            if [key, id] == first:
                return True
            heapreplace(self._next, (key, id, name))
        return False

    def _first_loose(self) -> str:
        key, id, _ = self._next[0]
        self._floor = max(self._floor, key)
        return id

    def _youngest_of_the_largest(self) -> str:
        # pinned datasets are those of running simulations: few, and their items are in heaps
        largest = max((self._groups[name].bytes, name) for name in self._pinned if name in self._groups)[1]
        return self._groups[largest].youngest()
