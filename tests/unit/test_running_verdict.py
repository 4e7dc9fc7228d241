"""Running verdicts of comparisons: batches, JSON, groups, missing values, and the error rate where a verdict stops."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.comparisons.claims import Decision, Design, Method
from core.domain.comparisons.comparison_states import ComparisonState, end_of
from core.domain.comparisons.pair_verdicts import Floats, Pair
from core.domain.comparisons.play_order import batches
from core.domain.comparisons.running_verdict import PlayedBatch, Question, RunningVerdict, group_sizes
from core.domain.submissions.stored_documents import decode_document
from tests.declared_metrics import declared

SCORE = declared({"name": "score", "better": "higher", "low": 0, "high": 100, "unit": "%"})
STREETS = ("arterial", "crosswalk", "roundabout")


def question(scenarios: int, design: Design = Design.EXACT, **members: object) -> Question:
    sizes = group_sizes([{"street": STREETS[index % 3]} for index in range(scenarios)])
    values = {"metric": SCORE, "bound": None, "error_rate": 0.05, "groups": sizes} | members
    method = Method.ANYTIME if design is Design.EXACT else Method.JOINED
    return Question(design=design, scenarios=scenarios, **({"method": method} | values))  # type: ignore[arg-type]


def batch(indexes: Sequence[int], first: Floats, second: Floats, repeats: int = 1) -> PlayedBatch:
    """Return a batch; ``first`` and ``second``: values by index and repetition, NaN for a crash."""
    pairs, values = [], []
    for repeat in range(repeats):
        for position, index in enumerate(indexes):
            mine, other = first[index][repeat], second[index][repeat]
            statuses = tuple("crashed" if math.isnan(value) else "ok" for value in (mine, other))
            task = repeat * len(indexes) + position
            groups = {"street": STREETS[index % 3]}
            pairs.append(Pair(index=index, repeat=repeat, tasks=(task, task), statuses=statuses, groups=groups))  # type: ignore[arg-type]
            values.append((mine, other))
    both = np.array(values, np.float64).reshape(-1, 2)
    return PlayedBatch(
        scenarios=indexes, pairs=pairs, first=both[:, 0], second=both[:, 1], simulations=("mine", "other")
    )


scores = st.one_of(st.floats(0, 100), st.just(math.nan))


@given(st.data(), st.integers(2, 60), st.integers(1, 3), st.sampled_from(list(Design)))
def test_a_verdict_does_not_depend_on_the_sizes_of_batches_or_on_storage(
    data: st.DataObject, scenarios: int, repeats: int, design: Design
) -> None:
    rows = st.lists(st.lists(scores, min_size=repeats, max_size=repeats), min_size=scenarios, max_size=scenarios)
    first, second = np.array(data.draw(rows)), np.array(data.draw(rows))
    asked = question(scenarios, design, method=Method.ANYTIME)
    order = data.draw(st.permutations(range(scenarios)))
    whole = RunningVerdict.begin(asked).extend(asked, batch(order, first, second, repeats))
    parts = RunningVerdict.begin(asked)
    cuts = sorted(data.draw(st.sets(st.integers(1, scenarios - 1), max_size=4)))
    for start, end in zip([0, *cuts], [*cuts, scenarios], strict=True):
        parts = decode_document(json.dumps(msgspec.to_builtins(parts)), RunningVerdict)
        parts = parts.extend(asked, batch(order[start:end], first, second, repeats))
    assert replace(parts.test, within=0.0) == replace(whole.test, within=0.0)
    assert parts.groups == whole.groups
    differences = [[pair["difference"] for pair in side] for side in (parts.better, parts.worse)]
    assert differences == [[pair["difference"] for pair in side] for side in (whole.better, whole.worse)]
    verdict, details = whole.verdict(asked, ("new", "old"), over=True), whole.details(asked)
    streets = json.loads(json.dumps(details, allow_nan=False))["groups"]["street"]
    assert sum(group["count"] for group in streets) == verdict["count"] == scenarios
    json.dumps(verdict, allow_nan=False)


def test_the_difference_of_a_scenario_is_the_mean_over_its_repetitions() -> None:
    asked = question(2)
    first, second = np.array([[60.0, 40.0], [50.0, 50.0]]), np.array([[50.0, 40.0], [50.0, 50.0]])
    verdict = RunningVerdict.begin(asked).extend(asked, batch([1, 0], first, second, 2))
    assert verdict.test.count == 2 and verdict.test.mean == pytest.approx(2.5)
    assert [pair["difference"] for pair in verdict.better] == [10] and not verdict.worse
    assert verdict.better[0]["simulation"] == "mine" and verdict.better[0]["to_simulation"] == "other"


def test_a_pair_without_a_number_counts_as_no_difference_and_is_counted() -> None:
    asked = question(2)
    played = batch([0, 1], np.array([[90.0], [70.0]]), np.array([[50.0], [60.0]]))
    without = PlayedBatch(
        scenarios=played.scenarios,
        pairs=played.pairs,
        first=np.array([math.nan, 70.0]),
        second=played.second,
        simulations=played.simulations,
    )
    verdict = RunningVerdict.begin(asked).extend(asked, without)
    assert verdict.without_value == 1 and verdict.test.mean == pytest.approx(5)


def test_a_failed_task_has_the_worst_value() -> None:
    asked = question(2)
    verdict = RunningVerdict.begin(asked).extend(
        asked, batch([0, 1], np.array([[math.nan], [math.nan]]), np.array([[80.0], [math.nan]]))
    )
    assert verdict.test.mean == pytest.approx(-40) and verdict.worse[0]["difference"] == -80


def test_groups_are_those_of_the_whole_list_so_that_their_number_does_not_depend_on_results() -> None:
    sizes = group_sizes([{"street": f"s{number % 250:03}"} for number in range(1000)])
    assert len(sizes["street"]) == 200 and list(sizes["street"]) == sorted(sizes["street"])
    asked = question(4)
    verdict = RunningVerdict.begin(asked)
    assert {group: test.sequence.plan.pairs for group, test in verdict.groups["street"].items()} == {
        "arterial": 2, "crosswalk": 1, "roundabout": 1,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["binary", "continuous"])
@pytest.mark.parametrize("design", list(Design))
def test_the_error_rate_holds_where_the_verdict_stops_the_comparison(kind: str, design: Design) -> None:
    scenarios, repetitions, random = 200, 40, Random(7)
    wrong = 0
    for seed in range(repetitions):
        if kind == "binary":
            values = [[[100.0 * (random.random() < 0.7)] for _ in range(scenarios)] for _ in range(2)]
        else:
            values = [[[min(100, max(0, random.gauss(60, 20)))] for _ in range(scenarios)] for _ in range(2)]
        first, second = np.array(values[0]), np.array(values[1])
        if design is Design.EXACT:  # the mean of the list is zero: each difference has its opposite
            first, second = np.concatenate([first, second]), np.concatenate([second, first])
        asked = question(len(first), design, groups={}, margin=2.0)
        verdict = RunningVerdict.begin(asked)
        for indexes in batches(seed, range(len(first))):
            verdict = verdict.extend(asked, batch(indexes, first, second))
            if verdict.is_over(asked):
                break
        wrong += verdict.test.decision in (Decision.BETTER, Decision.WORSE)
    assert wrong / repetitions <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / repetitions)


@given(st.integers(2, 5000), st.integers(0, 2**40))
def test_batches_play_each_scenario_once_and_depend_on_the_seed_alone(scenarios: int, seed: int) -> None:
    played = batches(seed, range(100, 100 + scenarios))
    assert sorted(index for part in played for index in part) == list(range(100, 100 + scenarios))
    assert played == batches(seed, range(100, 100 + scenarios))
    assert len(played) < 12 + 4 * math.log(scenarios)


@given(st.lists(st.sampled_from(sorted(set(ComparisonState) - {ComparisonState.CANCELLING})), min_size=1))
def test_a_comparison_ends_once_no_model_runs_and_is_finished_if_one_is(states: list[ComparisonState]) -> None:
    end = end_of(states)
    assert (end is None) == (ComparisonState.RUNNING in states)
    if end is not None and ComparisonState.FINISHED in states:
        assert end is ComparisonState.FINISHED
