"""Result batch: order of members with timing last, sketches of metrics, and errors without details of the node."""

import json
import math

import numpy as np
import pytest

from runtimes.harness.dataset_definition import definition_of
from runtimes.harness.evaluator.result_batch import Played, ResultBatch, inference, sketch, unworldly
from runtimes.harness.evaluator.tasks import Located

LOCATION = Located(index=3, repeat=0, seed=99, params={"a": 1, "b": 2}, swept={"b": 2})


def batch_of(*results: Played, record: str = "none", definition: dict[str, object] | None = None) -> dict[str, object]:
    batch = ResultBatch(definition_of(definition or {}), record, None)
    batch.begin(10)
    for result in results:
        batch.add(LOCATION, {"name": "here"}, result)
    return batch.take()


def test_a_result_has_its_members_in_order_and_timing_last() -> None:
    batch = batch_of(Played("ok", {"x": 1.5}, seconds=0.25, latencies=[0.001]))
    line = bytes(batch["lines"])  # type: ignore[call-overload]
    assert line == (
        b'{"task":10,"status":"ok","scenario":{"index":3,"repeat":0,"seed":99,"name":"here","params":{"b":2}},'
        b'"metrics":{"x":1.5},"error":null,"artifacts":[],"timing":{"seconds":0.25,"inference":'
        b'{"p50":0.001,"p99":0.001,"p999":0.001,"max":0.001,"misses":0},"worlds":1,"kernel":"one"}}\n'
    )
    assert (batch["from"], batch["to"], batch["failed"]) == (10, 11, 0)


def test_timing_has_the_most_worlds_of_a_request_and_its_kernel() -> None:
    results = [Played("ok", {}), Played("ok", {}, worlds=16, kernel="rows")]
    lines = bytes(batch_of(*results)["lines"]).splitlines()  # type: ignore[call-overload]
    timings = [json.loads(line)["timing"] for line in lines]
    assert [(timing["worlds"], timing["kernel"]) for timing in timings] == [(1, "one"), (16, "rows")]


def test_a_metric_that_is_not_finite_is_null() -> None:
    batch = batch_of(Played("ok", {"a": math.nan, "b": math.inf, "c": None, "d": np.float32(0.5), "e": np.int64(3)}))
    metrics = json.loads(bytes(batch["lines"]))["metrics"]  # type: ignore[call-overload]
    assert metrics == {"a": None, "b": None, "c": None, "d": 0.5, "e": 3}


def test_a_metric_of_another_type_is_an_error_of_the_simulator() -> None:
    with pytest.raises(TypeError, match="a metric is a number"):
        batch_of(Played("ok", {"a": object()}))  # type: ignore[dict-item]


def test_failed_tasks_are_counted_and_left_out_of_the_sketch() -> None:
    batch = batch_of(Played("ok", {"x": 2.0}), Played("crashed", {"x": 9.0}, "it ended"), Played("ok", {"x": 4.0}))
    assert batch["failed"] == 1
    assert batch["sketch"] == {"x": [2, 6.0, 20.0, 2.0, 4.0]}


@pytest.mark.parametrize("value", [1e300, -1e300, 10**309])
def test_numbers_whose_squares_are_no_numbers_have_no_sketch_and_others_beside_them_have(value: float) -> None:
    batch = batch_of(Played("ok", {"huge": value, "x": 2.0}))
    assert batch["sketch"] == {"x": [1, 2.0, 4.0, 2.0, 2.0]}
    assert json.loads(bytes(batch["lines"]))["metrics"] == {"huge": value, "x": 2.0}  # type: ignore[call-overload]


def test_a_sketch_counts_the_outcomes_that_are_failures_among_the_tasks_that_are_ok() -> None:
    batch = ResultBatch(definition_of({"failure": {"metric": "outcome", "in": ["collision", "late"]}}), "none", None)
    for status, outcome in [("ok", "collision"), ("ok", "arrived"), ("crashed", "collision"), ("ok", None)]:
        batch.add(LOCATION, {}, Played(status, {"outcome": outcome}))
    assert batch.take()["sketch"] == {
        "(failure) collision": [3, 1, 1, 0.0, 1.0],
        "(failure) late": [3, 0, 0, 0.0, 0.0],
    }
    batch.add(LOCATION, {}, Played("ok", {"outcome": "late"}))
    assert batch.take()["sketch"]["(failure) late"] == [1, 1, 1, 1.0, 1.0]


def test_a_sketch_counts_booleans_as_numbers_and_omits_texts() -> None:
    rows = [{"hit": True, "how": "rear", "gap": None}, {"hit": False, "how": "side", "gap": 3.0}]
    assert sketch(rows) == {"hit": [2, 1.0, 1.0, 0.0, 1.0], "gap": [1, 3.0, 9.0, 3.0, 3.0]}


def test_traces_of_failures_are_stored_as_the_dataset_defines_failure() -> None:
    definition: dict[str, object] = {"record": True, "failure": {"metric": "outcome", "in": ["collision"]}}
    results = [
        Played("ok", {"outcome": "arrived"}, actions=[b"1234"]),
        Played("ok", {"outcome": "collision"}, actions=[b"1234"]),
        Played("invalid", {"outcome": "invalid"}, actions=[b"1234"]),
    ]
    tasks_with_traces = {
        rule: [artifact[0] for artifact in batch_of(*results, record=rule, definition=definition)["artifacts"]]  # type: ignore[attr-defined]
        for rule in ("none", "failures", "all")
    }
    assert tasks_with_traces == {"none": [], "failures": [11, 12], "all": [10, 11, 12]}
    assert not batch_of(*results, record="all")["artifacts"]  # a dataset without traces has none


def test_quantiles_of_latency_are_measured_values() -> None:
    timing = inference([milliseconds / 1000 for milliseconds in range(1, 1001)], 0.99)
    assert timing is not None
    assert (timing.p50, timing.p99, timing.p999, timing.max, timing.misses) == (0.501, 0.991, 1.0, 1.0, 10)
    assert inference([], None) is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("cannot open /home/someone/x/model.bin", "cannot open …"),
        ("<Foo object at 0x7f00aa11>", "<Foo object at 0x…>"),
        ("killed process 1234", "killed process …"),
        ("shape (3,) is not 1/2 of 6", "shape (3,) is not 1/2 of 6"),
        ("speed 3 m/s", "speed 3 m/s"),
    ],
)
def test_errors_carry_no_path_process_number_or_address(message: str, expected: str) -> None:
    assert unworldly(message) == expected
