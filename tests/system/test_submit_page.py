"""The page that submits, on a whole platform: by drop, by keyboard alone, and by its lines for shell and Python."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser import accessibility_violations, keep_picture
from tests.browser import browser as browser
from tests.browser import context as context
from tests.browser import page as page
from tests.browser import page_errors as page_errors
from tests.browser import pytest_runtest_makereport as pytest_runtest_makereport
from tests.system.platform_process import END_TIMEOUT, ROOT, PlatformProcess

IDM = ROOT / "runtimes/harness/simulators/sumo/baselines/idm.py"
#: Milliseconds until a check or a simulation has ended.
LONG = END_TIMEOUT * 1000


def test_a_model_is_dropped_checked_simulated_replayed_compared_and_downloaded(
    page: Page, platform: PlatformProcess, tmp_path: Path
) -> None:
    other = platform.run(dataset="car_street", scenarios={"range": [0, 24]}, record="all", model="constant_speed")
    page.goto(platform.url)
    page.get_by_role("link", name="Submit a simulation").click()
    page.get_by_role("combobox", name="Dataset").select_option("car_street")
    transfer = page.evaluate_handle(
        "source => { const transfer = new DataTransfer(); transfer.items.add(new File([source], 'street_model.py'));"
        " return transfer; }",
        IDM.read_text(),
    )
    page.dispatch_event("model-upload", "drop", {"dataTransfer": transfer})
    expect(page.locator("model-upload")).to_contain_text("format python")
    expect(page.locator("#check")).to_contain_text("fits", timeout=LONG)
    page.get_by_role("combobox", name="Which").select_option("range")
    page.get_by_role("textbox", name="Numbers").fill("0-23")
    page.get_by_text("More", exact=True).click()
    page.get_by_role("combobox", name="Traces for replays").select_option("all")
    expect(page.locator("#request")).to_contain_text("24 tasks")
    assert accessibility_violations(page) == []
    keep_picture(page, "submit")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url("**/simulations/0*")
    expect(page.locator("#live .statusline")).to_contain_text("succeeded", timeout=LONG)
    id = page.url.rpartition("/")[2]
    page.get_by_role("region", name="Worst tasks").get_by_role("link").first.click()
    expect(page.locator("replay-player").get_by_role("slider").first).to_be_visible()
    page.goto(f"{platform.url}/compare?simulation={id}&simulation={other['id']}")
    expect(page.locator(".verdict")).to_contain_text("than constant_speed")
    page.goto(f"{platform.url}/simulations/{id}")
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    table = tmp_path / started.value.suggested_filename
    started.value.save_as(table)
    assert len(table.read_text().splitlines()) == 25


def test_a_model_that_does_not_fit_is_refused_before_it_is_submitted(page: Page, platform: PlatformProcess) -> None:
    page.goto(f"{platform.url}/submit?dataset=cartpole&model=idm")
    expect(page.locator("#check .problem")).to_contain_text("It does not fit.", timeout=LONG)
    page.get_by_label("Stored model").fill("cartpole")
    page.get_by_label("Stored model").press("Tab")
    expect(page.locator("#check .good")).to_contain_text("fits", timeout=LONG)


def test_the_whole_way_is_gone_by_keyboard_alone(page: Page, platform: PlatformProcess, tmp_path: Path) -> None:
    page.goto(platform.url)
    tab_to(page, "element => element.textContent.trim() === 'Submit a simulation'")
    page.keyboard.press("Enter")
    page.wait_for_url("**/submit")
    tab_to(page, "element => element.name === 'model'")
    page.keyboard.type("idm")
    tab_to(page, "element => element.name === 'dataset'")
    page.keyboard.type("car_street")
    page.keyboard.press("Tab")
    expect(page.locator("#check .good")).to_contain_text("fits", timeout=LONG)
    tab_to(page, "element => element.name === 'select'")
    page.keyboard.type("from")
    tab_to(page, "element => element.name === 'scenarios'")
    page.keyboard.type("0-11")
    expect(page.locator("#request")).to_contain_text("12 tasks")
    page.keyboard.press("Enter")
    page.wait_for_url("**/simulations/0*")
    expect(page.locator("#live .statusline")).to_contain_text("succeeded", timeout=LONG)
    tab_to(page, "element => element.closest('[aria-label=\"Worst tasks\"] a')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tasks/*")
    slider = page.locator("replay-player").get_by_role("slider").first
    expect(slider).to_be_visible()
    page.go_back()
    tab_to(page, "element => element.textContent === 'CSV'")
    with page.expect_download() as started:
        page.keyboard.press("Enter")
    assert started.value.suggested_filename.endswith(".csv")


def tab_to(page: Page, condition: str) -> None:
    """Press Tab until the element that has the focus meets a condition."""
    for _ in range(250):
        page.keyboard.press("Tab")
        if page.evaluate(f"() => Boolean(({condition})(document.activeElement))"):
            return
    raise AssertionError(f"no element with {condition} is reached by Tab")


def test_the_lines_beside_the_form_submit_the_same(page: Page, platform: PlatformProcess) -> None:
    page.goto(
        f"{platform.url}/submit?model=idm&dataset=car_street&select=sample&scenarios=3&repeat=2"
        "&param.latency_steps=0,2&labels=branch=it's"
    )
    commands = page.locator("#request code")
    line, curl, python = (str(commands.nth(number).text_content()) for number in range(3))
    run: dict[str, Any] = {"check": True, "capture_output": True, "text": True, "timeout": 60}
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "WINDTUNNEL_TOKEN": ""}
    by_line = subprocess.run(["bash", "-c", f"{line.strip()} --detach"], env=environment, **run).stdout.strip()
    by_curl = subprocess.run(["bash", "-c", f"{curl.strip()} --silent --fail"], env=environment, **run).stdout
    by_python = subprocess.run([sys.executable, "-c", python], env=environment, **run).stdout.strip()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url("**/simulations/0*")
    by_page = platform.get(page.url.rpartition("/")[2])
    assert '"id"' in by_curl and by_page["tasks"]["total"] == 12
    newest = platform.http.get("/v1/simulations?limit=4&include=spec").json()["items"]
    assert {by_line, by_python} < {simulation["id"] for simulation in newest}
    assert [simulation["spec"] for simulation in newest] == [by_page["spec"]] * 4
    for simulation in newest:
        platform.http.post(f"/v1/simulations/{simulation['id']}/cancel")
