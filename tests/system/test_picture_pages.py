"""Pictures that a program leaves, as its user sees them: on each task's page, and side by side over a sweep."""

from playwright.sync_api import Page, expect

from tests.browser import Errors, accessibility_violations, keep_picture, scrolls_sideways
from tests.browser import browser as browser
from tests.browser import context as context
from tests.browser import page as page
from tests.browser import page_errors as page_errors
from tests.browser import pytest_runtest_makereport as pytest_runtest_makereport
from tests.system.platform_process import PlatformProcess

#: Draws a bar of the parameter's height, with a script that must not run, and a file that only has a picture's name.
DRAWING = """
import json, os, pathlib
task = json.loads(pathlib.Path(os.environ["WINDTUNNEL_SCENARIO"]).read_text())
height = task["params"]["height"]
output = pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"])
(output / "bar.svg").write_text(
    '<svg xmlns="http://www.w3.org/2000/svg" width="80" height="90" viewBox="0 0 80 90">'
    '<script>parent.document.title = "taken"; document.title = "taken"</script>'
    f'<rect x="10" y="{90 - height}" width="60" height="{height}" fill="teal"/></svg>'
)
(output / "notes.txt").write_text("no picture")
print(json.dumps({"height": height}))
"""


def test_each_task_shows_its_picture_and_a_simulation_those_of_its_sweep(
    page: Page, page_errors: Errors, platform: PlatformProcess
) -> None:
    drawn = platform.run(
        model=DRAWING.encode(),
        filename="draw.py",
        dataset="program",
        sweep={"height": [20, 50, 80]},
        params={"width": 60},
        gang={"size": 1, "command": ["python", "model.py"]},
    )
    assert drawn["state"] == "succeeded", drawn["reason"]
    page.goto(f"{platform.url}/simulations/{drawn['id']}")
    grid = page.get_by_role("region", name="bar.svg of 3 tasks")
    expect(grid.get_by_role("img")).to_have_count(3)
    expect(grid.locator("figcaption")).to_have_text(["height 20", "height 50", "height 80"])
    grid.scroll_into_view_if_needed()
    for image in grid.get_by_role("img").all():
        image.scroll_into_view_if_needed()
        expect(image).to_have_js_property("naturalWidth", 80)
    assert not scrolls_sideways(page) and not accessibility_violations(page)
    keep_picture(page, "pictures")
    grid.get_by_role("link").nth(1).click()
    page.wait_for_url("**/tasks/1")
    pictures = page.get_by_role("region", name="Pictures")
    expect(pictures.get_by_role("img", name="bar.svg of task 1")).to_have_js_property("naturalHeight", 90)
    expect(pictures.get_by_role("img")).to_have_count(1)
    page_errors.expect("Blocked script execution")
    pictures.get_by_role("link").click()
    page.wait_for_url("**/tasks/1/pictures/bar.svg")
    assert page.title() != "taken"


def test_pictures_of_a_sweep_over_two_parameters_are_a_table_of_them(
    page: Page, page_errors: Errors, platform: PlatformProcess
) -> None:
    drawn = platform.run(
        model=DRAWING.encode(),
        filename="draw.py",
        dataset="program",
        sweep={"height": [20, 50, 80], "width": [30, 60]},
        gang={"size": 1, "command": ["python", "model.py"]},
    )
    assert drawn["state"] == "succeeded", drawn["reason"]
    page.goto(f"{platform.url}/simulations/{drawn['id']}")
    table = page.get_by_role("region", name="Pictures by height and width").get_by_role("table")
    expect(table.get_by_role("columnheader")).to_have_text(["height / width", "30", "60"])
    expect(table.get_by_role("rowheader")).to_have_text(["20", "50", "80"])
    for image in table.get_by_role("img").all():
        image.scroll_into_view_if_needed()
        expect(image).to_have_js_property("naturalWidth", 80)
    assert not scrolls_sideways(page) and not accessibility_violations(page)
    keep_picture(page, "pictures-of-two-parameters")
    last = table.get_by_role("row", name="80").get_by_role("link").nth(1)
    [task] = [
        result["task"]
        for result in platform.results(drawn["id"])
        if result["metrics"] == {"height": 80} and result["scenario"]["params"]["width"] == 60
    ]
    expect(last).to_have_attribute("href", f"/simulations/{drawn['id']}/tasks/{task}")
