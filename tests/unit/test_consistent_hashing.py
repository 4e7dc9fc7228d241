"""Consistent hashing: assignment of keys to cache nodes."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.hash_ring import HashRing
from datasets.scs_client.consistent_hashing import Maglev

NAMES = st.sets(st.text("abcdefgh0123456789-.", min_size=1, max_size=12), min_size=1, max_size=40)
KEYS = [f"/v1/objects/private/sha256/{number:064x}" for number in range(5000)]


def nodes(count: int) -> list[str]:
    return [f"http://scs-{number}.scs:5080" for number in range(count)]


@given(names=NAMES, slots=st.sampled_from([251, 1009, 4099]))
def test_slots_are_shared_evenly_with_a_difference_of_at_most_one(names: set[str], slots: int) -> None:
    slots_of_node = Counter(Maglev(names, slots).table)
    assert sum(slots_of_node.values()) == slots and len(slots_of_node) == len(names)
    assert max(slots_of_node.values()) - min(slots_of_node.values()) <= 1  # so shares differ by at most 1/floor(M/N)


@settings(max_examples=20)
@given(names=NAMES, order=st.randoms())
def test_the_order_of_the_members_does_not_matter(names: set[str], order: object) -> None:
    shuffled = sorted(names)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Maglev(shuffled, 1009).table == Maglev(sorted(names), 1009).table


@pytest.mark.parametrize("removed", [0, 17, 49])
def test_a_removed_node_moves_its_own_keys_and_few_others(removed: int) -> None:
    names = nodes(50)
    before, after = Maglev(names), Maglev(names[:removed] + names[removed + 1 :])
    moved_keys = [key for key in KEYS if before.owner(key) != after.owner(key)]
    own_keys = [key for key in KEYS if before.owner(key) == names[removed]]
    assert set(own_keys) <= set(moved_keys)
    assert len(moved_keys) - len(own_keys) < 0.03 * len(KEYS)


def test_on_a_hash_ring_a_removed_node_moves_only_its_own_keys() -> None:
    names = nodes(50)
    before, after = HashRing(names), HashRing(names[1:])
    assert all(before.owner(key) in (after.owner(key), names[0]) for key in KEYS)


def test_a_walk_starts_at_the_owner_and_visits_every_node_once() -> None:
    ring = Maglev(nodes(7))
    for key in KEYS[:200]:
        walk = list(ring.walk(key))
        assert walk[0] == ring.owner(key)
        assert sorted(walk) == nodes(7)


def test_the_keys_of_an_unavailable_node_spread_over_all_others() -> None:
    ring = Maglev(nodes(5))
    second_choices = Counter(list(ring.walk(key))[1] for key in KEYS if ring.owner(key) == nodes(5)[2])
    assert len(second_choices) == 4
    assert max(second_choices.values()) < 2 * min(second_choices.values())


def test_a_single_node_owns_all_slots() -> None:
    assert set(Maglev(["only"]).table) == {0}


def test_a_ring_without_nodes_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one node"):
        Maglev([])


@pytest.mark.parametrize("slots", [0, 1, 65_536, 65_535])
def test_a_table_whose_size_is_not_prime_is_an_error(slots: int) -> None:
    with pytest.raises(ValueError, match="prime"):
        Maglev(["a"], slots)


def test_the_table_is_the_same_in_every_release() -> None:
    # Clients of all releases must agree: a change of the table empties every cache once.
    ring = Maglev(nodes(3))
    assert "".join(ring.owner(key)[11] for key in KEYS[:24]) == "100021102100021110121122"
