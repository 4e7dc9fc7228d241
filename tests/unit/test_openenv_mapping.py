"""JSON of environments as arrays, and arrays as JSON: declared fields, published schemas, and whatever else arrives."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.harness.simulators.openenv import openenv_protocol
from runtimes.harness.simulators.openenv.json_mapping import (
    ActionMapping,
    DoesNotFit,
    ObservationMapping,
    path_steps,
)
from runtimes.harness.simulators.openenv.schema_mapping import NotObvious, action_fields, observation_fields

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcx"), inner, max_size=4),
    max_leaves=12,
)
FIELDS: list[dict[str, Any]] = [
    {"path": "a"},
    {"path": "b[1].c", "missing": -1.0},
    {"path": "x", "shape": [2, 2], "missing": 0.0},
    {"path": "c", "values": ["off", "on"]},
]


def observed(field: dict[str, Any], observation: Any) -> list[float]:
    return list(ObservationMapping([field]).array(observation).tolist())


def test_fields_are_numbers_in_their_order() -> None:
    observation = {"a": True, "b": [0, {"c": 2.5}], "x": [[1, 2], [3, 4]], "c": "on"}
    assert ObservationMapping(FIELDS).array(observation).tolist() == [1.0, 2.5, 1.0, 2.0, 3.0, 4.0, 1.0]


@pytest.mark.parametrize(
    ("field", "observation", "expected"),
    [
        ({"path": "a", "missing": 7.0}, {}, [7.0]),
        ({"path": "a", "missing": 7.0}, {"a": None}, [7.0]),
        ({"path": "a", "shape": [3], "missing": 7.0}, {"a": [1]}, [1.0, 7.0, 7.0]),
        ({"path": "a", "shape": [2, 2], "missing": 0.0}, {"a": [[1]]}, [1.0, 0.0, 0.0, 0.0]),
        ({"path": "a", "shape": [4], "mask": True}, {"a": [0, 3]}, [1.0, 0.0, 0.0, 1.0]),
        ({"path": "a", "shape": [2], "mask": True}, {"a": []}, [0.0, 0.0]),
    ],
)
def test_what_is_missing_has_a_number_and_a_mask_has_ones(
    field: dict[str, Any], observation: Any, expected: list[float]
) -> None:
    assert observed(field, observation) == expected


@pytest.mark.parametrize(
    ("field", "observation", "reason"),
    [
        ({"path": "a"}, {}, "`a` is missing"),
        ({"path": "a"}, {"a": None}, "`a` is null"),
        ({"path": "a"}, {"a": "1"}, "`a` is not a number, but str"),
        ({"path": "a"}, {"a": 1e39}, "`a` is not a finite number"),
        ({"path": "a.b"}, {"a": [1]}, "`a.b` is missing"),
        ({"path": "a", "values": ["x", "y"]}, {"a": "z"}, "none of its `values`"),
        ({"path": "a", "shape": [2]}, {"a": [1, 2, 3]}, "there is a list of 3"),
        ({"path": "a", "shape": [2], "missing": 0.0}, {"a": [1, 2, 3]}, "there is a list of 3"),
        ({"path": "a", "shape": [2], "mask": True}, {"a": [2]}, "positions from 0 to 1"),
        ({"path": "a", "shape": [2], "mask": True}, {"a": [True]}, "positions from 0 to 1"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_field(
    field: dict[str, Any], observation: Any, reason: str
) -> None:
    with pytest.raises(DoesNotFit) as caught:
        observed(field, observation)
    assert reason in str(caught.value)


@given(JSON)
def test_any_json_is_finite_numbers_or_does_not_fit(observation: Any) -> None:
    try:
        array = ObservationMapping(FIELDS).array(observation)
    except DoesNotFit:
        return
    assert array.shape == (7,) and np.isfinite(array).all()


@given(st.text(max_size=20))
def test_a_path_is_read_or_refused(path: str) -> None:
    try:
        steps = path_steps(path)
    except ValueError:
        return
    written = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
    assert path_steps(written) == steps


@given(st.lists(st.floats(0.0, 2.0), min_size=6, max_size=6))
def test_actions_are_json_of_their_kinds(numbers: list[float]) -> None:
    mapping = ActionMapping(
        [
            {"path": "force", "kind": "number"},
            {"path": "move.to", "kind": "choice", "values": ["a", "b", "c"]},
            {"path": "move.fast", "kind": "boolean"},
            {"path": "type", "kind": "constant", "value": {"name": "walk"}},
            {"path": "cells", "kind": "integer", "shape": [3, 1]},
        ]
    )
    action = json.loads(json.dumps(mapping.action(numbers)))
    assert action["force"] == numbers[0] and action["type"] == {"name": "walk"}
    assert action["move"]["to"] == "abc"[math.floor(numbers[1] + 0.5)]
    assert action["move"]["fast"] is (numbers[2] >= 0.5)
    assert action["cells"] == [[math.floor(number + 0.5)] for number in numbers[3:]]


def test_a_schema_of_numbers_says_all_fields_and_others_are_left_out_with_the_reason() -> None:
    schema = {
        "$defs": {
            "Mode": {"enum": ["day", "night"], "type": "string"},
            "Point": {"properties": {"x": {"type": "number"}, "y": {"anyOf": [{"type": "number"}, {"type": "null"}]}}},
        },
        "properties": {
            "done": {"type": "boolean"},
            "speed": {"type": "number", "minimum": 0, "exclusiveMaximum": 9},
            "mode": {"$ref": "#/$defs/Mode"},
            "at": {"$ref": "#/$defs/Point"},
            "board": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            "legal": {"type": "array", "items": {"type": "integer"}},
            "text": {"type": "string"},
        },
    }
    first = {"speed": 1, "mode": "day", "at": {"x": 0, "y": None}, "board": [[0, 1]], "legal": [1, 2], "text": ""}
    fields, left_out = observation_fields(schema, [first, {**first, "legal": [1]}])
    assert fields == [
        {"path": "speed", "low": 0.0, "high": 9.0},
        {"path": "mode", "values": ["day", "night"]},
        {"path": "at.x"},
        {"path": "at.y", "missing": 0.0},
        {"path": "board", "shape": [1, 2]},
    ]
    assert left_out == ["text: it is of the type string", "legal: the lengths of its lists change"]
    assert ObservationMapping(fields).array(first).tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]


def test_a_schema_of_actions_is_mapped_and_a_required_text_has_to_be_declared() -> None:
    properties = {
        "metadata": {"type": "object"},
        "move": {"enum": ["left", "right"]},
        "kind": {"const": "walk"},
        "note": {"type": "string"},
        "forces": {"type": "array", "items": {"type": "number", "minimum": -1}, "minItems": 2, "maxItems": 2},
    }
    assert action_fields({"properties": properties, "required": ["move"]}) == [
        {"path": "move", "kind": "choice", "values": ["left", "right"]},
        {"path": "kind", "kind": "constant", "value": "walk"},
        {"path": "forces", "kind": "number", "shape": [2], "low": -1.0},
    ]
    with pytest.raises(NotObvious, match=r"`note` of its actions is of the type string; declare `openenv.action`"):
        action_fields({"properties": properties, "required": ["move", "note"]})


#: JSON with the words of schemas.
SCHEMA = st.recursive(
    st.none() | st.integers() | st.sampled_from(["number", "array", "object", "#/$defs/a", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "items", "properties", "required", "enum", "const", "anyOf", "$ref", "$defs", "a"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=16,
)


@given(SCHEMA, SCHEMA, st.dictionaries(st.sampled_from("abcx"), JSON, max_size=3))
def test_any_json_is_a_schema_or_is_not_obvious(schema: Any, properties: Any, observation: dict[str, Any]) -> None:
    for candidate in (schema, {"properties": {"a": properties}, "required": ["a"], "$defs": {"a": schema}}):
        try:
            fields, _ = observation_fields(candidate, [observation])
            ObservationMapping(fields).array(observation)
        except (NotObvious, DoesNotFit):
            pass
        try:
            ActionMapping(action_fields(candidate))
        except NotObvious:
            pass


@given(JSON)
def test_any_json_is_an_answer_or_a_bad_one(answer: Any) -> None:
    try:
        checked = openenv_protocol.checked(answer, "step")
    except openenv_protocol.BadAnswer:
        return
    assert math.isfinite(checked["reward"]) and isinstance(checked["done"], bool)
