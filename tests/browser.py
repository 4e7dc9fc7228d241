"""Chromium for tests of web pages: a browser, a page per test whose errors fail the test, a server of static files.

Playwright drives the distribution's Chromium, which scripts/tools/chromium installs; no browser is downloaded.
"""

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from flask import Flask, Response, abort
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, expect, sync_playwright
from werkzeug.serving import make_server

from tests.cached import tool

ROOT = Path(__file__).parents[1]
#: Pictures of the pages of failed tests, by the name of the test.
SCREENSHOTS = ROOT / "var" / "screenshots"
#: The content security policy of the web page: no inline scripts, no inline styles.
POLICY = "default-src 'self'"
#: Milliseconds until an action or an expectation of a page fails.
TIMEOUT = 30_000
expect.set_options(timeout=TIMEOUT)
#: Rules of accessibility: WCAG 2.2 at the levels A and AA.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
#: What htmx writes to the console where a later request replaces an earlier one; a failed one has a message of its own.
REPLACED = "htmx:(sendAbort|afterRequest),"


@dataclass
class Errors:
    """Errors of the pages of a test: messages of consoles, and exceptions; ``expected``: patterns of harmless ones."""

    messages: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=lambda: [REPLACED])

    def expect(self, pattern: str) -> None:
        """Permit errors that match a pattern, such as the status of a request that the test lets fail."""
        self.expected.append(pattern)

    def unexpected(self) -> list[str]:
        """Return the errors that no pattern permits."""
        return [
            message for message in self.messages if not any(re.search(pattern, message) for pattern in self.expected)
        ]

    def watch(self, context: BrowserContext) -> None:
        """Record the errors of all pages of a context."""
        context.on("console", self._record)
        context.on("weberror", lambda error: self.messages.append(f"exception: {error.error}"))

    def _record(self, message: ConsoleMessage) -> None:
        if message.type == "error" or "Content Security Policy" in message.text:
            self.messages.append(f"console: {message.text} ({message.location.get('url', '')})")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium for the tests of a module.

    Not of the whole session: while Playwright runs, its thread has a running event loop, and ``asyncio.run`` in a
    test of another module would fail.
    """
    options = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=tool("chromium"), args=options)
        yield browser
        browser.close()


@pytest.fixture
def page_errors() -> Errors:
    """The errors of the test's pages; a test that provokes some calls ``expect``."""
    return Errors()


@pytest.fixture
def context(browser: Browser, page_errors: Errors) -> Iterator[BrowserContext]:
    """A browser context without cookies, cache or storage of other tests."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(TIMEOUT)
    page_errors.watch(context)
    yield context
    context.close()


@pytest.fixture
def page(request: pytest.FixtureRequest, context: BrowserContext, page_errors: Errors) -> Iterator[Page]:
    """A page in a context of its own. Its errors fail the test; of a failed test, a screenshot is kept."""
    page = context.new_page()
    yield page
    failed = request.node.stash.get(FAILED, False)
    errors = page_errors.unexpected()
    if failed or errors:
        keep_screenshot(page, request.node.name)
    assert not errors, "\n".join(["errors of the page:", *errors])


#: Whether the body of a test failed.
FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Note at a test whether it failed: its page then keeps a screenshot. A conftest imports this hook."""
    report = yield
    if call.when == "call":
        item.stash[FAILED] = call.excinfo is not None
    return report


def keep_screenshot(page: Page, name: str) -> None:
    """Write a picture of the page, if it still answers."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    path = SCREENSHOTS / f"{re.sub(r'[^A-Za-z0-9_-]+', '-', name)[:120]}.png"
    try:
        page.screenshot(path=path, full_page=True)
    except Error:
        return
    print(f"screenshot: {path}")


def accessibility_violations(page: Page, *, within: str | None = None) -> list[str]:
    """Return the violations that axe-core reports for a page or an element of it: rule, help, and the elements."""
    script = Path(tool("axe-core")) / "node_modules" / "axe-core" / "axe.min.js"
    page.evaluate(script.read_text())  # through the protocol, which the content security policy does not bind
    report = page.evaluate(
        "([within, rules]) => axe.run(within ?? document, {runOnly: {type: 'tag', values: rules}})", [within, RULES]
    )
    return [
        f"{violation['id']}: {violation['help']}: "
        + ", ".join(" ".join(map(str, node["target"])) for node in violation["nodes"])
        for violation in report["violations"]
    ]


def scrolls_sideways(page: Page) -> bool:
    """Tell whether the page is wider than its window."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


@dataclass
class StaticSite:
    """A server on loopback of a folder, of the pages and of the responses that a test adds by path."""

    origin: str
    pages: dict[str, str] = field(default_factory=dict)
    responses: dict[str, list[Response]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)


@contextmanager
def static_site(
    folder: Path, *, prefix: str = "/static", headers: Mapping[str, str] | None = None
) -> Iterator[StaticSite]:
    """Serve a folder below ``prefix``, with the content security policy of the web page."""
    app = Flask(__name__, static_folder=str(folder), static_url_path=prefix)
    extra = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", **(headers or {})}

    @app.get("/favicon.ico")
    def favicon() -> Response:
        return Response(status=204)

    @app.get("/<path:path>")
    def answer(path: str) -> Response:
        site.requests.append(f"/{path}")
        if queued := site.responses.get(f"/{path}"):
            return queued.pop(0) if len(queued) > 1 else queued[0]
        if (html := site.pages.get(f"/{path}")) is None:
            abort(404)
        return Response(html, mimetype="text/html")

    @app.after_request
    def guard(response: Response) -> Response:
        response.headers.update(extra)
        return response

    server = make_server("127.0.0.1", 0, app, threaded=True)
    site = StaticSite(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def keep_picture(page: Page, name: str, *, full_page: bool = False) -> None:
    """Keep a picture of the window, or of the whole page, if WEB_SCREENSHOTS names a folder."""
    if folder := os.environ.get("WEB_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=full_page)
