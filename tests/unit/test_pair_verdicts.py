"""Verdicts on played pairs: what they say whatever the sequence of the pairs, and their bounds."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.comparisons import pair_verdicts
from core.domain.comparisons.pair_verdicts import Pair, StandingQuestion, verdict_members
from tests.declared_metrics import declared

SCORE = {"name": "score", "better": "higher", "low": 0.0, "high": 100.0, "worst": 0.0, "unit": "%"}
#: Value and whether it is that of an ``ok`` task.
SIDES = st.one_of(st.none(), st.integers(0, 100).map(float))


def members(sides: list[tuple[float | None, float | None]], order: list[int], **metric: Any) -> dict[str, Any]:
    """Return the verdicts on pairs in a sequence; None is a task that failed."""
    pairs = [
        Pair(
            index=at,
            repeat=0,
            tasks=(at, at),
            statuses=tuple("failed" if side is None else "ok" for side in sides[at]),  # type: ignore[arg-type]
            groups={"street": f"street {at % 3}"},
        )
        for at in order
    ]
    first, second = (np.array([sides[at][side] for at in order], np.float64) for side in (0, 1))
    return verdict_members(pairs, (first, second), StandingQuestion(metric=declared(SCORE | metric), models=("a", "b")))


@given(st.lists(st.tuples(SIDES, SIDES), max_size=40), st.randoms(use_true_random=False))
def test_the_sequence_of_the_pairs_does_not_matter(
    sides: list[tuple[float | None, float | None]], shuffled: random.Random
) -> None:
    order = list(range(len(sides)))
    expected = members(sides, order)
    shuffled.shuffle(order)
    assert members(sides, order) == expected
    assert expected["verdict"]["count"] == expected["verdict"]["pairs"] == len(sides)
    assert sum(group["count"] for group in expected["groups"].get("street", ())) == len(sides)


@given(st.lists(st.tuples(SIDES, SIDES), max_size=60), st.sampled_from([0.0, None]))
def test_the_scenarios_of_each_direction_are_those_with_the_largest_differences(
    sides: list[tuple[float | None, float | None]], worst: float | None
) -> None:
    document = members(sides, list(range(len(sides))), worst=worst, low=None, high=None)["scenarios"]
    penalty = float("-inf") if worst is None else worst
    values = [tuple(penalty if side is None else side for side in pair) for pair in sides]
    differences = [0.0 if mine == other else mine - other for mine, other in values]
    better = sorted((at for at in range(len(sides)) if differences[at] > 0), key=lambda at: (-differences[at], at))
    worse = sorted((at for at in range(len(sides)) if differences[at] < 0), key=lambda at: (differences[at], at))
    assert [item["task"] for item in document["better"]] == better[:20]
    assert [differences[item["task"]] for item in document["worse"]] == [differences[at] for at in worse[:20]]


def test_all_of_many_pairs_are_tested() -> None:
    document = members([(50.5, 50.0)] * 30_000, list(range(30_000)))
    assert document["verdict"]["count"] == document["verdict"]["pairs"] == 30_000


def test_the_largest_groups_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_verdicts, "GROUPS", 2)
    document = members([(50.0, 50.0)] * 8, list(range(8)))
    assert [group["group"] for group in document["groups"]["street"]] == ["street 0", "street 1"]


@pytest.mark.parametrize(("scenarios", "repeats"), [(60, 5), (20, 15), (12, 50)])
def test_equal_models_with_repetitions_get_a_verdict_as_seldom_as_without(scenarios: int, repeats: int) -> None:
    """Over pairs of tasks they got one in 18, 44 and 69 % of the cases."""
    generator, decided = np.random.default_rng(scenarios), 0
    for _ in range(60):
        base = [generator.normal(60, 15, scenarios) for _ in range(2)]
        values = [(side[:, None] + generator.normal(0, 5, (scenarios, repeats))).clip(0, 100).ravel() for side in base]
        pairs = [
            Pair(index=at // repeats, repeat=at % repeats, tasks=(at, at), statuses=("ok", "ok"))
            for at in range(scenarios * repeats)
        ]
        verdict = verdict_members(
            pairs, (values[0], values[1]), StandingQuestion(metric=declared(SCORE), models=("a", "b"))
        )
        decided += verdict["verdict"]["decision"] in ("better", "worse")
        assert (verdict["verdict"]["count"], verdict["verdict"]["tasks"]) == (scenarios, scenarios * repeats)
    assert decided <= 7
