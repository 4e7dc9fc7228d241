"""Chromium of the tests: errors of pages are recorded, the content security policy is that of the web page."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser import Errors, StaticSite, accessibility_violations, scrolls_sideways, static_site
from tests.waiting import until


@pytest.fixture
def site(tmp_path: Path) -> Iterator[StaticSite]:
    with static_site(tmp_path) as site:
        yield site


def html(body: str) -> str:
    return f'<!doctype html><html lang="en"><head><title>Test</title></head><body><main>{body}</main></body></html>'


def test_a_script_of_the_site_runs(site: StaticSite, page: Page, tmp_path: Path) -> None:
    (tmp_path / "script.js").write_text('document.querySelector("h1").textContent = "From a script";')
    site.pages["/page"] = html('<h1>Before</h1><script type="module" src="/static/script.js"></script>')
    page.goto(f"{site.origin}/page")
    page.get_by_role("heading", name="From a script").wait_for()
    assert not scrolls_sideways(page)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("<script>document.title = 'inline'</script>", "Content Security Policy"),
        ("<p style='color: red'>inline</p>", "Content Security Policy"),
        ('<script type="module" src="/static/fails.js"></script>', "exception: .*on purpose"),
        ('<img src="/static/missing.png" alt="">', "404"),
    ],
    ids=["script", "style", "exception", "missing"],
)
def test_an_error_of_a_page_is_recorded(
    site: StaticSite, page: Page, page_errors: Errors, tmp_path: Path, body: str, message: str
) -> None:
    (tmp_path / "fails.js").write_text('throw new Error("on purpose");')
    page_errors.expect(message)
    site.pages["/page"] = html(body)
    page.goto(f"{site.origin}/page")
    # Messages arrive while Playwright handles another call.
    until(lambda: (page.title(), page_errors.messages)[1], message="no error is recorded")
    assert page_errors.unexpected() == []


def test_axe_names_the_element_that_has_no_label(site: StaticSite, page: Page) -> None:
    site.pages["/page"] = html('<h1>Form</h1><input id="nameless">')
    page.goto(f"{site.origin}/page")
    assert any("#nameless" in violation for violation in accessibility_violations(page))
    site.pages["/page"] = html("<h1>Form</h1><label>Name <input></label>")
    page.goto(f"{site.origin}/page")
    assert accessibility_violations(page) == []


def test_a_page_wider_than_its_window_scrolls_sideways(site: StaticSite, page: Page, tmp_path: Path) -> None:
    (tmp_path / "wide.css").write_text("main { width: 3000px }")
    site.pages["/page"] = html("wide").replace("</head>", '<link rel="stylesheet" href="/static/wide.css"></head>')
    page.goto(f"{site.origin}/page")
    assert scrolls_sideways(page)
