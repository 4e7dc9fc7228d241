"""Report of a comparison: its replays are made with progress on the page, and it stays small unless all are wanted.

The API is a stand-in that serves a real comparison, and one stored replay for each task after some requests.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, Response, abort
from playwright.sync_api import Page, expect

from tests.api.test_model_comparisons import Runs, equal
from tests.api.test_model_comparisons import runs as runs
from tests.browser import accessibility_violations, scrolls_sideways
from tests.web.pages import serve
from web import application
from web.comparison_report import MOST_BYTES, pairs_of
from web.model_labels import labelled

REPLAYS = Path(__file__).parent / "replays"


@dataclass
class Stored:
    """What the stand-in serves: a comparison, a replay for each task, and how often each is requested before that."""

    comparison: dict[str, Any]
    replay: dict[str, Any]
    waits: int = 0
    without: str = ""
    requests: Counter[str] = field(default_factory=Counter)

    def application(self) -> Flask:
        app = Flask(__name__)

        @app.get("/v1/comparisons/<id>")
        def comparison(id: str) -> Any:
            return self.comparison

        @app.get("/v1/simulations/<id>/tasks/<task>/replay")
        def replay(id: str, task: str) -> Response:
            self.requests[f"{id}/{task}"] += 1
            if id == self.without:
                abort(404)
            if self.requests[f"{id}/{task}"] <= self.waits + len(self.requests) % 3:
                return Response(status=202)
            return Response(json.dumps(self.replay), mimetype="application/json")

        @app.errorhandler(404)
        def missing(error: Exception) -> tuple[dict[str, Any], int]:
            return {"title": "Not found", "detail": "There is no replay."}, 404

        @app.get("/v1/models")
        def models() -> dict[str, Any]:
            return {"items": [], "next": None}

        return application.create(app)


def beside_old(model: str, index: int) -> float:
    """Return a score that is better of both other models, and differs between scenarios."""
    return 40.0 if model == "old" else 60.0 + index % 7


@pytest.fixture
def stored(runs: Runs) -> Stored:
    document = runs.finish(runs.create("new", "other", "old"), beside_old)
    return Stored(document, json.loads((REPLAYS / "street_arrival.json").read_text()))


@pytest.fixture
def report_origin(stored: Stored) -> Iterator[str]:
    yield from serve(stored.application())


def grown(replay: dict[str, Any], size: int) -> dict[str, Any]:
    """Return a replay with so many more bytes."""
    return {**replay, "note": "x" * size}


def test_the_page_shows_how_far_the_report_is_and_then_offers_it(
    page: Page, report_origin: str, stored: Stored, tmp_path: Path
) -> None:
    stored.waits = 2
    id = stored.comparison["id"]
    page.goto(f"{report_origin}/comparisons/{id}")
    page.get_by_role("link", name="Report (HTML file)").press("Enter")
    expect(page.get_by_role("progressbar", name="Replays that are made")).to_be_visible()
    expect(page.locator("#report")).to_contain_text(re.compile(r"\d of \d+ replays of the report are made"))
    assert accessibility_violations(page) == []
    download = page.get_by_role("link", name="Download the report, at most 3 MB")
    expect(download).to_be_visible()
    page.set_viewport_size({"width": 360, "height": 740})
    assert accessibility_violations(page) == [] and not scrolls_sideways(page)
    with page.expect_download() as started:
        download.click()
    file = tmp_path / "report.html"
    started.value.save_as(file)
    assert file.stat().st_size < MOST_BYTES
    page.goto(file.as_uri())
    expect(page.locator("replay-compare")).to_have_count(6)
    expect(page.locator("replay-compare").get_by_role("slider").first).to_be_visible()
    expect(page.get_by_role("heading", name="What is left out")).to_have_count(0)


def test_a_large_report_has_the_worst_of_each_model_and_says_what_is_left_out(
    page: Page, report_origin: str, stored: Stored, tmp_path: Path
) -> None:
    stored.replay = grown(stored.replay, 600_000)
    address = f"{report_origin}/comparisons/{stored.comparison['id']}/report.html"
    while (answer := page.request.get(address)).status == 202:
        assert "replays are made" in answer.text()
    assert len(answer.body()) <= MOST_BYTES
    file = tmp_path / "report.html"
    file.write_bytes(answer.body())
    page.goto(file.as_uri())
    expect(page.locator("replay-compare")).to_have_count(2)
    assert {str(one.get_attribute("left-label")) for one in page.locator("replay-compare").all()} == {"new", "other"}
    left_out = page.get_by_role("region", name="What is left out")
    expect(left_out).to_contain_text("it lacks the replays of 4 of 6 scenarios")
    expect(left_out.get_by_role("listitem")).to_have_count(4)
    expect(left_out.get_by_role("link")).to_have_attribute("href", f"{address}?replays=all")
    assert accessibility_violations(page) == []
    everything = page.request.get(f"{address}?replays=all")
    assert everything.status == 200 and everything.text().count("<replay-compare paused") == 6
    assert "What is left out" not in everything.text()


def test_scenarios_without_a_replay_are_named(page: Page, report_origin: str, stored: Stored) -> None:
    stored.without = stored.comparison["models"][0]["scenarios"]["better"][0]["simulation"]
    address = f"{report_origin}/comparisons/{stored.comparison['id']}/report.html"
    while (answer := page.request.get(address)).status == 202:
        pass
    assert "Of these scenarios there is no replay" in answer.text() and "<replay-compare paused" in answer.text()


def test_pairs_are_the_worst_of_each_model_first_and_none_of_equal_ones(runs: Runs) -> None:
    comparison = labelled(runs.finish(runs.create("new", "other", "old"), beside_old))
    assert [pair.label for pair in pairs_of(comparison)] == ["new", "other"] * 3
    same = labelled(runs.finish(runs.create("new", "old", scenarios={"range": [0, 20]}), equal))
    assert pairs_of(same) == []
