"""Leaderboard of a dataset: the pooled simulations of each model."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient
from sqlalchemy import event

from core.domain.access.scopes import LOCAL_CALLER
from core.services.analysis.leaderboards import Leaderboards
from core.services.platform import Platform
from core.store import simulations
from tests.api.answers import MODEL, line, problem
from tests.api.conftest import LeasingWorker, Submit
from tests.reports import report_of

Play = Callable[..., str]


@pytest.fixture
def play(submit: Submit, worker: LeasingWorker, platform: Platform, client: FlaskClient) -> Play:
    """Function that simulates cartpole to the end; ``returns``: of each task, or None for a task that fails."""

    def run(name: str, returns: Callable[[int], float | None], **fields: Any) -> str:
        stored = client.put(
            f"/v1/models/{name}?filename=model.py",
            data=MODEL + f"# {name}\n".encode(),
            headers={"Content-Type": "application/octet-stream"},
        )
        assert stored.status_code in (200, 201), stored.data
        id: str = submit(dataset="cartpole", model=name, **({"scenarios": None} | fields)).json["id"]
        launch = worker.launch(id)
        while True:
            lease = worker.lease(launch)
            values = [(task, returns(task)) for task in range(lease.cursor, lease.stop)]
            lines = b"".join(line(task, "failed") if value is None else result(task, value) for task, value in values)
            assert platform.scheduling.leases.report(launch, report_of(lease, lease.cursor, lease.stop, lines)).accepted
            if worker.dispatch.close(id):
                break
        platform.jobs.finalization.collect(id)
        return id

    return run


def result(task: int, value: float) -> bytes:
    document = json.loads(line(task))
    document["metrics"] = {"return": value}
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def leaderboard(client: FlaskClient, dataset: str = "cartpole", **query: Any) -> dict[str, Any]:
    response = client.get(f"/v1/datasets/{dataset}/leaderboard", query_string=query)
    assert response.status_code == 200, response.data
    document: dict[str, Any] = response.json
    return document


def test_results_are_read_once_for_many_leaderboards(client: FlaskClient, play: Play, platform: Platform) -> None:
    first, deleted = play("good", lambda task: 200), play("bad", lambda task: 50)
    read: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        read.extend([statement] if "simulations.headline" in statement else [])

    with platform.database.read() as c:
        engine = c.engine
    event.listen(engine, "before_cursor_execute", note)
    assert [item["simulation"] for item in leaderboard(client)["items"]] == [first, deleted]
    assert len(read) == 1
    newest = play("best", lambda task: 300)
    assert client.delete(f"/v1/simulations/{deleted}").status_code == 204
    read.clear()
    for _ in range(2):
        assert [item["simulation"] for item in leaderboard(client)["items"]] == [newest, first]
    event.remove(engine, "before_cursor_execute", note)
    assert len(read) == 1, "of the simulation that is new"


def test_models_are_ranked_by_all_their_simulations(client: FlaskClient, play: Play) -> None:
    good = play("good", lambda task: 198 + task % 3)
    play("good", lambda task: 202 + task % 3, seed=1)
    play("good", lambda task: 500, seed=1)  # the same tasks again
    close = play("close", lambda task: 199 + task % 5)
    bad = play("bad", lambda task: 50)
    document = leaderboard(client)
    assert [item["simulation"] for item in document["items"]] == [close, good, bad]
    assert [item["pooled"] for item in document["items"]] == [1, 2, 1]
    second = document["items"][1]
    assert (second["mean"], second["tasks"]["total"]) == (pytest.approx(200.99), 200)
    assert [item["better_than_next"] for item in document["items"]] == [False, True, None]
    first = document["items"][0]
    assert first["place"] == 1 and first["mean"] == 201 and first["low"] < 201 < first["high"]
    assert first["model"]["name"] == "close" and first["model"]["digest"].startswith("sha256:")
    assert first["tasks"] == {"total": 100, "done": 100, "failed": 0}
    assert first["ended_at"] == client.get(f"/v1/simulations/{close}").json["ended_at"]
    assert (document["metric"], document["better"], document["version"]) == ("return", "higher", "1")
    assert (document["searched"], document["complete"]) == (5, True)
    assert [item["simulation"] for item in leaderboard(client, "cartpole@1", limit=1)["items"]] == [close]


def test_a_simulation_with_repetitions_has_the_interval_of_its_scenarios(client: FlaskClient, play: Play) -> None:
    play("once", lambda task: 100 + task % 50)
    play("often", lambda task: None if task % 100 == 7 else 100 + task % 50, repeat=4)
    once, often = leaderboard(client)["items"]
    width, width_often = once["high"] - once["low"], often["high"] - often["low"]
    assert often["tasks"] == {"total": 400, "done": 400, "failed": 4}
    assert width_often > 0.9 * width, "four times the same drives say no more about others"


def test_a_failed_task_counts_as_the_worst_value(client: FlaskClient, play: Play) -> None:
    play("fragile", lambda task: None if task % 2 else 300)
    play("steady", lambda task: 160)
    steady, fragile = leaderboard(client)["items"]
    assert (steady["model"]["name"], fragile["model"]["name"], fragile["mean"]) == ("steady", "fragile", 150)
    assert fragile["tasks"]["failed"] == 50 and fragile["low"] < 150 < fragile["high"]


def test_parts_of_a_dataset_and_unended_simulations_are_not_ranked(
    client: FlaskClient, play: Play, submit: Submit
) -> None:
    play("part", lambda task: 400, scenarios={"range": [0, 99]})
    submit(dataset="cartpole", scenarios=None)
    assert leaderboard(client)["items"] == []


def test_only_the_newest_simulations_are_searched(client: FlaskClient, play: Play, platform: Platform) -> None:
    play("old", lambda task: 500)
    new = play("new", lambda task: 10)
    assert len(leaderboard(client)["items"]) == 2
    document = Leaderboards(platform.database, platform.catalogue.datasets, searched=1).leaderboard(
        LOCAL_CALLER, "cartpole", 20
    )
    assert [item["simulation"] for item in document["items"]] == [new]
    assert (document["searched"], document["complete"]) == (1, False)


def test_simulations_of_earlier_versions_are_ranked_by_their_summaries(
    client: FlaskClient, play: Play, platform: Platform
) -> None:
    id = play("old", lambda task: 30)
    summary = client.get(f"/v1/simulations/{id}/summary").json
    summary["metrics"]["length"] = {"std": float("inf")}
    columns = {"summary": json.dumps(summary), "headline": None}
    platform.database.write(lambda c: simulations.describe(c, id, **columns))
    assert [item["mean"] for item in leaderboard(client)["items"]] == [30]


def test_a_dataset_without_a_score_has_no_leaderboard(client: FlaskClient) -> None:
    refused = problem(client.get("/v1/datasets/noop/leaderboard"), 422, "invalid")
    assert "no score" in refused["detail"] and "GET /v1/simulations?dataset=noop" in refused["detail"]
    assert problem(client.get("/v1/datasets/cartpol/leaderboard"), 404, "unknown-dataset")["nearest"] == ["cartpole"]
    problem(client.get("/v1/datasets/cartpole/leaderboard?limit=0"), 422, "invalid")
