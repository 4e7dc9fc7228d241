"""Comparisons of models on a whole platform: from the page to a report, and through kills of every role."""

import json
import random
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page, expect

from tests.browser import browser as browser
from tests.browser import context as context
from tests.browser import keep_picture
from tests.browser import page as page
from tests.browser import page_errors as page_errors
from tests.browser import pytest_runtest_makereport as pytest_runtest_makereport
from tests.system.conftest import StartPlatform
from tests.system.platform_process import END_TIMEOUT, PlatformProcess
from tests.waiting import until

#: Roles that a comparison passes through outside of its simulations.
KILLED = ("jobs", "api", "dispatch", "jobs", "runner-api", "jobs")


def end_of(platform: PlatformProcess, id: str) -> dict[str, Any]:
    """Return a comparison once it has ended."""

    def ended() -> dict[str, Any] | None:
        document: dict[str, Any] = platform.get_until_answered(f"/v1/comparisons/{id}").json()
        return document if document["state"] not in ("running", "cancelling") else None

    return until(ended, END_TIMEOUT, lambda: platform.output()[-2000:])


def test_a_person_compares_two_models_replays_the_worst_and_keeps_the_report(
    page: Page, platform: PlatformProcess, tmp_path: Path
) -> None:
    page.goto(f"{platform.url}/comparisons/new")
    page.get_by_label("Model 1").fill("idm")
    page.get_by_label("Reference").fill("constant_speed")
    page.get_by_label("Dataset").select_option("car_street")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator(".statusline")).to_contain_text("finished", timeout=END_TIMEOUT * 1000)
    expect(page.locator(".verdict")).to_contain_text("idm is better than constant_speed in score")
    keep_picture(page, "verdict")
    address = page.url
    page.get_by_role("table", name="Where it is better").get_by_role("link").first.click()
    expect(page.locator("replay-compare").get_by_role("slider").first).to_be_visible()
    page.goto(address)
    page.get_by_role("link", name="Report (HTML file)").click()
    ready = page.get_by_role("link", name="Download the report, at most 3 MB")
    expect(ready).to_be_visible(timeout=END_TIMEOUT * 1000)
    with page.expect_download(timeout=END_TIMEOUT * 1000) as started:
        ready.click()
    report = tmp_path / started.value.suggested_filename
    started.value.save_as(report)
    assert report.stat().st_size < 3_000_000
    page.context.set_offline(True)
    page.goto(report.as_uri())
    expect(page.locator(".verdict")).to_contain_text("idm is better than constant_speed in score")
    expect(page.locator("replay-compare").first).to_be_visible()
    left_out = page.get_by_role("region", name="What is left out").get_by_role("listitem")
    assert page.locator("replay-compare").count() + left_out.count() == 3
    expect(page.locator("replay-compare").get_by_role("slider").first).to_be_visible()


def test_a_comparison_that_is_disturbed_by_kills_has_the_verdict_of_one_that_is_not(
    start_platform: StartPlatform,
) -> None:
    platform = start_platform()
    body = {"models": ["idm_mobil", "idm"], "dataset": "car_street", "scenarios": {"range": [0, 48]}}
    first = platform.http.post("/v1/comparisons", json=body)
    assert first.status_code == 201, first.text
    undisturbed = end_of(platform, first.json()["id"])
    id = platform.http.post("/v1/comparisons", json=body).json()["id"]
    rng = random.Random(5)
    for role in KILLED:
        platform.kill(role, rng)
        played = platform.get_until_answered(f"/v1/comparisons/{id}").json()["models"][0]["played"]

        def goes_on(before: int = played) -> bool:
            document = platform.get_until_answered(f"/v1/comparisons/{id}").json()
            return document["state"] != "running" or document["models"][0]["played"] > before

        until(goes_on, END_TIMEOUT, lambda: platform.output()[-2000:])
    disturbed = end_of(platform, id)
    assert disturbed["state"] == undisturbed["state"] == "finished"
    assert disturbed["models"][0]["verdict"] == undisturbed["models"][0]["verdict"]
    batches = [play["batch"] for play in disturbed["reference"]["simulations"]]
    assert batches == sorted(set(batches)), "each batch has one simulation"
    scenarios = [scenario["difference"] for scenario in disturbed["models"][0]["scenarios"]["worse"]]
    assert scenarios == [scenario["difference"] for scenario in undisturbed["models"][0]["scenarios"]["worse"]]


def test_events_of_a_comparison_are_followed_as_they_happen(platform: PlatformProcess) -> None:
    body = {"models": ["idm", "constant_speed"], "dataset": "car_street", "seed": 1}
    id = platform.http.post("/v1/comparisons", json=body).json()["id"]
    types: list[str] = []
    with httpx.stream("GET", f"{platform.url}/v1/comparisons/{id}/events", timeout=END_TIMEOUT) as events:
        for line in events.iter_lines():
            if line.startswith("event: "):
                types.append(line.removeprefix("event: "))
            elif line.startswith("data: "):
                assert "at" in json.loads(line.removeprefix("data: "))
    assert types[0] == "state" and types[-2:] == ["model", "state"] and "batch" in types
