"""Replays as SVG: contents, animation, and safety of the file."""

from typing import Any
from xml.etree import ElementTree

import pytest

from api.rendering.replay import HOLD, SCALE, svg

SVG = "{http://www.w3.org/2000/svg}"


def car(name: str, x: float, y: float = 0.0, **changes: Any) -> dict[str, Any]:
    return {
        "id": name,
        "kind": "normal",
        "x": x,
        "y": y,
        "angle": 90.0,
        "length": 4.5,
        "width": 1.8,
        "speed": 10.0,
        "brake": False,
        **changes,
    }


def frame(index: int, *other_vehicles: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "ego": "ego",
        "time": index / 10,
        "limit": 13.9,
        "outcome": None,
        "vehicles": [car("ego", float(index), kind="ego"), *other_vehicles],
        "pedestrians": [],
        "lights": {"a_0": "g" if index < 30 else "r"},
        "collisions": [],
        **changes,
    }


def replay(frames: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    scene = {
        "kind": "street",
        "lanes": [{"id": "a_0", "shape": [[0, 0], [200, 0]], "width": 3.2, "rank": 0, "count": 1}],
        "junctions": [[[200, -4], [210, -4], [210, 4], [200, 4]]],
        "stops": [{"lane": "a_0", "at": [[0, 0], [60, 0]], "width": 3.2, "light": "A"}],
        "crossings": [{"shape": [[30, 5], [30, -5]], "width": 4.0}],
        "pavements": [{"shape": [[0, -4], [200, -4]], "width": 2.0}],
    }
    return {"scene": scene, "frames": frames, "dt": 0.1, "title": "a drive", "outcome": "collision", **changes}


def replay_with_collision() -> dict[str, Any]:
    frames = [frame(index, car("other", 70.0)) for index in range(66)]
    frames[-1]["collisions"] = [{"with": "other", "type": "collision"}]
    return replay(frames)


def animated(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [element for element in root.iter() if element.tag in (f"{SVG}animate", f"{SVG}animateTransform")]


def test_the_svg_is_well_formed_without_scripts_or_links() -> None:
    text = svg(replay_with_collision())
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert not {element.tag.removeprefix(SVG) for element in root.iter()} & {"script", "image", "use", "foreignObject"}
    assert "href" not in text
    assert len(text) < 100_000


def test_the_camera_follows_the_ego() -> None:
    root = ElementTree.fromstring(svg(replay_with_collision(), seconds=1.0))
    camera = next(root.iter(f"{SVG}g"))
    animation = camera.find(f"{SVG}animateTransform")
    assert animation is not None
    values = animation.attrib["values"].split(";")
    assert len(values) == 12
    # The ego moves right by a metre per frame, so the street moves left by SCALE pixels.
    first, second = (float(value.split()[0]) for value in values[:2])
    assert first - second == pytest.approx(SCALE)
    assert values[-1] == values[-2]


def test_the_last_seconds_are_shown_and_the_last_frame_is_held() -> None:
    animations = animated(ElementTree.fromstring(svg(replay_with_collision(), seconds=3.0, speed=0.5)))
    assert {element.attrib["dur"] for element in animations} - {"0.5s"} == {f"{3.0 / 0.5 + HOLD:g}s"}
    assert {element.attrib["repeatCount"] for element in animations} == {"indefinite"}


def test_every_animation_has_as_many_times_as_values_in_order_from_zero() -> None:
    for element in animated(ElementTree.fromstring(svg(replay_with_collision()))):
        if "keyTimes" not in element.attrib:
            continue
        times = [float(time) for time in element.attrib["keyTimes"].split(";")]
        assert len(times) == len(element.attrib["values"].split(";"))
        assert times == sorted(times)
        assert times[0] == 0.0
        if element.get("calcMode") != "discrete":
            assert times[-1] == 1.0


def test_the_ego_is_marked_and_drawn_last() -> None:
    root = ElementTree.fromstring(svg(replay_with_collision()))
    camera = next(root.iter(f"{SVG}g"))
    cars = [group for group in camera if group.tag == f"{SVG}g" and group.get("transform", "").startswith("translate")]
    assert [group.get("class") for group in cars][-2:] == ["ego", "collision"]


def test_the_collision_appears_with_the_last_frame_and_not_before() -> None:
    root = ElementTree.fromstring(svg(replay_with_collision()))
    mark = next(group for group in root.iter(f"{SVG}g") if group.get("class") == "collision")
    assert mark.get("visibility") == "hidden"
    switch = next(element for element in mark if element.get("attributeName") == "visibility")
    assert switch.attrib["values"] == "hidden;visible"
    assert float(switch.attrib["keyTimes"].split(";")[1]) == pytest.approx(5.0 / (5.0 + HOLD), abs=1e-4)
    safe = replay([frame(index) for index in range(20)], outcome="arrived")
    assert 'class="collision"' not in svg(safe)


def test_a_light_changes_the_colour_of_its_stop_line() -> None:
    switches = [
        element
        for element in animated(ElementTree.fromstring(svg(replay_with_collision())))
        if element.get("attributeName") == "stroke"
    ]
    assert len(switches) == 1
    assert len(set(switches[0].attrib["values"].split(";"))) == 2


def test_an_actor_is_hidden_until_its_first_frame() -> None:
    frames = [frame(index, *([car("late", 40.0)] if index >= 10 else [])) for index in range(20)]
    root = ElementTree.fromstring(svg(replay(frames)))
    switches = [
        element.attrib["values"]
        for element in root.iter(f"{SVG}animate")
        if element.get("attributeName") == "visibility"
    ]
    assert "hidden;visible" in switches


def test_pedestrians_are_larger_than_the_paint_of_a_road_and_have_a_colour_of_their_own() -> None:
    people = [{"id": name, "x": x, "y": 3.0, "speed": 1.0} for name, x in (("p1", 5.0), ("late", 9.0))]
    frames = [frame(index, car("other", 9.0, kind="actor"), pedestrians=people) for index in range(5)]
    root = ElementTree.fromstring(svg(replay(frames)))
    late, other = [group.findall(f"{SVG}circle") for group in root.iter(f"{SVG}g") if group.get("class") == "person"]
    assert len(late) == len(other) + 1, "the pedestrian of an event has a ring"
    assert float(other[0].attrib["r"]) >= 6 and float(late[0].attrib["r"]) > float(late[1].attrib["r"])
    fills = [element.get("fill") for element in root.iter() if element.get("fill") == other[0].get("fill")]
    assert len(fills) == 2, "nothing else has the colour of a pedestrian"


def test_a_distant_actor_is_not_drawn() -> None:
    near_car, far_car = car("near", 50.0), car("far", 400.0)
    with_distant_car = svg(replay([frame(index, near_car, far_car) for index in range(5)]))
    assert with_distant_car == svg(replay([frame(index, near_car) for index in range(5)]))


def test_a_car_that_turns_past_north_does_not_spin() -> None:
    frames = [frame(0), frame(1)]
    frames[0]["vehicles"].append(car("turner", 5.0, angle=359.0))
    frames[1]["vehicles"].append(car("turner", 5.0, angle=1.0))
    assert 'values="359;361;361"' in svg(replay(frames))


def test_texts_of_a_replay_are_escaped() -> None:
    text = svg(replay([frame(0), frame(1)], title="<script>alert(1)</script>", outcome="a & b"))
    assert "<script" not in text
    assert "a &amp; b" in text


def test_a_replay_without_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="no frames"):
        svg(replay([]))


def test_the_camera_stays_where_the_ego_left_the_street() -> None:
    frames = [frame(index) for index in range(5)]
    frames[-1]["vehicles"] = [car("other", 10.0)]
    text = svg(replay(frames, outcome="arrived"))
    assert ElementTree.fromstring(text) is not None
    assert 'class="ego"' in text
