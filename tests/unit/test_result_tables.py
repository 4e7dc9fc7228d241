"""Result tables: exact columns of any results in any order, distributions of them, and samples by task."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.domain.results.declared_results import DeclaredFailure
from core.domain.results.distribution import FAILED, RunningDistributions
from core.domain.results.result_columns import TaskResult
from core.domain.results.result_groups import OTHERS, OUTCOMES
from core.domain.results.result_table import DISTINCT_CHARACTERS, ResultTable, sampled
from core.domain.results.score import Score
from core.domain.results.worst_tasks import NAMED, WorstTasks, worst_rows

WORST = {"score": 0.0, "outcome": None}
FAILURE = DeclaredFailure("outcome", ("collision",))
Row = tuple[str, Mapping[str, Any]]

METRICS = st.fixed_dictionaries(
    {},
    optional={
        "score": st.floats(-1e9, 1e9) | st.integers(-(2**70), 2**70) | st.none(),
        "arrived": st.sampled_from([0, 1, True, False]),
        "outcome": st.sampled_from(["arrived", "collision"]),
        "mixed": st.sampled_from(["text", 1, 2.5, None, [1], {"nested": 1}]),
    },
)
ROWS = st.lists(st.tuples(st.sampled_from(["ok", "ok", "ok", "crashed", "failed"]), METRICS), max_size=40)


def lines(rows: Sequence[Row], start: int = 0) -> bytes:
    """Result lines of consecutive tasks."""
    return b"".join(
        json.dumps({"task": task, "status": status, "scenario": {}, "metrics": metrics, "timing": {}}).encode() + b"\n"
        for task, (status, metrics) in enumerate(rows, start)
    )


def numbers_of(rows: Sequence[Row], name: str) -> list[float]:
    values = [float(metrics[name]) if isinstance(metrics.get(name), int | float) else math.nan for _, metrics in rows]
    return [value if status == "ok" else math.nan for value, (status, _) in zip(values, rows, strict=True)]


@given(st.lists(ROWS, max_size=4))
def test_a_table_has_the_exact_metrics_of_ok_tasks(batches: list[list[Row]]) -> None:
    table = ResultTable()
    results = [row for batch in batches for row in batch]
    for number, batch in enumerate(batches):
        table.add(lines(batch, sum(map(len, batches[:number]))))
    rows = table.rows()
    assert rows.tasks.tolist() == list(range(len(results))) and table.read == len(results)
    assert [rows.status_names[code] for code in rows.statuses] == [status for status, _ in results]
    for name, column in rows.numbers.items():
        np.testing.assert_array_equal(column.astype(np.float64), numbers_of(results, name))
    for name, texts in rows.texts.items():
        values = [texts.names[code] if code >= 0 else None for code in texts.codes]
        expected = [metrics.get(name) if status == "ok" else None for status, metrics in results]
        assert values == [value if isinstance(value, str) else None for value in expected]


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_distributions_that_were_updated_with_each_batch_are_those_of_all_results(batches: list[list[Row]]) -> None:
    running, table = RunningDistributions(WORST, FAILURE), ResultTable()
    for number, batch in enumerate(batches):
        table.add(lines(batch, sum(map(len, batches[:number]))))
        document = running.described(running.update(table))
    results = [row for batch in batches for row in batch]
    at_once = RunningDistributions(WORST, FAILURE)
    expected = at_once.described(at_once.update(table))
    for metric in (*document["metrics"].values(), *expected["metrics"].values()):
        metric.pop("mean", None)  # sums of floats depend on their order
    assert document == expected
    assert document["metrics"]["outcome"]["kind"] == "category"  # also before its first text
    assert document["statuses"] == Counter(status for status, _ in results)
    ok = [metrics for status, metrics in results if status == "ok"]
    for name, metric in document["metrics"].items():
        counted = sum(metric.get("counts", ())) + sum(metric.get("values", {}).values())
        assert counted == metric["count"]
        assert metric["count"] + metric["missing"] == (len(results) if name == FAILED else len(ok))
    failed = sum(status != "ok" or metrics.get("outcome") == "collision" for status, metrics in results)
    assert document["metrics"][FAILED]["counts"] == ([len(results) - failed, failed] if results else [])


def test_tasks_that_are_not_ok_are_counted_at_the_worst_value() -> None:
    table, running = ResultTable(), RunningDistributions(WORST, FAILURE)
    table.add(lines([("ok", {"score": 5}), ("crashed", {"score": 9, "outcome": "crashed"}), ("failed", {})]))
    metrics = running.described(running.update(table))["metrics"]
    assert metrics["score"]["count"] == 1 and metrics["score"]["max"] == 5
    assert metrics["score"]["not_ok"] == {"value": 0.0, "statuses": {"crashed": 1, "failed": 1}}
    assert "not_ok" not in metrics["outcome"]


def test_values_that_stand_for_never_are_in_no_bin_and_no_mean() -> None:
    table, running = ResultTable(), RunningDistributions(WORST, FAILURE, {"score": 100.0})
    for batch in ([100, 5], [7, None, 100]):
        table.add(lines([("ok", {"score": value}) for value in batch], table.read))
        running.update(table)
    score = running.described(running.update(table))["metrics"]["score"]
    assert (score["count"], score["never"], score["missing"]) == (2, 2, 1)
    assert (score["mean"], score["max"], sum(score["counts"])) == (6, 7, 2)


def test_a_metric_of_the_dataset_may_be_called_failed() -> None:
    table, running = ResultTable(), RunningDistributions({}, None)
    table.add(lines([("ok", {"failed": 7})]))
    assert running.described(running.update(table))["metrics"]["failed"]["min"] == 7


def test_columns_take_the_least_bytes_that_hold_their_numbers() -> None:
    table = ResultTable()
    table.add(lines([("ok", {"flag": 1, "steps": 70_001, "score": 0.1})]))
    assert {name: column.dtype.name for name, column in table.rows().numbers.items()} == {
        "flag": "float16",
        "steps": "float32",
        "score": "float64",
    }


@given(ROWS, st.sampled_from(["score", "arrived", None]), st.booleans(), st.randoms())
def test_the_worst_tasks_of_a_table_are_those_of_a_summary(
    results: list[Row], metric: str | None, lower_is_better: bool, random: Any
) -> None:
    score = Score(metric, lower_is_better)
    summary = WorstTasks(score)
    summary.add([TaskResult(task, status, {}, dict(metrics)) for task, (status, metrics) in enumerate(results)])
    order = list(range(len(results)))
    random.shuffle(order)
    table = ResultTable()
    for task in order:
        table.add(lines([results[task]], task))
    chosen = np.ones(len(results), np.bool_)
    worst = worst_rows(table.rows(), chosen, score, NAMED)
    assert worst == [task["task"] for task in summary.described()]
    assert worst_rows(table.rows(), ~chosen, score, NAMED) == []


# -- samples


@given(st.permutations(range(40)), st.integers(20, 300))
def test_a_sample_depends_on_the_tasks_and_not_on_their_order(order: list[int], most: int) -> None:
    table = ResultTable(most_rows=most)
    for batch in order:
        table.add(lines([("ok", {"value": task}) for task in range(10 * batch, 10 * batch + 10)], 10 * batch))
    assert table.read == 400 and len(table) <= most
    expected = np.flatnonzero(sampled(np.arange(400), table.level))
    assert sorted(table.rows().tasks.tolist()) == expected.tolist()
    assert (table.rows().numbers["value"] == table.rows().tasks).all()
    assert table.level == 0 or sampled(np.arange(400), table.level - 1).sum() > most


def test_distributions_of_a_sample_are_those_of_its_rows() -> None:
    table, running = ResultTable(most_rows=100), RunningDistributions({}, None)
    for start in range(0, 1000, 50):
        table.add(lines([("ok", {"value": task % 7}) for task in range(start, start + 50)], start))
        document = running.described(running.update(table))
    kept = table.rows().tasks % 7
    assert table.read == 1000 and document["statuses"] == {"ok": len(table)}
    assert document["metrics"]["value"]["counts"] == np.bincount(kept, minlength=7).tolist()


def test_many_metrics_make_the_sample_smaller() -> None:
    table = ResultTable(most_bytes=10_000)
    for start in range(0, 400, 20):
        table.add(lines([("ok", {f"m{n}": n + 0.1 for n in range(20)}) for _ in range(20)], start))
    assert table.read == 400 and 0 < len(table) < 10_000 / (20 * 8)


def test_texts_beyond_a_limit_count_together() -> None:
    table = ResultTable()
    names = [f"{number}" for number in range(OUTCOMES + 50)]
    table.add(lines([("ok", {"name": name}) for name in names] + [("ok", {"name": "x" * 10_000})]))
    texts = table.rows().texts["name"]
    assert len(texts.names) == OUTCOMES + 1 and texts.names[-1] == OTHERS
    assert (texts.codes == OUTCOMES).sum() == 51 and max(map(len, texts.names)) <= DISTINCT_CHARACTERS


def test_rows_that_were_taken_do_not_change() -> None:
    table = ResultTable(most_rows=30)
    table.add(lines([("ok", {"value": task}) for task in range(20)]))
    before = table.rows()
    table.add(lines([("failed", {"value": 0.1}) for _ in range(200)], 20))
    assert before.tasks.tolist() == list(range(20)) and before.numbers["value"].tolist() == list(range(20))
