"""Every page by axe-core: at 1280 and 360 px, light and dark, with all that opens opened."""

import re

from flask import Flask
from flask.testing import FlaskClient
from playwright.sync_api import Page

from tests.api.test_model_comparisons import Runs, better
from tests.api.test_model_comparisons import runs as runs
from tests.browser import Errors, accessibility_violations, scrolls_sideways
from web import application as web

#: Pages by rule of the application; `{simulation}` and so on are filled in. /docs has a test of its own.
PAGES = {
    "/submit": "/submit?dataset=car_street&model=new",
    "/simulations": "/simulations",
    "/simulations/<id>": "/simulations/{simulation}",
    "/simulations/<id>/tasks": "/simulations/{simulation}/tasks",
    "/simulations/<id>/tasks/<int:task>": "/simulations/{simulation}/tasks/1",
    "/simulations/<id>/sensitivity": "/simulations/{simulation}/sensitivity",
    "/compare": "/compare?simulation={simulation}&simulation={reference}&whole=1",
    "/compare/replay": "/compare/replay?left={simulation}.1&right={reference}.1",
    "/comparisons": "/comparisons",
    "/comparisons/new": "/comparisons/new?dataset=car_street",
    "/comparisons/<id>": "/comparisons/{comparison}",
    "/comparisons/<id>/report": "/comparisons/{comparison}/report",
    "/pipelines": "/pipelines",
    "/pipelines/new": "/pipelines/new",
    "/pipelines/<id>": "/pipelines/{pipeline}",
    "/data": "/data",
    "/data/<reference:name>": "/data/car_street?whole=1",
    "/data/<reference:name>/scenarios/<int:index>": "/data/car_street/scenarios/0",
    "/models": "/models",
    "/models/<reference:name>": "/models/new",
    "/runtimes": "/runtimes",
    "/operations": "/operations",
    "/operations/usage": "/operations/usage?by=simulation",
    "/operations/webhooks": "/operations/webhooks",
    "/operations/webhooks/<id>": "/operations/webhooks/{webhook}",
    "/register": "/register",
    "/sign-in": "/sign-in",
    "": "/simulations/nothing",
}
#: Parts of pages, files, forms' answers, and pages of registered datasets (tests/web/test_data_pages.py) and accounts
#: (tests/web/test_account_pages.py), and of signing in to these (tests/system/test_sign_in.py).
OTHERS = {
    "/", "/favicon.ico", "/static/<path:filename>", "/docs", "/simulations/<id>/live", "/comparisons/<id>/live",
    "/pipelines/<id>/live",
    "/comparisons/<id>/report.html", "/simulations/<id>/tasks/<int:task>/replay.html", "/compare/verdict",
    "/submit/dataset", "/comparisons/new/metrics", "/data/<reference:name>/leaderboard", "/data/<reference:name>/diff",
    "/data/<reference:name>/files/<path:path>",
    "/projects", "/operations/project", "/operations/quotas", "/operations/platform", "/operations/tokens",
    "/operations/audit", "/operations/sign-in", "/invitation", "/device", "/device/done",
    "/sign-in/callback/<provider>",
    "/simulations/<id>/tasks/<int:task>/files", "/simulations/<id>/tasks/<int:task>/files/content",
}  # fmt: skip


def test_every_page_is_among_those_that_are_tested(application: Flask) -> None:
    pages = web.create(application.wsgi_app)
    rules = {rule.rule for rule in pages.url_map.iter_rules() if "GET" in (rule.methods or ())}
    assert rules == {rule for rule in PAGES if rule} | OTHERS


def test_pages_are_accessible_and_fit_in_both_modes_and_widths(
    page: Page, origin: str, runs: Runs, page_errors: Errors, client: FlaskClient
) -> None:
    page_errors.expect("404|409|410")
    id = runs.create("new", "old", scenarios={"range": [0, 60]})
    document = runs.finish(id, better)
    client.post("/v1/simulations", json={"dataset": "noop", "runtime": "python", "labels": {"team": "a"}})
    names = {
        "comparison": id,
        "simulation": document["models"][0]["simulations"][0]["id"],
        "reference": document["reference"]["simulations"][0]["id"],
    }
    submission = {"dataset": "car_street", "model": "new"}
    steps = [{"name": name, "submission": submission, "after": ["a"] * (name != "a")} for name in "abc"]
    names["pipeline"] = client.post("/v1/pipelines", json={"name": "nightly", "steps": steps}).json["id"]
    wanted = {"url": "https://ci.example.com/hooks/1?key=a", "types": ["simulation.ended"], "labels": {"team": "a"}}
    names["webhook"] = client.post("/v1/webhooks", json=wanted).json["id"]
    client.post(f"/v1/webhooks/{names['webhook']}/ping")
    found: list[str] = []
    for address in PAGES.values():
        page.set_viewport_size({"width": 1280, "height": 800})
        page.emulate_media(color_scheme="light")
        page.goto(origin + address.format(**names))
        page.wait_for_load_state("load")
        for width, scheme in ((1280, "light"), (360, "dark")):
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            page.evaluate("document.querySelectorAll('details:not(.confirm)').forEach(d => { d.open = true; })")
            found += [f"{address} {width} {scheme}: {violation}" for violation in accessibility_violations(page)]
            if scrolls_sideways(page):
                found.append(f"{address} {width} {scheme}: scrolls sideways")
    assert found == [], "\n".join(re.sub(r"\b01[0-9a-z]{24}\b", "ID", line) for line in found)
