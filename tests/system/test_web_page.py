"""The web page on a whole platform, as its user sees it: real simulations, followed, replayed, compared, downloaded.

With WEB_SCREENSHOTS=FOLDER, pictures of the pages are kept there; docs/pictures was made so.
"""

from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser import browser as browser
from tests.browser import context as context
from tests.browser import keep_picture
from tests.browser import page as page
from tests.browser import page_errors as page_errors
from tests.browser import pytest_runtest_makereport as pytest_runtest_makereport
from tests.system.platform_process import PlatformProcess

STREETS: dict[str, Any] = {"dataset": "car_street", "scenarios": {"range": [0, 48]}, "record": "all"}


def test_a_simulation_is_followed_and_its_worst_drive_replayed(page: Page, platform: PlatformProcess) -> None:
    page.goto(platform.url)
    id = platform.submit(**STREETS, runtime="tensorflow", labels={"branch": "main"})["id"]
    row = page.locator(f"#row-{id}")
    expect(row).to_be_visible()
    row.get_by_role("link").first.click()
    expect(page.locator("#live .statusline")).to_contain_text("succeeded")
    expect(page.get_by_role("img", name="Histogram of Driving score")).to_be_visible()
    keep_picture(page, "simulation")
    page.get_by_role("region", name="Worst tasks").get_by_role("link").first.click()
    clock = page.locator("replay-player")
    expect(clock.get_by_role("slider").first).to_be_visible()
    before = float(clock.evaluate("element => element.clock.time"))
    clock.evaluate("element => element.clock.seek(5)")
    assert float(clock.evaluate("element => element.clock.time")) != before
    keep_picture(page, "replay")
    page.get_by_role("button", name="Run just this again").click()
    page.wait_for_url(lambda url: "/tasks/" not in url)
    expect(page.locator("#live .rerun")).to_contain_text("as it was")
    expect(page.locator("#live")).to_contain_text("1 of 1")
    page.locator("#live .rerun").get_by_role("link").first.click()
    again = page.get_by_role("region", name="Run it again with changes")
    again.get_by_label("latency_steps").fill("8")
    again.get_by_role("button", name="Run with these").click()
    page.wait_for_url(lambda url: "/tasks/" not in url)
    expect(page.locator("#live .rerun")).to_contain_text("with latency_steps 8 instead of 0")
    page.get_by_role("link", name="Both replays side by side").click()
    expect(page.locator("replay-compare").get_by_role("slider").first).to_be_visible()
    expect(page.locator("replay-compare .replay-note")).to_have_count(0)  # of different scenarios
    keep_picture(page, "rerun")


def test_two_models_are_compared_and_replayed_side_by_side(page: Page, platform: PlatformProcess) -> None:
    labels = {"comparison": "two"}
    first = platform.run(**STREETS, model="constant_speed", labels=labels)
    second = platform.run(**STREETS, model="idm", labels=labels)
    page.goto(f"{platform.url}/simulations?label=comparison=two")
    expect(page.locator("#rows tbody tr")).to_have_count(2)
    keep_picture(page, "simulations")
    page.get_by_label("all on this page").check()
    page.get_by_role("button", name="Compare the chosen").click()
    expect(page.locator(".verdict")).to_contain_text("better")
    keep_picture(page, "comparison")
    page.locator("table").filter(has_text="Where it is better").get_by_role("link").first.click()
    expect(page.locator("replay-compare").get_by_role("slider").first).to_be_visible()
    expect(page.locator("replay-compare")).to_contain_text("Driving score")
    assert {first["state"], second["state"]} == {"succeeded"}


def test_a_simulation_is_found_opened_and_downloaded_by_keyboard(
    page: Page, platform: PlatformProcess, tmp_path: Path
) -> None:
    id = platform.run(**STREETS, model="idm", labels={"keyboard": "only"})["id"]
    page.goto(platform.url)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skips to the content
    page.get_by_label("Search").focus()
    page.keyboard.type("keyboard=only")
    expect(page.locator("#rows tbody tr")).to_have_count(1)
    tab_to(page, f"/simulations/{id}")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/simulations/{id}")
    expect(page.get_by_role("link", name="Archive (zip)")).to_be_visible()
    tab_to(page, f"/v1/simulations/{id}/archive")
    with page.expect_download() as started:
        page.keyboard.press("Enter")
    path = tmp_path / started.value.suggested_filename
    started.value.save_as(path)
    assert path.read_bytes()[:2] == b"PK"


def tab_to(page: Page, address: str) -> None:
    """Press Tab until the link with an address has the focus."""
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('href')") == address:
            return
    raise AssertionError(f"no link to {address} is reached by Tab")
