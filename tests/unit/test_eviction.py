"""Eviction: what is evicted for a newcomer, and what is not."""

import math
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.eviction.decision import Candidate, Decision, Group, Newcomer, decide, group_to_shrink
from datasets.eviction.policies import load_policy, nr, policy_names
from datasets.eviction.policy import Item, Policy
from tests.reference_cache import Held, ReferenceCache

LRU = load_policy("lru")
KEEPING = Policy(key=lambda item, floor: item.used, kept_from=lambda now: now - 10)
AGING = Policy(key=lambda item, floor: floor + 1 / max(1, item.size))


class Listed:
    """Candidates from a list."""

    def __init__(self, *items: Held) -> None:
        self.items = items

    def by_key(self, group: str, below: float) -> Iterator[Candidate]:
        """Yield by key."""
        for item in sorted(self.items, key=lambda item: (item.key, item.id)):
            if item.group == group and item.key < below:
                yield Candidate(item.id, item.size, item.key)

    def youngest(self, group: str) -> Iterator[Candidate]:
        """Yield by age."""
        for item in sorted(self.items, key=lambda item: (item.added, item.id), reverse=True):
            if item.group == group:
                yield Candidate(item.id, item.size, item.key)


def of(decision: Decision) -> dict[str, list[str]] | None:
    """Return the victims' ids by group, None for a refusal."""
    return (
        {name: [each.id for each in victims] for name, victims in decision.victims.items()}
        if decision.admitted
        else None
    )


def one_group(policy: Policy, newcomer: Newcomer, capacity: int, now: float, *items: Held) -> list[str] | None:
    """Decide in a cache with one group `g`."""
    groups = {"g": Group(policy, sum(item.size for item in items), capacity)}
    victims = of(decide(groups, Listed(*items), newcomer, capacity, now))
    return None if victims is None else victims.get("g", [])


OLD, MIDDLE, YOUNG = (
    Held(id=name, group="g", size=10, added=at, key=at) for name, at in (("old", 1.0), ("middle", 2.0), ("young", 3.0))
)


def test_while_there_is_room_nothing_is_evicted() -> None:
    assert one_group(LRU, Newcomer(group="g", size=10), 40, 4.0, OLD, MIDDLE, YOUNG) == []


def test_the_least_key_goes_first_and_no_more_than_necessary() -> None:
    assert one_group(LRU, Newcomer(group="g", size=11), 40, 4.0, YOUNG, OLD, MIDDLE) == ["old"]
    assert one_group(LRU, Newcomer(group="g", size=21), 40, 4.0, YOUNG, OLD, MIDDLE) == ["old", "middle"]


def test_a_newcomer_that_can_never_fit_evicts_nothing() -> None:
    class Unread:
        def by_key(self, group: str, below: float) -> Iterator[Candidate]:
            raise AssertionError("nothing has to be read")

        def youngest(self, group: str) -> Iterator[Candidate]:
            raise AssertionError("nothing has to be read")

    groups = {"g": Group(LRU, 30, 40), "h": Group(LRU, 0, 9)}
    assert decide(groups, Unread(), Newcomer(group="g", size=41), 40, 4.0).full == "g"
    assert decide(groups, Unread(), Newcomer(group="h", size=10), 40, 4.0).full == "h"


def test_the_present_version_of_the_newcomer_goes_first() -> None:
    newcomer = Newcomer(group="g", size=10, replaces=Candidate("young", 10, 3.0))
    assert one_group(KEEPING, newcomer, 30, 4.0, OLD, MIDDLE, YOUNG) == ["young"]


def test_items_that_the_policy_keeps_stay_and_the_newcomer_is_refused() -> None:
    assert one_group(KEEPING, Newcomer(group="g", size=10), 30, 11.5, OLD, MIDDLE, YOUNG) == ["old"]
    assert one_group(KEEPING, Newcomer(group="g", size=20), 30, 11.5, OLD, MIDDLE, YOUNG) is None


def test_for_a_required_newcomer_kept_items_go_too_the_youngest_first() -> None:
    newcomer = Newcomer(group="g", size=20, required=True)
    assert one_group(KEEPING, newcomer, 30, 11.5, OLD, MIDDLE, YOUNG) == ["old", "young"]


def test_a_group_within_its_share_never_evicts_for_another() -> None:
    items = [Held(id=f"a{number}", group="a", size=10, added=number, key=number) for number in range(8)]
    items += [Held(id=f"b{number}", group="b", size=10, added=number, key=number) for number in range(2)]
    groups = {"a": Group(KEEPING, 80, 100), "b": Group(KEEPING, 20, 100)}  # shares of 50 each
    assert of(decide(groups, Listed(*items), Newcomer(group="b", size=30), 100, 5.0)) == {"a": ["a7", "a6", "a5"]}
    assert of(decide(groups, Listed(*items), Newcomer(group="a", size=10), 100, 5.0)) is None
    assert of(decide(groups, Listed(*items), Newcomer(group="a", size=10), 100, 10.5)) == {"a": ["a0"]}


def test_the_group_furthest_above_its_share_evicts() -> None:
    assert group_to_shrink({"a": 600, "b": 300, "c": 100}, {"a": 5000, "b": 1000, "c": 4000}, 1000) == "b"


def test_the_floor_is_the_highest_key_that_was_chosen_by_key() -> None:
    groups = {"g": Group(KEEPING, 30, 30)}
    listed, newcomer = Listed(OLD, MIDDLE, YOUNG), Newcomer(group="g", size=20, required=True)
    assert decide(groups, listed, newcomer, 30, 12.5).floors == {"g": 2.0}
    assert decide(groups, listed, newcomer, 30, 10.0).floors == {}


# -- policies


def test_each_module_of_the_package_is_a_policy() -> None:
    assert policy_names() == ["fifo", "lru", "nr", "random"]
    assert all(isinstance(load_policy(name), Policy) for name in policy_names())


@pytest.mark.parametrize("name", ["lfu", "", "LRU", "..policy", None, ["lru"]])
def test_the_error_for_an_unknown_policy_lists_all(name: object) -> None:
    with pytest.raises(ValueError, match="the policies are fifo, lru, nr, random"):
        load_policy(name)


def test_lru_goes_by_use_and_fifo_by_age() -> None:
    item = Item("i", 5, added=1.0, used=2.0)
    assert (load_policy("lru").key(item, 0.0), load_policy("fifo").key(item, 0.0)) == (2.0, 1.0)
    assert load_policy("lru").kept_from(3.0) == load_policy("fifo").kept_from(3.0) == math.inf


def test_non_replacing_keeps_what_was_used_within_a_day() -> None:
    assert nr.POLICY.kept_from(100_000.0) == 100_000.0 - 86_400.0
    assert nr.POLICY.key(Item("i", 5, added=1.0, used=2.0), 0.0) == 2.0


def test_random_victims_are_drawn_evenly() -> None:
    gone = Counter[int]()
    for turn in range(400):
        cache = ReferenceCache(10, {"g": (load_policy("random"), 10)})
        for number in range(14):
            for id in cache.add(f"{turn}/{number}", "g", 1, number) or ():
                gone[int(id.partition("/")[2])] += 1
    assert sum(gone.values()) == 4 * 400
    assert gone[0] == pytest.approx(400 * (1 - 0.9**4), abs=35)  # one of ten was evicted, four times
    assert gone[12] == pytest.approx(400 * 0.1, abs=25)
    assert gone[13] == 0


# -- against a scan

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
def test_a_decision_that_reads_candidates_in_order_is_that_of_a_scan(
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
            evictable = [item for item in cache.held.values() if item.id not in cache.pinned]
            present = cache.held.get(id)
            replaces = None if present is None else Candidate(id, present.size, present.key)
            newcomer = Newcomer(group=group, size=size, replaces=replaces, required=required)
            decision = decide(groups, Listed(*evictable), newcomer, capacity, now)
            floors = cache.floors
            victims = cache.add(id, group, size, now, required=required)
            chosen = of(decision)
            if chosen is None or victims is None:
                assert chosen is victims is None
            else:
                assert sorted(each for ids in chosen.values() for each in ids) == sorted(victims)
                assert {name: max(floors[name], key) for name, key in decision.floors.items()} == {
                    name: cache.floors[name] for name in decision.floors
                }
            assert sum(map(cache.used, "abc")) <= capacity
            assert all(cache.used(name) <= quota for name, quota in quotas.items())
