"""Pictures of tasks: valid SVG for any texts and numbers, with what the task did."""

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.rendering.pictures import DRAWINGS, svg
from api.rendering.svg_page import ALARM, NotDrawable

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.sampled_from([10**400, -(10**400)])
TEXTS = st.text(st.characters(exclude_categories=()), max_size=80)


def words_of(document: dict[str, Any]) -> str:
    return " ".join(ElementTree.fromstring(svg(document).encode("utf-8", "strict")).itertext())


def result(**members: Any) -> dict[str, Any]:
    return {"task": 0, "status": "ok", "scenario": {}, "metrics": {}, "error": None, "timing": {}} | members


@given(st.dictionaries(TEXTS, NUMBERS | TEXTS | st.booleans() | st.none(), max_size=15), TEXTS, TEXTS)
def test_any_result_is_a_picture(metrics: dict[str, Any], title: str, error: str) -> None:
    declared = [{"name": name, "title": name, "unit": "m", "low": 0.0, "high": 1.0} for name in list(metrics)[:3]]
    scene = {"kind": "result", "metrics": declared}
    words_of(
        {"scene": scene, "frames": [], "title": title, "outcome": error, "result": result(metrics=metrics, error=error)}
    )


@given(st.lists(st.lists(st.floats(-1e308, 1e308), min_size=2, max_size=2), min_size=1, max_size=900), TEXTS)
def test_any_signals_are_a_picture(observations: list[list[float]], name: str) -> None:
    signals = [{"name": name, "unit": "m", "low": None, "high": 1.0}, {"name": "b", "unit": "", "low": 0, "high": 1}]
    frames: list[dict[str, Any]] = [{"observation": values, "action": [1.0], "reward": None} for values in observations]
    frames[0]["action"] = None
    scene = {"kind": "signals", "observation": signals, "action": [{"name": "push", "unit": ""}]}
    words = words_of(
        {"scene": scene, "frames": frames, "dt": 0.02, "title": name, "outcome": "fell", "result": result()}
    )
    assert "push" in words and "fell" in words


POINTS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2)
SIGNALS: dict[str, Any] = {"observation": [{"name": "angle", "unit": "rad"}], "action": [{"name": "push", "unit": ""}]}


def drawn(frames: list[dict[str, list[float]]], **scene: Any) -> dict[str, Any]:
    """Return a replay whose frames have these points of the objects."""
    drawing = {"view": [-2.0, -1.0, 4.0, 2.0], "unit": "m", "shapes": [], "objects": []} | scene
    return {
        "scene": {"kind": "drawing", "drawing": drawing, **SIGNALS},
        "frames": [{"observation": [0.5], "action": None, "drawing": {"at": at}} for at in frames],
        "dt": 0.02,
        "title": "t",
        "outcome": "fell",
        "result": result(),
    }


@given(st.lists(st.fixed_dictionaries({}, optional={"a": POINTS, "b": POINTS}), min_size=1, max_size=600), TEXTS)
def test_any_moving_shapes_are_a_picture_above_the_signals(frames: list[dict[str, list[float]]], role: str) -> None:
    objects = [
        {"id": "a", "shape": "circle", "role": role, "radius": 0.1},
        {"id": "b", "shape": "line", "role": "ego", "width": 0.1},
        {"id": "never", "shape": "polygon", "role": "body"},
    ]
    words = words_of(drawn(frames, objects=objects, unit=role))
    assert "angle" in words and "push" in words and "fell" in words


def test_a_view_that_moves_shows_the_ground_all_along_its_way() -> None:
    document = drawn([{}] * 3, shapes=[{"shape": "ground", "role": "ground", "every": 1.0}])
    for frame, x in zip(document["frames"], (0.0, 5.0, 10.0), strict=True):
        frame["drawing"]["centre"] = [x, 0.0]
    assert {"-2", "0", "5", "10", "12"} <= set(words_of(document).split())


def test_an_object_that_is_absent_from_a_frame_is_hidden_in_it() -> None:
    document = drawn(
        [{}, {"a": [0.0, 0.0]}, {}], objects=[{"id": "a", "shape": "circle", "role": "alarm", "radius": 1.0}]
    )
    (shape,) = [element for element in ElementTree.fromstring(svg(document)).iter() if element.get("class") == "alarm"]
    assert shape.get("visibility") == "hidden"
    (animation,) = [element for element in shape if element.get("attributeName") == "visibility"]
    assert animation.get("values") == "hidden;visible;hidden"


@pytest.mark.parametrize(
    "scene",
    [
        {"view": [0, 0, 0, 1]},
        {"view": None},
        {"shapes": [{"shape": "line", "role": "x", "points": [1.0]}]},
        {"shapes": [{"shape": "ground", "role": "ground", "every": 0}]},
        {"shapes": [{"shape": "floor", "role": "floor", "across": [1.0, 0.0], "along": [1.0, 0.0]}]},
        {"shapes": [{"shape": "circle", "role": "x"}]},
    ],
)
def test_a_malformed_drawing_is_refused_in_plain_words(scene: dict[str, Any]) -> None:
    with pytest.raises(NotDrawable, match=r"^Its scene is malformed\.$"):
        svg(drawn([{}, {}], **scene))


def test_a_card_has_the_metrics_in_their_words() -> None:
    declared = [{"name": "score", "title": "Score", "unit": "points", "low": 0, "high": 100}]
    card = words_of(
        {
            "scene": {"kind": "result", "metrics": declared},
            "frames": [],
            "title": "task 7",
            "outcome": "ok",
            "result": result(metrics={"score": 81.25, "word": "left"}, scenario={"index": 7}, timing={"seconds": 0.5}),
        }
    )
    for word in ("task 7", "Score", "81.25 points", "0 to 100", "left", "index 7", "0.5 s"):
        assert word in card


def test_a_scene_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="street, drawing, signals, result"):
        svg({"scene": {"kind": "opera"}})


@pytest.mark.parametrize("kind", sorted(DRAWINGS))
@pytest.mark.parametrize("frames", [[], [{}], [{"observation": [None], "drawing": {"at": {"a": ["x"]}}}]])
def test_a_malformed_scene_of_any_kind_is_refused_without_an_exceptions_words(
    kind: str, frames: list[dict[str, Any]]
) -> None:
    with pytest.raises(NotDrawable) as refusal:
        svg({"scene": {"kind": kind}, "frames": frames, "dt": 0.1, "result": {"status": "ok"}})
    assert str(refusal.value) in ("Its scene is malformed.", "The replay has no frames.")


def test_a_failed_task_has_its_outcome_in_red() -> None:
    document = drawn([{}])
    assert f'fill="{ALARM}"' not in svg(document)
    assert f'fill="{ALARM}"' in svg(document | {"failed": True})
