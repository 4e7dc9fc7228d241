"""Page that submits a simulation: its request, uploads that are resumed, refusals, and a browser without scripts."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Page, Route, expect

from tests.api.answers import MODEL
from tests.browser import Errors, accessibility_violations, scrolls_sideways
from web.form_fields import UnreadableField
from web.formatting import duration
from web.scenario_numbers import selection_of
from web.submission_request import submission_fields, submission_request, tasks_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.py"
    path.write_bytes(MODEL + b"# " + b"x" * 5000 + b"\n")
    return path


def test_a_form_becomes_a_submission() -> None:
    fields = {
        "model": ["idm@2"], "dataset": ["car_street"], "runtime": [""], "select": ["range"], "scenarios": ["0-10"],
        "param.latency_steps": ["0, 2, 4"], "param.lane_guard": ["true"], "repeat": ["2"], "workers": [" "],
        "labels": ["branch=main team=a=b"], "executor": ["local"], "more": ['{"log_to_run": true}'],
    }  # fmt: skip
    body = submission_request(fields)
    assert body == {
        "dataset": "car_street", "model": "idm@2", "scenarios": {"range": [0, 11]}, "params": {"lane_guard": True},
        "sweep": {"latency_steps": [0, 2, 4]}, "repeat": 2, "labels": {"branch": "main", "team": "a=b"},
        "placement": {"executor": "local"}, "log_to_run": True,
    }  # fmt: skip
    assert tasks_of(body, {"tasks": 288}) == 66 and tasks_of({}, {"tasks": 288}) == 288 and tasks_of({}, None) is None
    assert tasks_of({}, {"tasks": None}) == 1 and tasks_of({"scenarios": {"range": [0, "x"]}}, None) is None
    strange = ({"scenarios": {"range": [0]}}, {"scenarios": "x"}, {"sweep": [1]}, {"sweep": {"a": 1}}, {"repeat": "x"})
    assert [tasks_of(body, {"tasks": 9}) for body in strange] == [None] * 5
    odd = submission_request({"repeat": ["inf"], "seed": ["1e999"], "param.a": ["nan, 2"], "param.b": ["2,"]})
    assert odd == {"sweep": {"a": ["nan", 2], "b": [2]}, "repeat": "inf", "seed": "1e999"}


@pytest.mark.parametrize(
    ("kind", "text", "selection"),
    [
        ("range", "0-99", {"range": [0, 100]}),
        ("range", "3, 9", {"range": [3, 10]}),
        ("range", "7", {"range": [7, 8]}),
        ("sample", "50", {"sample": 50}),
        ("tasks", "1, 5, 20-22", {"tasks": [1, 5, 20, 21, 22]}),
        ("tasks", "0-2", {"tasks": [0, 1, 2]}),
        ("all", "0-2", None),
    ],
)
def test_scenarios_are_selected_as_people_write_numbers(kind: str, text: str, selection: Any) -> None:
    assert selection_of(kind, text) == selection


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"select": ["range"], "scenarios": ["9-3"]}, "the first and the last number"),
        ({"select": ["range"], "scenarios": [""]}, "the first and the last number"),
        ({"select": ["range"], "scenarios": ["1, 2, 3"]}, "the first and the last number"),
        ({"select": ["sample"], "scenarios": [""]}, "how many are drawn"),
        ({"select": ["sample"], "scenarios": ["0-9"]}, "how many are drawn"),
        ({"select": ["tasks"], "scenarios": ["-3"]}, "their numbers"),
        ({"select": ["tasks"], "scenarios": ["1 x"]}, "their numbers"),
        ({"select": ["tasks"], "scenarios": ["0-100000"]}, "at most 100,000"),
        ({"labels": ["a=1 a=2"]}, "'a' is given twice"),
        ({"labels": ['note="open']}, "not closed"),
        ({"more": ["{bad"]}, "a JSON object"),
        ({"more": ["[1]"]}, "a JSON object"),
    ],
)
def test_a_field_that_cannot_be_read_is_named_with_what_to_write(fields: dict[str, list[str]], message: str) -> None:
    with pytest.raises(UnreadableField, match=message):
        submission_request(fields)


def test_labels_are_separated_by_blanks_or_commas_and_quoted_with_them() -> None:
    body = submission_request({"labels": ['a=b, c="two words" tag branch=it\'s\\so']})
    assert body["labels"] == {"a": "b", "c": "two words", "tag": "", "branch": "it's\\so"}


def test_members_of_the_json_field_complete_those_of_other_fields() -> None:
    fields = {"param.a": ["1"], "labels": ["x=1"], "more": ['{"params": {"b": 2}, "labels": {"x": "2"}}']}
    assert submission_request(fields) == {"params": {"a": 1, "b": 2}, "labels": {"x": "2"}}


numbers = st.one_of(st.integers(-5, 50), st.booleans(), st.sampled_from(["a,b", "5", "true", "null", "two words", ""]))
specs = st.fixed_dictionaries(
    {"dataset": st.just("car_street"), "model": st.just("idm")},
    optional={
        "scenarios": st.one_of(
            st.tuples(st.integers(0, 9), st.integers(10, 99)).map(lambda bounds: {"range": list(bounds)}),
            st.lists(st.integers(0, 99), min_size=1, max_size=5).map(lambda tasks: {"tasks": tasks}),
            st.integers(1, 99).map(lambda size: {"sample": size}),
            st.integers(1, 99).map(lambda size: {"sample": size, "seed": 3}),
        ),
        "params": st.dictionaries(st.sampled_from(["a", "b"]), numbers, min_size=1),
        "sweep": st.dictionaries(st.sampled_from(["c", "d"]), st.lists(numbers, min_size=1, max_size=3), min_size=1),
        "repeat": st.integers(1, 5),
        "worlds": st.integers(1, 64) | st.just("auto"),
        "record": st.sampled_from(["none", "all"]),
        "timeout": st.floats(0.1, 1e9),
        "max_failures": st.integers(0, 2),
        "log_to_run": st.just(True),
        "labels": st.dictionaries(st.sampled_from(["x", "y"]), st.text(max_size=9), min_size=1),
        "placement": st.sampled_from([{"executor": "local"}, {"executor": "local", "cpu": 2}, {"cpu": 2}]),
    },
)


@given(specs)
def test_a_form_that_repeats_a_submission_has_the_same_request(spec: dict[str, Any]) -> None:
    assert submission_request(submission_fields(spec)) == spec


def test_a_file_is_sent_stored_and_chosen(page: Page, origin: str, file: Path) -> None:
    page.goto(f"{origin}/submit")
    page.get_by_label("Model file").set_input_files(file)
    expect(page.locator("model-upload")).to_contain_text("version 1: format python")
    model = page.get_by_label("Stored model").input_value()
    stored = page.request.get(f"{origin}/v1/models/{model}").json()
    assert (stored["format"], stored["size"]) == ("python", file.stat().st_size)
    expect(page.locator("#request")).to_contain_text(model)


def test_a_file_is_dropped(page: Page, origin: str) -> None:
    page.goto(f"{origin}/submit")
    transfer = page.evaluate_handle(
        "source => { const transfer = new DataTransfer(); transfer.items.add(new File([source], 'dropped.py'));"
        " return transfer; }",
        MODEL.decode(),
    )
    page.dispatch_event("model-upload", "drop", {"dataTransfer": transfer})
    expect(page.locator("model-upload")).to_contain_text("dropped")
    expect(page.get_by_label("Stored model")).not_to_have_value("")


def test_an_upload_is_continued_after_a_break_and_a_reload(
    page: Page, origin: str, file: Path, page_errors: Errors
) -> None:
    page_errors.expect("net::ERR_FAILED")
    created: list[str] = []
    offsets: list[str] = []
    page.on("request", lambda request: created.append(request.url) if request.method == "POST" else None)
    broken = True

    def connection(route: Route) -> None:
        if route.request.method == "PATCH":
            offsets.append(route.request.headers["upload-offset"])
            if broken:
                route.abort()
                return
        route.continue_()

    page.route("**/v1/uploads/*", connection)
    page.goto(f"{origin}/submit")
    with page.expect_event("requestfailed"):  # waited for before it can have come
        page.get_by_label("Model file").set_input_files(file)
    stored = page.evaluate("() => Object.entries(localStorage)")
    [address] = [json.loads(value)["uploadUrl"] for name, value in stored if name.startswith("tus::")]
    half = file.read_bytes()[:2000]
    headers = {"Tus-Resumable": "1.0.0", "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    sent = page.request.patch(origin + address, data=half, headers=headers | {"Origin": origin})
    assert sent.status == 204, sent.text()
    page.reload()
    broken = False  # only now, so that the page from before continues nothing
    page.get_by_label("Model file").set_input_files(file)
    expect(page.locator("model-upload")).to_contain_text("version 1: format python")
    assert offsets[-1] == "2000" and len([url for url in created if url.endswith("/v1/uploads")]) == 1
    assert page.evaluate("() => Object.keys(localStorage).length") == 0, "nothing is left in the browser's storage"


def test_an_upload_is_paused_continued_and_cancelled(page: Page, origin: str, file: Path, page_errors: Errors) -> None:
    page_errors.expect("net::ERR_")
    held: list[Route] = []
    page.route(
        "**/v1/uploads/*", lambda route: held.append(route) if route.request.method == "PATCH" else route.continue_()
    )
    page.goto(f"{origin}/submit")
    with page.expect_request(lambda request: request.method == "PATCH"):  # the upload exists
        page.get_by_label("Model file").set_input_files(file)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("model-upload")).to_contain_text("is paused")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Cancel the upload").click()
    expect(page.locator("model-upload")).to_contain_text("is cancelled")
    expect(page.get_by_role("button", name="Pause")).to_be_hidden()
    page.unroute_all(behavior="ignoreErrors")
    assert page.request.get(f"{origin}/v1/uploads").json()["items"] == []


def test_a_file_that_is_not_a_model_is_refused_with_the_next_step(
    page: Page, origin: str, tmp_path: Path, page_errors: Errors
) -> None:
    page_errors.expect("422")
    other = tmp_path / "notes.bin"
    other.write_bytes(bytes(range(256)) * 4)
    page.goto(f"{origin}/submit")
    page.get_by_label("Model file").set_input_files(other)
    expect(page.locator("model-upload .problem")).to_contain_text("format")
    expect(page.get_by_label("Stored model")).to_have_value("")


def test_a_submission_that_is_refused_is_shown_again(page: Page, origin: str, model: str, page_errors: Errors) -> None:
    page_errors.expect("422")
    page.goto(f"{origin}/submit?dataset=noop&select=range&scenarios=9-3&repeat=2")
    page.get_by_label("Stored model").fill(model)
    page.route("**/submit/check", lambda route: route.fulfill(body="checked"))  # no runner plays a dry run here
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("write the first and the last number, such as 0-99")
    page.wait_for_load_state()  # what is typed before the scripts run is seen at the next input
    expect(page.get_by_role("textbox", name="Numbers")).to_have_value("9-3")
    expect(page.get_by_label("Repetitions of each")).to_have_value("2")
    page.get_by_role("textbox", name="Numbers").fill("3-9")
    expect(page.locator("#request")).to_contain_text("14 tasks")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url("**/simulations/0*")
    spec = page.request.get(f"{origin}/v1{page.url.removeprefix(origin)}").json()["spec"]
    assert (spec["scenarios"], spec["repeat"]) == ({"range": [3, 10]}, 2)


def test_a_form_without_scripts_submits_once_however_often_it_is_sent(page: Page, origin: str, model: str) -> None:
    form = {"key": "k", "dataset": "noop", "model": model, "runtime": "", "select": "all", "scenarios": ""}
    sent = [page.request.post(f"{origin}/submit", form=form, headers={"Origin": origin}) for _ in range(2)]
    assert [answer.status for answer in sent] == [200, 200] and sent[0].url == sent[1].url
    changed = page.request.post(f"{origin}/submit", form=form | {"repeat": "2"}, headers={"Origin": origin})
    assert changed.status == 200 and changed.url != sent[0].url, "a form that was changed is another request"
    assert len(page.request.get(f"{origin}/v1/simulations").json()["items"]) == 2


def test_a_simulation_is_repeated_with_changes(page: Page, origin: str, finished: str) -> None:
    page.goto(f"{origin}/simulations/{finished}")
    page.route("**/submit/check", lambda route: route.fulfill(body="checked"))  # no runner plays a dry run here
    page.get_by_role("link", name="Repeat with changes").click()
    expect(page.get_by_role("textbox", name="Numbers")).to_have_value("0-19")
    expect(page.get_by_role("combobox", name="Dataset")).to_have_value("noop@1")
    expect(page.locator("#request")).to_contain_text("20 tasks")
    expect(page.locator("#check")).to_have_text("checked")


def test_the_request_is_that_of_the_fields_after_the_button_back(page: Page, origin: str, model: str) -> None:
    page.route("**/submit/check", lambda route: route.fulfill(body="checked"))  # no runner plays a dry run here
    page.goto(f"{origin}/submit?dataset=noop&model={model}")
    page.get_by_role("combobox", name="Which").select_option("range")
    page.get_by_role("textbox", name="Numbers").fill("0-2")
    expect(page.locator("#request")).to_contain_text('"range"')
    shown = page.locator("#request p").first.inner_text()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url("**/simulations/0*")
    page.go_back()
    expect(page.get_by_role("textbox", name="Numbers")).to_have_value("0-2")
    expect(page.locator("#request")).to_contain_text('"range"')
    expect(page.locator("#request p").first).to_have_text(shown)


def test_the_page_is_accessible_and_fits_a_narrow_window(page: Page, origin: str, model: str) -> None:
    page.goto(f"{origin}/submit?dataset=car_street&repeat=2")
    assert accessibility_violations(page) == []
    assert len(page.content()) < 100_000
    page.set_viewport_size({"width": 360, "height": 740})
    assert not scrolls_sideways(page)


def test_durations_below_a_millisecond_are_microseconds() -> None:
    assert [duration(seconds) for seconds in (0, 0.00012, 0.012)] == ["0 ms", "120 µs", "12 ms"]
