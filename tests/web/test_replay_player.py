"""The replay player in Chromium: scenes, time, events, keys, signals, comparisons, problems, accessibility, widths."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from flask import Response
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser import (
    Errors,
    StaticSite,
    accessibility_violations,
    keep_picture,
    scrolls_sideways,
    static_site,
)
from tests.waiting import until
from web import replay_bundle

ROOT = Path(__file__).parents[2]
REPLAYS = Path(__file__).parent / "replays"
#: Recorded replays with a scene that is drawn, one of each kind of world; those of streets that collide or arrive were
#: made when a replay kept 16 numbers of an observation and no red lights.
STAGED = (
    "street_collision",
    "street_arrival",
    "street_red_light",
    "street_pedestrian",
    "highway",
    "cartpole",
    "simple_tag",
    "connect_four",
    "half_cheetah",
)
EGO = (0, 166, 166)
#: Colour of the outline of a collision.
SPARK = "255,209,102"
PAGE_STYLE = "body { margin: 0 } main { padding: 12px } .dark { --bg: #101418; --fg: #e8edf2; --muted: #9aa7b3 }"
#: The colours of a canvas: how many differ, and how many pixels have the colour of the model's vehicle.
COLOURS = """
canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const counts = new Map();
  for (let at = 0; at < data.length; at += 4) {
    const colour = `${data[at]},${data[at + 1]},${data[at + 2]}`;
    counts.set(colour, (counts.get(colour) ?? 0) + 1);
  }
  return Object.fromEntries([...counts].filter(([, count]) => count > 20));
}
"""


#: Median milliseconds in which a picture of 60 is drawn, and the elements that were added meanwhile.
MEASURE = """
async () => {
  const { clock } = document.querySelector("replay-player");
  const elements = () => document.querySelectorAll("replay-player *").length;
  const first = elements();
  const durations = [];
  for (let picture = 0; picture < 60; picture += 1) {
    const begun = performance.now();
    clock.seek((picture / 60) * clock.duration);
    await new Promise(requestAnimationFrame);
    durations.push(performance.now() - begun);
  }
  return [Math.min(...durations.slice(30)), elements() - first];
}
"""


def recorded(name: str) -> dict[str, Any]:
    """Return a recorded replay."""
    document: dict[str, Any] = json.loads((REPLAYS / f"{name}.json").read_text())
    return document


def answer(document: Any, status: int = 200, **headers: str) -> Response:
    """Return a response with JSON."""
    return Response(json.dumps(document), status, headers, mimetype="application/json")


def html(body: str, attributes: str = "") -> str:
    return (
        f'<!doctype html><html lang="en"{attributes}><head><meta charset="utf-8"><title>Replay</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/page.css">'
        '<link rel="stylesheet" href="/static/replay/replay.css">'
        f'<script type="module" src="/static/replay/replay.js"></script></head><body><main><h1>Task</h1>{body}</main>'
        "</body></html>"
    )


@pytest.fixture(scope="module")
def server() -> Iterator[StaticSite]:
    with static_site(ROOT / "web" / "static") as site:
        yield site


@pytest.fixture
def site(server: StaticSite) -> StaticSite:
    server.pages.clear()
    server.responses.clear()
    server.requests.clear()
    server.responses["/page.css"] = [Response(PAGE_STYLE, mimetype="text/css")]
    return server


@pytest.fixture
def still(page: Page) -> Page:
    """The page of a user who prefers reduced motion: nothing plays by itself."""
    page.emulate_media(reduced_motion="reduce")
    return page


def show(page: Page, site: StaticSite, document: dict[str, Any], attributes: str = "", body: str = "") -> None:
    """Open a page with the replay player of a document, and wait until it is drawn."""
    site.responses["/replay"] = [answer(document)]
    site.pages["/page"] = html(body or '<replay-player src="/replay"></replay-player>', attributes)
    page.goto(f"{site.origin}/page")
    page.locator(".replay").wait_for()


def compare(page: Page, site: StaticSite, documents: Sequence[dict[str, Any]]) -> None:
    """Open a page with the comparison of two documents, and wait until it is drawn."""
    for side, document in zip(("left", "right"), documents, strict=True):
        site.responses[f"/{side}"] = [answer(document)]
    element = '<replay-compare left="/left" right="/right" left-label="idm" right-label="brake"></replay-compare>'
    site.pages["/page"] = html(element)
    page.goto(f"{site.origin}/page")
    page.locator(".replay").wait_for()


def time_of(page: Page) -> float:
    """Return the time of the clock in seconds."""
    return float(page.evaluate("document.querySelector('replay-player, replay-compare').clock.time"))


def seek(page: Page, seconds: float) -> None:
    """Set the clock and wait until that time is drawn."""
    page.evaluate("time => document.querySelector('replay-player, replay-compare').clock.seek(time)", seconds)
    drawn(page)


def drawn(page: Page) -> None:
    """Wait until what was requested is drawn."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def colours(page: Page, number: int = 0) -> dict[str, int]:
    """Return the number of pixels of each colour of a stage's canvas."""
    counts: dict[str, int] = page.locator(".replay-canvas").nth(number).evaluate(COLOURS)
    return counts


def ego_centre(page: Page) -> list[float]:
    """Return the mean position of the pixels that have the colour of the model's vehicle."""
    place: list[float] = page.locator(".replay-canvas").evaluate(
        """(canvas, ego) => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          let [x, y, count] = [0, 0, 0];
          for (let at = 0; at < data.length; at += 4) {
            if (ego.some((value, channel) => data[at + channel] !== value)) continue;
            x += (at / 4) % canvas.width;
            y += Math.floor(at / 4 / canvas.width);
            count += 1;
          }
          return [x / count, y / count];
        }""",
        list(EGO),
    )
    return place


# -- scenes


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", STAGED)
def test_a_scene_is_drawn(site: StaticSite, still: Page, name: str, scheme: Any) -> None:
    still.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    show(still, site, recorded(name))
    seek(still, 1.0)
    assert len(colours(still)) >= 4, "the canvas has few colours"
    keep_picture(still, f"{name}-{scheme}", full_page=True)


@pytest.mark.parametrize("name", ["street_collision", "street_arrival", "highway", "cartpole", "simple_tag"])
def test_a_scene_changes_with_time_and_has_the_models_own_colour(site: StaticSite, still: Page, name: str) -> None:
    show(still, site, recorded(name))
    first = still.locator(".replay-canvas").evaluate("canvas => canvas.toDataURL()")
    assert colours(still).get(",".join(map(str, EGO)), 0) > 20
    seek(still, 1.0)
    assert still.locator(".replay-canvas").evaluate("canvas => canvas.toDataURL()") != first


def test_signals_alone_are_charts(site: StaticSite, still: Page) -> None:
    document = recorded("half_cheetah")
    document["scene"] = document["scene"] | {"kind": "signals"}
    show(still, site, document)
    expect(still.locator(".replay-canvas")).to_have_count(0)
    charts = still.locator(".replay-chart")
    assert charts.count() == 12 and len(charts.first.evaluate(COLOURS)) >= 2
    keep_picture(still, "signals", full_page=True)


def test_a_task_without_a_trace_has_its_metrics_and_their_ranges(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("result"))
    row = still.get_by_role("row", name="Sum of the observation")
    expect(row.get_by_text("1.784")).to_be_visible()
    expect(row.get_by_text("0 to 4")).to_be_visible()
    assert still.get_by_role("button", name="Play").count() == 0


def test_a_street_has_speed_limit_brake_and_the_names_of_its_events(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_collision"))
    seek(still, 6.0)
    assert still.locator(".replay-speed").text_content() == "55"
    expect(still.get_by_role("img", name="limit 50 km/h")).to_be_visible()
    expect(still.locator(".replay-limit.replay-exceeded")).to_have_count(1)
    events = still.get_by_role("list", name="Events").get_by_role("button").all_text_contents()
    assert events == ["4.3 sAbove the limit", "7.2 sFailed: collision with pedestrian p4, at fault"]


def test_a_street_of_an_older_server_has_the_signals_of_its_car(site: StaticSite, still: Page) -> None:
    document = recorded("street_collision")
    for member in ("observation", "action"):
        del document["scene"][member]
    show(still, site, document)
    assert still.locator(".replay-signal-name").all_text_contents() == ["speed", "acceleration"]


def test_a_model_that_leaves_the_street_is_followed_to_its_last_place(site: StaticSite, still: Page) -> None:
    document = recorded("street_arrival")
    for frame in document["frames"][50:]:
        frame["vehicles"] = [car for car in frame["vehicles"] if car["id"] != frame["ego"]]
    show(still, site, document)
    seek(still, 8.0)
    assert still.locator(".replay-speed").text_content() == "–" and len(colours(still)) >= 4


def test_positions_are_between_those_of_two_frames(site: StaticSite, still: Page) -> None:
    document = recorded("cartpole")
    document["dt"] = 1.0
    for frame, left in zip(document["frames"][:2], (-1.0, 1.0), strict=True):
        frame["drawing"]["at"]["pole"] = [left, 0.5, left, 1.2]
    show(still, site, document | {"frames": document["frames"][:2]})
    ends = []
    for time in (0.0, 0.5, 1.0):
        seek(still, time)
        ends.append(ego_centre(still)[0])
    assert ends[1] == pytest.approx((ends[0] + ends[2]) / 2, abs=2) and ends[2] > ends[0] + 50


# -- time


def test_keys_move_time(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_collision"))
    still.get_by_role("button", name="Play").focus()
    for key, time in [
        ("ArrowRight", 0.1),
        ("ArrowRight", 0.2),
        ("ArrowLeft", 0.1),
        ("End", 7.2),
        ("ArrowRight", 7.2),
        ("Home", 0.0),
        ("ArrowLeft", 0.0),
        ("Shift+ArrowRight", 4.3),
        ("Shift+ArrowRight", 7.2),
        ("Shift+ArrowLeft", 4.3),
        ("Shift+ArrowLeft", 0.0),
    ]:
        still.keyboard.press(key)
        assert time_of(still) == pytest.approx(time), key


def test_space_plays_and_pauses_and_the_end_is_reached(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_collision"))
    speed = still.get_by_role("combobox", name="Speed")
    speed.select_option("0.25")
    still.get_by_label("Time").focus()
    still.keyboard.press("Space")
    still.get_by_role("button", name="Pause").wait_for()
    until(lambda: time_of(still) > 0, message="the clock does not run")
    still.keyboard.press("Space")
    still.get_by_role("button", name="Play").wait_for()
    paused = time_of(still)
    assert 0 < paused < 7.2
    speed.select_option("8")
    still.get_by_role("button", name="Play").click()
    until(lambda: time_of(still) == pytest.approx(7.2), message=lambda: f"the clock is at {time_of(still)}")
    still.get_by_role("button", name="Play").wait_for()
    speed.select_option("0.25")
    still.get_by_role("button", name="Play").click()  # from the start again
    still.get_by_role("button", name="Pause").click()
    assert time_of(still) < 7.2


def test_the_slider_is_moved_by_pointer_and_says_where_it_is(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_collision"))
    slider = still.get_by_role("slider", name="Time")
    box = slider.bounding_box()
    assert box is not None
    slider.click(position={"x": box["width"] / 2, "y": 8})
    drawn(still)
    assert time_of(still) == pytest.approx(3.6, abs=0.1)
    assert (
        slider.get_attribute("aria-valuetext")
        == f"{time_of(still):.1f} s of 7.2 s, frame {int(time_of(still) * 10)} of 72"
    )


def test_an_event_is_a_mark_on_the_slider_and_a_button_that_leads_to_it(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_collision"))
    marks = still.locator(".replay-mark")
    assert marks.count() == 2 and SPARK not in colours(still)
    still.get_by_role("list", name="Events").get_by_role("button", name="collision with pedestrian p4").click()
    drawn(still)
    assert time_of(still) == pytest.approx(7.2)
    assert SPARK in colours(still), "the collision is not drawn"
    places = [mark.evaluate("mark => parseFloat(mark.style.left)") for mark in marks.all()]
    assert places == pytest.approx([4.3 / 7.2 * 100, 100])


def test_a_replay_plays_by_itself_and_not_where_motion_is_unwanted(
    site: StaticSite, page: Page, context: BrowserContext
) -> None:
    show(page, site, recorded("street_collision"))
    page.get_by_role("button", name="Pause").wait_for()
    calm = context.new_page()
    calm.emulate_media(reduced_motion="reduce")
    show(calm, site, recorded("street_collision"))
    until(lambda: time_of(page) > 0.5, message="the replay does not play by itself")
    expect(calm.get_by_role("button", name="Play")).to_be_visible()
    assert time_of(calm) == 0


def test_frames_of_uneven_times_are_shown_at_their_times(site: StaticSite, still: Page) -> None:
    document = recorded("street_collision")
    document["frames"] = document["frames"][:3]
    for frame, time in zip(document["frames"], (5.0, 5.1, 9.0), strict=True):
        frame["time"] = time
    show(still, site, document)
    still.get_by_role("button", name="One frame on").click(click_count=2)
    assert time_of(still) == pytest.approx(4.0)


def test_a_picture_of_ten_thousand_frames_takes_no_longer_than_of_a_hundred(site: StaticSite, still: Page) -> None:
    document = recorded("street_arrival")
    frames = document["frames"]
    many = [frames[number % len(frames)] | {"time": number / 10} for number in range(10_000)]
    pictures = []
    for shown in (frames[:100], many):
        show(still, site, document | {"frames": shown})
        milliseconds, added = still.evaluate(MEASURE)  # the quickest of many: others wait for the machine
        assert added == 0, "pictures add elements to the page"
        pictures.append(milliseconds)
    assert pictures[1] < 2 * pictures[0] + 20, f"{pictures[1]:.1f} ms for a picture, {pictures[0]:.1f} ms of 100 frames"


# -- reasons of a failure


def labels(page: Page) -> Locator:
    """Return the labels above the slider."""
    return page.get_by_role("group", name="What explains the result").get_by_role("button")


def places(page: Page) -> list[tuple[float, float, float]]:
    """Return the left, right and top of each label, as shares of the slider's track and pixels."""
    boxes: list[list[float]] = page.evaluate(
        """() => {
          const track = document.querySelector(".replay-marks").getBoundingClientRect();
          return [...document.querySelectorAll(".replay-flag")].map(flag => {
            const box = flag.getBoundingClientRect();
            return [(box.left - track.left) / track.width, (box.right - track.left) / track.width, box.top];
          });
        }"""
    )
    return [(left, right, top) for left, right, top in boxes]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_red_light_and_the_collision_that_follows_are_labelled_at_their_moments(
    site: StaticSite, still: Page, scheme: Any
) -> None:
    still.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    show(still, site, recorded("street_red_light"))
    assert labels(still).all_text_contents() == ["Red light", "Collision"]
    labels(still).first.click()
    drawn(still)
    assert time_of(still) == pytest.approx(4.3)
    stop_line = still.locator(".replay-signal", has_text="stop_line").locator(".replay-value")
    assert stop_line.text_content() == "100"  # it is behind the car since this frame
    keep_picture(still, f"red_light-{scheme}", full_page=True)
    for left, right, _ in places(still):
        assert -0.001 <= left < right <= 1.001
    assert accessibility_violations(still) == []


def test_a_key_goes_from_reason_to_reason(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_red_light"))
    still.get_by_label("Time").focus()
    for time in (4.3, 5.4, 4.3):
        still.keyboard.press("r")
        assert time_of(still) == pytest.approx(time)


def test_a_reason_is_reached_by_the_keyboard_and_named_for_readers(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_red_light"))
    still.get_by_role("button", name="Reset zoom").focus()
    still.keyboard.press("Tab")
    still.keyboard.press("Tab")
    collision = still.get_by_role("button", name="Collision, at 5.4 s: Failed: collision with vehicle v21, at fault")
    assert collision.evaluate("node => node === document.activeElement")
    still.keyboard.press("Enter")
    assert time_of(still) == pytest.approx(5.4)


@pytest.mark.parametrize(
    ("name", "changes", "label", "event"),
    [
        ("street_arrival", {"outcome": "stranded", "failed": True}, "Off the route", "end of a lane"),
        ("street_arrival", {"outcome": "timeout", "failed": True}, "Time limit", "scenario's time"),
        ("street_arrival", {"outcome": "timed_out", "failed": True, "status": "timed_out"}, "Deadline", "its deadline"),
        ("street_collision", {"failed": True, "status": "crashed"}, "Model crashed", "process ended"),
        ("cartpole", {"outcome": "fell", "failed": True}, "Fell", "Failed: fell"),
        ("simple_tag", {"failed": True, "status": "invalid"}, "Invalid action", "not an action"),
        ("half_cheetah", {"failed": True, "status": "failed"}, "Error", "raised an error"),
    ],
)
def test_every_kind_of_failure_is_labelled_at_the_end_that_it_makes(
    site: StaticSite, still: Page, name: str, changes: dict[str, Any], label: str, event: str
) -> None:
    document = recorded(name)
    document["result"]["status"] = changes.pop("status", "ok")
    show(still, site, document | changes)
    assert labels(still).last.text_content() == label
    last = still.get_by_role("list", name="Events").get_by_role("button").last
    assert event in (last.text_content() or "")
    labels(still).last.click()
    assert time_of(still) == pytest.approx(still.evaluate("document.querySelector('replay-player').clock.duration"))


def test_a_crash_in_a_drawing_is_labelled_when_it_happens(site: StaticSite, still: Page) -> None:
    document = recorded("highway") | {"outcome": "crashed", "failed": True}
    for frame in document["frames"][20:]:
        frame["drawing"]["at"]["crash"] = [0.0, 0.0]
    show(still, site, document)
    assert labels(still).all_text_contents() == ["Crashed"]
    labels(still).click()
    assert time_of(still) == pytest.approx(20.0)


def test_a_task_that_did_not_fail_has_an_end_and_no_label(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_arrival"))
    expect(labels(still)).to_have_count(0)
    events = still.get_by_role("list", name="Events").get_by_role("button").all_text_contents()
    assert events[-1] == "10.9 sEnd: arrived" and not any("Failed" in event for event in events)


@pytest.mark.parametrize("width", [360, 1280])
def test_labels_of_two_replays_name_their_side_and_do_not_cover_each_other(
    site: StaticSite, still: Page, width: int
) -> None:
    still.set_viewport_size({"width": width, "height": 800})
    compare(still, site, [recorded("street_red_light"), recorded("street_pedestrian")])
    assert set(labels(still).all_text_contents()) == {"idm: Red light", "idm: Collision", "brake: Collision"}
    boxes = places(still)
    for number, (left, right, top) in enumerate(boxes):
        assert -0.001 <= left < right <= 1.001
        for other_left, other_right, other_top in boxes[:number]:
            assert top != other_top or right < other_left or other_right < left
    keep_picture(still, f"reasons-{width}", full_page=True)
    assert not scrolls_sideways(still)


def test_an_element_begins_at_the_moment_that_it_is_given_and_stays_there(site: StaticSite, page: Page) -> None:
    site.responses["/other"] = [answer(recorded("street_pedestrian"))]
    body = '<replay-compare at="4.3" left="/replay" right="/other"></replay-compare>'
    show(page, site, recorded("street_red_light"), body=body)
    drawn(page)
    assert time_of(page) == pytest.approx(4.3)
    expect(page.get_by_role("button", name="Play")).to_be_visible()


# -- pedestrians

#: Colours of a pedestrian, and of the ring around it.
PERSONS = {"light": (194, 24, 127), "dark": (255, 122, 200)}
RINGS = {"light": (255, 255, 255), "dark": (12, 16, 20)}


def contrast(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the contrast of two colours as WCAG 2.2 defines it."""

    def luminance(colour: Sequence[float]) -> float:
        red, green, blue = (
            value / 255 / 12.92 if value / 255 <= 0.04045 else ((value / 255 + 0.055) / 1.055) ** 2.4
            for value in colour
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("whole", [False, True])
def test_pedestrians_are_seen_at_every_zoom(site: StaticSite, still: Page, scheme: Any, whole: bool) -> None:
    still.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    document = recorded("street_pedestrian")
    show(still, site, document)
    seek(still, 4.0)
    if whole:
        still.get_by_role("button", name="Follow").click()
        drawn(still)
    found = colours(still)
    person = ",".join(map(str, PERSONS[scheme]))
    # A disc of 6 pixels has 113; some pixels of its edge are mixed, and one person at least is in view.
    assert found.get(person, 0) >= 80
    assert contrast(PERSONS[scheme], RINGS[scheme]) >= 3
    grounds = [[int(part) for part in colour.split(",")] for colour, count in found.items() if count > 3000]
    assert len(grounds) >= 3
    for ground in grounds:
        assert max(contrast(ground, PERSONS[scheme]), contrast(ground, RINGS[scheme])) >= 3, ground
    keep_picture(still, f"pedestrians-{scheme}-{'whole' if whole else 'near'}", full_page=True)


def test_the_legend_names_pedestrians_and_all_others_in_the_colours_of_the_picture(
    site: StaticSite, still: Page
) -> None:
    document = recorded("street_pedestrian")
    document["frames"][0]["vehicles"].append(document["frames"][0]["vehicles"][0] | {"id": "actor", "kind": "actor"})
    show(still, site, document)
    legend = still.get_by_role("list", name="Legend").get_by_role("listitem")
    texts = legend.all_text_contents()
    assert texts[:3] == ["model's car", "its path", "pedestrian"] and texts[-1] == "actor of the event"
    swatch = legend.filter(has_text="pedestrian").locator("i")
    assert swatch.evaluate("node => getComputedStyle(node).backgroundColor") == f"rgb{PERSONS['light']}"
    still.evaluate("document.documentElement.className = 'dark'")
    drawn(still)
    assert swatch.evaluate("node => getComputedStyle(node).backgroundColor") == f"rgb{PERSONS['dark']}"
    show(still, site, recorded("cartpole"))
    expect(still.get_by_role("list", name="Legend")).to_have_count(0)


# -- camera


def test_the_camera_follows_or_shows_the_whole_street(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_arrival"))
    follow = still.get_by_role("button", name="Follow")
    assert follow.get_attribute("aria-pressed") == "true"
    near = colours(still)[",".join(map(str, EGO))]
    follow.focus()
    still.keyboard.press("f")
    drawn(still)
    assert follow.get_attribute("aria-pressed") == "false"
    assert colours(still).get(",".join(map(str, EGO)), 0) < near
    keep_picture(still, "street_whole", full_page=True)


def test_keys_buttons_and_the_wheel_zoom(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_arrival"))

    def size() -> int:
        drawn(still)
        return colours(still)[",".join(map(str, EGO))]

    whole = size()
    still.get_by_role("button", name="Zoom in").click()
    closer = size()
    still.keyboard.press("+")
    closest = size()
    assert whole < closer < closest
    still.keyboard.press("-")
    assert size() == closer
    still.keyboard.press("0")
    assert size() == whole
    still.locator(".replay-canvas").hover()
    still.mouse.wheel(0, -400)
    until(lambda: size() > whole, message="the wheel does not zoom")


def test_after_a_click_on_the_picture_its_keys_and_the_wheel_are_the_replays(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_arrival"))
    still.locator(".replay-canvas").click(position={"x": 400, "y": 60})
    still.keyboard.press("ArrowRight")
    assert time_of(still) == pytest.approx(0.1)
    before = still.locator(".replay-canvas").evaluate("canvas => canvas.toDataURL()")
    still.mouse.wheel(0, -400)
    drawn(still)
    assert still.locator(".replay-canvas").evaluate("canvas => canvas.toDataURL()") != before


def test_a_drag_moves_the_picture_and_a_double_click_moves_it_back(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_arrival"))
    first = ego_centre(still)
    still.mouse.move(600, 300)
    still.mouse.down()
    still.mouse.move(700, 260, steps=4)
    still.mouse.up()
    drawn(still)
    assert ego_centre(still) == pytest.approx([first[0] + 100, first[1] - 40], abs=3)
    still.locator(".replay-canvas").dblclick(position={"x": 400, "y": 60})
    drawn(still)
    assert ego_centre(still) == pytest.approx(first, abs=3)


def test_a_wheel_scrolls_the_page_where_the_replay_has_no_focus(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_arrival"))
    still.set_viewport_size({"width": 900, "height": 400})
    drawn(still)
    still.locator(".replay-canvas").hover(position={"x": 300, "y": 100})
    still.mouse.wheel(0, 200)
    until(lambda: still.evaluate("scrollY") > 0, message="the page does not scroll")


# -- signals


def test_the_first_signals_that_change_are_shown_and_others_are_chosen(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("connect_four"))
    names = still.locator(".replay-signal-name")
    assert "reward" in names.all_text_contents() and names.count() < 12
    still.get_by_text("Choose,").click()
    still.get_by_label("Filter signals").fill("row_1_column_2")
    expect(still.locator(".replay-choices label:visible")).to_have_count(2)
    still.get_by_label("own_row_1_column_2").check()
    assert "own_row_1_column_2" in names.all_text_contents()
    still.get_by_role("button", name="None").click()
    assert "own_row_1_column_2" not in names.all_text_contents() and "reward" in names.all_text_contents()


def test_the_list_of_signals_closes_by_escape_and_by_work_elsewhere(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("connect_four"))
    summary, choices = still.get_by_text("Choose,"), still.get_by_label("Filter signals")
    summary.click()
    choices.focus()
    still.keyboard.press("Escape")
    expect(choices).to_be_hidden()
    assert summary.evaluate("node => node === document.activeElement")
    summary.click()
    still.get_by_role("button", name="Next event").click()
    expect(choices).to_be_hidden()


def test_of_a_hundred_signals_twelve_are_shown(site: StaticSite, still: Page) -> None:
    document = recorded("simple_tag")
    described = [{"name": f"sensor_{number}", "unit": "m", "low": None, "high": None} for number in range(100)]
    document["scene"]["observation"] = described
    for step, frame in enumerate(document["frames"]):
        frame["observation"] = [step * number / 7 for number in range(100)]
    show(still, site, document)
    expect(still.locator(".replay-chart")).to_have_count(12)
    still.get_by_text("Choose,").click()
    still.get_by_role("button", name="All").click()
    expect(still.locator(".replay-chart")).to_have_count(106)


def test_values_and_units_are_those_of_the_present_frame(site: StaticSite, still: Page) -> None:
    document = recorded("cartpole")
    show(still, site, document)
    seek(still, 100 * document["dt"])
    row = still.locator(".replay-signal", has_text="position")
    value = row.locator(".replay-value").text_content()
    assert value is not None and float(value) == pytest.approx(document["frames"][100]["observation"][0], rel=1e-3)
    assert row.locator("small").text_content() == "m"


def test_a_click_on_a_chart_goes_to_its_time(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_collision"))
    chart = still.locator(".replay-chart").first
    box = chart.bounding_box()
    assert box is not None
    chart.click(position={"x": box["width"] / 4, "y": 10})
    assert time_of(still) == pytest.approx(1.8, abs=0.1)


def test_a_street_shows_what_explains_a_drive_in_groups(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_pedestrian"))
    seek(still, 4.0)
    groups = still.locator(".replay-group button")
    names = [text.rstrip("0123456789 of") for text in groups.all_text_contents()]
    assert names == ["Conflict", "Behind", "Right lane", "Lane and route"]
    shown = still.locator(".replay-signal:visible .replay-signal-name").all_text_contents()
    assert {"conflict_ego_dist", "conflict_foe_dist", "conflict_foe_speed", "rear_gap", "right_lead_gap"} <= set(shown)
    assert "route_left" not in shown
    expect(groups.last).to_have_attribute("aria-expanded", "false")
    groups.last.focus()
    still.keyboard.press("Enter")
    expect(groups.last).to_have_attribute("aria-expanded", "true")
    expect(still.locator(".replay-signal:visible", has_text="route_left")).to_have_count(1)
    assert groups.last.evaluate("node => node === document.activeElement") and time_of(still) == 4.0
    groups.first.click()
    expect(still.locator(".replay-signal:visible", has_text="conflict_ego_dist")).to_have_count(0)
    still.get_by_text("Choose,").click()
    expect(still.locator(".replay-choices li")).to_have_count(34)


def test_a_street_that_keeps_sixteen_numbers_has_those_in_its_groups(site: StaticSite, still: Page) -> None:
    document = recorded("street_collision")
    assert len(document["scene"]["observation"]) == len(document["frames"][0]["observation"]) == 16
    show(still, site, document)
    seek(still, 5.0)
    still.get_by_text("Choose,").click()
    expect(still.locator(".replay-choices li")).to_have_count(18)
    assert "left_lead_gapLeft lane" in still.locator(".replay-choices li").all_text_contents()
    row = still.locator(".replay-signal", has=still.get_by_text("speed", exact=True)).locator(".replay-value")
    assert float(row.text_content() or "") == pytest.approx(document["frames"][50]["observation"][0], rel=1e-3)


def test_a_light_that_is_red_is_a_bar_over_the_time_in_which_it_is(site: StaticSite, still: Page) -> None:
    document = recorded("street_red_light")
    names = [signal["name"] for signal in document["scene"]["observation"]]
    red = [frame["observation"][names.index("light_red")] for frame in document["frames"]]
    show(still, site, document)
    row = still.locator(".replay-signal.replay-binary", has_text="light_red")
    expect(row.get_by_text("no or yes")).to_be_visible()
    counts = row.locator("canvas").evaluate(COLOURS)
    bar = counts["0,116,122"] / sum(counts.values())
    # The canvas has a pixel of margin above and below the bar.
    assert bar == pytest.approx(sum(red) / (len(red) - 1) * 0.8, abs=0.03)


def test_the_conflict_ahead_is_named_in_the_picture(site: StaticSite, still: Page) -> None:
    document = recorded("street_pedestrian")
    show(still, site, document)
    seek(still, 4.0)
    own, other, speed = document["frames"][40]["observation"][29:32]
    text = f"Conflict in {own:.0f} m, other {other:.0f} m away at {speed * 3.6:.0f} km/h"
    expect(still.get_by_text(text)).to_be_visible()
    show(still, site, recorded("street_red_light"))
    expect(still.locator(".replay-conflict")).to_be_hidden()


# -- comparisons


def test_two_replays_share_a_clock_that_ends_when_both_have_ended(site: StaticSite, still: Page) -> None:
    compare(still, site, [recorded("street_arrival"), recorded("street_collision")])
    expect(still.locator(".replay-canvas")).to_have_count(2)
    expect(still.get_by_role("slider")).to_have_count(1)
    still.get_by_role("button", name="Play").focus()
    still.keyboard.press("End")
    drawn(still)
    assert time_of(still) == pytest.approx(10.9)
    events = still.get_by_role("list", name="Events").get_by_role("button").all_text_contents()
    assert "7.2 sbrake: Failed: collision with pedestrian p4, at fault" in events
    assert "10.9 sidm: End: arrived" in events
    keep_picture(still, "comparison", full_page=True)


def test_a_comparison_has_the_differences_of_metrics_and_both_lines_in_a_chart(site: StaticSite, still: Page) -> None:
    compare(still, site, [recorded("street_arrival"), recorded("street_collision")])
    row = still.get_by_role("row", name="Route completion")
    assert row.locator("td").all_text_contents() == ["100 %", "21.99 %", "+78.01 points"]
    expect(row.locator(".replay-better")).to_have_count(1)
    expect(still.get_by_role("columnheader", name="idm less brake")).to_be_visible()
    assert still.locator(".replay-signal", has_text="speed").first.locator(".replay-value").count() == 2
    expect(still.get_by_text("different scenarios")).to_have_count(0)


def test_a_value_that_stands_for_never_is_not_shown_as_a_number(site: StaticSite, still: Page) -> None:
    first, second = recorded("street_arrival"), recorded("street_collision")
    second["result"]["metrics"]["min_ttc"] = 1.5
    for replay in (first, second):
        next(metric for metric in replay["metrics"] if metric["name"] == "min_ttc")["never"] = 100.0
    compare(still, site, [first, second])
    row = still.get_by_role("row", name="Least time to collision")
    assert row.locator("td").all_text_contents() == ["never", "1.5 s", "differs"]


def test_replays_of_different_scenarios_are_named_as_such(site: StaticSite, still: Page) -> None:
    other = recorded("street_collision")
    other["result"]["scenario"]["index"] = 7
    compare(still, site, [recorded("street_arrival"), other])
    expect(still.get_by_text("These tasks are of different scenarios")).to_be_visible()


def test_results_without_traces_are_compared_as_well(site: StaticSite, still: Page) -> None:
    other = recorded("result")
    other["result"]["metrics"]["echo"] = 2.0
    compare(still, site, [recorded("result"), other])
    expect(still.get_by_role("row", name="Sum of the observation").get_by_text("−0.2157")).to_be_visible()


# -- requests


def test_a_replay_that_is_computed_is_requested_again(site: StaticSite, still: Page) -> None:
    waiting = Response(status=202, headers={"Retry-After": "1"})
    site.responses["/replay"] = [waiting, answer(recorded("simple_tag"))]
    site.pages["/page"] = html('<replay-player src="/replay"></replay-player>')
    still.goto(f"{site.origin}/page")
    still.get_by_text("simulated again from the recorded actions").wait_for()
    still.locator(".replay").wait_for()
    assert site.requests.count("/replay") == 2


def test_a_problem_is_shown_with_its_next_step_and_can_be_tried_again(
    site: StaticSite, still: Page, page_errors: Errors
) -> None:
    page_errors.expect("404")
    problem = {
        "title": "No replay",
        "detail": "The simulator failed. The log of the jobs role has its error.",
        "status": 404,
    }
    refused = answer(problem, 404)
    refused.mimetype = "application/problem+json"
    site.responses["/replay"] = [refused, answer(recorded("simple_tag"))]
    site.pages["/page"] = html('<replay-player src="/replay"></replay-player>')
    still.goto(f"{site.origin}/page")
    alert = still.get_by_role("alert")
    expect(alert.get_by_text("No replay")).to_be_visible()
    expect(alert.get_by_text("log of the jobs role")).to_be_visible()
    assert accessibility_violations(still) == []
    alert.get_by_role("button", name="Try again").click()
    still.locator(".replay").wait_for()


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"scene": {"kind": "hologram"}, "frames": [{}]}, "unknown kind hologram"),
        ({"frames": []}, "The document is not a replay"),
        ({"scene": {"kind": "street"}, "frames": []}, "has no frames"),
        ({"scene": {"kind": "drawing"}, "frames": [{}]}, "cannot be drawn"),
    ],
    ids=["unknown", "empty", "frames", "malformed"],
)
def test_a_document_that_cannot_be_drawn_is_named_in_words(
    site: StaticSite, still: Page, document: dict[str, Any], text: str
) -> None:
    site.responses["/replay"] = [answer(document)]
    site.pages["/page"] = html('<replay-player src="/replay"></replay-player>')
    still.goto(f"{site.origin}/page")
    expect(still.get_by_role("alert").get_by_text(text)).to_be_visible()


def test_names_of_users_are_text(site: StaticSite, still: Page) -> None:
    document = recorded("result") | {"title": "<img src=x onerror=alert(1)>", "outcome": "<b>good</b>"}
    document["result"]["metrics"] = {"<i>evil</i>": "<script>alert(1)</script>"}
    show(still, site, document)
    expect(still.get_by_role("heading", name="<img src=x")).to_be_visible()
    expect(still.locator("replay-player img, replay-player b, replay-player script")).to_have_count(0)


def test_a_replay_player_that_leaves_the_page_stops_and_one_that_returns_plays_on(site: StaticSite, page: Page) -> None:
    show(page, site, recorded("street_collision"))
    page.get_by_role("button", name="Pause").wait_for()
    page.evaluate("window.kept = document.querySelector('replay-player'); kept.remove()")
    assert page.evaluate("kept.clock") is None
    page.evaluate("document.querySelector('main').append(kept)")
    page.get_by_role("button", name="Pause").wait_for()
    assert site.requests.count("/replay") == 1


# -- appearance


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_replay_player_has_no_violation_of_accessibility(site: StaticSite, still: Page, scheme: Any) -> None:
    still.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    show(still, site, recorded("street_collision"))
    seek(still, 6.0)
    still.get_by_text("Result and metrics").click()
    still.get_by_text("Choose,").click()
    assert accessibility_violations(still) == []
    compare(still, site, [recorded("street_arrival"), recorded("street_collision")])
    assert accessibility_violations(still) == []


def test_the_landmarks_of_several_replays_on_a_page_are_told_apart(site: StaticSite, still: Page) -> None:
    for side, name in (("left", "street_arrival"), ("right", "street_collision")):
        site.responses[f"/{side}"] = [answer(recorded(name))]
    replay = '<replay-compare left="/left" right="/right" left-label="idm" right-label="brake"></replay-compare>'
    site.pages["/page"] = html(f"<h2>One</h2>{replay}<h2>Two</h2>{replay}")
    still.goto(f"{site.origin}/page")
    expect(still.locator("replay-compare > .replay")).to_have_count(2)
    expect(still.get_by_role("region", name="Signals, replay 2")).to_be_visible()
    assert accessibility_violations(still) == []


def test_readers_meet_title_picture_controls_events_signals_and_result_in_this_order(
    site: StaticSite, still: Page
) -> None:
    show(still, site, recorded("street_collision"))
    order = still.evaluate(
        """[...document.querySelectorAll("h2, canvas[role=img], [aria-label=Camera], [aria-label=Playback],"
          + "[aria-label=Events], [aria-label=Signals], details.replay-details")]
          .map(node => node.getAttribute("aria-label") ?? node.tagName)"""
    )
    assert order == [
        "H2",
        "Street from above: crosswalk-sparse-none-mixed-1, outcome collision",
        "Camera",
        "Playback",
        "Events",
        "Signals",
        "DETAILS",
    ]
    focused = []
    for _ in range(12):
        still.keyboard.press("Tab")
        focused.append(still.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert focused[:11] == [
        "Follow",
        "Zoom in",
        "Zoom out",
        "Reset zoom",
        "Collision, at 7.2 s: Failed: collision with pedestrian p4, at fault",
        "Time",
        "Play",
        "One frame back",
        "One frame on",
        "Previous event",
        "Next event",
    ]


@pytest.mark.parametrize("name", [*STAGED, "result"])
def test_a_narrow_window_does_not_scroll_sideways(site: StaticSite, still: Page, name: str) -> None:
    still.set_viewport_size({"width": 360, "height": 740})
    show(still, site, recorded(name))
    if name != "result":
        still.get_by_text("Result and metrics").click()
        still.get_by_text("Choose,").click()
    drawn(still)
    assert not scrolls_sideways(still)
    keep_picture(still, f"{name}-360", full_page=True)


def test_a_narrow_comparison_does_not_scroll_sideways(site: StaticSite, still: Page) -> None:
    still.set_viewport_size({"width": 360, "height": 740})
    compare(still, site, [recorded("street_arrival"), recorded("street_collision")])
    assert not scrolls_sideways(still)


@pytest.mark.parametrize("ratio", [1, 2])
def test_a_canvas_has_a_pixel_for_each_of_the_screen(site: StaticSite, still: Page, ratio: int) -> None:
    browser = still.context.browser
    assert browser is not None
    with browser.new_context(
        viewport={"width": 3840 // ratio, "height": 2160 // ratio}, device_scale_factor=ratio, reduced_motion="reduce"
    ) as sharp:
        page = sharp.new_page()
        show(page, site, recorded("street_collision"))
        drawn(page)
        width, shown = page.locator(".replay-canvas").evaluate("canvas => [canvas.width, canvas.clientWidth]")
        assert width == pytest.approx(shown * ratio, abs=ratio) and width > 2000
        keep_picture(page, f"street-4k-{ratio}", full_page=True)


def test_the_pages_own_colours_decide_between_light_and_dark(site: StaticSite, still: Page) -> None:
    show(still, site, recorded("street_collision"))
    light = colours(still)
    still.evaluate("document.documentElement.className = 'dark'")
    drawn(still)
    dark = colours(still)
    assert "228,233,223" in light and "228,233,223" not in dark and "27,33,36" in dark


@pytest.mark.parametrize(("scheme", "accent"), [("light", (29, 78, 216)), ("dark", (138, 180, 255))])
def test_a_pages_colours_for_both_modes_reach_the_charts_as_those_of_the_mode(
    site: StaticSite, still: Page, scheme: Any, accent: tuple[int, int, int]
) -> None:
    pair = ":root { color-scheme: light dark; --accent: light-dark(#1d4ed8, #8ab4ff) }"
    site.responses["/page.css"] = [Response(PAGE_STYLE + pair, mimetype="text/css")]
    still.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    show(still, site, recorded("street_red_light"))
    for kind in (".replay-binary", ":not(.replay-binary)"):
        assert ",".join(map(str, accent)) in still.locator(f".replay-signal{kind} canvas").first.evaluate(COLOURS)


# -- in a report


def test_the_bundle_shows_inline_documents_without_a_server(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    inline = json.dumps(recorded("street_red_light")).replace("<", "\\u003c")
    document = f'<script type="application/json">{inline}</script>'
    body = f"<replay-player>{document}</replay-player><replay-compare></replay-compare>"
    page.set_content(
        f'<!doctype html><html lang="en"><head><title>Report</title><style>{replay_bundle.style()}</style></head>'
        f"<body>{body}<script>{replay_bundle.script()}</script></body></html>"
    )
    page.locator("replay-player .replay").wait_for()
    assert labels(page).all_text_contents() == ["Red light", "Collision"]
    keep_picture(page, "bundle", full_page=True)
    assert colours(page).get(",".join(map(str, EGO)), 0) > 20
    page.evaluate(
        """() => {
          const [first] = document.querySelectorAll("replay-player");
          document.querySelector("replay-compare").documents = [first.document, first.document];
        }"""
    )
    page.locator("replay-compare .replay").wait_for()
    expect(page.locator("replay-compare .replay-canvas")).to_have_count(2)


def test_every_module_is_in_the_bundle_and_no_import_is_left() -> None:
    text = replay_bundle.script()
    assert "import" not in {line.split(" ", 1)[0] for line in text.splitlines()}
    assert "export" not in {line.split(" ", 1)[0] for line in text.splitlines()}
    for module in replay_bundle.FOLDER.glob("*.js"):
        assert module.read_text().splitlines()[0] in text, f"{module.name} is imported by no module"


@pytest.mark.parametrize(
    "text", ['import x from "./y.js";', "export default 1;", 'const x = await import("./y.js");', "// </script>"]
)
def test_a_module_that_cannot_be_joined_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "replay.js").write_text(text + "\n")
    monkeypatch.setattr(replay_bundle, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=r"joined|ends its element"):
        replay_bundle.script()
