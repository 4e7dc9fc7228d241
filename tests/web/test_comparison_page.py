"""Pages that compare simulations: verdicts, groups, replays side by side, and what goes with failure."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.api.conftest import LeasingWorker, Submit
from tests.api.test_comparisons import Play, scored
from tests.api.test_comparisons import play as play
from tests.browser import Errors, accessibility_violations, scrolls_sideways


@pytest.fixture
def drives(play: Play) -> tuple[str, str]:
    """Ids of two simulations of car_street: the second is better by 10 points of the score."""

    def of(score: float) -> str:
        def result(task: int) -> dict[str, Any]:
            if task % 10 == 0:
                return scored(task, 20.0, outcome="collision", collision=1)
            return scored(task, score + task % 3, outcome="arrived", collision=0)

        return play(result)

    return of(60.0), of(70.0)


def test_chosen_simulations_are_compared(page: Page, origin: str, drives: tuple[str, str]) -> None:
    page.goto(origin)
    page.get_by_role("button", name="Compare the chosen").click()
    expect(page.get_by_role("status")).to_contain_text("Choose two simulations")
    page.get_by_label("all on this page").check()
    page.get_by_role("button", name="Compare the chosen").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Comparison on car_street")
    expect(page.locator(".verdict")).to_contain_text("better")
    expect(page.locator(".verdict")).to_contain_text("points")
    expect(page.locator(".verdict")).to_contain_text("after 240 of 240 scenarios")
    expect(page.locator("main")).to_contain_text("random sample")
    streets = page.get_by_role("table").filter(has_text="roundabout")
    expect(streets.locator("tbody tr")).to_have_count(3)
    expect(streets).to_contain_text("improved")


def test_the_metric_of_a_comparison_is_chosen(page: Page, origin: str, drives: tuple[str, str]) -> None:
    first, second = drives
    page.goto(f"{origin}/compare?simulation={second}&simulation={first}")
    page.get_by_role("combobox", name="Metric").select_option("collision")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**metric=collision**")
    expect(page.get_by_role("combobox", name="Metric")).to_have_value("collision")
    expect(page.locator(".verdict .state")).to_have_text("equivalent")
    expect(page.locator(".verdict")).to_contain_text("equivalent to mine (second) in collision within 0.02")
    page.goto(f"{origin}/compare?simulation={second}&simulation={first}&metric=comfort")  # without values
    expect(page.locator(".verdict")).to_contain_text("no pair of tasks has a result with both")


def test_groups_of_few_pairs_are_not_shown_as_equal(page: Page, origin: str, play: Play) -> None:
    first, second = play(lambda task: scored(task, 3.0), 6), play(lambda task: scored(task, 80.0), 6)
    page.goto(f"{origin}/compare?simulation={first}&simulation={second}")
    group = page.get_by_role("table").filter(has_text="roundabout").locator("tbody tr").first
    expect(group).to_contain_text("too few")


def test_pairs_of_a_sweep_are_told_apart(page: Page, origin: str, play: Play) -> None:
    def swept(score: float) -> str:
        def result(task: int) -> dict[str, Any]:
            document = scored(task, score + task % 3)
            scenario = document["scenario"] | {"index": task % 6, "name": f"s{task % 6}", "repeat": task // 6 % 2}
            return document | {"scenario": scenario | {"params": {"latency_steps": task // 12}}}

        return play(result, 6, sweep={"latency_steps": [0, 1]}, repeat=2)

    first, second = swept(60.0), swept(70.0)
    page.goto(f"{origin}/compare?simulation={second}&simulation={first}")
    rows = page.locator("table").filter(has_text="Where it is better").locator("tbody tr td:first-child")
    expect(rows).to_have_count(20)
    names = rows.all_inner_texts()
    assert len(set(names)) == 20 and "s0 latency_steps 1, repeat 1" in names


def test_a_third_simulation_is_offered_and_need_not_be_added(
    page: Page, origin: str, drives: tuple[str, str], play: Play
) -> None:
    first, second = drives
    third = play(lambda task: scored(task, 50.0 + task % 3))
    page.goto(f"{origin}/compare?simulation={second}&simulation={first}")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**simulation=&**")
    expect(page.locator(".verdict")).to_have_count(1)
    page.get_by_role("combobox", name="Add").select_option(third)
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".verdict")).to_have_count(2)


def test_a_simulation_that_has_not_ended_is_explained(page: Page, origin: str, finished: str, submit: Submit) -> None:
    page.goto(f"{origin}/compare?simulation={submit(dataset='car_street').json['id']}&simulation={finished}")
    expect(page.locator(".problem")).to_be_visible()


def test_fewer_than_two_simulations_are_refused_with_the_reason(
    page: Page, origin: str, finished: str, page_errors: Errors
) -> None:
    page_errors.expect("422")
    for query in ("", f"simulation={finished}", f"simulation={finished}&simulation={finished}"):
        page.goto(f"{origin}/compare?{query}")
        expect(page.locator("main")).to_contain_text("two different simulations")


def test_the_results_of_a_running_simulation_are_said_to_be_those_so_far(
    page: Page, origin: str, drives: tuple[str, str], submit: Submit, worker: LeasingWorker
) -> None:
    running = submit(dataset="car_street").json["id"]
    launch = worker.launch(running)
    worker.report(launch, worker.lease(launch), 0, 5)
    page.goto(f"{origin}/compare?simulation={running}&simulation={drives[0]}")
    expect(page.locator(".note").first).to_contain_text("results so far")


def test_the_models_of_a_dataset_are_ranked(page: Page, origin: str, play: Play) -> None:
    page.goto(f"{origin}/data/car_street")
    expect(page.get_by_role("heading", name="Leaderboard")).to_have_count(0)
    best = play(lambda task: scored(task, 60.0 + task % 3), tasks=288)
    page.reload()
    board = page.get_by_role("region", name="Table of models")
    expect(board.locator("tbody tr")).to_have_count(1)
    board.get_by_role("link", name="mine").click()
    page.wait_for_url(f"{origin}/simulations/{best}")


def test_a_scenario_is_replayed_side_by_side(page: Page, origin: str, drives: tuple[str, str]) -> None:
    first, second = drives
    page.goto(f"{origin}/compare?simulation={second}&simulation={first}")
    page.locator("table").filter(has_text="Where it is better").get_by_role("link").first.click()
    expect(page.locator("replay-compare")).to_contain_text("Driving score")


def test_what_goes_with_failure_is_shown(page: Page, origin: str, drives: tuple[str, str]) -> None:
    page.goto(f"{origin}/simulations/{drives[0]}")
    expect(page.locator(".strip div", has_text="Not ok")).to_contain_text("0")
    expect(page.locator("main")).to_contain_text("or if its outcome is collision, stranded, timeout")
    page.get_by_role("link", name="What goes with failure").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("What goes with failure")
    expect(page.locator("main")).to_contain_text(
        "24 of 240 results are failures. A result is a failure if its task is not ok, or"
    )
    expect(page.get_by_role("heading", level=2, name="street")).to_be_visible()
    expect(page.get_by_role("region", name="The worst combinations")).to_contain_text("with at least 5 scenarios")
    page.get_by_role("combobox", name="Metric").select_option("score")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("What goes with score")


def test_comparisons_are_accessible_and_fit_a_narrow_window(page: Page, origin: str, drives: tuple[str, str]) -> None:
    first, second = drives
    for path in (f"/compare?simulation={second}&simulation={first}", f"/simulations/{first}/sensitivity"):
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(f"{origin}{path}")
        expect(page.get_by_role("table").first).to_be_visible()
        assert accessibility_violations(page) == []
        page.set_viewport_size({"width": 360, "height": 740})
        assert not scrolls_sideways(page)


def test_a_browser_without_scripts_gets_the_whole_comparison(page: Page, origin: str, drives: tuple[str, str]) -> None:
    first, second = drives
    address = f"{origin}/compare?simulation={second}&simulation={first}"
    assert "better than" not in page.request.get(address).text(), "the comparison is loaded after the page"
    assert "better than" in page.request.get(f"{address}&whole=1").text()


def test_the_margin_and_the_subject_are_chosen_and_one_difference_has_one_interval(
    page: Page, origin: str, drives: tuple[str, str]
) -> None:
    first, second = drives
    page.goto(f"{origin}/compare?simulation={second}&simulation={first}")
    page.get_by_role("textbox", name="Margin").fill("15")
    page.get_by_role("combobox", name="About").select_option("exact")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**margin=15**design=exact**")
    expect(page.locator(".verdict .state")).to_have_text("equivalent")
    expect(page.locator(".verdict")).to_contain_text("within 15 points, and better: the difference is 9 points")
    page.get_by_text("All metrics").click()
    row = page.get_by_role("row").filter(has_text="Driving score")
    expect(row).to_contain_text("9 to 9")
    collisions = page.get_by_role("row").filter(has_text="Collision").first
    expect(collisions).to_contain_text("lower is better")


def test_scenarios_that_broke_are_listed_with_replays_at_that_moment(page: Page, origin: str, play: Play) -> None:
    def of(broken: int) -> str:
        def result(task: int) -> dict[str, Any]:
            failed = task % broken == 0
            return scored(task, 50.0, outcome="collision" if failed else "arrived", seconds=4.5)

        return play(result, 24)

    first, second = of(6), of(8)
    page.goto(f"{origin}/compare?simulation={first}&simulation={second}")
    broke = page.get_by_role("table").filter(has_text="Broke: 3")
    expect(broke.locator("tbody tr")).to_have_count(3)
    expect(broke).to_contain_text("4.5 s")
    expect(page.get_by_role("table").filter(has_text="Fixed: 2")).to_contain_text("arrived")
    expect(page.locator("main")).to_contain_text("noise of the models is among them")
    address = broke.locator("a").first.get_attribute("href")
    assert address is not None and address.endswith("&at=4.5")
    page.goto(f"{origin}{address}")
    expect(page.locator("replay-compare")).to_have_attribute("at", "4.5")


def test_a_difference_by_signs_is_in_percent_of_the_scenarios_everywhere(page: Page, origin: str, play: Play) -> None:
    first = play(lambda task: scored(task, 50, jerk_rms=1.0 if task % 12 else 3.0), tasks=60)
    second = play(lambda task: scored(task, 50, jerk_rms=2.0), tasks=60)
    page.goto(f"{origin}/compare?simulation={first}&simulation={second}&metric=jerk_rms")
    expect(page.locator(".verdict")).to_contain_text("by 83.3 % of the scenarios")
    group = page.get_by_role("row", name="arterial")
    expect(group.locator("td").nth(2)).to_have_text("50")
    expect(page.get_by_role("columnheader", name="Interval (% of the scenarios)").first).to_be_visible()
    expect(page.get_by_role("region", name="is worse").get_by_role("columnheader", name="Worse by")).to_be_visible()


def test_more_flips_than_are_shown_have_an_address(page: Page, origin: str, play: Play) -> None:
    first = play(lambda task: scored(task, 0, outcome="collision"), tasks=60)
    second = play(lambda task: scored(task, 50, outcome="arrived"), tasks=60)
    page.goto(f"{origin}/compare?simulation={first}&simulation={second}")
    expect(page.get_by_text("Broke: 60, the first 50")).to_be_visible()
    address = page.get_by_role("link", name="all as JSON").get_attribute("href")
    assert len(page.request.get(f"{origin}{address}").json()["items"]) == 60


def test_that_nothing_broke_is_said(page: Page, origin: str, drives: tuple[str, str]) -> None:
    page.goto(f"{origin}/compare?simulation={drives[0]}&simulation={drives[1]}")
    expect(page.get_by_text("0 scenarios broke and 0 were fixed.")).to_be_visible()
