"""Submissions of the Python client: what people write, as the API takes it."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel import submissions
from windtunnel.errors import WindtunnelError
from windtunnel.model_sources import source_of
from windtunnel.submission_fields import FIELDS, SubmissionFields

SPANS = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 20)).map(lambda pair: range(pair[0], pair[0] + pair[1] + 1)),
    min_size=1,
    max_size=6,
)
NAMES = st.text(min_size=1, max_size=8).filter(lambda name: "=" not in name)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


def written(span: range) -> str:
    """Return a range as people write it: with its last number."""
    return f"{span.start}-{span.stop - 1}" if len(span) > 1 else f"{span.start}"


def apart(spans: list[range]) -> bool:
    return len({number for span in spans for number in span}) == sum(map(len, spans))


def numbers(selection: dict[str, Any]) -> list[int]:
    """Return the scenarios of a selection of the API."""
    if "range" in selection:
        return list(range(*selection["range"]))
    return list(selection["tasks"])


@given(SPANS.filter(apart), st.sampled_from([",", ", ", " , "]))
def test_scenarios_that_are_written_read_back(spans: list[range], comma: str) -> None:
    selection = submissions.scenarios(comma.join(map(written, spans)))
    assert selection is not None
    assert numbers(selection) == [number for span in spans for number in span]


def test_equal_tasks_are_refused_because_they_would_count_as_independent() -> None:
    for text in ("1,1", "0-3,2"):
        with pytest.raises(WindtunnelError, match="a number is there twice; `repeat`"):
            submissions.scenarios(text)
    with pytest.raises(WindtunnelError, match="a value is there twice; `repeat`"):
        submissions.swept(["speed=1,2,1"])
    assert submissions.swept(["speed=1,true,1.0"]) == {"speed": [1, True, 1.0]}


@given(st.integers(0, 500), st.integers(1, 50), st.integers(1, 3))
def test_a_range_of_python_selects_its_numbers(start: int, length: int, step: int) -> None:
    wanted = range(start, start + length, step)
    selection = submissions.scenarios(wanted)
    assert selection is not None
    assert numbers(selection) == list(wanted)


def test_a_document_of_the_api_is_passed_as_it_is() -> None:
    assert submissions.scenarios({"sample": 5, "seed": 1}) == {"sample": 5, "seed": 1}
    assert submissions.scenarios(None) is None


@pytest.mark.parametrize(
    "text", ["", "a", "1-", "-1", "3-1", "1,,2", "1.5", "1-2-3", "0x10", "1;2", "²", "first", "9" * 5000]
)
def test_scenarios_that_cannot_be_read_are_refused_with_the_form_to_write(text: str) -> None:
    with pytest.raises(WindtunnelError, match=r"write numbers and ranges, such as 0-99 or 3,5,20-29"):
        submissions.scenarios(text)


def test_what_selects_no_scenarios_is_refused() -> None:
    with pytest.raises(WindtunnelError, match=r"Scenarios 1\.5: give numbers, a range, or a text such as 0-99"):
        submissions.scenarios(1.5)  # type: ignore[arg-type]


def test_a_typing_error_does_not_fill_the_memory() -> None:
    assert submissions.scenarios("0-99999999999") == {"range": [0, 100_000_000_000]}
    with pytest.raises(WindtunnelError, match="write a single range"):
        submissions.scenarios("1,0-99999999999")


def test_numbers_and_a_sample_exclude_each_other() -> None:
    with pytest.raises(WindtunnelError, match="not by both"):
        submissions.document("car_street", scenarios_="0-9", sample=3)
    assert submissions.document("d", sample=3, sample_seed=1) == {"dataset": "d", "scenarios": {"sample": 3, "seed": 1}}


def test_members_that_are_not_given_are_left_out_and_falsehood_stays() -> None:
    assert submissions.document("d", workers=None, params={}, play_all=False, seed=0) == {
        "dataset": "d",
        "play_all": False,
        "seed": 0,
    }


@given(VALUES)
def test_a_value_that_is_written_as_json_reads_back(value: object) -> None:
    assert submissions.value_of(json.dumps(value)) == value


@given(st.text())
def test_every_value_can_be_sent_as_json(text: str) -> None:
    json.dumps(submissions.value_of(text), allow_nan=False)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "[" * 100_000, "9" * 5000, "{", "abc"])
def test_what_is_no_json_is_a_text(text: str) -> None:
    assert submissions.value_of(text) == text


@given(st.dictionaries(NAMES, st.text(), max_size=5))
def test_pairs_that_are_written_read_back(values: dict[str, str]) -> None:
    assert submissions.pairs([f"{name}={value}" for name, value in values.items()], "--label") == values


@pytest.mark.parametrize(
    ("texts", "message"), [(["a"], "write NAME=VALUE"), (["=1"], "write NAME=VALUE"), (["a=1", "a=2"], "given twice")]
)
def test_pairs_that_cannot_be_read_are_refused_with_the_form_to_write(texts: list[str], message: str) -> None:
    with pytest.raises(WindtunnelError, match=message):
        submissions.pairs(texts, "--param")


def test_numbers_of_other_libraries_are_numbers() -> None:
    values = {"scenarios_": np.arange(2), "params": {"gain": np.float32(0.5)}, "sweep": {"gain": np.array([0.5, 1.0])}}
    document = submissions.document("car_street", seed=np.int64(3), **values)
    assert json.loads(json.dumps(document)) == {
        "dataset": "car_street",
        "scenarios": {"tasks": [0, 1]},
        "seed": 3,
        "params": {"gain": 0.5},
        "sweep": {"gain": [0.5, 1.0]},
    }
    assert submissions.scenarios(3) == {"tasks": [3]}


@pytest.mark.parametrize("value", [math.nan, math.inf, np.float64("nan"), object()])
def test_what_a_submission_cannot_have_is_refused_by_its_name(value: object) -> None:
    with pytest.raises(WindtunnelError, match="cannot"):
        submissions.document("car_street", timeout=value)


@given(st.dictionaries(NAMES, st.lists(VALUES, min_size=1, max_size=4, unique_by=json.dumps), max_size=3))
def test_a_sweep_of_json_arrays_reads_back(sweep: dict[str, list[object]]) -> None:
    assert submissions.swept([f"{name}={json.dumps(values)}" for name, values in sweep.items()]) == sweep


@given(st.lists(NUMBERS, min_size=1, max_size=5, unique_by=json.dumps))
def test_a_sweep_of_numbers_reads_back(values: list[float]) -> None:
    read = submissions.swept([f"speed={','.join(json.dumps(value) for value in values)}"])["speed"]
    assert all(math.isclose(one, other) for one, other in zip(read, values, strict=True))
    assert submissions.swept(["street=grid,ring"]) == {"street": ["grid", "ring"]}


def test_the_options_of_a_submission_are_its_fields_and_what_people_write_in_place_of_some() -> None:
    written = {"scenarios", "sample", "sample_seed", "executor", "idempotency_key"}
    assert set(submissions.Options.__annotations__) == set(SubmissionFields.__annotations__) | written
    assert {field.name for field in FIELDS} <= set(SubmissionFields.__annotations__)


def test_what_is_not_text_and_what_is_not_a_model_are_refused_with_the_next_step() -> None:
    for labels in ({"a": "\ud800"}, {"\ud800": "a"}):
        with pytest.raises(WindtunnelError, match="leave out its surrogates"):
            submissions.document("noop", labels=labels)
    with pytest.raises(WindtunnelError, match="1 is not a model: give the path of a file"):
        source_of(1)  # type: ignore[arg-type]
