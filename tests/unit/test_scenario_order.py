"""Scenario order: worlds together play what one plays, each entry once, however fast each of them is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel import WindtunnelError
from windtunnel.scenario_order import ScenarioOrder

seeds = st.none() | st.integers(0, 1 << 32)


def begun(total: int, worlds: int, seed: int | None) -> ScenarioOrder:
    order = ScenarioOrder(None, total, worlds)
    if seed is not None:
        order.begin(np.random.default_rng(seed))
    return order


@given(st.integers(1, 20), st.integers(1, 9), seeds, st.lists(st.integers(0, 8), max_size=60))
def test_a_world_plays_every_kth_entry_of_the_order_of_one(
    total: int, worlds: int, seed: int | None, turns: list[int]
) -> None:
    alone = begun(total, 1, seed)
    entries = [alone.next() for _ in range(worlds * (len(turns) + 1))]
    order, counts = begun(total, worlds, seed), [0] * worlds
    for turn in turns:
        world = turn % worlds
        assert order.next(world) == entries[world + worlds * counts[world]]
        counts[world] += 1


@given(st.integers(1, 20), seeds)
def test_a_repetition_has_each_scenario_once(total: int, seed: int | None) -> None:
    order = begun(total, 1, seed)
    for repeat in range(3):
        assert sorted(order.next() for _ in range(total)) == [(scenario, repeat) for scenario in range(total)]


def test_a_seed_begins_the_same_order_again_and_goes_on_drawing_without_it() -> None:
    order = ScenarioOrder("5-14", 100)
    order.begin(np.random.default_rng(3))
    drawn = [order.next() for _ in range(20)]
    order.begin(np.random.default_rng(3))
    assert [order.next() for _ in range(20)] == drawn
    assert {scenario for scenario, _ in drawn} == set(range(5, 15)) and drawn[:10] != sorted(drawn[:10])


def test_options_name_a_scenario_for_all_worlds_or_one_for_each() -> None:
    order = ScenarioOrder(None, 100, 3)
    assert order.tasks_of({}) == [None] * 3
    assert order.tasks_of({"scenario": 7}) == [(7, 0)] * 3
    assert order.tasks_of({"scenario": np.array([1, 2, 3]), "repeat": [0, 1, 2]}) == [(1, 0), (2, 1), (3, 2)]
    for options, text in (
        ({"scenario": [1, 2]}, "2 numbers for 3 worlds"),
        ({"repeat": 1}, "name `scenario` too"),
        ({"scenario": [1, 2, -1]}, "whole number from 0, not -1"),
        ({"speed": 1}, "no option 'speed'"),
    ):
        with pytest.raises(WindtunnelError, match=text):
            order.tasks_of(options)
