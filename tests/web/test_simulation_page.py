"""The page of a simulation: live progress, actions, summary, tasks, log and snippets."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from flask.testing import FlaskClient
from playwright.sync_api import Browser, Page, expect

from core.domain.scheduling.states import State
from core.services.platform import Platform
from tests.api.conftest import LeasingWorker, Submit
from tests.api.test_comparisons import Play, scored
from tests.api.test_comparisons import play as play
from tests.browser import Errors, accessibility_violations, keep_picture, scrolls_sideways
from tests.dispatching import unended
from tests.waiting import until
from web.views.simulation import merged_events


def test_a_simulation_is_followed_from_the_queue_to_its_end(
    page: Page, origin: str, submit: Submit, worker: LeasingWorker
) -> None:
    id = submit().json["id"]
    page.goto(f"{origin}/simulations/{id}")
    expect(page.locator("#live .statusline")).to_contain_text("queued")
    launch = worker.launch(id)
    lease = worker.lease(launch)
    worker.report(launch, lease, 0, lease.stop)
    expect(page.locator("#live .statusline")).to_contain_text("running")
    expect(page.get_by_label("Tasks with a result")).to_have_js_property("value", float(lease.stop))
    worker.finish(launch)
    expect(page.locator("#live .statusline")).to_contain_text("succeeded")
    expect(page.get_by_role("heading", name="The worst first")).to_be_visible()
    assert page.locator("[sse-connect]").count() == 0


def test_a_browser_without_scripts_is_told_where_the_plots_would_be(
    browser: Browser, origin: str, finished: str
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{origin}/simulations/{finished}")
    for region in ("Distributions", "What it depends on"):
        expect(page.get_by_role("region", name=region)).to_contain_text("Plots need JavaScript")
    context.close()


def test_a_hidden_page_holds_no_stream(page: Page, origin: str, submit: Submit) -> None:
    page.goto(f"{origin}/simulations/{submit().json['id']}")
    page.evaluate("document.body.addEventListener('htmx:sseClose', () => { window.streamClosed = true; })")
    page.evaluate("document.body.addEventListener('htmx:sseOpen', () => { window.streamOpened = true; })")
    visibility = "state => { Object.defineProperty(document, 'hidden', {value: state, configurable: true}); }"
    page.evaluate(visibility, True)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    until(lambda: page.evaluate("window.streamClosed"))
    page.evaluate(visibility, False)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    until(lambda: page.evaluate("window.streamOpened"))


def test_an_open_list_of_events_stays_open_when_the_page_changes(
    page: Page, origin: str, submit: Submit, client: FlaskClient
) -> None:
    id = submit().json["id"]
    page.goto(f"{origin}/simulations/{id}")
    page.locator("#events summary").click()
    client.post(f"/v1/simulations/{id}/cancel")
    expect(page.locator("#live .statusline")).to_contain_text("cancelled")
    expect(page.locator("#events")).to_have_js_property("open", True)
    expect(page.locator("#events li")).to_contain_text(["queued", "cancelled"])


def test_a_simulation_is_cancelled_by_keyboard(page: Page, origin: str, submit: Submit) -> None:
    page.goto(f"{origin}/simulations/{submit().json['id']}")
    page.get_by_text("Cancel …").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#live .statusline")).to_contain_text("cancelled")


def test_an_ended_simulation_is_repeated_and_deleted(page: Page, origin: str, finished: str) -> None:
    page.goto(f"{origin}/simulations/{finished}")
    page.get_by_role("button", name="Repeat what is not ok").click()
    page.wait_for_url(lambda url: not url.endswith(finished))
    expect(page.get_by_text("Retry of")).to_be_visible()
    page.goto(f"{origin}/simulations/{finished}")
    page.get_by_text("Delete …").click()
    page.get_by_role("button", name="Delete").click()
    page.wait_for_url(f"{origin}/simulations")
    expect(page.locator(f"#row-{finished}")).to_have_count(0)


@pytest.mark.parametrize(
    ("played", "words"), [(3, "Play what was not played"), (8, "Repeat what is not ok and play the rest")]
)
def test_the_button_of_a_cancelled_simulation_says_that_it_plays_the_rest(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform, played: int, words: str
) -> None:
    id = submit(tasks=288).json["id"]
    launch = worker.launch(id)
    worker.report(launch, worker.lease(launch), 0, played)
    client.post(f"/v1/simulations/{id}/cancel")
    dispatch = worker.dispatch
    (busy,) = unended(dispatch)
    dispatch.give_up(busy, State.CANCELLED, "cancelled by its owner")
    platform.jobs.finalization.collect(id)
    assert f"<button>{words}</button>" in client.get(f"/simulations/{id}").text


def test_the_worst_tasks_of_scenarios_without_names_are_told_apart(page: Page, origin: str, play: Play) -> None:
    def result(task: int) -> dict[str, Any]:
        document = scored(task, task)
        del document["scenario"]["name"]
        place = {"index": task % 3, "repeat": task // 3 % 2, "params": {"latency_steps": task // 6}}
        return document | {"scenario": document["scenario"] | place}

    id = play(result, 3, sweep={"latency_steps": [0, 1]}, repeat=2)
    for path in ("", "/tasks"):
        page.goto(f"{origin}/simulations/{id}{path}")
        rows = page.get_by_role("region", name="Rows and columns" if path else "Worst tasks").locator("tbody tr")
        names = [row.locator("td").first.inner_text() for row in rows.all()]
        assert names[4] == "scenario 1 latency_steps 0, repeat 1" and len(set(names)) == len(names) >= 10


def test_the_worst_task_is_opened_and_run_again(page: Page, origin: str, finished: str, client: FlaskClient) -> None:
    page.goto(f"{origin}/simulations/{finished}")
    page.get_by_role("region", name="Worst tasks").get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("s6")
    expect(page.get_by_text("failed: the model raised")).to_be_visible()
    page.get_by_role("button", name="Run just this again").click()
    page.wait_for_url(lambda url: "/tasks/" not in url)
    again = client.get(f"/v1/simulations/{page.url.rpartition('/')[2]}").json
    assert again["spec"]["scenarios"] == {"tasks": [6]}
    assert again["labels"] == {"again": f"{finished}.6"}
    assert again["tasks"]["total"] == 1


def test_metrics_are_drawn_while_results_arrive(page: Page, origin: str, submit: Submit, worker: LeasingWorker) -> None:
    id = submit().json["id"]
    launch = worker.launch(id)
    lease = worker.lease(launch)
    worker.report(launch, lease, 0, 3)
    page.goto(f"{origin}/simulations/{id}")
    plot = page.get_by_role("img", name="Histogram of steps")
    expect(plot).to_have_attribute("aria-label", re.compile("3 tasks from 0 to 2"))
    assert drawn_pixels(page, "metric-plots canvas") > 500
    worker.report(launch, lease, 3, lease.stop)
    expect(plot).to_have_attribute("aria-label", re.compile(f"to {lease.stop - 1},"))


def test_a_metric_without_values_says_so_after_the_end(page: Page, origin: str, play: Play) -> None:
    id = play(lambda task: scored(task, None, status="failed"), tasks=3)
    page.goto(f"{origin}/simulations/{id}")
    expect(page.locator("metric-plots figure", has_text="no values")).to_have_count(8)
    assert page.locator("#groups-heading ~ .grid caption").all_inner_texts() == ["street"], "groupings with groups"
    expect(page.locator("metric-plots")).not_to_contain_text("yet")


def drawn_pixels(page: Page, selector: str) -> int:
    """Return the number of pixels of a canvas that are not transparent."""
    return int(
        page.locator(selector).first.evaluate(
            "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)"
            ".data.filter((value, at) => at % 4 === 3 && value > 0).length"
        )
    )


@pytest.fixture
def streets(submit: Submit, worker: LeasingWorker) -> str:
    """Id of a simulation of all scenarios of car_street with two latencies, which has ended."""
    id: str = submit(dataset="car_street", scenarios=None, sweep={"latency_steps": [0, 2]}).json["id"]
    worker.run_to_end(id)
    return id


def test_a_metric_is_shown_against_any_parameter(page: Page, origin: str, streets: str) -> None:
    page.goto(f"{origin}/simulations/{streets}")
    plot = page.locator("dependence-plot")
    plot.get_by_label("Metric").select_option("steps")
    expect(plot.get_by_role("row", name="roundabout")).to_contain_text("82")
    plot.get_by_label("against").select_option("params.latency_steps")
    expect(plot.locator("tbody tr")).to_have_count(2)
    plot.get_by_label("against").select_option("start.pos")
    expect(plot.get_by_role("img", name="steps of single tasks by start.pos")).to_be_visible()
    plot.get_by_label("against").select_option("street")
    plot.get_by_label("and").select_option("density")
    expect(plot.locator("table.heat tbody tr")).to_have_count(6)
    expect(plot.locator("table.heat td.cell")).to_have_count(18)
    plot.get_by_label("Metric").select_option("failed")
    expect(plot.locator("table.heat td.cell").first).to_contain_text("0.")


def test_a_point_leads_to_its_task(page: Page, origin: str, streets: str) -> None:
    page.goto(f"{origin}/simulations/{streets}")
    plot = page.locator("dependence-plot")
    plot.get_by_label("Metric").select_option("steps")
    plot.get_by_label("against").select_option("start.pos")
    over = plot.locator(".u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    for row in range(1, 40):  # points are somewhere on the left, where most scenarios begin
        page.mouse.move(box["x"] + box["width"] * 0.06, box["y"] + box["height"] * row / 40)
        if "over-point" in (over.get_attribute("class") or ""):
            page.mouse.down()
            page.mouse.up()
            break
    page.wait_for_url("**/tasks/*")


def test_a_group_lists_its_worst_tasks(page: Page, origin: str, streets: str) -> None:
    page.goto(f"{origin}/simulations/{streets}/tasks?where=street=roundabout")
    expect(page.get_by_role("heading", level=1)).to_contain_text("street=roundabout")
    expect(page.get_by_role("region", name="Tasks")).to_contain_text("96 of 576 tasks, 50 on this page")


def test_all_tasks_are_listed(page: Page, origin: str, finished: str) -> None:
    page.goto(f"{origin}/simulations/{finished}")
    page.get_by_role("link", name="More tasks").click()
    expect(page.locator("tbody tr")).to_have_count(20)
    assert page.locator("tbody .name").all_inner_texts()[:3] == ["s6", "s13", "s0"]  # those that failed come first
    page.get_by_role("link", name="in order").click()
    expect(page.locator("tbody .name").first).to_have_text("s0")


def test_a_replay_opens_at_the_moment_that_the_address_names(client: FlaskClient, finished: str) -> None:
    assert '<replay-player at="5.5" src=' in client.get(f"/simulations/{finished}/tasks/6?at=5.5").text
    for address in ("", "?at=", "?at=soon", "?at=nan"):
        assert "<replay-player src=" in client.get(f"/simulations/{finished}/tasks/6{address}").text


def test_a_task_without_a_result_says_so(page: Page, origin: str, submit: Submit) -> None:
    page.goto(f"{origin}/simulations/{submit().json['id']}/tasks/3")
    expect(page.get_by_text("This task has no result yet.")).to_be_visible()


def test_a_task_that_the_simulation_does_not_have_is_missing(client: FlaskClient, finished: str) -> None:
    answer = client.get(f"/simulations/{finished}/tasks/20")
    assert answer.status_code == 404 and "It has 20 tasks." in answer.text
    assert client.get(f"/simulations/{finished}/tasks/19").status_code == 200


def test_a_task_that_will_not_be_played_says_so(client: FlaskClient, submit: Submit) -> None:
    id = submit().json["id"]
    client.post(f"/v1/simulations/{id}/cancel")
    page = client.get(f"/simulations/{id}/tasks/3").text
    assert "This task was not played" in page and "yet" not in page


def test_the_archive_is_offered_once_the_simulation_has_ended(
    page: Page, origin: str, submit: Submit, worker: LeasingWorker
) -> None:
    id = submit().json["id"]
    page.goto(f"{origin}/simulations/{id}")
    expect(page.get_by_role("button", name="Archive (zip)")).to_be_disabled()
    expect(page.locator("#archive")).to_contain_text("after the end of the simulation")
    worker.run_to_end(id)
    with page.expect_download() as started:
        page.get_by_role("link", name="Archive (zip)").click()  # live, without a reload
    assert started.value.suggested_filename == f"{id}.zip"


def test_a_simulation_without_results_has_no_tables_of_groups(client: FlaskClient, submit: Submit) -> None:
    id = submit(dataset="car_street").json["id"]
    client.post(f"/v1/simulations/{id}/cancel")
    page = client.get(f"/simulations/{id}").text
    assert "Archive (zip)" in page and "Groups" not in page


def test_events_that_read_the_same_are_one() -> None:
    waiting = {"type": "staging", "message": "torch is being prepared by another process"}
    events = [
        {"number": number, "at": f"2026-11-25T08:00:0{number}Z", **event}
        for number, event in enumerate([waiting, waiting, waiting, {"type": "state", "state": "running"}, waiting])
    ]
    merged = merged_events(events)
    assert [(event["number"], event["count"], event["until"][-3:-1]) for event in merged] == [
        (0, 3, "02"), (3, 1, "03"), (4, 1, "04"),
    ]  # fmt: skip


def test_the_values_of_a_result_can_be_read_in_a_narrow_window(
    page: Page, origin: str, play: Play, client: FlaskClient
) -> None:
    names = [metric["name"] for metric in client.get("/v1/datasets/car_street").json["metrics"]]
    metrics = {name: 1.25 for name in names if name != "score"}
    id = play(lambda task: scored(task, 50.0, **metrics), tasks=1)
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{origin}/simulations/{id}/tasks/0")
    widths = page.locator("#result-heading + dl dd").evaluate_all("values => values.map(dd => dd.clientWidth)")
    assert len(widths) > 20 and min(widths) >= 100
    assert not scrolls_sideways(page)
    assert accessibility_violations(page) == []


def test_the_snippet_of_a_page_loads_its_results(page: Page, origin: str, finished: str) -> None:
    page.goto(f"{origin}/simulations/{finished}")
    script = page.locator("copy-text", has_text="pandas").locator("code").text_content()
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "metrics.return" in printed.stdout or "count" in printed.stdout


def test_results_are_downloaded(page: Page, origin: str, finished: str) -> None:
    page.goto(f"{origin}/simulations/{finished}")
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    download = started.value
    assert download.suggested_filename == f"{finished}.csv"
    assert download.path().read_text().count("\n") == 21


@pytest.mark.parametrize("path", ["", "/tasks", "/tasks/6"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_a_simulation_are_accessible(page: Page, origin: str, finished: str, path: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(f"{origin}/simulations/{finished}{path}")
    assert accessibility_violations(page) == []


@pytest.mark.parametrize("path", ["", "/tasks", "/tasks/6"])
def test_pages_of_a_simulation_fit_a_narrow_window(page: Page, origin: str, finished: str, path: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{origin}/simulations/{finished}{path}")
    assert not scrolls_sideways(page)


def test_a_replay_is_kept_as_a_file_that_needs_no_server(
    page: Page, origin: str, finished: str, tmp_path: Path, page_errors: Errors
) -> None:
    page.goto(f"{origin}/simulations/{finished}/tasks/6")
    expect(page.locator("replay-player")).to_contain_text("Steps")
    with page.expect_download() as started:
        page.get_by_role("link", name="Download this replay").click()
    path = tmp_path / started.value.suggested_filename
    started.value.save_as(path)
    page.goto(path.as_uri())
    expect(page.get_by_role("heading", level=1)).to_have_text("s6")
    expect(page.locator("replay-player")).to_contain_text("the model raised")


#: Words of the elements that are on two lines or more.
BROKEN = """
elements => elements.flatMap(element => {
  const broken = [];
  const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    for (const word of node.data.matchAll(/[^\\s-]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(box => box.top)).size > 1) broken.push(word[0]);
    }
  }
  return broken;
})
"""


def test_a_narrow_window_does_not_break_the_words_of_the_table_of_metrics(
    page: Page, origin: str, failing_drives: str
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{origin}/simulations/{failing_drives}")
    table = page.get_by_role("region", name="Table of metrics")
    assert table.locator("th").evaluate_all(BROKEN) == []
    assert not scrolls_sideways(page)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_number_of_the_list_is_on_one_line_with_its_unit(page: Page, origin: str, play: Play, width: int) -> None:
    labels = {"experiment": "a-long-name-" * 5, "branch": "another-long-name-" * 3}
    id = play(lambda task: scored(task, 50.0 + task % 11, status="ok" if task % 3 else "crashed"), 61, labels=labels)
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(f"{origin}/simulations")
    shown = page.locator(f"#row-{id}").locator("td.wide > span:not(.count), dd > span").filter(visible=True)
    texts = shown.evaluate_all("spans => spans.map(span => [span.textContent, span.getClientRects().length])")
    assert len(texts) >= 4 and [text for text, lines in texts if lines > 1] == []
    assert not scrolls_sideways(page)


@pytest.fixture
def drives_that_crash(play: Play) -> str:
    """Id of a simulation of car_street of which a third of the tasks crashed."""
    return play(lambda task: scored(task, 50.0, status="ok" if task % 3 else "crashed"), 12)


def test_how_tasks_that_are_not_ok_count_is_said_beside_each_mean(
    page: Page, origin: str, drives_that_crash: str
) -> None:
    page.goto(f"{origin}/simulations/{drives_that_crash}")
    expect(page.locator(".strip div", has_text="Not ok")).to_contain_text("4")
    expect(page.locator("section", has=page.locator("#metrics-heading"))).to_contain_text(
        "Of the 8 tasks that are ok, without the 4 that are not."
    )
    groups = page.locator("section", has=page.locator("#groups-heading"))
    expect(groups).to_contain_text("one that is not ok counts as 0, the worst value")
    expect(groups.get_by_role("columnheader", name="Not ok").first).to_be_visible()
    expect(page.locator("metric-plots")).to_contain_text("without 4 tasks that are not ok")
    page.goto(f"{origin}/simulations")
    expect(page.locator(f"#row-{drives_that_crash}")).to_contain_text("4 not ok")


@pytest.fixture
def failing_drives(play: Play) -> str:
    """Id of a simulation of car_street with 60 tasks: 24 crashed, 10 collided, 3 were late, 23 arrived."""

    def driven(task: int) -> dict[str, Any]:
        outcome = "collision" if task < 34 else "timeout" if task < 37 else "arrived"
        return scored(task, 50.0 + task % 11, status="crashed" if task < 24 else "ok", outcome=outcome)

    return play(driven, 60)


def test_a_simulation_opens_with_its_answer(page: Page, origin: str, failing_drives: str) -> None:
    page.goto(f"{origin}/simulations/{failing_drives}")
    assert page.locator("h2").first.inner_text() == "How the model did"
    answer = page.get_by_role("region", name="How the model did")
    score = answer.locator("div", has_text="Driving score")
    expect(score).to_contain_text("32.9 %")
    expect(score).to_contain_text(re.compile("95 % interval 26\\.\\d+ to 39\\.\\d+ %"))
    expect(answer).to_contain_text("24 are not ok and count as 0 %, the worst value; the mean of the others is 54.83 %")
    for term, share, count in [
        ("Failures", "61.7 %", "37 of 60"), ("Collision", "16.7 %", "10 of 60"), ("Timeout", "5 %", "3 of 60"),
        ("Not ok", "40 %", "24 of 60"),
    ]:  # fmt: skip
        part = answer.locator("div", has=page.locator("dt", has_text=term))
        expect(part).to_contain_text(share)
        expect(part).to_contain_text(count)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_run_that_has_succeeded_does_not_look_like_a_good_model(
    page: Page, origin: str, failing_drives: str, scheme: Literal["light", "dark"]
) -> None:
    page.emulate_media(color_scheme=scheme)
    for path in ("", f"/{failing_drives}"):
        page.goto(f"{origin}/simulations{path}")
        state = page.locator(".state", has_text="succeeded")
        green, red = colour_of(page, "--good"), colour_of(page, "--bad")
        assert state.evaluate("element => getComputedStyle(element).color") != green
        failures = page.locator(".bad-text", has_text="61.7 %").filter(visible=True)
        assert failures.evaluate("element => getComputedStyle(element).color") == red
        keep_picture(page, f"answer-{'page' if path else 'list'}-{scheme}")
        assert accessibility_violations(page) == []


def colour_of(page: Page, name: str) -> str:
    """Return a colour of the style sheet, as the browser computes it."""
    return str(
        page.evaluate(
            "name => { const probe = document.createElement('i'); probe.style.color = `var(${name})`;"
            " document.body.append(probe); const { color } = getComputedStyle(probe); probe.remove(); return color; }",
            name,
        )
    )


def test_the_list_has_the_answer_of_each_simulation(page: Page, origin: str, failing_drives: str) -> None:
    page.goto(f"{origin}/simulations")
    row = page.locator(f"#row-{failing_drives}")
    expect(row.locator("td.wide", has_text="32.9 %")).to_contain_text("to 39")
    expect(row.locator("td.wide", has_text="37 of 60")).to_contain_text("collision 16.7 %")
    page.set_viewport_size({"width": 360, "height": 740})
    expect(row.locator(".compact")).to_contain_text("61.7 %")
    assert not scrolls_sideways(page)
