"""Pages: server time, bytes and first contentful paint of the web page with 100,000 simulations stored."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flask import Flask
from playwright.sync_api import Browser, sync_playwright
from sqlalchemy import select, text
from werkzeug.serving import WSGIRequestHandler, make_server

from benchmarks.figures import tail
from benchmarks.listing import SIZE, STEP, filled, timed
from benchmarks.platform_process import fresh_home
from benchmarks.results import aim, milliseconds, number, table
from benchmarks.summaries import play
from core.services.platform import Platform
from core.services.simulations.list_changes import OVERLAP
from core.settings import Settings
from core.store import tables
from server import composition as root
from tests.cached import tool
from tests.databases import postgres_url
from tests.postgres import own_postgres

#: Tasks of the simulations whose pages are measured.
TASKS = 10_000
#: Loads of each page by the browser, the first of which fills its cache.
LOADS = 7
#: Milliseconds in which a page must be answered, and in which its content must appear; bytes that it may have.
ANSWERED, PAINTED, BYTES = 0.1, 0.3, 200_000


class _Quiet(WSGIRequestHandler):
    """Request handler that logs nothing."""

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Log nothing."""


@contextmanager
def _served(application: Flask) -> Iterator[str]:
    """Serve an application on loopback; yield its origin."""
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def paths(platform: Platform) -> dict[str, str]:
    """Return the paths of pages by description; two simulations with results are added for those that need them."""
    first, second = (play(platform, platform.database, TASKS) for _ in range(2))
    for id in (first, second):
        platform.jobs.finalization.collect(id)
    with platform.database.read() as c:
        ids = tables.simulations.c.id
        deep = str(c.scalar(select(ids).order_by(ids).offset(SIZE // 10).limit(1)))
        running = str(c.scalar(select(ids).where(tables.simulations.c.state == "running").limit(1)))
    return {
        "list": "/simulations",
        "list, a page deep in it": f"/simulations?after={deep}",
        "list, a search": "/simulations?q=street-3+main",
        "list, a search without a match": "/simulations?q=nothing",
        "a simulation": f"/simulations/{first}",
        "a simulation that runs": f"/simulations/{running}",
        "a task": f"/simulations/{first}/tasks/7",
        "its worst tasks": f"/simulations/{first}/tasks",
        "what goes with failure": f"/simulations/{first}/sensitivity",
        "two simulations compared": f"/compare?simulation={first}&simulation={second}",
        "comparisons of models": "/comparisons",
        "form of a comparison": "/comparisons/new?dataset=car_street",
        "submission": "/submit",
        "datasets": "/data",
        "a dataset": "/data/car_street",
        "models": "/models",
        "runtimes": "/runtimes",
        "operations": "/operations",
    }


def answered(application: Flask, pages: dict[str, str]) -> dict[str, dict[str, float]]:
    """Return the spread of the seconds in which each page is answered, within this process."""
    client = application.test_client()

    def get(path: str) -> None:
        response = client.get(path)
        assert response.status_code == 200, (path, response.status_code)

    figures = {}
    for name, path in pages.items():
        figures[name] = timed(lambda: get(path))  # noqa: B023 - run at once
        print(f"{name}: {figures[name]}", flush=True)
    return figures


def painted(browser: Browser, origin: str, path: str) -> dict[str, Any]:
    """Return first contentful paints in seconds, and the bytes of a page with all that it loads at first."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    sizes: dict[str, int] = {}
    document = 0
    paints = []
    for load in range(LOADS):
        with page.expect_event("load"):
            page.goto(origin + path, wait_until="commit")
        entries = page.evaluate(
            "() => new Promise(done => new PerformanceObserver((list, observer) => {"
            " const paint = list.getEntriesByName('first-contentful-paint')[0];"
            " if (paint) { observer.disconnect(); done(paint.startTime); } }).observe({type: 'paint', buffered: true}))"
        )
        paints.append(entries / 1000)
        if load == 0:
            resources = page.evaluate(
                "() => performance.getEntriesByType('resource').filter(entry => !entry.name.includes('/v1/'))"
                ".map(entry => [entry.name, entry.decodedBodySize])"
            )
            sizes = dict(resources)
            document = page.evaluate("() => performance.getEntriesByType('navigation')[0].decodedBodySize")
    context.close()
    return {"first": paints[0], "again": tail(paints[1:]), "html": document, "bytes": document + sum(sizes.values())}


def measure(size: int = SIZE) -> dict[str, Any]:
    """Measure on both databases; the browser loads the pages of the one on SQLite."""
    figures: dict[str, Any] = {"size": size, "tasks": TASKS}
    with fresh_home() as home, own_postgres() as server:
        home.mkdir(parents=True, exist_ok=True)
        urls = {
            "sqlite": f"sqlite:///{home / 'windtunnel.db'}",
            "postgresql": postgres_url(server.url, "pages", migrated=False),
        }
        for name, url in urls.items():
            with filled(home, url, size) as platform:
                pages = paths(platform)
                if name == "postgresql":  # as autovacuum does after a minute
                    with platform.database.read() as c:
                        c.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE simulations"))
                application = root.create_flask(platform, Settings(home=Path(home), streams=STEP))
                print(name, flush=True)
                figures[name] = answered(application, pages)
                if name == "sqlite":
                    figures["browser"] = _in_browser(application, pages)
    return figures


def _in_browser(application: Flask, pages: dict[str, str]) -> dict[str, Any]:
    time.sleep(OVERLAP)  # the list loads once more what changed in the last seconds before it was read
    with _served(application) as origin, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=tool("chromium"), args=["--no-sandbox", "--disable-gpu"])
        figures = {name: painted(browser, origin, path) for name, path in pages.items()}
        browser.close()
    return figures


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    rows = []
    for name, seconds in figures["sqlite"].items():
        browser, other = figures["browser"][name], figures["postgresql"][name]
        rows.append(
            [
                name,
                f"{milliseconds(seconds['p50'])}, {milliseconds(seconds['max'])}",
                f"{milliseconds(other['p50'])}, {milliseconds(other['max'])}",
                milliseconds(browser["first"]),
                milliseconds(browser["again"]["p50"]),
                number(browser["html"] / 1000),
                number(browser["bytes"] / 1000),
            ]
        )
    slowest = max(seconds["p50"] for kind in ("sqlite", "postgresql") for seconds in figures[kind].values())
    paint = max(browser["again"]["p50"] for browser in figures["browser"].values())
    largest = max(browser["bytes"] for browser in figures["browser"].values())
    return "\n\n".join(
        [
            f"{figures['size']:,} simulations of `car_street` in the store, those that are looked at with "
            f"{figures['tasks']:,} tasks. *Server*: the page through the WSGI application in one process, with all "
            "requests to the API that it makes; median and slowest of 30. *Paint*: first contentful paint in Chromium "
            "on loopback, with an empty cache and as the median of six with its files in the cache. *Size*: kilobytes "
            "of the page, and with its style sheets, scripts and pictures, uncompressed.",
            table(
                ["page", "server, SQLite", "server, PostgreSQL", "paint, first", "paint", "HTML", "size"],
                rows,
            ),
            aim(f"every page answered in less than {ANSWERED * 1000:.0f} ms", slowest < ANSWERED),
            aim(f"first contentful paint in less than {PAINTED * 1000:.0f} ms", paint < PAINTED),
            aim(f"no page over {BYTES // 1000} KB", largest <= BYTES),
        ]
    )
