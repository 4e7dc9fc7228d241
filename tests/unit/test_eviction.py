"""Eviction: choice of the victims for a new item, by policy, group and quota."""

import math
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.eviction.decision import Candidate, Decision, Group, Newcomer, decide, group_to_shrink
from datasets.eviction.policies import load_policy, nr, policy_names
from datasets.eviction.policy import Item, Policy
from tests.reference_cache import CachedItem, ReferenceCache

LRU = load_policy("lru")
KEEPING = Policy(key=lambda item, floor: item.used, kept_from=lambda now: now - 10)
AGING = Policy(key=lambda item, floor: floor + 1 / max(1, item.size))


class ListedCandidates:
    """Candidates from a list."""

    def __init__(self, *items: CachedItem) -> None:
        self.items = items

    def by_key(self, group: str, below: float) -> Iterator[Candidate]:
        """Yield the candidates of a group by key, least first."""
        for item in sorted(self.items, key=lambda item: (item.key, item.id)):
            if item.group == group and item.key < below:
                yield Candidate(item.id, item.size, item.key)

    def youngest(self, group: str) -> Iterator[Candidate]:
        """Yield the candidates of a group, youngest first."""
        for item in sorted(self.items, key=lambda item: (item.added, item.id), reverse=True):
            if item.group == group:
                yield Candidate(item.id, item.size, item.key)


def victims_of(decision: Decision) -> dict[str, list[str]] | None:
    """Return the victims' ids by group, None for a refusal."""
    return (
        {name: [victim.id for victim in victims] for name, victims in decision.victims.items()}
        if decision.admitted
        else None
    )


def victims_in_single_group(
    policy: Policy, newcomer: Newcomer, capacity: int, now: float, *items: CachedItem
) -> list[str] | None:
    """Return the victims in a cache whose only group is `g`, None for a refusal."""
    groups = {"g": Group(policy, sum(item.size for item in items), capacity)}
    victims = victims_of(decide(groups, ListedCandidates(*items), newcomer, capacity, now))
    return None if victims is None else victims.get("g", [])


OLD, MIDDLE, YOUNG = (
    CachedItem(id=name, group="g", size=10, added=time, key=time)
    for name, time in (("old", 1.0), ("middle", 2.0), ("young", 3.0))
)


def test_nothing_is_evicted_while_there_is_room() -> None:
    assert victims_in_single_group(LRU, Newcomer(group="g", size=10), 40, 4.0, OLD, MIDDLE, YOUNG) == []


def test_items_of_the_least_keys_are_evicted_and_no_more_than_necessary() -> None:
    assert victims_in_single_group(LRU, Newcomer(group="g", size=11), 40, 4.0, YOUNG, OLD, MIDDLE) == ["old"]
    assert victims_in_single_group(LRU, Newcomer(group="g", size=21), 40, 4.0, YOUNG, OLD, MIDDLE) == ["old", "middle"]


def test_a_new_item_that_can_never_fit_evicts_nothing() -> None:
    class UnreadableCandidates:
        def by_key(self, group: str, below: float) -> Iterator[Candidate]:
            raise AssertionError("no candidate has to be read")

        def youngest(self, group: str) -> Iterator[Candidate]:
            raise AssertionError("no candidate has to be read")

    groups = {"g": Group(LRU, 30, 40), "h": Group(LRU, 0, 9)}
    assert decide(groups, UnreadableCandidates(), Newcomer(group="g", size=41), 40, 4.0).full == "g"
    assert decide(groups, UnreadableCandidates(), Newcomer(group="h", size=10), 40, 4.0).full == "h"


def test_the_present_version_of_the_new_item_is_evicted_first() -> None:
    newcomer = Newcomer(group="g", size=10, replaces=Candidate("young", 10, 3.0))
    assert victims_in_single_group(KEEPING, newcomer, 30, 4.0, OLD, MIDDLE, YOUNG) == ["young"]


def test_items_that_the_policy_keeps_stay_and_the_new_item_is_refused() -> None:
    assert victims_in_single_group(KEEPING, Newcomer(group="g", size=10), 30, 11.5, OLD, MIDDLE, YOUNG) == ["old"]
    assert victims_in_single_group(KEEPING, Newcomer(group="g", size=20), 30, 11.5, OLD, MIDDLE, YOUNG) is None


def test_for_a_required_item_kept_items_are_evicted_too_youngest_first() -> None:
    newcomer = Newcomer(group="g", size=20, required=True)
    assert victims_in_single_group(KEEPING, newcomer, 30, 11.5, OLD, MIDDLE, YOUNG) == ["old", "young"]


def test_a_group_within_its_share_never_evicts_for_another() -> None:
    items = [CachedItem(id=f"a{number}", group="a", size=10, added=number, key=number) for number in range(8)]
    items += [CachedItem(id=f"b{number}", group="b", size=10, added=number, key=number) for number in range(2)]
    groups = {"a": Group(KEEPING, 80, 100), "b": Group(KEEPING, 20, 100)}  # shares of 50 each
    assert victims_of(decide(groups, ListedCandidates(*items), Newcomer(group="b", size=30), 100, 5.0)) == {
        "a": ["a7", "a6", "a5"]
    }
    assert victims_of(decide(groups, ListedCandidates(*items), Newcomer(group="a", size=10), 100, 5.0)) is None
    assert victims_of(decide(groups, ListedCandidates(*items), Newcomer(group="a", size=10), 100, 10.5)) == {
        "a": ["a0"]
    }


def test_the_group_furthest_above_its_share_evicts() -> None:
    assert group_to_shrink({"a": 600, "b": 300, "c": 100}, {"a": 5000, "b": 1000, "c": 4000}, 1000) == "b"


def test_the_floor_is_the_highest_key_of_the_victims_chosen_by_key() -> None:
    groups = {"g": Group(KEEPING, 30, 30)}
    candidates, newcomer = ListedCandidates(OLD, MIDDLE, YOUNG), Newcomer(group="g", size=20, required=True)
    assert decide(groups, candidates, newcomer, 30, 12.5).floors == {"g": 2.0}
    assert decide(groups, candidates, newcomer, 30, 10.0).floors == {}


# -- policies


def test_each_module_of_the_package_is_a_policy() -> None:
    assert policy_names() == ["fifo", "lru", "nr", "random"]
    assert all(isinstance(load_policy(name), Policy) for name in policy_names())


@pytest.mark.parametrize("name", ["lfu", "", "LRU", "..policy", None, ["lru"]])
def test_the_error_for_an_unknown_policy_lists_all(name: object) -> None:
    with pytest.raises(ValueError, match="the policies are fifo, lru, nr, random"):
        load_policy(name)


def test_lru_orders_by_last_use_and_fifo_by_age() -> None:
    item = Item("i", 5, added=1.0, used=2.0)
    assert (load_policy("lru").key(item, 0.0), load_policy("fifo").key(item, 0.0)) == (2.0, 1.0)
    assert load_policy("lru").kept_from(3.0) == load_policy("fifo").kept_from(3.0) == math.inf


def test_non_replacing_keeps_items_used_within_a_day() -> None:
    assert nr.POLICY.kept_from(100_000.0) == 100_000.0 - 86_400.0
    assert nr.POLICY.key(Item("i", 5, added=1.0, used=2.0), 0.0) == 2.0


def test_random_victims_are_drawn_evenly() -> None:
    evictions = Counter[int]()
    for round in range(400):
        cache = ReferenceCache(10, {"g": (load_policy("random"), 10)})
        for item in range(14):
            for id in cache.add(f"{round}/{item}", "g", 1, item) or ():
                evictions[int(id.partition("/")[2])] += 1
    assert sum(evictions.values()) == 4 * 400
    assert evictions[0] == pytest.approx(400 * (1 - 0.9**4), abs=35)  # each of four evictions takes 1 of 10 items
    assert evictions[12] == pytest.approx(400 * 0.1, abs=25)
    assert evictions[13] == 0


# -- compared with a full scan

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "use", "pin", "unpin", "wait"]),
        st.integers(0, 15),
        st.sampled_from("abc"),
        st.integers(0, 12),
        st.booleans(),
    ),
    max_size=60,
)
POLICIES = st.sampled_from([*map(load_policy, policy_names()), KEEPING, AGING])


@given(capacity=st.integers(1, 40), policies=st.tuples(POLICIES, POLICIES, POLICIES), steps=STEPS)
def test_a_decision_from_ordered_candidates_equals_the_decision_of_a_full_scan(
    capacity: int, policies: tuple[Policy, Policy, Policy], steps: list[tuple[str, int, str, int, bool]]
) -> None:
    quotas = dict(zip("abc", (40, 20, 10), strict=True))
    cache = ReferenceCache(
        capacity, {name: (policy, quotas[name]) for name, policy in zip("abc", policies, strict=True)}
    )
    now = 0.0
    for step, number, group, size, required in steps:
        now += 1
        id = f"{group}{number}"
        if step == "use":
            cache.use(id, now)
        elif step == "pin":
            cache.pinned.add(id)
        elif step == "unpin":
            cache.pinned.discard(id)
        elif step == "wait":
            now += 10 * size * (8640 if required else 1)
        elif id not in cache.pinned:
            groups = {name: Group(policy, cache.used(name), quota) for name, (policy, quota) in cache.groups.items()}
            evictable = [item for item in cache.items.values() if item.id not in cache.pinned]
            present_item = cache.items.get(id)
            replaces = None if present_item is None else Candidate(id, present_item.size, present_item.key)
            newcomer = Newcomer(group=group, size=size, replaces=replaces, required=required)
            decision = decide(groups, ListedCandidates(*evictable), newcomer, capacity, now)
            floors = cache.floors
            victims = cache.add(id, group, size, now, required=required)
            chosen = victims_of(decision)
            if chosen is None or victims is None:
                assert chosen is victims is None
            else:
                assert sorted(victim for ids in chosen.values() for victim in ids) == sorted(victims)
                assert {name: max(floors[name], key) for name, key in decision.floors.items()} == {
                    name: cache.floors[name] for name in decision.floors
                }
            assert sum(map(cache.used, "abc")) <= capacity
            assert all(cache.used(name) <= quota for name, quota in quotas.items())
