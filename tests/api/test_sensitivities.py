"""Sensitivity of a simulation to its parameters, while it runs and after its end."""

import json
from typing import Any

import pytest
from flask.testing import FlaskClient

from core.services.analysis import sensitivities
from core.services.platform import Platform
from tests.api.answers import line, problem
from tests.api.conftest import LeasingWorker, Submit
from tests.reports import report_of

TASKS = 288
ARTERIAL = range(48, 96)


def sensitivity(client: FlaskClient, id: str, **query: Any) -> dict[str, Any]:
    response = client.get(f"/v1/simulations/{id}/sensitivity", query_string=query)
    assert response.status_code == 200, response.data
    document: dict[str, Any] = json.loads(response.data, parse_constant=pytest.fail)
    return document


@pytest.fixture
def partial(submit: Submit, worker: LeasingWorker, platform: Platform) -> str:
    """Id of a running simulation of car_street with two latencies; all its tasks on the arterial road fail."""
    id: str = submit(dataset="car_street", scenarios=None, sweep={"latency_steps": [0, 2]}).json["id"]
    launch = worker.launch(id)
    done = 0
    while done < 300:
        lease = worker.lease(launch)
        tasks = range(lease.cursor, lease.stop)
        results = (line(task, "failed" if task % TASKS in ARTERIAL else "ok", score=90 - task / 10) for task in tasks)
        assert platform.scheduling.leases.report(
            launch, report_of(lease, tasks.start, tasks.stop, b"".join(results))
        ).accepted
        done += len(tasks)
    return id


def test_the_parameter_that_goes_with_failure_is_first(client: FlaskClient, partial: str) -> None:
    document = sensitivity(client, partial)
    assert document["metric"] == "failed" and not document["complete"]
    assert document["read"] == document["sampled"] >= 300 and document["failed"] >= len(ARTERIAL)
    street = document["parameters"][0]
    assert (street["parameter"], street["source"], street["kind"]) == ("street", "scenario", "category")
    assert street["level"] == "arterial" and street["association"] > 0.9 and street["missing"] == 0
    effect = street["effect"]
    assert effect["name"] == "rate_difference" and effect["value"] == 1 and 0.8 < effect["low"] <= 1
    assert {bin["label"]: bin["value"] for bin in street["plot"]}["arterial"] == 1
    associations = [parameter["association"] for parameter in document["parameters"]]
    assert associations == sorted(associations, reverse=True)
    number = next(parameter for parameter in document["parameters"] if parameter["parameter"] == "vehicles")
    assert number["effect"]["name"] == "rank_biserial" and number["plot"][0]["from"] <= number["plot"][0]["to"]


def test_the_worst_combination_is_the_value_that_fails(client: FlaskClient, partial: str) -> None:
    worst = sensitivity(client, partial)["combinations"][0]
    assert worst["values"] == {"street": "arterial"} and worst["rate"] == 1 and worst["count"] == worst["failures"]


def test_parameters_that_are_the_same_are_listed_once(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    id = submit(dataset="highway", scenarios={"range": [0, 20]}).json["id"]
    launch = worker.launch(id)
    done = 0
    while done < 20:
        lease = worker.lease(launch)
        lines = (line(task, "failed" if task % 3 else "ok") for task in range(lease.cursor, lease.stop))
        assert platform.scheduling.leases.report(
            launch, report_of(lease, lease.cursor, lease.stop, b"".join(lines))
        ).accepted
        done += lease.stop - lease.cursor
    document = sensitivity(client, id)
    listed = {parameter["parameter"]: parameter["aliases"] for parameter in document["parameters"]}
    assert "options.config.lanes_count" in listed["lanes"] and "options.config.lanes_count" not in listed
    assert document["fewest"] == 5 and document["combinations"]
    assert all(combination["count"] >= 5 for combination in document["combinations"])
    assert not any("options.config.lanes_count" in combination["values"] for combination in document["combinations"])


def test_a_metric_has_effects_of_its_own(client: FlaskClient, partial: str) -> None:
    document = sensitivity(client, partial, metric="score")
    names = {parameter["parameter"]: parameter["effect"]["name"] for parameter in document["parameters"]}
    assert names["street"] == "epsilon_squared" and names["vehicles"] == "spearman"
    street = next(parameter for parameter in document["parameters"] if parameter["parameter"] == "street")
    assert {bin["label"]: bin["value"] for bin in street["plot"]}["arterial"] == 0, "the worst score"


def test_a_simulation_without_results_or_parameters_has_no_sensitivity(
    client: FlaskClient, submit: Submit, finished: str
) -> None:
    document = sensitivity(client, submit(dataset="car_street", scenarios={"range": [0, 20]}).json["id"])
    assert (document["read"], document["parameters"], document["combinations"]) == (0, [], [])
    document = sensitivity(client, finished)
    assert document["complete"] and document["failed"] == 2 and document["parameters"] == []


def test_a_metric_that_has_no_numbers_is_refused(client: FlaskClient, partial: str) -> None:
    path = f"/v1/simulations/{partial}/sensitivity"
    assert problem(client.get(f"{path}?metric=scor"), 422, "invalid")["nearest"] == ["score"]
    assert "`metric=failed`" in problem(client.get(f"{path}?metric=outcome"), 422, "invalid")["detail"]
    unknown = client.get("/v1/simulations/01jd0000000000000000000000/sensitivity")
    problem(unknown, 404, "unknown-simulation")


def test_many_results_are_sampled(client: FlaskClient, partial: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensitivities, "CONSIDERED", 100)
    document = sensitivity(client, partial)
    assert 30 < document["sampled"] <= 100 and document["read"] >= 300
    assert document["parameters"][0]["parameter"] == "street"
