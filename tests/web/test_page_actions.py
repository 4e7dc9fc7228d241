"""Actions of pages: tags, deletions, drains, changes of width, and repetition of all that match."""

from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient
from playwright.sync_api import Page, expect

from core.services.platform import Platform
from core.settings import Settings
from server import composition as root
from tests.api.conftest import LeasingWorker, Submit
from tests.api.test_datasets import PLAIN
from tests.api.test_datasets import register as register
from tests.api.test_datasets import upload as upload
from tests.api.test_datasets import work as work
from tests.browser import Errors, accessibility_violations, keep_picture, scrolls_sideways
from web.views import simulations as list_page


def tags_of(client: FlaskClient, path: str) -> Any:
    return client.get(path).json["tags"]


@pytest.mark.parametrize("kind", ["models", "datasets"])
def test_a_version_is_tagged_and_the_tag_moved_and_removed(
    page: Page, origin: str, client: FlaskClient, model: str, register: Any, kind: str
) -> None:
    client.put("/v1/models/mine?filename=model.py", data=client.get("/v1/models/mine/content").data + b"\n#")
    register("mine", PLAIN)
    register("mine", PLAIN | {"more": b"x"})
    pages = f"{origin}/{'models' if kind == 'models' else 'data'}/mine"
    region, second = page.get_by_role("region", name="Tags"), f"/v1/{kind}/mine@2"
    page.goto(f"{pages}@1")
    region.get_by_label("Tag", exact=True).fill("gold")
    page.keyboard.press("Enter")
    expect(region.get_by_text("gold", exact=True)).to_be_visible()
    page.goto(f"{pages}@2")
    assert accessibility_violations(page) == []
    region.get_by_label("Tag", exact=True).fill("gold")
    region.get_by_role("button", name="Set it here").click()
    expect(region.get_by_role("button", name="Remove the tag gold")).to_be_visible()
    assert "gold" in tags_of(client, second) and "gold" not in tags_of(client, f"/v1/{kind}/mine@1")
    keep_picture(page, f"tags-{kind}", full_page=True)
    region.get_by_role("button", name="Remove the tag gold").click()
    expect(region.get_by_role("button", name="Remove the tag gold")).to_have_count(0)
    assert "gold" not in tags_of(client, second)
    page.set_viewport_size({"width": 360, "height": 740})
    assert not scrolls_sideways(page)


def test_what_ships_with_the_platform_offers_neither_tags_nor_deletion(client: FlaskClient) -> None:
    for path in ("/models/idm", "/data/car_street"):
        text = client.get(path).text
        assert "neither tagged nor deleted" in text and "Delete" not in text


@pytest.mark.parametrize(
    ("path", "text"), [("/models/mine", "latest"), ("/data/files", "latest"), ("/models/mine", "")]
)
def test_a_tag_that_is_refused_is_answered_with_the_reason(
    client: FlaskClient, model: str, register: Any, path: str, text: str
) -> None:
    register("files", PLAIN)
    refused = client.post(f"{path}/tags", data={"tag": text})
    assert refused.status_code == 422 and (text or "Write the name of a tag") in refused.text


def test_a_model_is_deleted_once_it_was_asked_and_what_refuses_it_is_said(
    page: Page, origin: str, client: FlaskClient, submit: Submit, page_errors: Errors
) -> None:
    page_errors.expect("409")
    id = submit().json["id"]
    page.goto(f"{origin}/models/mine")
    page.get_by_text("Delete …").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Delete mine, version 1, and its tags?")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text(f"Simulation {id} still needs this model. Cancel it first.")
    page.get_by_role("link", name="Back").click()
    client.post(f"/v1/simulations/{id}/cancel")
    page.get_by_text("Delete …").click()
    page.get_by_role("button", name="Delete mine@1").click()
    page.wait_for_url(f"{origin}/models")
    assert client.get("/v1/models/mine").status_code == 404


def test_one_version_of_a_dataset_or_all_are_deleted(client: FlaskClient, register: Any) -> None:
    for number in range(3):
        register("files", PLAIN | {"number": b"%d" % number})
    text = client.get("/data/files").text
    assert "Delete files@3 and its tags?" in text and "Delete all 3 versions of files?" in text
    assert client.post("/data/files@3/delete").headers["Location"] == "/data"
    assert client.get("/v1/datasets/files").json["version"] == "2"
    client.post("/data/files/delete")
    assert client.get("/v1/datasets/files").status_code == 404
    assert client.post("/data/car_street/delete").status_code == 422


def test_an_executor_is_drained_and_undrained_on_the_page(
    page: Page, origin: str, client: FlaskClient, submit: Submit
) -> None:
    page.goto(f"{origin}/operations")
    page.get_by_label("Reason, for those who wait").fill("<b>new kernel</b>")
    page.keyboard.press("Enter")
    row = page.get_by_role("region", name="Table of executors").get_by_role("row", name="local")
    expect(row).to_contain_text("drained <b>new kernel</b> since just now; nothing runs there")
    id = submit().json["id"]
    assert client.get(f"/v1/simulations/{id}").json["reason"] == "waits for local: it is drained (<b>new kernel</b>)"
    assert accessibility_violations(page) == []
    keep_picture(page, "drained", full_page=True)
    page.set_viewport_size({"width": 360, "height": 740})
    assert not scrolls_sideways(page)
    row.get_by_role("button", name="Undrain local").click()
    expect(row).not_to_contain_text("drained")
    assert client.get("/v1/executors").json["items"][0]["drain"] is None


def test_an_executor_that_is_not_there_is_a_problem_with_the_known_names(client: FlaskClient) -> None:
    refused = client.post("/operations/executors/drain", data={"executor": "mars"})
    assert refused.status_code == 404 and "there are local" in refused.text


def test_the_number_of_workers_is_changed_while_the_page_is_refreshed(
    page: Page, origin: str, client: FlaskClient, submit: Submit, worker: LeasingWorker
) -> None:
    id = submit(workers=2).json["id"]
    page.goto(f"{origin}/simulations/{id}")
    page.get_by_text("Workers …").click()
    field = page.get_by_role("spinbutton", name="Workers")
    field.fill("1")
    launch = worker.launch(id)  # the live part is loaded again, with its forms
    worker.report(launch, lease := worker.lease(launch), 0, lease.start + 1)
    expect(page.locator("#live .statusline").first).to_contain_text("running")
    assert field.input_value() == "1"
    keep_picture(page, "workers")
    page.get_by_role("button", name="Change").click()
    expect(page.locator("#live .strip")).to_contain_text("Workers1")
    assert client.get(f"/v1/simulations/{id}").json["spec"]["workers"] == 1
    assert client.post(f"/simulations/{id}/workers", data={"workers": "many"}).status_code == 422


def test_the_workers_of_an_ended_simulation_are_not_offered(client: FlaskClient, finished: str) -> None:
    assert "Workers …" not in client.get(f"/simulations/{finished}").text
    refused = client.post(f"/simulations/{finished}/workers", data={"workers": "2"})
    assert refused.status_code == 409 and "can no longer be changed" in refused.text


def test_all_that_match_are_repeated_on_every_page(
    page: Page, origin: str, client: FlaskClient, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_page, "PAGE", 2)
    ids = [submit(labels={"team": "a"}).json["id"] for _ in range(5)]
    other = submit(labels={"team": "b"}).json["id"]
    client.post("/v1/simulations/cancel", json={"ids": [*ids, other]})
    page.goto(f"{origin}/simulations?label=team%3Da")
    page.get_by_text("Repeat all that match …").click()
    expect(page.get_by_text("of all 5 simulations that match and failed or errored or were cancelled")).to_be_visible()
    assert accessibility_violations(page) == []
    keep_picture(page, "retry-all")
    page.get_by_role("button", name="Repeat 5").click()
    expect(page.locator("#messages")).to_contain_text("5 of 5 are repeated as new simulations.")
    queued = client.get("/v1/simulations?state=queued&limit=100").json["items"]
    assert sorted(simulation["retry_of"] for simulation in queued) == sorted(ids)
    again = client.post("/simulations/retry?label=team%3Da", headers={"HX-Request": "true"}).text
    assert "0 of 5 are repeated" in again and "it has been retried already" in again


def test_what_has_not_ended_is_not_offered_for_repetition(client: FlaskClient, submit: Submit) -> None:
    submit()
    for address in ("/simulations", "/simulations?state=queued"):
        assert "Repeat all that match" not in client.get(address).text


ACTIONS = {
    "/models/mine/tags": {"tag": "gold"},
    "/models/mine/tags/remove": {"tag": "gold"},
    "/models/mine/delete": {},
    "/data/noop/delete": {},
    "/operations/executors/drain": {"executor": "local"},
    "/operations/executors/undrain": {"executor": "local"},
    "/simulations/retry?state=cancelled": {},
    "/simulations/{id}/workers": {"workers": "1"},
    "/simulations/{id}/tasks/0/again": {"param.sleep_ms": "1"},
}


@pytest.mark.parametrize("address", ACTIONS)
def test_an_action_without_a_session_or_of_another_site_changes_nothing(
    platform: Platform, settings: Settings, finished: str, address: str
) -> None:
    guarded = root.create_flask(platform, replace(settings, token="secret"), {"level": 3, "missing": []})
    client = guarded.test_client()
    path = address.format(id=finished)
    answer = client.post(path, data=ACTIONS[address])
    assert answer.status_code == 303 and answer.headers["Location"].startswith("/sign-in")
    headers = {"Authorization": "Bearer secret", "Origin": "https://evil.example"}
    assert client.post(path, data=ACTIONS[address], headers=headers).status_code == 403
    with client.get("/v1/executors", headers={"Authorization": "Bearer secret"}) as executors:
        assert executors.json["items"][0]["drain"] is None
