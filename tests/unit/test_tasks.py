"""Task plan: task numbers resolve to the same scenario, seed and parameters everywhere, in constant time."""

import itertools
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.harness.evaluator.tasks import BITS_63, LARGEST, Permutation, TaskPlan, TooMany


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
    document = plan(select={"range": [10, 12]}, repeat=2, sweep={"a": [1, 2], "b": ["x"]}, params={"a": 0, "c": 3})
    tasks = [TaskPlan(document).locate(task) for task in range(TaskPlan(document).count)]
    assert [(task.swept["a"], task.repeat, task.index) for task in tasks] == list(
        itertools.product((1, 2), (0, 1), (10, 11))
    )
    assert tasks[0].params == {"a": 1, "b": "x", "c": 3}
    assert tasks[0].swept == {"a": 1, "b": "x"}


def test_the_last_parameter_of_a_sweep_changes_fastest() -> None:
    tasks = TaskPlan(plan(select={"tasks": [5]}, sweep={"a": [1, 2], "b": [3, 4]}))
    assert [tuple(tasks.locate(task).swept.values()) for task in range(4)] == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_values_of_a_parameter_are_compared_on_equal_scenarios() -> None:
    tasks = TaskPlan(plan(select={"range": [0, 5]}, sweep={"a": [1, 2]}))
    assert [tasks.locate(task).seed for task in range(5)] == [tasks.locate(task).seed for task in range(5, 10)]


def test_seeds_are_the_same_in_every_release() -> None:
    task_plan = TaskPlan(plan())
    assert task_plan.seed(0, 0) == 2692588299579401904
    assert task_plan.seed(1, 0) == 8187410382097042979
    assert task_plan.seed(0, 1) == 7843388730046118228
    assert task_plan.model_server_seed(0) == 7876430743976255800
    assert [Permutation(1000, "0")[index] for index in range(3)] == [937, 429, 70]


@given(st.integers(0, 287), st.integers(0, 5), st.integers())
def test_seeds_are_positive_and_differ_from_the_model_servers(index: int, repeat: int, seed: int) -> None:
    task_plan = TaskPlan(plan(seed=seed, repeat=6))
    assert 0 <= task_plan.seed(index, repeat) <= BITS_63
    assert task_plan.seed(index, repeat) != task_plan.model_server_seed(index)


def test_the_seed_of_a_scenario_depends_on_seed_dataset_scenario_and_repetition() -> None:
    seeds = [
        TaskPlan(plan(seed=seed, dataset=dataset)).seed(index, repeat)
        for seed in (1, 11)
        for dataset in ("a", "b")
        for index in (0, 1, 11)
        for repeat in (0, 1, 11)
    ]
    assert len(set(seeds)) == len(seeds)


def test_listed_scenarios_keep_the_order_of_the_list() -> None:
    assert [TaskPlan(plan(select={"tasks": [9, 3, 3]})).locate(task).index for task in range(3)] == [9, 3, 3]


@given(st.integers(1, 3000), st.text(max_size=10))
def test_a_permutation_contains_every_number_once(size: int, key: str) -> None:
    shuffled = Permutation(size, key)
    assert sorted(shuffled[index] for index in range(size)) == list(range(size))


@given(st.integers(1, LARGEST), st.integers(0, 10**6), st.integers())
def test_a_sample_stays_in_range_and_is_reproducible(total: int, last_task: int, seed: int) -> None:
    document = plan(total_scenarios=total, select={"sample": min(total, last_task + 1), "seed": seed})
    task = min(total, last_task + 1) - 1
    assert 0 <= TaskPlan(document).locate(task).index < total
    assert TaskPlan(document).locate(task) == TaskPlan(document).locate(task)


def test_a_sample_spreads_evenly_and_depends_on_its_seed() -> None:
    samples = [TaskPlan(plan(total_scenarios=1000, select={"sample": 100, "seed": seed})) for seed in range(200)]
    drawn = [[sample.locate(task).index for task in range(100)] for sample in samples]
    assert len({tuple(indices) for indices in drawn}) == 200
    tenths = [0] * 10
    for indices in drawn:
        for index in indices:
            tenths[index // 100] += 1
    # 20,000 draws, 2,000 expected in each tenth, standard deviation about 40.
    assert all(1800 < tenth < 2200 for tenth in tenths)


def test_the_ten_millionth_task_is_located_in_constant_time() -> None:
    started_at = time.monotonic()
    document = plan(total_scenarios=LARGEST, select={"sample": LARGEST, "seed": 3})
    for task in (0, LARGEST - 1):
        assert 0 <= TaskPlan(document).locate(task).index < LARGEST
    # A thousand times the expected time, a thousandth of the time of a linear search.
    assert time.monotonic() - started_at < 1.0


def test_too_many_tasks_are_refused_without_allocation() -> None:
    with pytest.raises(TooMany, match="a simulation has at most 10,000,000"):
        TaskPlan(plan(select={"range": [0, 10**6]}, repeat=11))
    assert TaskPlan(plan(select={"range": [0, 10**6]}, repeat=10)).count == LARGEST


def test_a_task_number_out_of_range_is_an_error() -> None:
    for task in (-1, 288):
        with pytest.raises(IndexError):
            TaskPlan(plan()).locate(task)


def test_a_sample_larger_than_the_dataset_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least as many as it draws"):
        TaskPlan(plan(select={"sample": 289}))
