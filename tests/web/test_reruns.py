"""The rerun of one task with changed parameters: the form, what it makes, and the links between both."""

import pytest
from flask.testing import FlaskClient
from playwright.sync_api import Page, expect

from tests.api.conftest import LeasingWorker, Submit
from tests.browser import Errors, accessibility_violations, keep_picture, scrolls_sideways
from web.parameter_fields import changes_of, parameter_fields
from web.task_request import task_request, values_of

DECLARED = {
    "guard": {"type": "bool", "default": False, "description": "Keeps the lane."},
    "latency": {"type": "int", "default": 0, "low": 0, "high": 10},
    "mode": {"type": "string", "default": "a", "choices": ["a", "b"]},
    "note": {"type": "string", "default": None},
}


def test_a_field_has_what_the_task_had_and_says_what_it_takes() -> None:
    guard, latency, mode, note = parameter_fields(DECLARED, {"latency": 3, "note": "1, 2"}, {})
    assert (guard.text, guard.choices, guard.description) == ("false", ("false", "true"), "Keeps the lane.")
    assert (latency.text, latency.hint, latency.numeric) == ("3", "0 to 10", True)
    assert (mode.text, mode.choices) == ("a", ("a", "b"))
    assert (note.text, note.hint) == ("1, 2", "a text")


def test_only_what_was_changed_is_changed() -> None:
    values = {"guard": False, "latency": 3, "mode": "a", "note": "x"}
    given = {"guard": "true", "latency": "3", "mode": "b", "note": ""}
    fields = {f"param.{name}": [text] for name, text in given.items()}
    assert changes_of(DECLARED, values, fields) == {"guard": True, "mode": "b", "note": None}
    assert changes_of(DECLARED, values, {}) == {}
    assert changes_of(DECLARED, values, {"param.note": ["5"]}) == {"note": "5"}, "a text that looks like a number"
    assert changes_of(DECLARED, values, {"param.latency": ["0,5"]}) == {"latency": "0,5"}, "the API says what it takes"


def test_a_dataset_that_takes_any_parameter_has_a_field_for_each_that_the_task_had() -> None:
    declared = {"*": {"type": "any", "default": None}}
    assert [(field.name, field.text) for field in parameter_fields(declared, {"depth": 4}, {})] == [("depth", "4")]
    assert changes_of(declared, {"depth": 4}, {"param.depth": ["deep"]}) == {"depth": "deep"}


SIMULATION = {
    "id": "0" * 26,
    "model": {"name": "m", "digest": "sha256:0"},
    "runtime": {"name": "python"},
    "dataset": {"name": "d", "version": "1"},
    "spec": {"params": {"latency": 3}, "seed": 5},
    "provenance": {"play": {"params": {"latency": 3, "guard": False}}},
}


def test_a_rerun_has_the_tasks_own_values_of_a_sweep_and_the_repetitions_before_it() -> None:
    result = {"task": 7, "scenario": {"index": 2, "repeat": 1, "params": {"latency": 4}}}
    assert values_of(SIMULATION, result) == {"latency": 4, "guard": False}
    request = task_request(SIMULATION, result, {"guard": True, "latency": None})
    assert (request["params"], request["repeat"], request["scenarios"]) == ({"guard": True}, 2, {"tasks": [2]})
    assert task_request(SIMULATION, result)["params"] == {"latency": 4}


def test_a_task_is_run_again_with_another_parameter_in_three_clicks(
    page: Page, origin: str, submit: Submit, worker: LeasingWorker, client: FlaskClient
) -> None:
    id = submit(params={"sleep_ms": 2}, tasks=9).json["id"]
    worker.run_to_end(id)
    page.goto(f"{origin}/simulations/{id}/tasks/7")
    form = page.get_by_role("region", name="Run it again with changes")
    assert [form.get_by_label(name).input_value() for name in ("work_us", "sleep_ms", "raise_at")] == ["0", "2", ""]
    assert accessibility_violations(page, within="[aria-labelledby=again-heading]") == []
    keep_picture(page, "rerun-form", full_page=True)
    form.get_by_label("sleep_ms").fill("1")
    form.get_by_role("button", name="Run with these").click()
    page.wait_for_url(lambda url: not url.endswith("/tasks/7"))
    rerun = page.url.rpartition("/")[2]
    made = client.get(f"/v1/simulations/{rerun}").json
    assert made["spec"]["scenarios"] == {"tasks": [7]} and made["tasks"]["total"] == 1
    assert made["spec"]["params"] == {"sleep_ms": 1}
    note = page.locator("#live .rerun")
    expect(note).to_contain_text("with sleep_ms 1 instead of 2")
    expect(note).to_contain_text("once it has ended")
    worker.run_to_end(rerun)
    both = note.get_by_role("link", name="Both replays side by side")
    expect(both).to_have_attribute("href", f"/compare/replay?left={id}.7&right={rerun}.0")
    keep_picture(page, "rerun-page")
    sides = client.get(f"/compare/replay?left={id}.7&right={rerun}.0").text
    assert 'left-label="mine, sleep_ms 2"' in sides and 'right-label="mine, sleep_ms 1"' in sides
    sides = client.get(f"/compare/replay?left={id}.7&right={id}.0").text
    assert 'left-label="mine, left"' in sides and 'right-label="mine, right"' in sides
    note.get_by_role("link", name="task 7 of mine").click()
    side_by_side = form.get_by_role("link", name="side by side with this")
    expect(side_by_side).to_have_attribute("href", f"/compare/replay?left={id}.7&right={rerun}.0")
    page.set_viewport_size({"width": 360, "height": 740})
    assert not scrolls_sideways(page)
    keep_picture(page, "rerun-form-360", full_page=True)


def test_a_value_that_the_dataset_refuses_is_shown_again_with_the_reason(
    page: Page, origin: str, finished: str, client: FlaskClient, page_errors: Errors
) -> None:
    page_errors.expect("422")
    page.goto(f"{origin}/simulations/{finished}/tasks/0")
    page.get_by_label("sleep_ms").fill("70000")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("lies in 0..60000")
    assert page.get_by_label("sleep_ms").input_value() == "70000"
    assert client.get("/v1/simulations/counts").json["total"] == 1


@pytest.mark.parametrize("label", ["nothing", "x.1", f"{'0' * 26}.1", f"{'0' * 26}.99999999999"])
def test_a_label_that_names_no_task_harms_no_page(client: FlaskClient, submit: Submit, label: str) -> None:
    id = submit(labels={"again": label}).json["id"]
    page = client.get(f"/simulations/{id}")
    assert page.status_code == 200
    assert (b"whose simulation has been deleted" in page.data) is (label == f"{'0' * 26}.1")


def test_a_task_of_a_deleted_dataset_is_shown_without_fields(
    client: FlaskClient, finished: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = {"name": "noop", "title": "noop", "metrics": [], "group_by": [], "deleted": True}
    monkeypatch.setattr("web.views.task.dataset_of", lambda simulation: deleted)
    page = client.get(f"/simulations/{finished}/tasks/0").text
    assert "has been deleted, so nothing can be run on it" in page and "Run with these" not in page
