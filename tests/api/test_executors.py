"""Where simulations run: told, asked for, and changed on the way."""

from flask.testing import FlaskClient

from core.domain.launches import Placement
from core.services.platform import Platform
from core.services.scheduling.snapshots import ActiveSimulation
from tests.api.conftest import LeasingWorker, Submit


def busy(driver: LeasingWorker, id: str) -> ActiveSimulation:
    return next(one for one in driver.dispatch.snapshot().busy if one.id == id)


def test_places_are_listed_with_how_they_fare(client: FlaskClient, driver: LeasingWorker) -> None:
    before = client.get("/v1/executors").json["items"]
    assert before == [
        {"name": "local", "kind": "fake", "workers": 2, "in_use": 0, "healthy": None, "reason": None, "since": None}
    ]
    told = {"kind": "fake", "workers": 2, "in_use": 1, "healthy": 0, "last_error": "no route to host"}
    driver.dispatch.report_health({"local": told})
    (ill,) = client.get("/v1/executors").json["items"]
    assert (ill["in_use"], ill["healthy"], ill["reason"]) == (1, False, "no route to host")
    driver.dispatch.report_health({"local": told | {"in_use": 2}})
    (still,) = client.get("/v1/executors").json["items"]
    assert still["since"] == ill["since"]  # since when it is ill, not since when we looked


def test_what_it_asks_of_its_place_reaches_the_launch(submit: Submit, driver: LeasingWorker) -> None:
    asked = {"cpu": 2.5, "resources": {"nvidia.com/gpu": "1"}, "queue": "team-a", "executor": "local"}
    id = submit(placement=asked).json["id"]
    assert driver.dispatch.admit(busy(driver, id), "local", ready=True)
    launch = driver.dispatch.launch(busy(driver, id))
    assert launch is not None
    assert launch.placement == Placement(executor="local", cpu=2.5, resources={"nvidia.com/gpu": "1"}, queue="team-a")
    assert driver.dispatch.launch(busy(driver, id)) is None  # there is one already


def test_a_place_that_is_not_there_is_refused_with_those_that_are(submit: Submit) -> None:
    refused = submit(placement={"executor": "mars"})
    assert refused.status_code == 422 and "there are local" in refused.json["detail"]


def test_a_placement_that_no_cluster_would_take_is_refused(submit: Submit) -> None:
    for wrong in ({"resources": {"gpu": "many"}}, {"queue": "Team A"}, {"memory": 1}, {"colour": "red"}):
        assert submit(placement=wrong).status_code == 422, wrong


def test_a_simulation_that_waits_or_runs_can_be_given_another_width(
    client: FlaskClient, submit: Submit, driver: LeasingWorker, platform: Platform
) -> None:
    id = submit(workers=1).json["id"]
    assert client.patch(f"/v1/simulations/{id}", json={"workers": 2}).json["workers"] == 2
    launch = driver.launch(id)
    assert launch.workers == 2
    driver.lease(launch)
    assert client.patch(f"/v1/simulations/{id}", json={"workers": 1}).json["workers"] == 1
    (one,), (lent,) = driver.dispatch.snapshot().busy, driver.dispatch.snapshot().launches
    assert (one.workers, lent.workers) == (1, 2)  # what is requested, and what is
    assert client.patch(f"/v1/simulations/{id}", json={}).status_code == 422
    assert client.patch(f"/v1/simulations/{id}", json={"workers": 0}).status_code == 422


def test_what_has_ended_has_no_width(client: FlaskClient, finished: str) -> None:
    assert client.patch(f"/v1/simulations/{finished}", json={"workers": 2}).status_code == 409
