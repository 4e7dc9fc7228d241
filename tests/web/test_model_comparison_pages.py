"""Pages of comparisons of models: the form, the live verdicts, joining, cancellation, and the report as a file."""

import json
import re
import shlex
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.api.test_model_comparisons import Runs, better, equal
from tests.api.test_model_comparisons import runs as runs
from tests.browser import Errors, accessibility_violations, scrolls_sideways
from web.comparison_request import comparison_request
from web.form_fields import UnreadableField


def fill(page: Page, origin: str) -> None:
    page.goto(f"{origin}/comparisons")
    page.get_by_role("link", name="Compare models").click()
    page.get_by_label("Model 1").fill("new")
    page.get_by_label("Reference").fill("old")
    page.get_by_label("Dataset").select_option("car_street")


def test_models_are_compared_from_the_form_to_the_verdict(page: Page, origin: str, runs: Runs) -> None:
    fill(page, origin)
    expect(page.get_by_label("Metric").locator("option")).not_to_have_count(1)
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url("**/comparisons/0*")
    id = page.url.rpartition("/")[2]
    expect(page.locator("#live")).to_contain_text("The first batch waits, or is played.")
    runs.advance(id)
    for simulation in runs.waiting(id):
        runs.play(simulation, better)
    runs.advance(id)
    expect(page.locator(".verdict")).to_contain_text("16 of 288 scenarios")  # live, without a reload
    for simulation in runs.waiting(id):
        runs.play(simulation, better)
    runs.finish(id, better)
    expect(page.locator(".statusline")).to_contain_text("finished")
    expect(page.get_by_role("region", name="Simulations").get_by_role("link", name="batch 0")).to_have_count(2)
    expect(page.locator(".verdict")).to_contain_text("new is better than old in score by 20")
    expect(page.locator("main")).to_contain_text("were saved")
    expect(page.get_by_role("img", name="Course of the verdict on new")).to_be_visible()
    expect(page.get_by_role("table", name="street")).to_be_visible()
    held = page.locator("tr", has=page.get_by_text(re.compile("^(held|too few)$")))
    shown = held.evaluate_all("rows => rows.map(row => row.cells[5].textContent)")
    assert shown and "–" not in shown, "beside each `held` is what could have been shown, or that nothing could"
    expect(page.locator("tr", has_text="too few").first).to_contain_text("none")
    assert "/compare/replay?left=" in str(
        page.locator("table").filter(has_text="Where it is better").get_by_role("link").first.get_attribute("href")
    )
    page.goto(f"{origin}/comparisons?state=finished")
    expect(page.locator(f"#row-{id}")).to_contain_text("better")


def test_pairs_of_a_sweep_are_told_apart(page: Page, origin: str, runs: Runs) -> None:
    id = runs.create("new", "old", scenarios={"range": [0, 5]}, sweep={"latency_steps": [0, 2]}, repeat=2)
    runs.finish(id, better)
    page.goto(f"{origin}/comparisons/{id}")
    names = (
        page.locator("table").filter(has_text="Where it is better").locator("tbody tr td:first-child").all_inner_texts()
    )
    assert len(set(names)) == len(names) == 20
    assert any("latency_steps 2, repeat 1" in name for name in names)
    report = page.request.get(f"{origin}/comparisons/{id}/report.html?replays=none").text()
    assert report.startswith("<!doctype html>") and "latency_steps 2, repeat 1" in report


def test_the_curl_command_beside_the_form_is_its_request(page: Page, origin: str, runs: Runs) -> None:
    fill(page, origin)
    page.get_by_role("textbox", name="Scenarios").fill("40")
    page.get_by_label("Error rate, in percent").fill("1")
    command = page.locator("#request code")
    expect(command).to_contain_text("40")
    expect(command).to_contain_text("0.01")
    words = shlex.split(command.inner_text().replace("\\\n", " "))
    body = json.loads(words[words.index("-d") + 1])
    by_curl = runs.client.post("/v1/comparisons", json=body).json
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url("**/comparisons/0*")
    by_page = runs.get(page.url.rpartition("/")[2])
    assert by_curl is not None
    for member in ("dataset", "metric", "selection", "error_rate", "design", "scenarios", "seed"):
        assert by_curl[member] == by_page[member]
    assert by_curl["scenarios"] == 40 and by_curl["error_rate"] == 0.01


def test_a_request_that_is_refused_is_shown_again_with_the_reason(
    page: Page, origin: str, runs: Runs, page_errors: Errors
) -> None:
    page_errors.expect("404|422")
    fill(page, origin)
    page.get_by_label("Reference").fill("othr")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Did you mean other?")
    expect(page.get_by_label("Model 1")).to_have_value("new")
    page.get_by_label("Reference").fill("old")
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url("**/comparisons/0*")


def test_a_form_that_is_sent_twice_creates_one_comparison(page: Page, origin: str, runs: Runs) -> None:
    fill(page, origin)
    form = {"key": page.locator("input[name=key]").input_value(), "model": "new", "reference": "old"}
    form["dataset"] = "car_street"
    sent = [page.request.post(f"{origin}/comparisons/new", form=form, headers={"Origin": origin}) for _ in "ab"]
    addresses = {answer.url for answer in sent}
    assert len(addresses) == 1 and len(runs.client.get("/v1/comparisons").json["items"]) == 1  # type: ignore[index]


def test_a_model_joins_and_a_comparison_is_cancelled_continued_and_deleted(
    page: Page, origin: str, runs: Runs, page_errors: Errors
) -> None:
    page_errors.expect("404.*/events")  # the stream of a comparison that was deleted
    id = runs.create("new", "old", scenarios={"range": [0, 30]})
    runs.finish(id, equal)
    page.goto(f"{origin}/comparisons/{id}")
    page.get_by_label("Model", exact=True).fill("other")
    page.get_by_role("button", name="Let it join").click()
    expect(page.locator("#model-2")).to_contain_text("other")
    page.get_by_text("Cancel …").click()
    page.get_by_role("button", name="Cancel the comparison").click()
    expect(page.locator(".statusline")).to_contain_text("cancelling")
    runs.advance(id)
    runs.advance(id)
    expect(page.locator(".statusline")).to_contain_text("cancelled")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator(".statusline")).to_contain_text("running")
    runs.finish(id, equal)
    expect(page.locator(".statusline")).to_contain_text("finished")
    page.get_by_text("Delete …").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.wait_for_url("**/comparisons")
    expect(page.locator("main")).to_contain_text("No comparison yet.")


def test_a_report_is_one_file_that_needs_no_server(page: Page, origin: str, runs: Runs, tmp_path: Path) -> None:
    id = runs.create("new", "old")
    document = runs.finish(id, better)
    answer = page.request.get(f"{origin}/comparisons/{id}/report.html?replays=none")
    assert answer.status == 200 and f"comparison-{id}.html" in answer.headers["content-disposition"]
    file = tmp_path / "report.html"
    file.write_bytes(answer.body())
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    expect(page.locator(".verdict")).to_contain_text("new is better than old in score")
    assert json.loads(str(page.locator("#comparison").text_content())) == document, "what the API answered"
    assert requests == [file.as_uri()], "a report asks no server for anything"
    assert accessibility_violations(page) == []


def test_pages_of_comparisons_are_accessible_and_fit_a_narrow_window(page: Page, origin: str, runs: Runs) -> None:
    id = runs.create("new", "old", "other", reference="old")
    runs.finish(id, better)
    for path in ("/comparisons", "/comparisons/new?dataset=car_street", f"/comparisons/{id}"):
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(f"{origin}{path}")
        assert accessibility_violations(page) == []
        assert len(page.content()) < 200_000
        page.set_viewport_size({"width": 360, "height": 740})
        assert not scrolls_sideways(page)


def test_a_comparison_that_ended_without_a_verdict_says_so_in_the_list(page: Page, origin: str, runs: Runs) -> None:
    cancelled, failed = runs.create("new", "old"), runs.create("other", "old")
    runs.post(f"{cancelled}/cancel")
    runs.advance(cancelled)
    runs.advance(failed)
    for simulation in runs.waiting(failed):
        runs.client.post(f"/v1/simulations/{simulation}/cancel")
    runs.advance(failed)
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{origin}/comparisons")
    expect(page.locator(f"#row-{cancelled}")).to_contain_text("new: cancelled before a verdict.")
    expect(page.locator(f"#row-{failed}")).to_contain_text("“Go on” tries again")
    assert not scrolls_sideways(page)
    assert accessibility_violations(page) == []
    page.goto(f"{origin}/comparisons/{failed}")
    expect(page.locator("#live")).to_contain_text("“Go on” tries again")
    expect(page.get_by_role("button", name="Go on")).to_be_visible()


def test_models_that_are_equal_are_equivalent_within_the_margin(page: Page, origin: str, runs: Runs) -> None:
    id = runs.create("new", "old", scenarios={"range": [0, 30]}, margin=40)
    runs.finish(id, equal)
    page.goto(f"{origin}/comparisons/{id}")
    expect(page.locator(".verdict .state")).to_have_text("equivalent")
    expect(page.locator(".verdict")).to_contain_text("within 40 points")
    expect(page.locator("main")).to_contain_text("all scenarios that there could be")
    page.goto(f"{origin}/comparisons")
    expect(page.locator(f"#row-{id} .state").last).to_have_text("equivalent")


def test_an_error_rate_is_given_in_percent_and_refused_in_percent(
    page: Page, origin: str, runs: Runs, page_errors: Errors
) -> None:
    page_errors.expect("422")
    fill(page, origin)
    page.get_by_label("Error rate, in percent").fill("100 %")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("'100 %' is not a number from 0.01 % to 50 %. Enter 5 for 5 %.")
    page.get_by_label("Error rate, in percent").fill("0,5 %")
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url("**/comparisons/0*")
    assert runs.get(page.url.rpartition("/")[2])["error_rate"] == 0.005


def test_a_form_without_values_has_no_members_but_models() -> None:
    assert comparison_request({"model": ["", " a "], "seed": [""]}) == {"models": ["a"]}
    assert comparison_request({"sample": ["many"], "error_rate": ["0,5 %"]}) == {
        "models": [], "error_rate": 0.005, "scenarios": {"sample": "many"},
    }  # fmt: skip
    for rate in ("x", "%", "0", "100", "nan"):
        with pytest.raises(UnreadableField, match="Enter 5 for 5 %"):
            comparison_request({"error_rate": [rate]})
