"""Reference for eviction: a cache in memory that scans all of its items for every victim."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from datasets.eviction.policy import Item, Policy


@dataclass(frozen=True, slots=True)
class CachedItem:
    """Item of the cache, with the key that its group's policy gave it when it was last used."""

    id: str
    group: str
    size: int
    added: float
    key: float


class ReferenceCache:
    """Items of groups, each with a policy and a quota; ``pinned``: ids of items that are not evicted."""

    def __init__(self, capacity: int, groups: Mapping[str, tuple[Policy, int]]) -> None:
        self.capacity, self.groups = capacity, groups
        self.items: dict[str, CachedItem] = {}
        self.pinned: set[str] = set()
        self.floors = dict.fromkeys(groups, 0.0)

    def used(self, group: str) -> int:
        """Return the bytes of a group."""
        return sum(item.size for item in self.items.values() if item.group == group)

    def add(self, id: str, group: str, size: int, now: float, *, required: bool = False) -> list[str] | None:
        """Admit an item, or a new version of it, and return the victims' ids; None, and no change, if it is refused."""
        remaining, victims, floors = dict(self.items), [], dict(self.floors)
        while (shrinking := self._group_to_shrink(remaining, group, size)) is not None:
            policy = self.groups[shrinking][0]
            evictable = [item for item in remaining.values() if item.group == shrinking and item.id not in self.pinned]
            unprotected = [item for item in evictable if item.key < policy.kept_from(now)]
            if shrinking == group and id in remaining:
                victim = remaining[id]
            elif unprotected:
                victim = min(unprotected, key=lambda item: (item.key, item.id))
                floors[shrinking] = max(floors[shrinking], victim.key)
            elif evictable and (required or shrinking != group):
                victim = max(evictable, key=lambda item: (item.added, item.id))
            else:
                return None
            del remaining[victim.id]
            victims.append(victim.id)
        self.items, self.floors = remaining, floors
        key = self.groups[group][0].key(Item(id, size, now, now), self.floors[group])
        self.items[id] = CachedItem(id=id, group=group, size=size, added=now, key=key)
        return victims

    def use(self, id: str, now: float) -> None:
        """Use an item, if it is here."""
        if (item := self.items.get(id)) is not None:
            key = self.groups[item.group][0].key(Item(id, item.size, item.added, now), self.floors[item.group])
            self.items[id] = replace(item, key=key)

    def _group_to_shrink(self, items: Mapping[str, CachedItem], group: str, size: int) -> str | None:
        used = dict.fromkeys(self.groups, 0) | {group: size}
        for item in items.values():
            used[item.group] += item.size
        if used[group] > self.groups[group][1]:
            return group
        if sum(used.values()) <= self.capacity:
            return None
        quotas = sum(quota for _, quota in self.groups.values())
        above = {name: used[name] - self.capacity * self.groups[name][1] / quotas for name in used}
        return max(above, key=lambda name: (above[name], name))
