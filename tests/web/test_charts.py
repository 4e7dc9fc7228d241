"""Charts of the web page in Chromium, in light and dark: axes with units, zero lines, margins, counts, one scale."""

from pathlib import Path
from typing import Any

import pytest
from flask import render_template
from playwright.sync_api import Locator, Page, expect

from tests.api.test_model_comparisons import Runs, better
from tests.api.test_model_comparisons import runs as runs
from tests.browser import accessibility_violations, keep_picture, scrolls_sideways
from tests.web.test_chart_colours import BACKGROUND, SCHEMES, Scheme, colour_of, contrast, numbers
from web import application, comparison_report
from web.views.comparisons import labelled, verdict_parts

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
            render_template("comparisons/report.html", comparison=comparison, replays={}, document=document, **parts)
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
    expect(course.get_by_role("img", name=f"it {name} the margin of 2 %")).to_be_visible()
    expect(course).to_contain_text("Difference in score (%); above 0, new is better")
    expect(course).to_contain_text("pairs played, of 288")
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
    expect(head).to_contain_text("Interval (%), on a scale from")
    low, *_, high = head.locator("svg text").all_text_contents()
    assert float(low) <= 0 < float(high)
    widths = table.locator("svg").evaluate_all("svgs => svgs.map(svg => svg.getBoundingClientRect().width)")
    assert len(widths) > 2 and len(set(widths)) == 1, "a value of the head is where it is in each row"
    group = finished_comparison["models"][0]["groups"]["street"][0]
    share = (group["mean"] - float(low)) / (float(high) - float(low))
    drawn = table.locator("svg.interval").first.locator("line.mean").get_attribute("x1")
    assert float(str(drawn).rstrip("%")) == pytest.approx(2 + 96 * share, abs=0.1)
