"""Pages of pipelines: the picture and the list of steps follow the states, and steps are run again from there."""

import json
from typing import Any

from flask.testing import FlaskClient
from playwright.sync_api import Page, expect

from core.services.platform import Platform
from tests.api.conftest import LeasingWorker
from tests.browser import Errors
from web.pipeline_form import EXAMPLE
from web.step_picture import MOST_STEPS, ShownStep, columns_of, picture_of


def step(name: str, *after: str) -> dict[str, Any]:
    submission = {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, 3]}, "labels": {"own": name}}
    return {"name": name, "submission": submission, "after": list(after), "fresh": True}


def advance(platform: Platform, id: str) -> None:
    platform.database.write(lambda c: c.exec_driver_sql("UPDATE pipelines SET claim=NULL, claim_until=0, not_before=0"))
    platform.pipelines.pipeline_steps.advance(id)


def test_a_pipeline_is_followed_in_its_picture_and_run_again_from_a_step(
    page: Page, origin: str, client: FlaskClient, platform: Platform, worker: LeasingWorker
) -> None:
    body = {"name": "nightly", "steps": [step("train"), step("evaluate", "train"), step("report", "evaluate")]}
    id = client.post("/v1/pipelines", json=body).json["id"]
    page.goto(f"{origin}/pipelines")
    expect(page.locator(f"#row-{id}")).to_contain_text("nightly")
    page.get_by_role("link", name="nightly").click()
    picture = page.get_by_role("region", name="Order")
    expect(picture.locator("a.step")).to_have_count(3)
    expect(picture.locator("path")).to_have_count(2)
    advance(platform, id)
    expect(page.locator("#step-train")).to_contain_text("running")  # live, without a reload
    expect(picture.locator("a.step.active")).to_have_count(1)
    for name in ("train", "evaluate", "report"):
        steps = client.get(f"/v1/pipelines/{id}").json["steps"]
        [running] = [each["simulation_id"] for each in steps if each["state"] == "running"]
        worker.run_to_end(running)
        advance(platform, id)
        expect(page.locator(f"#step-{name}")).to_contain_text("succeeded")
    expect(page.locator(".statusline")).to_contain_text("succeeded")
    expect(page.locator("#step-report").get_by_role("link", name="Simulation")).to_be_visible()
    page.get_by_role("button", name="Run again from evaluate").click()
    expect(page.locator(".statusline")).to_contain_text("running")
    states = [each["state"] for each in client.get(f"/v1/pipelines/{id}").json["steps"]]
    assert states == ["succeeded", "ready", "waiting"]
    page.locator("summary", has_text="Cancel").click()
    page.get_by_role("button", name="Cancel the pipeline").click()
    advance(platform, id)
    expect(page.locator(".statusline")).to_contain_text("cancelled")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#step-report")).to_contain_text("waiting")


def test_a_pipeline_is_begun_on_the_page_and_its_steps_are_edited(
    page: Page, page_errors: Errors, origin: str, client: FlaskClient
) -> None:
    page_errors.expect("422")
    page.goto(f"{origin}/pipelines")
    page.get_by_role("link", name="New pipeline").click()
    document = page.get_by_role("textbox", name="Document")
    assert json.loads(document.input_value()) == EXAMPLE
    for text, words in (
        ('[{"name": "one"', "This is not JSON"),
        ("7", "A pipeline is an object"),
        (json.dumps([step("one", "tow")]), "waits for a step 'tow'"),
        (json.dumps({"steps": [step("one")], "nam": "x"}), "Unknown field"),
    ):
        document.fill(text)
        page.get_by_role("button", name="Begin").click()
        expect(page.get_by_role("alert")).to_contain_text(words)
        expect(document).to_have_value(text)
    document.fill(json.dumps([step("one")]))
    page.get_by_role("button", name="Begin").click()
    expect(page.locator("#step-one")).to_contain_text("ready")
    [created] = client.get("/v1/pipelines").json["items"]
    page.get_by_role("link", name="Edit a copy of its steps").click()
    copied = json.loads(document.input_value())
    [again] = copied["steps"]
    assert list(copied) == ["steps"] and step("one")["submission"].items() <= again["submission"].items(), copied
    document.fill(json.dumps({"name": "second", **copied}))
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("heading", name="second")).to_be_visible()
    second, first = client.get("/v1/pipelines").json["items"]
    assert first["id"] == created["id"] and second["name"] == "second"


def test_each_step_is_to_the_right_of_those_that_it_waits_for() -> None:
    after = {"d": ["b", "c"], "b": ["a"], "a": [], "c": []}
    assert columns_of(after) == {"a": 0, "c": 0, "b": 1, "d": 2}
    picture = picture_of([ShownStep(name, "waiting", before) for name, before in after.items()])
    assert picture is not None and len(picture.lines) == 3
    places = {drawn.step.name: (drawn.x, drawn.y) for drawn in picture.steps}
    assert len(set(places.values())) == 4
    assert all(places[other][0] < places[name][0] for name, before in after.items() for other in before)


def test_a_pipeline_of_hundreds_of_steps_is_a_list_only() -> None:
    steps = [ShownStep(f"s{number}", "waiting") for number in range(MOST_STEPS + 1)]
    assert picture_of(steps) is None and picture_of(steps[1:]) is not None
