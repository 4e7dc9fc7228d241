"""Pages that show trusted runs: the simulation, lists, comparisons, their report, and leaderboards."""

import pytest
from flask.testing import FlaskClient

from tests.api.conftest import LeasingWorker, Submit
from tests.api.test_leaderboards import Play
from tests.api.test_leaderboards import play as play
from tests.api.test_model_comparisons import Runs
from tests.api.test_model_comparisons import runs as runs


@pytest.mark.parametrize("trusted", [True, False])
def test_pages_mark_trusted_runs(client: FlaskClient, submit: Submit, worker: LeasingWorker, trusted: bool) -> None:
    worker.run_to_end(id := submit(trusted=trusted).json["id"])
    page, listed = client.get(f"/simulations/{id}").text, client.get("/simulations").text
    assert (">trusted</span>" in page) == (">trusted</span>" in listed) == trusted
    assert ("could change its own score" in page) == trusted


def test_the_page_of_a_comparison_says_which_of_two_is_trusted(
    client: FlaskClient, submit: Submit, worker: LeasingWorker
) -> None:
    trusted, isolated = (submit(trusted=each).json["id"] for each in (True, False))
    for id in (trusted, isolated):
        worker.run_to_end(id)
    page = client.get(f"/compare?simulation={trusted}&simulation={isolated}&whole=1").text
    assert "The first is trusted and the second is isolated" in page and ">trusted</span>" in page
    assert "is trusted" not in client.get(f"/compare?simulation={isolated}&simulation={isolated}&whole=1").text


def test_the_report_of_a_trusted_comparison_says_so(runs: Runs) -> None:
    reports = []
    for members in ({"trusted": True}, {}):
        runs.advance(id := runs.create("new", "old", **members))
        reports.append(runs.client.get(f"/comparisons/{id}/report.html").text)
    assert ["Both are trusted" in report for report in reports] == [True, False]


def test_the_page_of_a_leaderboard_says_what_is_left_out(client: FlaskClient, play: Play) -> None:
    play("cheat", lambda task: 500, trusted=True)
    page = client.get("/data/cartpole/leaderboard", headers={"HX-Request": "true"}).text
    assert "1 trusted simulation is left out" in page and "cheat" not in page
