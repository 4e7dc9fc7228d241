"""Results of programs: whatever text a program leaves, its task has a result that can be stored and sent."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.harness.dataset_definition import definition_of
from runtimes.harness.evaluator.result_batch import ResultBatch
from runtimes.harness.evaluator.tasks import Located
from runtimes.harness.gang.gang_runner import result_of
from runtimes.harness.gang.gang_transport import RESULT
from runtimes.harness.gang.rank import LogRules

LOCATION = Located(index=0, repeat=0, seed=1, params={}, swept={})
texts = st.text(st.characters(codec=None))
values = st.none() | st.booleans() | st.integers() | st.integers(10**300, 10**400) | st.floats() | texts
nested = values | st.lists(values, max_size=2) | st.dictionaries(texts, values, max_size=2)


@given(st.dictionaries(texts, nested, max_size=4).map(json.dumps) | texts)
def test_every_text_has_a_result_that_is_encoded_and_sketched(text: str) -> None:
    played = result_of(text, 0.0)
    batch = ResultBatch(definition_of({}), "none", None)
    batch.begin(0)
    batch.add(LOCATION, {}, played)
    taken = batch.take()
    assert json.loads(bytes(taken["lines"]))["metrics"] == played.metrics
    assert all(math.isfinite(number) for numbers in taken["sketch"].values() for number in numbers)


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.floats(-1e300, 1e300) | st.text()))
def test_a_flat_object_is_the_metrics(metrics: dict[str, object]) -> None:
    played = result_of(json.dumps(metrics), 0.0)
    assert (played.status, played.metrics) == ("ok", metrics)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "no valid result: a flat JSON object"),
        ('{"b": 1, "a": [1]}', "WINDTUNNEL_RESULT names or as its last line of JSON: a is [1]"),
        ('{"b": 1, "a": NaN}', "a is NaN"),
        ('{"a": 1e400}', "a is Infinity"),
        ("[1]", "got `array`"),
        (r'{"a": "\ud800"}', "no valid result"),
        (json.dumps({"a": "b" * RESULT}), "more than 65,536 characters: leave what is long as a file"),
    ],
)
def test_a_task_without_a_result_is_invalid_and_says_why(text: str | None, reason: str) -> None:
    played = result_of(text, 0.0)
    assert (played.status, played.metrics) == ("invalid", {}) and reason in str(played.error), played.error


def test_metrics_that_no_line_has_are_named() -> None:
    assert str(result_of(None, 0.0, ["energy", "drag"]).error).endswith("has one of its metrics: energy, drag")


def test_a_metric_that_no_line_has_is_null_if_another_has_one(tmp_path: Path) -> None:
    rules = LogRules(str(tmp_path), metrics={"a": r"a = (\S+)", "b": "b = .*"})
    assert rules.result is None
    rules.read("a = 1.5D-3")
    assert json.loads(rules.result or "") == {"a": 0.0015, "b": None}
