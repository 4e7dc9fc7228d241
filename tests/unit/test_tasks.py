"""Task numbers mean the same everywhere, at once, however many there are."""

import itertools
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.harness.evaluator.tasks import BITS_63, LARGEST, Permutation, TaskPlan, TooMany, count, locate


def plan(**changes: Any) -> dict[str, Any]:
    return {
        "seed": 7,
        "dataset": "sha256:00",
        "total_scenarios": 288,
        "select": {"range": [0, 288]},
        "sweep": {},
        "repeat": 1,
        "params": {},
    } | changes


def test_the_sweep_changes_slowest_then_the_repetition_then_the_scenario() -> None:
    wanted = plan(select={"range": [10, 12]}, repeat=2, sweep={"a": [1, 2], "b": ["x"]}, params={"a": 0, "c": 3})
    found = [locate(wanted, task) for task in range(count(wanted))]
    assert [(one.swept["a"], one.repeat, one.index) for one in found] == list(
        itertools.product((1, 2), (0, 1), (10, 11))
    )
    assert found[0].params == {"a": 1, "b": "x", "c": 3}
    assert found[0].swept == {"a": 1, "b": "x"}


def test_a_sweeps_last_name_changes_fastest() -> None:
    wanted = plan(select={"tasks": [5]}, sweep={"a": [1, 2], "b": [3, 4]})
    assert [tuple(locate(wanted, task).swept.values()) for task in range(4)] == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_values_of_a_parameter_are_compared_on_the_same_situations() -> None:
    wanted = plan(select={"range": [0, 5]}, sweep={"a": [1, 2]})
    assert [locate(wanted, task).seed for task in range(5)] == [locate(wanted, task).seed for task in range(5, 10)]


def test_seeds_are_these_for_ever() -> None:
    asked = TaskPlan(plan())
    assert asked.seed(0, 0) == 2692588299579401904
    assert asked.seed(1, 0) == 8187410382097042979
    assert asked.seed(0, 1) == 7843388730046118228
    assert asked.model_server_seed(0) == 7876430743976255800
    assert [Permutation(1000, "0")[at] for at in range(3)] == [937, 429, 70]


@given(st.integers(0, 287), st.integers(0, 5), st.integers())
def test_seeds_are_positive_and_differ_from_the_model_servers(index: int, repeat: int, seed: int) -> None:
    asked = TaskPlan(plan(seed=seed, repeat=6))
    assert 0 <= asked.seed(index, repeat) <= BITS_63
    assert asked.seed(index, repeat) != asked.model_server_seed(index)


def test_another_seed_dataset_scenario_or_repetition_is_another_situation() -> None:
    seeds = [
        TaskPlan(plan(seed=seed, dataset=dataset)).seed(index, repeat)
        for seed in (1, 11)
        for dataset in ("a", "b")
        for index in (0, 1, 11)
        for repeat in (0, 1, 11)
    ]
    assert len(set(seeds)) == len(seeds)


def test_listed_scenarios_are_played_in_the_order_of_the_list() -> None:
    assert [locate(plan(select={"tasks": [9, 3, 3]}), task).index for task in range(3)] == [9, 3, 3]


@given(st.integers(1, 3000), st.text(max_size=10))
def test_a_permutation_has_every_number_once(size: int, key: str) -> None:
    shuffled = Permutation(size, key)
    assert sorted(shuffled[at] for at in range(size)) == list(range(size))


@given(st.integers(1, LARGEST), st.integers(0, 10**6), st.integers())
def test_a_sample_stays_inside_and_is_the_same_whenever_it_is_drawn(total: int, at: int, seed: int) -> None:
    wanted = plan(total_scenarios=total, select={"sample": min(total, at + 1), "seed": seed})
    task = min(total, at + 1) - 1
    assert 0 <= locate(wanted, task).index < total
    assert locate(wanted, task) == locate(wanted, task)


def test_a_sample_spreads_evenly_and_depends_on_its_seed() -> None:
    samples = [TaskPlan(plan(total_scenarios=1000, select={"sample": 100, "seed": seed})) for seed in range(200)]
    drawn = [[sample.locate(task).index for task in range(100)] for sample in samples]
    assert len({tuple(one) for one in drawn}) == 200
    tenths = [0] * 10
    for one in drawn:
        for index in one:
            tenths[index // 100] += 1
    # 20,000 draws, 2,000 expected in each tenth, standard deviation about 40.
    assert all(1800 < tenth < 2200 for tenth in tenths)


def test_the_ten_millionth_task_is_located_as_fast_as_the_first() -> None:
    began = time.monotonic()
    wanted = plan(total_scenarios=LARGEST, select={"sample": LARGEST, "seed": 3})
    for task in (0, LARGEST - 1):
        assert 0 <= locate(wanted, task).index < LARGEST
    assert time.monotonic() - began < 1.0  # a thousand times what it takes, and a thousandth of what counting would


def test_too_many_tasks_are_refused_before_anything_is_built() -> None:
    with pytest.raises(TooMany, match="a simulation has at most 10,000,000"):
        count(plan(select={"range": [0, 10**6]}, repeat=11))
    assert count(plan(select={"range": [0, 10**6]}, repeat=10)) == LARGEST


def test_a_task_that_is_not_there_is_an_error() -> None:
    for task in (-1, 288):
        with pytest.raises(IndexError):
            locate(plan(), task)


def test_a_sample_of_more_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least as many as it draws"):
        count(plan(select={"sample": 289}))
