"""Results of programs: whatever text a program leaves, its task has a result that can be stored and sent."""

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.harness.dataset_definition import definition_of
from runtimes.harness.evaluator.result_batch import ResultBatch
from runtimes.harness.evaluator.tasks import Located
from runtimes.harness.gang.gang_runner import UNFINISHED_TASK, result_of
from runtimes.harness.gang.gang_task import GangEnd
from runtimes.harness.gang.gang_transport import RESULT
from runtimes.harness.gang.local_gang import outcome
from runtimes.harness.gang.rank import PROGRESS, LastLines, LogRules, PassedLines
from runtimes.harness.gang.rank_ends import RankEnd

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
        (f'{{"b": 1, "a": {10**310}}}', "a is Infinity"),
        (f'{{"a": -1{"0" * 5000}}}', "a is -Infinity"),
        ("[1]", "got `array`"),
        (r'{"a": "\ud800"}', "no valid result"),
        (json.dumps({"a": "b" * RESULT}), "more than 65,536 characters: leave what is long as a file"),
    ],
)
def test_a_task_without_a_result_is_invalid_and_says_why(text: str | None, reason: str) -> None:
    played = result_of(text, 0.0)
    assert (played.status, played.metrics) == ("invalid", {}) and reason in str(played.error), played.error


@pytest.mark.parametrize("piece", [1000, 1 << 20])
def test_a_last_line_of_json_that_is_too_long_is_said_to_be(piece: int) -> None:
    printed, begun = LastLines(), b'{"a": 1}\n  {"b": "'
    text = begun + b"{" * (RESULT + 10) + b'"}\n'
    for start in range(0, len(text), piece):
        printed.add(text[start : start + piece])
    assert "more than 65,536 characters" in str(result_of(printed.result, 0.0).error)
    printed.add(b"x" * (RESULT + 10) + b"}\n" + b'{"c": 2}\n')
    assert result_of(printed.result, 0.0).metrics == {"c": 2}


@pytest.mark.parametrize("text", ["", "null", "null\n"])
def test_a_task_that_a_program_goes_on_without_is_not_finished(text: str) -> None:
    played = outcome(GangEnd(status=0, problem=None, result=text, ranks=[], going=True), 1, 0.0)
    assert (played.status, played.error) == ("invalid", UNFINISHED_TASK)


def test_metrics_that_no_line_has_are_named() -> None:
    assert str(result_of(None, 0.0, ["energy", "drag"]).error).endswith("has one of its metrics: energy, drag")


def test_a_metric_that_no_line_has_is_null_if_another_has_one(tmp_path: Path) -> None:
    rules = LogRules(str(tmp_path), metrics={"a": r"a = (\S+)", "b": "b = .*"})
    assert rules.result is None
    rules.read("a = 1.5D-3")
    assert json.loads(rules.result or "") == {"a": 0.0015, "b": None}


def test_lines_are_shown_where_no_metric_was_printed() -> None:
    assert "energy; its last lines: a | b" in str(result_of(None, 0.0, ["energy"], ["a", "b"]).error)
    assert "a metric that it printed is none: x is NaN" in str(result_of('{"x": NaN}', 0.0, ["x"]).error)


def test_metrics_are_read_from_standard_error_too_where_standard_output_has_none(tmp_path: Path) -> None:
    rules = LogRules(str(tmp_path), metrics={"a": r"a (\d)", "b": r"b (\d)"})
    for line, output in (("a 1", 0), ("a 2", 1), ("b 3", 1)):
        rules.read(line, output)
    assert json.loads(rules.result or "") == {"a": 1.0, "b": 3.0}


def test_groups_that_took_no_part_in_a_match_are_left_out(tmp_path: Path) -> None:
    alternatives = {"x": r"^step (\d+)(?:zzz)?|^it (\d+)", "y": r"^(?:no (\d))?it"}
    rules = LogRules(str(tmp_path), progress=r"^(?:step|it) (\d+)(?: of (\d+))?", metrics=alternatives)
    for line in ("step 1 of 4", "it 7"):
        rules.read(line)
    assert json.loads(rules.result or "") == {"x": 7.0, "y": None}
    assert (tmp_path / PROGRESS).read_text() == "0.250000"


def test_an_expression_that_takes_too_long_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    rules = LogRules(str(tmp_path), progress="^(b+)+$", metrics={"slow": "^(a+)+$", "quick": r"x (\d)"})
    for line in ("b" * 60 + "c", "a" * 60 + "b", "x 5", "aa", '{"progress": 0.5}'):
        rules.read(line)
    assert (rules.found[0], rules.given_up) == ({"quick": 5.0}, ["slow"])
    assert (tmp_path / PROGRESS).read_text() == "0.500000"
    end = RankEnd(rank=0, host="h", exit=0, began=0.0, ended=1.0, computing=1.0, result="{}", given_up=["slow"])
    played = outcome(GangEnd(status=0, problem=None, result=None, ranks=[end]), 1, 1.0, ["slow", "quick"])
    assert played.status == "invalid" and "the expression of slow took longer than a second" in str(played.error)


@given(st.lists(st.binary(max_size=6).map(lambda data: data.replace(b"x", b"\n")), max_size=8))
def test_what_a_rank_prints_is_passed_on_by_whole_lines(pieces: list[bytes]) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    lines, passed = PassedLines(writing), []
    for piece in pieces:
        lines.add(piece)
        if b"\n" in piece:
            passed.append(os.read(reading, 1 << 16))
    unended = lines.flush()
    os.close(writing)
    passed.append(os.read(reading, 1 << 16))
    os.close(reading)
    assert b"".join(passed) == b"".join(pieces)
    assert all(part.endswith(b"\n") for part in passed[:-1]) and unended is bool(passed[-1])
