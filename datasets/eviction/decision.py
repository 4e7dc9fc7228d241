"""Eviction decision: whether a new item is admitted, and which items are evicted for it, one by one.

A cache's items are in groups, each with a quota and a policy: the buckets of the cache service; the node cache is one
group. While a group exceeds its quota, it evicts; while all groups together exceed the capacity, the group furthest
above its share evicts. Shares are the quotas, scaled so that their sum is the capacity: while it is exceeded, some
group is above its share, so a group within its share never evicts for another.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from datasets.eviction.policy import Policy


@dataclass(frozen=True, slots=True)
class Candidate:
    """Item that may be evicted: its size in bytes, and the key that the policy gave it."""

    id: str
    size: int
    key: float


@dataclass(frozen=True, slots=True)
class Group:
    """Group of items: its policy, its bytes with reservations and pinned items, and the most that it may have."""

    policy: Policy
    used: int
    quota: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Newcomer:
    """New item of a group; ``replaces``: its present version, which is evicted first.

    ``required``: it cannot be left out of the cache, so items that the policy keeps are evicted for it, too.
    """

    group: str
    size: int
    replaces: Candidate | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The items to evict, by group and in order, or ``full``: the group that would have had to evict and could not.

    ``floors``: for each group, the highest key among the victims that were chosen by key.
    """

    victims: Mapping[str, tuple[Candidate, ...]] = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)
    full: str | None = None

    @property
    def admitted(self) -> bool:
        """Whether the newcomer is admitted."""
        return self.full is None


class Candidates(Protocol):
    """A cache's evictable items, lazily and in order: a decision reads few of them, however many there are."""

    def by_key(self, group: str, below: float) -> Iterator[Candidate]:
        """Yield a group's items with keys below a bound, the least key first; of equal keys, the least id."""

    def youngest(self, group: str) -> Iterator[Candidate]:
        """Yield all of a group's items, the last added first; of equal age, the greatest id."""


def decide(
    groups: Mapping[str, Group], candidates: Candidates, newcomer: Newcomer, capacity: int, now: float
) -> Decision:
    """Decide whether to admit a newcomer; nothing is evicted for a newcomer that is not admitted.

    A group evicts by its policy's key. Then a newcomer of the same group is refused, unless it is required; for another
    group, or a required newcomer, the items that the policy keeps are evicted, the last added first, so that the oldest
    stay and continue to be hit.
    """
    own = groups[newcomer.group]
    if newcomer.size > min(own.quota, capacity):
        return Decision(full=newcomer.group)
    used = {name: group.used for name, group in groups.items()}
    used[newcomer.group] += newcomer.size
    queues: dict[str, Iterator[tuple[Candidate, bool]]] = {}
    victims: dict[str, dict[str, Candidate]] = {}
    floors: dict[str, float] = {}
    while (name := _group_to_shrink(groups, used, newcomer.group, capacity)) is not None:
        if name not in queues:
            queues[name] = _victims(name, groups[name].policy, candidates, newcomer, now)
        taken = victims.setdefault(name, {})
        following = next((each for each in queues[name] if each[0].id not in taken), None)
        if following is None:
            return Decision(full=name)
        victim, chosen_by_key = following
        taken[victim.id] = victim
        used[name] -= victim.size
        if chosen_by_key:
            floors[name] = max(floors.get(name, -math.inf), victim.key)
    return Decision({name: tuple(taken.values()) for name, taken in victims.items()}, floors)


def group_to_shrink(used: Mapping[str, int], quotas: Mapping[str, int], capacity: int) -> str:
    """Return the group that evicts when the capacity is exceeded: the group furthest above its share."""
    total = max(1, sum(quotas.values()))
    return max(used, key=lambda name: (used[name] - capacity * quotas[name] / total, name))


def _group_to_shrink(groups: Mapping[str, Group], used: Mapping[str, int], own: str, capacity: int) -> str | None:
    if used[own] > groups[own].quota:
        return own
    if sum(used.values()) > capacity:
        return group_to_shrink(used, {name: group.quota for name, group in groups.items()}, capacity)
    return None


def _victims(
    name: str, policy: Policy, candidates: Candidates, newcomer: Newcomer, now: float
) -> Iterator[tuple[Candidate, bool]]:
    """Yield a group's victims in order, some of them twice, and whether each was chosen by its key."""
    if name == newcomer.group and newcomer.replaces is not None:
        yield newcomer.replaces, False
    bound = policy.kept_from(now)
    for candidate in candidates.by_key(name, bound):
        yield candidate, True
    if bound < math.inf and (newcomer.required or name != newcomer.group):
        for candidate in candidates.youngest(name):
            yield candidate, False
