"""Counted page: its clicks and keystrokes are those that the browser receives."""

from pathlib import Path

from playwright.sync_api import Page

from benchmarks.counted_page import CountedPage
from benchmarks.gestures import total
from tests.browser import static_site

FORM = """<!doctype html><title>form</title>
<button>Go</button><label><input type=checkbox>first</label><label><input type=checkbox>second</label>
<label>Word <input></label><label>Kind <select><option>one<option>two</select></label>"""


def test_clicks_and_keys_are_those_that_the_browser_receives(page: Page, tmp_path: Path) -> None:
    with static_site(tmp_path) as site:
        site.pages["/form"] = FORM
        page.goto(f"{site.origin}/form")
        page.evaluate(
            "() => { window.received = {click: 0, keydown: 0}; for (const kind of Object.keys(received))"
            " addEventListener(kind, (event) => { if (event.isTrusted) received[kind] += 1; }, true) }"
        )
        person = CountedPage(page)
        person.click(page.get_by_role("button"), "Go")
        person.check(page.get_by_role("checkbox").all(), "both")
        person.click(page.get_by_label("Word"), "Word")
        person.write("idm")
        person.press("Enter")
        received = page.evaluate("received")
        assert total(person.steps) == (received["click"], received["keydown"]) == (4, 4)
        assert page.get_by_label("Word").input_value() == "idm"
        person.choose(page.get_by_label("Kind"), "two", "the kind")
        assert page.get_by_label("Kind").input_value() == "two" and total(person.steps) == (6, 4)
