"""Lists of simulations and comparisons together: a comparison is one row, which has its batches in it."""

import pytest
from flask import Flask
from playwright.sync_api import Page, expect

from tests.api.test_model_comparisons import Runs, better, equal
from tests.api.test_model_comparisons import runs as runs
from tests.browser import accessibility_violations, scrolls_sideways
from tests.web.test_pages import names, submitted
from web.states import OF_COMPARISONS, OF_SIMULATIONS


def test_states_are_those_that_the_api_filters_by(page: Page, origin: str) -> None:
    for path, states in (("simulations", OF_SIMULATIONS), ("comparisons", OF_COMPARISONS)):
        assert page.request.get(f"{origin}/v1/{path}/counts").json()["states"].keys() == states


def test_a_comparison_is_one_row_whose_batches_open(page: Page, origin: str, application: Flask, runs: Runs) -> None:
    [before] = submitted(application)
    id = runs.create("new", "old", scenarios={"range": [0, 60]})
    runs.finish(id, better)
    [after] = submitted(application)
    page.goto(origin)
    assert names(page) == [after, id, before]
    row = page.locator(f"#row-{id}")
    expect(row).to_contain_text("new beside old")
    expect(row).to_contain_text("better new +20 points")
    expect(row.get_by_role("link", name="batch 0")).to_have_count(0)
    row.locator("summary").press("Enter")
    expect(row.get_by_role("link", name="batch 0")).to_have_count(2)
    page.evaluate("document.body.dispatchEvent(new CustomEvent('refresh'))")
    submitted(application)
    expect(page.locator("#rows tbody tr")).to_have_count(4)
    expect(row.get_by_role("link", name="batch 0").first).to_be_visible()  # it is open still
    assert accessibility_violations(page) == []
    row.get_by_role("link", name="List them").click()
    expect(page.locator("#rows tbody tr")).to_have_count(6)
    expect(page.get_by_text(f"comparison: {id}")).to_be_visible()
    assert set(names(page)) == {play["id"] for play in runs.get(id)["reference"]["simulations"]} | {
        play["id"] for play in runs.get(id)["models"][0]["simulations"]
    }


def test_batches_are_listed_one_by_one_where_that_is_chosen(
    page: Page, origin: str, application: Flask, runs: Runs
) -> None:
    submitted(application)
    id = runs.create("new", "old")
    page.goto(origin)
    expect(page.locator("#rows tbody tr")).to_have_count(2)
    runs.advance(id)
    page.get_by_label("batches of comparisons one by one").check()
    expect(page.locator("#rows tbody tr")).to_have_count(3)
    expect(page.locator(f"#row-{id}")).to_have_count(0)
    page.wait_for_url("**batches=1*")
    page.get_by_label("batches of comparisons one by one").uncheck()
    expect(page.locator(f"#row-{id}")).to_be_visible()


def test_a_new_batch_changes_the_row_of_its_comparison(page: Page, origin: str, runs: Runs) -> None:
    id = runs.create("new", "old", scenarios={"range": [0, 60]})
    page.goto(origin)
    expect(page.locator(f"#row-{id}")).to_contain_text("the first batch waits, or is played")
    runs.advance(id)
    for simulation in runs.waiting(id):
        runs.play(simulation, equal)
    runs.advance(id)
    expect(page.locator(f"#row-{id}")).to_contain_text("undecided new 0 points")
    expect(page.locator(f"#row-{id}")).to_contain_text("4 simulations")


def test_filters_and_counts_are_of_both(page: Page, origin: str, application: Flask, runs: Runs) -> None:
    submitted(application, 2)
    cancelled = runs.create("other", "old")
    runs.post(f"{cancelled}/cancel")
    runs.advance(cancelled)
    finished = runs.create("new", "old", scenarios={"range": [0, 20]})
    runs.finish(finished, equal)
    page.goto(origin)
    chips = page.get_by_role("navigation", name="States")
    for text in ("all 4", "queued 2", "finished 1", "cancelled 1"):
        expect(chips).to_contain_text(text)
    chips.get_by_role("link", name="finished").click()
    expect(page.locator("#rows tbody tr")).to_have_count(1)
    assert names(page) == [finished]
    expect(chips).to_contain_text("queued 2")
    chips.get_by_role("link", name="queued").click()
    expect(page.locator("#rows tbody tr")).to_have_count(2)
    page.goto(f"{origin}/simulations?q=other")
    assert names(page) == [cancelled]


def test_pages_of_both_follow_each_other(page: Page, origin: str, application: Flask, runs: Runs) -> None:
    ids = []
    for _ in range(16):
        ids += [*submitted(application), runs.create("new", "old", scenarios={"range": [0, 20]})]
    page.goto(origin)
    assert names(page) == ids[:1:-1]
    page.get_by_role("link", name="Older").click()
    expect(page.get_by_role("link", name="Newest")).to_be_visible()
    assert names(page) == ids[1::-1]
    expect(page.get_by_role("navigation", name="States")).to_contain_text("all 32")


def test_pages_of_a_dataset_and_of_a_model_name_a_comparison_once(page: Page, origin: str, runs: Runs) -> None:
    id = runs.create("new", "old", scenarios={"range": [0, 60]})
    runs.finish(id, better)
    for path, region in (("/data/car_street", "Used by"), ("/models/new", "Simulations")):
        page.goto(f"{origin}{path}")
        used = page.get_by_role("region", name=region)
        expect(used.get_by_role("link", name="new beside old")).to_have_attribute("href", f"/comparisons/{id}")
        assert used.locator("> ul > li").count() == 1
        used.locator("summary").click()
        expect(used.get_by_role("link", name="batch 0")).to_have_count(2)
        assert accessibility_violations(page) == []


@pytest.mark.parametrize("path", ["/simulations", "/comparisons", "/data/car_street", "/models/new"])
def test_a_narrow_window_shows_scores_and_verdicts(page: Page, origin: str, runs: Runs, path: str) -> None:
    runs.finish(runs.create("new", "old", scenarios={"range": [0, 60]}), better)
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{origin}{path}")
    shown = page.get_by_text("20 points").locator("visible=true").first
    box = shown.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 360
    assert not scrolls_sideways(page)


def test_a_comparison_is_not_repeated_with_all_that_match(application: Flask, runs: Runs) -> None:
    id = runs.create("new", "old")
    runs.advance(id)
    runs.client.post(f"/v1/comparisons/{id}/cancel")
    runs.advance(id)
    [own, *_] = submitted(application)
    runs.client.post("/v1/simulations/cancel", json={"ids": [own]})
    states = runs.client.get("/v1/simulations/counts").json["states"]  # type: ignore[index]
    assert states["cancelled"] == 3, "two batches, and one of its own"
    for address in ("/simulations", "/simulations?state=cancelled", "/simulations?state=cancelled&state=finished"):
        assert "Repeat 1<" in runs.client.get(address).text
    assert "Repeat all" not in runs.client.get("/simulations?state=finished").text
    answer = runs.client.post("/simulations/retry?state=cancelled", headers={"HX-Request": "true"}).text
    assert "1 of 1 are repeated" in answer
