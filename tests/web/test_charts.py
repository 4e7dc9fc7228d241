"""Charts of the web page in Chromium, in light and dark: axes with units, zero lines, margins, counts, one scale."""

from pathlib import Path
from typing import Any

import pytest
from flask import render_template
from playwright.sync_api import Locator, Page, expect

from tests.api.test_comparisons import Play, scored
from tests.api.test_comparisons import play as play
from tests.api.test_model_comparisons import Runs, better
from tests.api.test_model_comparisons import runs as runs
from tests.browser import accessibility_violations, keep_picture, scrolls_sideways
from tests.waiting import until
from tests.web.test_chart_colours import BACKGROUND, SCHEMES, Colour, Scheme, colour_of, contrast, numbers, pixels
from web import application, comparison_report
from web.comparison_report import Replays
from web.model_labels import labelled
from web.views.comparisons import verdict_parts

#: Pairs played at the looks of a comparison.
COUNTS = (16, 32, 48, 64, 86, 115, 154, 206, 275, 367, 490, 654, 872, 1163, 1551)


def narrowing(count: int, mean: float) -> list[dict[str, float]]:
    """Return the first looks of a verdict, whose intervals narrow as the sequential test's do."""
    halves = [min(95.0, 400 / pairs) for pairs in COUNTS[:count]]
    return [
        {"count": pairs, "mean": mean + half / 9, "low": mean - half, "high": mean + half}
        for pairs, half in zip(COUNTS, halves, strict=False)
    ]


def report(document: dict[str, Any], file: Path) -> str:
    """Write the report of a comparison, without replays; return its address."""
    comparison = labelled(document)
    with application.create(lambda environ, start: []).test_request_context():
        parts = {**comparison_report.inline_parts(), **verdict_parts(comparison)}
        file.write_text(
            render_template(
                "comparisons/report.html",
                comparison=comparison,
                replays=Replays([], [], []),
                document=document,
                **parts,
            )
        )
    return file.as_uri()


@pytest.fixture
def finished_comparison(runs: Runs) -> dict[str, Any]:
    """The document of a comparison in which the model is better."""
    return runs.finish(runs.create("new", "old"), better)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("count", [2, 15])
def test_a_course_shows_each_interval_beside_the_margin(
    page: Page, finished_comparison: dict[str, Any], tmp_path: Path, scheme: Scheme, count: int
) -> None:
    [model] = finished_comparison["models"]
    model["looks"] = narrowing(count, 0.4)
    model["verdict"] |= model["looks"][-1] | {"margin": 2}
    page.emulate_media(color_scheme=scheme)
    page.goto(report(finished_comparison, tmp_path / "report.html"))
    course = page.locator("figure.course")
    name = "lies within" if count == 15 else "reaches beyond"
    expect(course.get_by_role("img", name=f"it {name} the margin of 2 points")).to_be_visible()
    expect(course).to_contain_text("Difference in score (points); above 0, new is better")
    expect(course).to_contain_text("scenarios played, of 288")
    expect(course.locator(".looks circle")).to_have_count(count)
    band, last = (course.locator(part).bounding_box() for part in ("rect.margin", ".looks circle >> nth=-1"))
    assert band and last and band["y"] <= last["y"] + last["height"] / 2 <= band["y"] + band["height"]
    for labels in (course.locator(".heights text"), course.locator(".pairs text")):
        assert labels.count() >= 2 and not overlap(labels)
    interval, background = course.locator(".looks line").last, numbers(course.evaluate(BACKGROUND))
    assert contrast(colour_of(interval, "stroke"), background) >= 3
    assert colour_of(interval, "stroke") == colour_of(course.locator(".key.bar"), "borderTopColor")
    assert colour_of(course.locator("rect.margin"), "fill") == colour_of(course.locator(".key.band"), "backgroundColor")
    assert contrast(colour_of(course.locator("line.margin").first, "stroke"), background) >= 3
    keep_picture(page, f"course-{count}-{scheme}", full_page=True)
    assert accessibility_violations(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert not scrolls_sideways(page)
    for labels in (course.locator(".heights text"), course.locator(".pairs text")):
        assert not overlap(labels)
    keep_picture(page, f"course-{count}-{scheme}-narrow")


def overlap(labels: Locator) -> bool:
    """Tell whether two texts cover each other."""
    boxes = [box for label in labels.all() if (box := label.bounding_box())]
    return any(
        one["x"] < other["x"] + other["width"]
        and other["x"] < one["x"] + one["width"]
        and one["y"] < other["y"] + other["height"]
        and other["y"] < one["y"] + one["height"]
        for number, one in enumerate(boxes)
        for other in boxes[:number]
    )


@pytest.mark.parametrize("margin", [None, 0, "absent"])
def test_a_course_without_a_margin_has_no_band(
    page: Page, finished_comparison: dict[str, Any], tmp_path: Path, margin: Any
) -> None:
    [model] = finished_comparison["models"]
    model["verdict"].pop("margin", None)
    if margin != "absent":
        model["verdict"]["margin"] = margin
    page.goto(report(finished_comparison, tmp_path / "report.html"))
    expect(page.locator("figure.course .looks .zero")).to_have_count(1)
    expect(page.locator("figure.course")).not_to_contain_text("margin")


def test_the_numbers_of_a_course_are_a_table(page: Page, finished_comparison: dict[str, Any], tmp_path: Path) -> None:
    page.goto(report(finished_comparison, tmp_path / "report.html"))
    page.get_by_text("Numbers of the course").click()
    looks = finished_comparison["models"][0]["looks"]
    expect(page.locator(".course tbody tr")).to_have_count(len(looks))
    expect(page.locator(".course tbody tr").first).to_contain_text("16")
    assert accessibility_violations(page) == []


def test_the_intervals_of_a_table_share_a_scale_that_its_head_says(
    page: Page, finished_comparison: dict[str, Any], tmp_path: Path
) -> None:
    page.goto(report(finished_comparison, tmp_path / "report.html"))
    table = page.get_by_role("table", name="street")
    head = table.locator("th.plot")
    expect(head).to_contain_text("Interval (points), on a scale from")
    low, *_, high = head.locator("svg text").all_text_contents()
    assert float(low) <= 0 < float(high)
    widths = table.locator("svg").evaluate_all("svgs => svgs.map(svg => svg.getBoundingClientRect().width)")
    assert len(widths) > 2 and len(set(widths)) == 1, "a value of the head is where it is in each row"
    group = finished_comparison["models"][0]["groups"]["street"][0]
    share = (group["mean"] - float(low)) / (float(high) - float(low))
    drawn = table.locator("svg.interval").first.locator("line.mean").get_attribute("x1")
    assert float(str(drawn).rstrip("%")) == pytest.approx(2 + 96 * share, abs=0.1)


def test_a_group_without_pairs_does_not_widen_the_scale(
    page: Page, finished_comparison: dict[str, Any], tmp_path: Path
) -> None:
    [model] = finished_comparison["models"]
    full, empty, *_ = model["groups"]["street"]
    full |= {"mean": 5, "low": 2, "high": 10}
    empty |= {"count": 0, "mean": None, "low": -100, "high": 100}
    model["groups"] = {"street": [full, empty]}
    page.goto(report(finished_comparison, tmp_path / "report.html"))
    assert page.get_by_role("table", name="street").locator("thead svg text").all_text_contents() == ["0", "10"]


@pytest.fixture
def drives(play: Play) -> str:
    """Id of a simulation of car_street: a metric of 0 and 1, one with both signs, texts; every tenth task crashed."""

    def result(task: int) -> dict[str, Any]:
        if task % 10 == 0:
            return scored(task, None, status="crashed")
        drive = {"outcome": "collision", "collision": 1} if task % 5 == 1 else {"outcome": "arrived", "collision": 0}
        result = scored(task, 20.0 + task * 7 % 71, time_lost=(task * 13 % 60) - 20.5, clipped_actions=0, **drive)
        result["scenario"] |= {"density": ("sparse", "dense")[task // 3 % 2], "start": {"pos": task * 1.7 - 100}}
        return result

    return play(result)


def card(page: Page, title: str) -> Locator:
    return page.locator("metric-plots figure", has=page.get_by_text(title, exact=True))


def colour_named(page: Page, name: str) -> Colour:
    """Return a colour of the style sheet, in the mode in force."""
    return numbers(page.evaluate("name => getComputedStyle(document.body).getPropertyValue(name)", f"--{name}"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_histogram_is_drawn_in_the_colours_of_its_legend(
    page: Page, origin: str, drives: str, scheme: Scheme
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{origin}/simulations/{drives}")
    score = card(page, "Driving score")
    expect(score).to_contain_text("216 tasks")

    def colours() -> tuple[Colour, Colour]:
        """The colours of the most pixels, and of the bars as the style sheet has it."""
        [(drawn, _)] = pixels(score.locator("canvas")).most_common(1)
        return drawn, colour_named(page, "accent")

    def is_drawn_as_said() -> bool:
        drawn, said = colours()
        return drawn == said

    until(is_drawn_as_said)
    first, _ = colours()
    assert contrast(first, numbers(score.evaluate(BACKGROUND))) >= 3
    drawn = pixels(score.locator("canvas"))
    mean = drawn[colour_of(score.locator(".key.mean"), "borderLeftColor")]
    assert mean > 20 and mean > drawn[colour_named(page, "panel")], "the line of the mean, which hides no bar beside it"
    page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
    until(is_drawn_as_said, message="a page that is open does not change with the system")
    assert colours()[0] != first


def test_a_metric_of_0_and_1_is_shown_as_counts_and_shares(page: Page, origin: str, drives: str) -> None:
    page.goto(f"{origin}/simulations/{drives}")
    page.get_by_role("button", name="All").click()
    collision = card(page, "Collision")
    expect(collision).to_contain_text("216 tasks")
    expect(collision.locator("tbody tr")).to_have_text(["14822.2 %", "016877.8 %"])
    expect(collision.locator("canvas")).to_have_count(0)
    expect(card(page, "Actions out of range").locator("tbody tr")).to_have_text(["0216100 %"])  # a count, never 1
    failed = card(page, "Share of failures")
    expect(failed).to_contain_text("240 tasks")
    expect(failed.get_by_role("row", name="did not fail")).to_contain_text("168")
    expect(card(page, "Outcome").locator("tbody tr")).to_have_text(["arrived16877.8 %", "collision4822.2 %"])


def choose(page: Page, metric: str, against: str, second: str = "") -> Locator:
    plot = page.locator("dependence-plot")
    for number, value in ((2, second), (1, against), (0, metric)):  # texts have no heat map
        plot.locator("select").nth(number).select_option(value)
    return plot


@pytest.mark.parametrize("scheme", SCHEMES)
def test_points_are_drawn_in_the_colours_of_their_legend_with_a_line_at_0(
    page: Page, origin: str, drives: str, scheme: Scheme
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{origin}/simulations/{drives}")
    plot = choose(page, "time_lost", "start.pos")
    expect(plot.locator(".legend li")).to_have_text(
        ["216 tasks that are ok", "24 that are not ok, at the worst value", "A point leads to its task."]
    )
    expect(plot.get_by_role("columnheader", name="Mean (s)")).to_be_visible()
    drawn, muted = pixels(plot.locator("canvas")), colour_named(page, "muted")
    for key in plot.locator(".key").all():
        colour = colour_of(key, "backgroundColor")
        assert drawn[colour] > 100 and contrast(colour, numbers(plot.evaluate(BACKGROUND))) >= 3
    keep_picture(page, f"plots-{scheme}", full_page=True)
    assert accessibility_violations(page) == []
    choose(page, "score", "start.pos")  # no value is negative
    expect(plot.get_by_role("img", name="Driving score of single tasks")).to_be_visible()
    width = int(plot.locator("canvas").get_attribute("width") or 0)
    assert pixels(plot.locator("canvas"))[muted] < width / 2 < drawn[muted]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_intervals_of_groups_share_the_scale_of_their_head(
    page: Page, origin: str, drives: str, scheme: Scheme
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{origin}/simulations/{drives}")
    plot = choose(page, "time_lost", "density")
    expect(plot.get_by_role("columnheader", name="Mean (s)")).to_be_visible()
    assert_means_are_in_place(plot.get_by_role("table"))
    page.goto(f"{origin}/simulations/{drives}/sensitivity?metric=time_lost")
    expect(page.locator("th.plot").first).to_contain_text("95 % interval (s), on a scale from")
    assert_means_are_in_place(page.get_by_role("table").first)
    keep_picture(page, f"sensitivity-{scheme}", full_page=True)
    assert accessibility_violations(page) == []


def assert_means_are_in_place(table: Locator) -> None:
    """Fail unless the marks of means are where the scale of the table's head has their values."""
    low, *_, high = (float(text) for text in table.locator("thead svg text").all_text_contents())
    values = table.locator("tbody td:nth-child(3)").all_inner_texts()
    marks = table.locator("tbody line.mean").all()
    assert len(values) == len(marks) > 1
    for value, mark in zip(values, marks, strict=True):
        share = (float(value) - low) / (high - low)
        assert float(str(mark.get_attribute("x1")).rstrip("%")) == pytest.approx(2 + 96 * share, abs=0.2)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_shades_of_tables_have_a_legend(page: Page, origin: str, drives: str, scheme: Scheme) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{origin}/simulations/{drives}")
    heat = choose(page, "score", "street", "density").locator("table.heat")
    expect(heat.locator("caption")).to_contain_text("Mean of Driving score (%), 240 tasks")
    least, most = (colour_of(heat.locator(".key").nth(end), "backgroundColor") for end in (0, 1))
    cells = {float(cell.inner_text()): colour_of(cell, "backgroundColor") for cell in heat.locator("td.cell").all()}
    assert (cells[min(cells)], cells[max(cells)]) == (least, most)
    assert accessibility_violations(page) == []
    keep_picture(page, f"heat-{scheme}", full_page=True)
    counts = choose(page, "outcome", "density")
    expect(counts.locator("caption")).to_contain_text("the stronger the shade, the larger its share of the row")
    assert accessibility_violations(page) == []
