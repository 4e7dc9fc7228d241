"""The list of tasks: filtered, sorted, with chosen columns and pages; the address keeps it, also without scripts."""

import re
from typing import Any, Literal
from urllib.parse import parse_qsl

import pytest
from flask.testing import FlaskClient
from playwright.sync_api import Browser, Page, expect
from werkzeug.datastructures import MultiDict

from tests.api.test_comparisons import Play, scored
from tests.api.test_comparisons import play as play
from tests.browser import Errors, accessibility_violations, keep_picture, scrolls_sideways
from web.task_query import TaskQuery, added, value_of


@pytest.fixture
def drives(play: Play) -> str:
    """Id of a simulation of 120 scenarios: each fifth crashed, each tenth from the third on collided."""

    def driven(task: int) -> dict[str, Any]:
        outcome = "collision" if task % 10 == 3 else "arrived"
        metrics = {"outcome": outcome, "comfort": (task % 4) / 4}
        return scored(task, task * 0.5, status="crashed" if task % 5 == 4 else "ok", **metrics)

    return play(driven, 120)


def names(page: Page) -> list[str]:
    """Return the names of the listed tasks."""
    return page.locator("tbody .name").all_inner_texts()


def add(page: Page, name: str, operator: str, value: str) -> None:
    """Add a condition by the form."""
    page.get_by_label("Only tasks whose").select_option(name)
    page.get_by_label("compares").select_option(operator)
    page.get_by_label("with the value").fill(value)
    page.get_by_role("button", name="Apply").click()


def test_tasks_are_filtered_sorted_and_shown_in_chosen_columns_and_the_address_keeps_it(
    page: Page, origin: str, drives: str
) -> None:
    page.goto(f"{origin}/simulations/{drives}/tasks")
    table = page.get_by_role("region", name="Tasks")
    expect(table).to_contain_text("120 of 120 tasks, 50 on this page")
    add(page, "metrics.outcome", "=", "collision")
    expect(table).to_contain_text("12 of 120 tasks")
    add(page, "metrics.score", "..", "10 to 40")
    expect(table).to_contain_text("6 of 120 tasks")
    page.get_by_role("link", name="Driving score").click()
    expect(page.get_by_role("columnheader", name="Driving score")).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("link", name="Driving score").click()
    expect(page.get_by_role("columnheader", name="Driving score")).to_have_attribute("aria-sort", "descending")
    assert names(page) == ["s73", "s63", "s53", "s43", "s33", "s23"]
    page.get_by_text("Columns (").click()
    page.get_by_role("checkbox", name="Comfort").check()
    page.get_by_role("checkbox", name="error", exact=True).uncheck()
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("columnheader", name="Comfort")).to_be_visible()
    expect(page.get_by_role("columnheader", name="error")).to_have_count(0)
    address, view = page.url, page.locator("main").inner_text()
    assert "collision" in address and "-metrics.score" in address and "metrics.comfort" in address
    page.go_back()
    expect(page.get_by_role("columnheader", name="Comfort")).to_have_count(0)
    page.goto(f"{origin}/simulations")
    page.goto(address)  # a link shows the same view
    assert page.locator("main").inner_text() == view
    page.get_by_role("link", name="Remove the condition metrics.outcome=collision").click()
    expect(table).to_contain_text("61 of 120 tasks")


def test_a_form_without_scripts_filters_and_sorts_by_a_parameter_of_the_scenarios(
    browser: Browser, origin: str, drives: str, client: FlaskClient
) -> None:
    specs = client.get("/v1/datasets/car_street/scenarios?limit=120").json["items"]
    few = sorted((spec for spec in specs if spec["vehicles"] <= 6), key=lambda spec: -spec["vehicles"])
    assert 0 < len(few) < 120
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{origin}/simulations/{drives}/tasks")
    page.get_by_label("Sort by").select_option("vehicles")
    page.get_by_label("Order").select_option("descending")
    add(page, "vehicles", "<=", "6")
    expect(page.get_by_role("region", name="Tasks")).to_contain_text(f"{len(few)} of 120 tasks")
    assert names(page) == [f"s{spec['index']}" for spec in few[:50]]
    context.close()


@pytest.mark.parametrize(("by", "title"), [("metrics.comfort", "Comfort"), ("timing.seconds", "seconds to simulate")])
def test_the_list_says_how_it_is_sorted_also_by_what_is_not_a_column(
    page: Page, origin: str, drives: str, by: str, title: str
) -> None:
    page.goto(f"{origin}/simulations/{drives}/tasks")
    table = page.get_by_role("region", name="Tasks", exact=True)
    expect(table).to_contain_text("50 on this page, the worst first")
    expect(page.get_by_label("Sort by")).to_have_value("worst")
    page.goto(f"{origin}/simulations/{drives}/tasks?sort=-{by}")
    expect(table).to_contain_text(f"50 on this page, sorted by {title}, descending")
    add(page, "metrics.score", "=", "10 to 40")  # the order stays
    expect(table).to_contain_text(f"61 of 120 tasks, 50 on this page, sorted by {title}, descending")
    expect(page.get_by_label("Sort by").locator("option:checked")).to_have_text(title)
    expect(page.get_by_label("Order")).to_have_value("descending")


def test_the_hint_of_the_value_fits_its_field(page: Page, origin: str, drives: str) -> None:
    page.goto(f"{origin}/simulations/{drives}/tasks")
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 740})
        field = page.get_by_label("with the value")
        field.evaluate("field => { field.value = field.placeholder; }")  # a hint that is cut off does not scroll
        assert field.evaluate("field => field.scrollWidth <= field.clientWidth")


def test_further_pages_follow_and_the_first_is_near(page: Page, origin: str, drives: str) -> None:
    page.goto(f"{origin}/simulations/{drives}/tasks?sort=-metrics.score")
    seen = names(page)
    for expected in (50, 20):
        page.get_by_role("link", name="Next tasks").click()
        expect(page.locator("tbody tr")).to_have_count(expected)
        seen += names(page)
    assert seen == [f"s{task}" for task in reversed(range(120))]
    expect(page.get_by_role("link", name="Next tasks")).to_have_count(0)
    page.get_by_role("link", name="First page").click()
    assert names(page) == seen[:50]


def test_the_answer_leads_to_the_tasks_that_it_counts(page: Page, origin: str, drives: str) -> None:
    for name, count in (("36 of 120", 36), ("12 of 120", 12), ("24 of 120", 24)):
        page.goto(f"{origin}/simulations/{drives}")
        page.get_by_role("link", name=name).click()
        expect(page.get_by_role("region", name="Tasks")).to_contain_text(f"{count} of 120 tasks")


def test_a_condition_that_cannot_be_is_explained_on_the_page(
    page: Page, origin: str, drives: str, page_errors: Errors
) -> None:
    page_errors.expect("422")
    page.goto(f"{origin}/simulations/{drives}/tasks?where=street%3Darteriel")
    expect(page.get_by_role("alert")).to_contain_text("No task has street='arteriel'")
    page.get_by_role("link", name="Remove the condition").click()
    expect(page.locator("tbody tr")).to_have_count(50)


def test_selected_tasks_are_downloaded(client: FlaskClient, drives: str) -> None:
    page = client.get(f"/simulations/{drives}/tasks?where=failed%3Dtrue").text
    address = re.search(r'href="(/v1/[^"]+format=csv[^"]*)"', page)
    assert address is not None
    assert client.get(address[1].replace("&amp;", "&")).data.count(b"\r\n") == 37


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_list_of_tasks_is_accessible(
    page: Page, origin: str, drives: str, scheme: Literal["light", "dark"]
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{origin}/simulations/{drives}/tasks?where=failed%3Dtrue&where=metrics.score%3E%3D10&sort=metrics.score")
    page.get_by_text("Columns (").click()
    keep_picture(page, f"tasks-{scheme}")
    assert accessibility_violations(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    assert not scrolls_sideways(page)
    keep_picture(page, f"tasks-{scheme}-narrow")


@pytest.mark.parametrize(
    ("operator", "value", "conditions"),
    [
        ("=", " arterial ", ["x=arterial"]),
        ("..", "10 to 20", ["x>=10", "x<=20"]),
        ("..", "-1.5..2e3", ["x>=-1.5", "x<=2e3"]),
        ("..", "10", ["x=10"]),
        ("=", "10 to 60", ["x>=10", "x<=60"]),
        ("=", "-1.5 … 2e3", ["x>=-1.5", "x<=2e3"]),
        ("=", "near to far", ["x=near to far"]),
        ("=", "10,5", ["x=10,5"]),
        ("!=", "10 to 60", ["x!=10 to 60"]),
        ("?", "10", ["x=10"]),
        (">=", "", []),
    ],
)
def test_a_field_of_the_form_is_one_condition_or_two(operator: str, value: str, conditions: list[str]) -> None:
    assert added(MultiDict({"name": "x", "operator": operator, "value": value})) == conditions


def test_an_address_is_read_as_it_is_written() -> None:
    query = TaskQuery(("street=a b", "metrics.x<=3"), "-metrics.x", ("error", "metrics.x"), "")
    for view in (query, TaskQuery(), TaskQuery(columns=())):
        arguments = MultiDict(parse_qsl(view.address()[1:], keep_blank_values=True))
        assert TaskQuery.read(arguments) == view
    assert query.sorted_by("metrics.x").endswith("sort=metrics.x&columns=error&columns=metrics.x")


def test_a_value_is_found_by_a_name_with_dots() -> None:
    result = {"task": 3, "metrics": {"a.b": 1, "c": {"d": 2}}, "scenario": {"params": {"x": 5}}}
    columns = {"task": 3, "metrics.a.b": 1, "metrics.c.d": 2, "scenario.params.x": 5, "metrics.none": None, "y": None}
    assert {column: value_of(result, column) for column in columns} == columns
