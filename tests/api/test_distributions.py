"""Distributions of metrics and their dependence on parameters, while a simulation runs and after its end."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from flask.testing import FlaskClient

from common.errors import NotFound, UnknownSimulation
from core.domain.access.scopes import LOCAL_CALLER
from core.services.analysis.distributions import Distributions
from core.services.analysis.result_tables import ResultTables
from core.services.datasets.file_sources import Sources
from core.services.datasets.scenario_specs import ScenarioSpecs
from core.services.platform import Platform
from tests.api.answers import line, problem
from tests.api.conftest import LeasingWorker, Submit
from tests.reports import report_of

STREETS = ["signal_grid", "arterial", "roundabout", "ramp_merge", "priority_junction", "crosswalk"]


def distributions(client: FlaskClient, id: str) -> dict[str, Any]:
    response = client.get(f"/v1/simulations/{id}/distributions")
    assert response.status_code == 200, response.data
    document: dict[str, Any] = response.json
    return document


def dependence(client: FlaskClient, id: str, metric: str, *parameters: str) -> dict[str, Any]:
    query = {"metric": metric, "parameter": parameters}
    response = client.get(f"/v1/simulations/{id}/dependence", query_string=query)
    assert response.status_code == 200, response.data
    document: dict[str, Any] = response.json
    return document


def tables_of(platform: Platform, **limits: int) -> ResultTables:
    """New tables, into which nothing has been read."""
    specs = ScenarioSpecs(platform.database, platform.store, Sources(platform.store, {}))
    return ResultTables(platform.database, platform.analysis.results, specs, **limits)


@pytest.fixture
def streets(submit: Submit, worker: LeasingWorker) -> str:
    """Id of a simulation of all scenarios of car_street with two latencies, which has ended; every seventh failed."""
    id: str = submit(dataset="car_street", scenarios=None, sweep={"latency_steps": [0, 2]}).json["id"]
    worker.run_to_end(id)
    return id


# -- distributions


def test_every_metric_has_a_histogram(client: FlaskClient, finished: str) -> None:
    document = distributions(client, finished)
    assert document["tasks"] == {"total": 20, "done": 20, "failed": 2}
    assert (document["read"], document["sampled"], document["complete"]) == (20, 20, True)
    assert document["statuses"] == {"failed": 2, "ok": 18}
    steps = document["metrics"]["steps"]
    assert steps["kind"] == "number" and (steps["min"], steps["max"], steps["missing"]) == (0, 19, 0)
    assert sum(steps["counts"]) == steps["count"] == 18 and len(steps["edges"]) == 21
    assert document["metrics"]["failed"]["counts"] == [18, 2]
    assert document["metrics"]["value"] == {  # declared, without results
        "kind": "number", "count": 0, "missing": 18, "edges": [], "counts": [], "mean": None, "min": None, "max": None,
    }  # fmt: skip


def test_distributions_grow_while_a_simulation_runs(client: FlaskClient, submit: Submit, worker: LeasingWorker) -> None:
    id = submit(tasks=20).json["id"]
    assert distributions(client, id)["read"] == 0
    launch = worker.launch(id)
    lease = worker.lease(launch)
    worker.report(launch, lease, 0, 3)
    document = distributions(client, id)
    assert (document["read"], document["complete"], document["tasks"]["done"]) == (3, False, 3)
    worker.report(launch, lease, 3, lease.stop)
    assert distributions(client, id)["metrics"]["steps"]["max"] == lease.stop - 1
    worker.finish(launch)
    document = distributions(client, id)
    assert (document["read"], document["complete"]) == (20, True)


def test_a_simulation_that_was_followed_and_others_are_equal(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    id = submit(tasks=20).json["id"]
    launch = worker.launch(id)
    worker.report(launch, worker.lease(launch), 0, 5)
    distributions(client, id)
    worker.finish(launch)
    followed = distributions(client, id)
    assert Distributions(platform.database, tables_of(platform)).distributions(LOCAL_CALLER, id) == followed


def test_a_deleted_simulation_has_no_distributions(client: FlaskClient, finished: str, platform: Platform) -> None:
    tables = tables_of(platform)
    with tables.current(LOCAL_CALLER, finished):
        assert tables.size > 0
    assert client.delete(f"/v1/simulations/{finished}").status_code == 204
    for path in ("distributions", "parameters", "dependence?metric=failed&parameter=x"):
        problem(client.get(f"/v1/simulations/{finished}/{path}"), 404, "unknown-simulation")
    with pytest.raises(UnknownSimulation), tables.current(LOCAL_CALLER, finished):
        pass
    assert tables.size == 0


def test_results_are_read_once(
    client: FlaskClient, finished: str, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = distributions(client, finished)
    monkeypatch.setattr(platform.analysis.results, "segment_bytes", None)
    assert distributions(client, finished) == first


def test_a_table_that_could_not_be_read_is_read_again(
    client: FlaskClient, finished: str, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, bodies = platform.analysis.results.segment_bytes, []

    def damaged(*segment: Any) -> bytes:
        if bodies:
            raise NotFound("The results are damaged.")
        bodies.append(read(*segment))
        return bodies[0]

    with monkeypatch.context() as patch:
        patch.setattr(platform.analysis.results, "segment_bytes", damaged)
        problem(client.get(f"/v1/simulations/{finished}/distributions"), 404, "not-found")
    document = distributions(client, finished)
    assert document["read"] == sum(document["statuses"].values()) == 20


# -- parameters and dependence


def test_parameters_are_those_of_scenarios_and_of_the_sweep(client: FlaskClient, streets: str) -> None:
    listed = client.get(f"/v1/simulations/{streets}/parameters").json["parameters"]
    parameters = {parameter["name"]: parameter for parameter in listed}
    assert parameters["street"]["values"] == STREETS and parameters["street"]["kind"] == "category"
    assert parameters["vehicles"]["kind"] == "number" and parameters["vehicles"]["low"] == 4
    assert parameters["start.pos"]["distinct"] > 100 and "values" not in parameters["start.pos"]
    assert parameters["params.latency_steps"] == {
        "name": "params.latency_steps", "source": "sweep", "kind": "number", "distinct": 2, "values": [0, 2],
        "low": 0, "high": 2,
    }  # fmt: skip
    assert {"route", "index", "name"}.isdisjoint(parameters)


def test_a_category_has_statistics_by_value(client: FlaskClient, streets: str) -> None:
    document = dependence(client, streets, "steps", "street")
    assert document["kind"] == "number" and document["parameters"][0]["values"] == STREETS
    assert [group["value"] for group in document["groups"]] == STREETS and "points" not in document
    first = document["groups"][0]  # 48 scenarios with two latencies, of which every seventh failed
    tasks = [task for task in (*range(48), *range(288, 336)) if task % 7 != 6]
    assert first["count"] == len(tasks) and first["mean"] == pytest.approx(sum(tasks) / len(tasks))
    assert first["low"] < first["mean"] < first["high"] and first["p25"] < first["p50"] < first["p75"]


def test_a_number_has_bins_and_points(client: FlaskClient, streets: str) -> None:
    document = dependence(client, streets, "return", "start.pos")
    edges = document["parameters"][0]["edges"]
    assert [(group["from"], group["to"]) for group in document["groups"]] == list(pairwise(edges))
    points = document["points"]
    assert points["y"] == [task / 2 for task in points["tasks"]] and set(points["statuses"]) == {"ok"}
    assert sum(group["count"] for group in document["groups"]) == len(points["x"]) == 494


def test_swept_parameters_are_numbers_with_values(client: FlaskClient, streets: str) -> None:
    for name in ("params.latency_steps", "latency_steps"):
        groups = dependence(client, streets, "steps", name)["groups"]
        assert [group["value"] for group in groups] == [0, 2]
        assert groups[0]["max"] < 288 <= groups[1]["min"]


def test_failures_are_a_metric(client: FlaskClient, streets: str) -> None:
    groups = dependence(client, streets, "failed", "density")["groups"]
    assert sum(group["count"] for group in groups) == 576
    assert sum(group["mean"] * group["count"] for group in groups) == pytest.approx(576 // 7)


def test_tasks_that_are_not_ok_count_with_the_worst_value(client: FlaskClient, streets: str) -> None:
    groups = dependence(client, streets, "collision", "params.latency_steps")["groups"]
    assert [(group["count"], group["mean"]) for group in groups] == [(41, 1), (41, 1)]


def test_two_parameters_are_a_heat_map(client: FlaskClient, streets: str) -> None:
    document = dependence(client, streets, "failed", "street", "params.latency_steps")
    assert document["counts"] == [[48, 48]] * 6
    assert [axis["name"] for axis in document["parameters"]] == ["street", "params.latency_steps"]
    assert sum(map(sum, document["means"])) == pytest.approx(82 / 48)


def test_texts_are_counted_by_group(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    id = submit(tasks=4, sweep={"batch": [1, 2]}).json["id"]
    launch = worker.launch(id)
    for _ in range(8):
        lease = worker.lease(launch)
        outcomes = ["fell" if task < 3 else "balanced" for task in range(lease.start, lease.stop)]
        lines = b"".join(line(task, outcome=outcome) for task, outcome in enumerate(outcomes, lease.start))
        assert platform.scheduling.leases.report(launch, report_of(lease, lease.start, lease.stop, lines)).accepted
        if lease.stop == 8:
            break
    document = dependence(client, id, "outcome", "batch")
    assert document["kind"] == "category"
    assert document["groups"][0] == {"value": 1, "count": 4, "values": {"balanced": 1, "fell": 3}}
    assert distributions(client, id)["metrics"]["outcome"]["values"] == {"balanced": 5, "fell": 3}
    query = {"metric": "outcome", "parameter": ["batch", "sleep_ms"]}
    problem(client.get(f"/v1/simulations/{id}/dependence", query_string=query), 422, "invalid")


def test_near_names_are_suggested(client: FlaskClient, streets: str, finished: str) -> None:
    path = f"/v1/simulations/{streets}/dependence"
    refused = problem(client.get(f"{path}?metric=colision&parameter=street"), 422, "invalid")
    assert refused["nearest"] == ["collision"] and "Did you mean collision?" in refused["detail"]
    refused = problem(client.get(f"{path}?metric=failed&parameter=stret"), 422, "invalid")
    assert refused["nearest"] == ["street"]
    problem(client.get(f"{path}?metric=failed&parameter=street&parameter=street"), 422, "invalid")
    problem(client.get(f"{path}?metric=failed"), 422, "invalid")
    refused = problem(
        client.get(f"/v1/simulations/{finished}/dependence?metric=failed&parameter=street"), 422, "invalid"
    )
    assert "no sweep" in refused["detail"]
    assert client.get(f"/v1/simulations/{finished}/parameters").json == {"parameters": []}


# -- worst tasks


def test_the_worst_tasks_are_those_of_the_summary(client: FlaskClient, streets: str) -> None:
    document = client.get(f"/v1/simulations/{streets}/worst").json
    worst = client.get(f"/v1/simulations/{streets}/summary").json["worst"]
    items = document["items"]
    assert [{name: item[name] for name in worst[0]} for item in items[: len(worst)]] == worst
    assert [item["task"] for item in items] == list(range(6, 356, 7)) and document["complete"]
    assert items[0]["metrics"] == {"steps": 6, "return": 3.0}


def test_the_worst_tasks_of_a_running_simulation_are_its_worst_so_far(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    id = submit(dataset="car_street", scenarios={"range": [0, 20]}).json["id"]
    launch = worker.launch(id)
    lease = worker.lease(launch)
    lines = b"".join(line(task, score=[60, 10, 90, 30][task]) for task in range(4))
    assert platform.scheduling.leases.report(launch, report_of(lease, 0, 4, lines)).accepted
    document = client.get(f"/v1/simulations/{id}/worst?limit=3").json
    assert [(item["task"], item["score"]) for item in document["items"]] == [(1, 10), (3, 30), (0, 60)]
    assert (document["read"], document["complete"]) == (4, False)


def test_the_worst_tasks_of_a_group_have_its_values(client: FlaskClient, streets: str) -> None:
    path = f"/v1/simulations/{streets}/worst"
    groups = "group=street=arterial&group=params.latency_steps=2"
    tasks = [item["task"] for item in client.get(f"{path}?{groups}&limit=200").json["items"]]
    assert tasks == [task for task in range(288 + 48, 288 + 96) if task % 7 == 6]
    refused = problem(client.get(f"{path}?group=street=arterail"), 422, "invalid")
    assert refused["nearest"] == ["arterial"]
    problem(client.get(f"{path}?group=stret=arterial"), 422, "invalid")
    problem(client.get(f"{path}?group=street"), 422, "invalid")


# -- tables in memory


def test_tables_that_were_not_used_for_longest_are_dropped(
    platform: Platform, submit: Submit, worker: LeasingWorker
) -> None:
    tables = tables_of(platform, most_bytes=1)
    first, second = (str(submit(tasks=5).json["id"]) for _ in range(2))
    for id in (first, second):
        worker.run_to_end(id)
        with tables.current(LOCAL_CALLER, id) as table:
            assert table.table.read == 5
            size = table.size
    assert tables.size == size
    with tables.current(LOCAL_CALLER, first) as again:
        assert again.table.read == 5


def test_requests_at_once_read_each_result_once(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    id = submit(tasks=200).json["id"]
    launch = worker.launch(id)
    lease = worker.lease(launch)
    finished = threading.Event()

    def ask(_: int) -> list[dict[str, Any]]:
        documents = []
        while not finished.is_set():
            documents.append(platform.analysis.distributions.distributions(LOCAL_CALLER, id))
        return [*documents, platform.analysis.distributions.distributions(LOCAL_CALLER, id)]

    with ThreadPoolExecutor(3) as pool:
        answers = pool.map(ask, range(3))
        for task in range(lease.cursor, lease.stop):
            worker.report(launch, lease, task, task + 1)
        finished.set()
    for documents in answers:
        assert documents[-1]["read"] == lease.stop
        for document in documents:
            assert sum(document["statuses"].values()) == document["read"] <= document["tasks"]["done"]
            assert document["metrics"]["failed"]["count"] == document["read"]
