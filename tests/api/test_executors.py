"""Executors: list and health, placement of submissions, and changes of the number of workers."""

import pytest
from flask.testing import FlaskClient

from core.domain.scheduling.launches import Placement
from core.services.platform import Platform
from core.services.scheduling.snapshots import ActiveSimulation
from tests.api.answers import problem
from tests.api.conftest import LeasingWorker, Submit
from tests.dispatching import unended
from tests.executor_configs import ALLOWED


def busy(worker: LeasingWorker, id: str) -> ActiveSimulation:
    return next(simulation for simulation in unended(worker.dispatch) if simulation.id == id)


def test_executors_are_listed_with_their_health(client: FlaskClient, worker: LeasingWorker) -> None:
    (before,) = client.get("/v1/executors").json["items"]
    unknown = {"healthy": None, "reason": None, "since": None, "drain": None}
    assert before == {"name": "local", "kind": "fake", "workers": 2, "in_use": 0, "allowed": ALLOWED} | unknown
    health = {"kind": "fake", "workers": 2, "in_use": 1, "healthy": 0, "last_error": "no route to host"}
    worker.dispatch.report_health({"local": health})
    (unhealthy,) = client.get("/v1/executors").json["items"]
    assert (unhealthy["in_use"], unhealthy["healthy"], unhealthy["reason"]) == (1, False, "no route to host")
    worker.dispatch.report_health({"local": health | {"in_use": 2}})
    (later,) = client.get("/v1/executors").json["items"]
    assert later["since"] == unhealthy["since"]  # the time of the change, not of the last poll


def test_the_placement_of_a_submission_reaches_the_launch(submit: Submit, worker: LeasingWorker) -> None:
    placement = {"cpu": 2.5, "resources": {"nvidia.com/gpu": "1"}, "queue": "team-a", "executor": "local"}
    id = submit(placement=placement).json["id"]
    assert worker.dispatch.admit(busy(worker, id), "local")
    launch = worker.dispatch.launch(busy(worker, id))
    assert launch is not None
    assert launch.placement == Placement(executor="local", cpu=2.5, resources={"nvidia.com/gpu": "1"}, queue="team-a")
    assert worker.dispatch.launch(busy(worker, id)) is None  # the simulation has a launch already


def test_an_unknown_executor_is_refused_with_the_known_names(submit: Submit) -> None:
    refused = submit(placement={"executor": "mars"})
    assert refused.status_code == 422 and "there are local" in refused.json["detail"]


def test_an_invalid_placement_is_refused(submit: Submit) -> None:
    for placement in ({"resources": {"gpu": "many"}}, {"queue": "Team A"}, {"memory": 1}, {"colour": "red"}):
        assert submit(placement=placement).status_code == 422, placement


def test_the_number_of_workers_can_be_changed_until_the_end(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    id = submit(workers=1).json["id"]
    assert client.patch(f"/v1/simulations/{id}", json={"workers": 2}).json["workers"] == 2
    launch = worker.launch(id)
    assert launch.workers == 2
    worker.lease(launch)
    assert client.patch(f"/v1/simulations/{id}", json={"workers": 1}).json["workers"] == 1
    simulation = busy(worker, id)
    (launch,) = (each for each in worker.dispatch.snapshot().launches if each.simulation == id)
    assert (simulation.workers, launch.workers) == (1, 2)  # the requested number, and the present one
    assert client.patch(f"/v1/simulations/{id}", json={}).status_code == 422
    assert client.patch(f"/v1/simulations/{id}", json={"workers": 0}).status_code == 422


def test_the_number_of_workers_of_an_ended_simulation_cannot_be_changed(client: FlaskClient, finished: str) -> None:
    assert client.patch(f"/v1/simulations/{finished}", json={"workers": 2}).status_code == 409


def test_a_drained_executor_is_given_nothing_and_finishes_what_it_runs(
    client: FlaskClient, submit: Submit, worker: LeasingWorker
) -> None:
    running, queued = submit().json["id"], submit().json["id"]
    launch = worker.launch(running)
    drained = client.post("/v1/executors/local/drain", json={"reason": "maintenance until <14:00>"})
    assert drained.status_code == 200 and drained.json["drain"]["reason"] == "maintenance until <14:00>"
    assert drained.json["drain"]["by"] == "127.0.0.1"
    assert client.get("/v1/executors").json["items"] == [drained.json]
    assert not worker.dispatch.admit(busy(worker, queued), "local"), "drained since the dispatcher looked"
    reason = "waits for local: it is drained (maintenance until <14:00>)"
    assert client.get(f"/v1/simulations/{queued}").json["reason"] == reason
    assert reason in [group["reason"] for group in client.get("/v1/queue").json["waiting"]["reasons"]]
    worker.finish(launch)
    again = client.post("/v1/executors/local/drain").json["drain"]
    assert again["since"] == drained.json["drain"]["since"] and again["reason"] is None
    assert client.get("/readyz").json["ready"]
    for _ in range(2):
        assert client.post("/v1/executors/local/undrain").json["drain"] is None
    assert client.get(f"/v1/simulations/{queued}").json["reason"] == "waits for 2 free workers"
    worker.run_to_end(queued)


def test_a_drain_outlives_what_the_dispatcher_reports(client: FlaskClient, worker: LeasingWorker) -> None:
    client.post("/v1/executors/local/drain")
    worker.dispatch.report_health({})
    (executor,) = client.get("/v1/executors").json["items"]
    assert executor["drain"] is not None


@pytest.mark.parametrize("what", ["drain", "undrain"])
def test_an_unknown_executor_cannot_be_drained(client: FlaskClient, what: str) -> None:
    detail = problem(client.post(f"/v1/executors/mars/{what}"), 404, "unknown-executor")["detail"]
    assert "there are local" in detail


@pytest.mark.parametrize("body", [{"reason": "two\nlines"}, {"reason": "x" * 201}, {"reason": 1}, {"why": "x"}])
def test_a_reason_of_a_drain_is_a_short_line(client: FlaskClient, body: dict[str, object]) -> None:
    problem(client.post("/v1/executors/local/drain", json=body), 422, "invalid")
    assert client.get("/v1/executors").json["items"][0]["drain"] is None
