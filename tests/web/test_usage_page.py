"""Page of usage: a bar for each day, a table by what is chosen, for the project of the page alone."""

import time
from html.parser import HTMLParser
from typing import Any

import pytest
from flask.testing import FlaskClient
from playwright.sync_api import Page, expect

from core.services.platform import Platform
from core.store.tables import usage_intervals
from tests.browser import Errors, accessibility_violations, scrolls_sideways
from tests.web.accounts import Team

HOUR = 3_600_000


def used(platform: Platform, **changes: Any) -> None:
    """Store that a core was used for an hour until now."""
    row = {
        "launch_id": f"l{changes}",
        "number": 1,
        "project": "default",
        "user": "ada",
        "simulation_id": "s1",
        "kind": "simulation",
        "labels": "{}",
        "executor": "local",
        "workers": 1,
        "millicores": 1000,
        "mebibytes": 1024,
        "gpus": 0,
        "until_at": time.time(),
        "milliseconds": HOUR,
        "open": 0,
    }
    platform.database.write(lambda c: c.execute(usage_intervals.insert(), row | changes) and None)


class _Bars(HTMLParser):
    """Collects the heights of the bars of the plot."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.heights: list[float] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "rect":
            self.heights.append(float(dict(attrs)["height"] or 0))


def test_without_usage_the_page_says_so(client: FlaskClient) -> None:
    page = client.get("/operations/usage")
    assert page.status_code == 200 and "Nothing was used in these days." in page.text
    assert _Bars(page.text).heights == []


def test_the_highest_day_fills_the_plot_and_others_are_in_proportion(client: FlaskClient, platform: Platform) -> None:
    noon = time.time() // 86_400 * 86_400 - 43_200  # yesterday
    used(platform, until_at=noon)
    used(platform, until_at=noon - 86_400, workers=4)
    page = client.get("/operations/usage?days=7")
    assert _Bars(page.text).heights == [100.0, 25.0]


@pytest.mark.parametrize(
    ("by", "text"),
    [("user", "ada"), ("kind", "dry-run"), ("simulation", "s1"), ("label", "team"), ("nonsense", "ada")],
)
def test_the_table_is_by_what_is_chosen(client: FlaskClient, platform: Platform, by: str, text: str) -> None:
    used(platform, kind="dry-run", labels='{"team":"<b>a</b>"}')
    page = client.get(f"/operations/usage?by={by}&days=9999").text
    table = page.partition("Table of usage")[2]
    assert text in table and "<b>" not in table


def test_a_project_sees_its_own_usage(team: Team, platform: Platform, page: Page, page_errors: Errors) -> None:
    used(platform, project="red", user="vera", workers=3)
    used(platform, project="blue", user="bob")
    team.sign_in(page, "vera", "/operations/usage?project=red")
    expect(page.get_by_role("heading", level=1)).to_have_text("Usage of red")
    table = page.get_by_role("region", name="Table of usage")
    expect(table.get_by_role("row")).to_have_count(2)
    expect(table.get_by_role("row").last).to_contain_text("vera")
    assert accessibility_violations(page) == [] and not scrolls_sideways(page)
