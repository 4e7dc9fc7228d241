"""Tally of results: equal to a plain reference, whatever the batches, in memory that does not grow with the results."""

import json
import math
import statistics
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.results import result_tally
from core.domain.results.grouped_column import GroupedColumn
from core.domain.results.intervals import wilson
from core.domain.results.result_columns import (
    ColumnKinds,
    TaskResult,
    columns_of,
    common_kind,
    kind_of,
    ordered_kinds,
    paths_of,
)
from core.domain.results.result_groups import OTHERS, OUTCOMES
from core.domain.results.result_tally import ResultTally
from core.domain.results.score import Score
from core.domain.results.worst_tasks import NAMED, WorstTasks

METRICS = [{"name": "score", "worst": 0.0}, {"name": "ttc"}]


def result(task: int = 0, status: str = "ok", **members: Any) -> TaskResult:
    return TaskResult(
        task=task,
        status=status,
        scenario=members.get("scenario", {}),
        metrics=members.get("metrics", {}),
        error=members.get("error"),
        timing=members.get("timing", {}),
    )


def summary_of(results: Sequence[TaskResult], **options: Any) -> dict[str, Any]:
    tally = ResultTally(options.pop("metrics", METRICS), **options)
    tally.add(results)
    return tally.summary()


# -- against a reference


NUMBERS = st.floats(-1e6, 1e6) | st.integers(-(10**6), 10**6) | st.booleans()
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["ok", "ok", "ok", "crashed", "failed"]),
        st.fixed_dictionaries(
            {}, optional={"street": st.sampled_from(["ramp", "grid", 1, None]), "params": st.just({"lag": 1})}
        ),
        st.dictionaries(
            st.sampled_from(["score", "ttc", "other"]), NUMBERS | st.none() | st.sampled_from(["x", "y"]), max_size=3
        ),
    ),
    max_size=60,
)


def reference(rows: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, Any]:
    """The figures of a summary by the standard library."""
    failed = sum(status != "ok" for status, _, _ in rows)
    numbers: dict[str, list[float]] = {metric["name"]: [] for metric in METRICS}  # type: ignore[misc]
    outcomes: dict[str, Counter[str]] = {}
    for status, _, metrics in rows:
        for name, value in metrics.items():
            if status == "ok" and isinstance(value, str):
                outcomes.setdefault(name, Counter())[value] += 1
            elif status == "ok" and value is not None:
                numbers.setdefault(name, []).append(float(value))
    figures = {}
    for name, values in numbers.items():
        if values:
            figures[name] = {
                "count": len(values), "mean": statistics.fmean(values), "min": min(values), "max": max(values),
                "p50": statistics.median(values), "std": statistics.stdev(values) if len(values) > 1 else 0.0,
            }  # fmt: skip
        elif failed and name in {"score", "ttc"}:
            figures[name] = {"count": 0, "mean": None}
    if "score" in figures and len(rows):
        total = sum(numbers["score"])
        figures["score"]["mean_penalised"] = total / (len(numbers["score"]) + failed)
    return {
        "statuses": Counter(status for status, _, _ in rows),
        "outcomes": {name: dict(counts) for name, counts in outcomes.items()},
        "metrics": figures,
    }


def agree(summary: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert summary["statuses"] == expected["statuses"] and summary["outcomes"] == expected["outcomes"]
    assert summary["metrics"].keys() == expected["metrics"].keys()
    for name, figures in expected["metrics"].items():
        for figure, value in figures.items():
            found = summary["metrics"][name][figure]
            assert found == (None if value is None else pytest.approx(value, rel=1e-9, abs=1e-6)), (name, figure)


@given(ROWS, st.integers(1, 7), st.integers(1, 9))
def test_a_summary_equals_the_reference_whatever_the_batches_and_the_blocks(
    rows: list[tuple[str, dict[str, Any], dict[str, Any]]], batch: int, block: int
) -> None:
    results = [result(task, row[0], scenario=row[1], metrics=row[2]) for task, row in enumerate(rows)]
    with mock.patch.object(result_tally, "BLOCK", block):
        whole = summary_of(results, group_by=("street",))
        tally = ResultTally(METRICS, ("street",))
        for at in range(0, len(results), batch):
            tally.add(results[at : at + batch])
        assert json.dumps(tally.summary()) == json.dumps(whole)
    agree(whole, reference(rows))
    for street, group in whole["groups"]["street"].items():
        agree(group, reference([row for row in rows if str(row[1].get("street")) == street]))


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1e3, 1e3)), min_size=1, max_size=200), st.integers(1, 40))
def test_a_full_sample_has_every_second_or_fourth_value_of_each_group(
    pairs: list[tuple[int, float]], length: int
) -> None:
    import numpy as np

    column = GroupedColumn()
    for at in range(0, len(pairs), length):
        part = sorted(pairs[at : at + length], key=lambda pair: pair[0])
        column.add(np.array([group for group, _ in part]), np.array([value for _, value in part]), 20)
    for group in range(4):
        values = [value for other, value in pairs if other == group]
        sample = column.sample(group).tolist()
        assert any(sample == values[::stride] for stride in (1, 2, 4, 8, 16)) and bool(sample) == bool(values)


def test_figures_are_exact_beyond_the_sample() -> None:
    with mock.patch.object(result_tally, "KEPT", 5000), mock.patch.object(result_tally, "KEPT_IN_GROUPS", 5000):
        summary = summary_of(
            [
                result(task, metrics={"score": float(task), "rate": task % 4 == 0}, scenario={"side": "lr"[task % 2]})
                for task in range(40_000)
            ],
            group_by=("side",),
        )
    score, rate = summary["metrics"]["score"], summary["metrics"]["rate"]
    assert (score["count"], score["mean"], score["max"]) == (40_000, 19_999.5, 39_999.0)
    assert score["p50"] == pytest.approx(20_000, rel=0.01)
    deviation = math.sqrt(sum((value - 19_999.5) ** 2 for value in range(40_000)) / 39_999)
    assert score["std"] == pytest.approx(deviation)
    assert score["high"] - score["mean"] == pytest.approx(1.96 * deviation / 200, rel=0.001)
    assert (rate["low"], rate["high"]) == pytest.approx(wilson(10_000, 40_000))
    assert summary["groups"]["side"]["r"]["metrics"]["score"]["mean"] == 20_000


def test_memory_does_not_grow_with_the_results() -> None:
    def play(tally: ResultTally, blocks: range) -> None:
        for block in blocks:
            tally.add(
                [
                    result(
                        task,
                        metrics={"score": float(task), "outcome": f"text {task}"},
                        scenario={"street": f"s{task % 500}", "params": {"x": task // 4096}},
                        timing={"seconds": 0.5},
                    )
                    for task in range(block * 4096, block * 4096 + 4096)
                ]
            )

    with mock.patch.object(result_tally, "KEPT", 8000), mock.patch.object(result_tally, "KEPT_IN_GROUPS", 8000):
        tally = ResultTally(METRICS, ("street",), ("x",), 4096)
        play(tally, range(12))
        tracemalloc.start()
        try:
            play(tally, range(12, 36))
            assert tracemalloc.get_traced_memory()[0] < 1 << 20
        finally:
            tracemalloc.stop()
    assert tally.summary()["tasks"]["done"] == tally.done == 36 * 4096


# -- values that stand for "never"


def test_values_that_stand_for_never_are_counted_apart_from_every_statistic() -> None:
    values = [2.0, 100.0, 4.0, 100.0, None]
    results = [
        result(task, metrics={"ttc": value}, scenario={"side": "lr"[task % 2]}) for task, value in enumerate(values)
    ]
    summary = summary_of(results, group_by=("side",), never={"ttc": 100.0})
    ttc = summary["metrics"]["ttc"]
    assert (ttc["count"], ttc["never"], ttc["mean"], ttc["max"], ttc["p99"]) == (2, 2, 3.0, 4.0, pytest.approx(3.98))
    sides = {side: group["metrics"]["ttc"] for side, group in summary["groups"]["side"].items()}
    assert (sides["l"]["never"], sides["l"]["mean"]) == (0, 3.0)
    assert (sides["r"]["never"], sides["r"]["count"], sides["r"]["mean"]) == (2, 0, None)


def test_a_failed_task_counts_with_the_worst_value_beside_tasks_without_an_event() -> None:
    metrics = [{"name": "ttc", "worst": 0.0}]
    results = [result(0, metrics={"ttc": 4.0}), result(1, metrics={"ttc": 100.0}), result(2, "crashed")]
    ttc = summary_of(results, metrics=metrics, never={"ttc": 100.0})["metrics"]["ttc"]
    assert (ttc["mean"], ttc["mean_penalised"], ttc["never"]) == (4.0, 2.0, 1)


# -- values that are not numbers


def test_integers_beyond_every_float_and_lists_are_no_values() -> None:
    values: list[Any] = [10**400, 1.0, [1], {"a": 2}, True, None, 10**30]
    metrics = summary_of([result(task, metrics={"score": value}) for task, value in enumerate(values)])["metrics"]
    assert (metrics["score"]["count"], metrics["score"]["max"]) == (3, 1e30)


def test_an_overflow_is_none_because_json_has_no_infinity() -> None:
    summary = summary_of([result(task, metrics={"score": value}) for task, value in enumerate([1e308, -1e308, 1e308])])
    assert summary["metrics"]["score"]["std"] is None and summary["metrics"]["score"]["max"] == 1e308
    json.dumps(summary, allow_nan=False)


def test_outcomes_beyond_the_limit_count_together() -> None:
    summary = summary_of([result(task, metrics={"word": f"w{task}"}) for task in range(OUTCOMES + 5)])
    assert summary["outcomes"]["word"][OTHERS] == 5 and len(summary["outcomes"]["word"]) == OUTCOMES + 1


# -- sweeps


def swept(values: int, per_combination: int) -> Iterator[TaskResult]:
    for task in range(2 * values * per_combination):
        lag, gain = task // per_combination // 2, [0.5, "high"][task // per_combination % 2]
        params = {"lag": lag, "gain": gain}
        yield result(task, metrics={"score": float(lag)}, scenario={"params": params})


def test_a_sweep_has_a_row_for_each_combination_and_a_group_for_each_value() -> None:
    summary = summary_of(list(swept(3, 5)), swept=("lag", "gain"), per_combination=5)
    assert summary["sweep"]["complete"]
    rows = [(row["params"], row["tasks"]["done"], row["metrics"]["score"]["mean"]) for row in summary["sweep"]["rows"]]
    assert rows == [({"lag": lag, "gain": gain}, 5, lag) for lag in range(3) for gain in (0.5, "high")]
    assert {"low", "high"} <= summary["sweep"]["rows"][0]["metrics"]["score"].keys()
    groups = summary["groups"]
    assert list(groups["params.lag"]) == ["0", "1", "2"] and list(groups["params.gain"]) == ["0.5", "high"]
    assert groups["params.gain"]["high"]["metrics"]["score"]["mean"] == 1.0


def test_a_long_sweep_says_that_rows_are_left_out() -> None:
    summary = summary_of(list(swept(result_tally.SWEPT, 1)), swept=("lag", "gain"), per_combination=1)
    assert not summary["sweep"]["complete"] and len(summary["sweep"]["rows"]) == result_tally.SWEPT


# -- worst tasks

DEFINITION = {"metrics": [{"name": "loss", "better": "lower"}], "score": {"metric": "loss"}}


def test_failures_come_first_and_then_the_worst_scores() -> None:
    worst = WorstTasks(Score.of(DEFINITION))
    worst.add([result(task, metrics={"loss": float(task % 7)}) for task in range(30)])
    worst.add([result(30, "crashed", error="it broke"), result(31, metrics={"loss": None})])
    described = worst.described()
    assert [task["task"] for task in described] == [30, 6, 13, 20, 27, 5, 12, 19, 26, 4]
    assert (described[0]["error"], described[0]["score"], described[1]["score"]) == ("it broke", None, 6.0)


@given(st.lists(st.tuples(st.sampled_from(["ok", "failed"]), st.integers(-5, 5) | st.none())), st.integers(1, 9))
def test_the_worst_tasks_do_not_depend_on_batches(tasks: list[tuple[str, int | None]], batch: int) -> None:
    results = [result(number, status, metrics={"loss": loss}) for number, (status, loss) in enumerate(tasks)]
    worst = WorstTasks(Score.of(DEFINITION))
    for at in range(0, len(results), batch):
        worst.add(results[at : at + batch])
    failures = [task.task for task in results if task.status != "ok"]
    others = [task for task in results if task.status == "ok" and task.metrics["loss"] is not None]
    expected = failures + [task.task for task in sorted(others, key=lambda task: -task.metrics["loss"])]
    assert [task["task"] for task in worst.described()] == expected[:NAMED]


def test_without_a_score_only_failures_are_named() -> None:
    worst = WorstTasks(Score.of({"metrics": [], "score": None}))
    worst.add([result(0), result(1, "timed_out")])
    assert [task["task"] for task in worst.described()] == [1]


# -- kinds of columns

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.sampled_from([2**63 - 1, 2**63, -(2**63) - 1, 10**23, -(10**400)])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
    | st.lists(st.integers(), max_size=2)
)
OBJECTS = st.recursive(
    st.dictionaries(st.sampled_from(["a", "b", "a.b", "c"]), VALUES, max_size=4),
    lambda inner: st.dictionaries(st.sampled_from(["a", "b", "d"]), VALUES | inner, max_size=4),
    max_leaves=4,
)


def leaves(row: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}", value


@given(st.lists(OBJECTS, max_size=12), st.integers(1, 5))
def test_kinds_by_blocks_equal_kinds_row_by_row(rows: list[dict[str, Any]], block: int) -> None:
    expected: dict[str, str | None] = {"task": "int", "status": "str", "error": "str"}
    for row in rows:
        for name, value in leaves(row, "metrics"):
            known = expected.setdefault(name, None)
            if value is not None:
                expected[name] = kind_of(value) if known is None else common_kind(known, kind_of(value))
    kinds = ColumnKinds()
    for at in range(0, len(rows), block):
        part = rows[at : at + block]
        kinds.add(part, "metrics", list(columns_of(part)))
    assert list((kinds.by_name() or {}).items()) == list(ordered_kinds(expected).items())
    assert {name for row in rows for name in paths_of([row], "metrics")} == expected.keys() - {
        "task",
        "status",
        "error",
    }
