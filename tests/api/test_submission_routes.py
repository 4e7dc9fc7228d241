"""Routes with one kind of body and of response: checks, repetitions and forms; and what earlier clients send."""

import io
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import pytest
from flask.testing import FlaskClient

from core.domain.access.scopes import LOCAL_CALLER
from core.domain.submissions.submission import Submission
from core.services.platform import Platform
from runtimes.harness.evaluator.tasks import BY_SCENARIO
from tests.api.answers import MODEL, problem
from tests.api.conftest import LeasingWorker

Check = Callable[[FlaskClient, str], Any]


def form(**fields: Any) -> dict[str, Any]:
    return {"model": (io.BytesIO(MODEL), "my.py"), "dataset": "noop", **fields}


@pytest.mark.parametrize(
    "check",
    [
        lambda client, model: client.post("/v1/checks", json={"dataset": "noop", "model": model}),
        lambda client, model: client.post("/v1/forms/checks", data=form()),
        lambda client, model: client.post("/v1/simulations", json={"dataset": "noop", "model": model, "dry_run": True}),
        lambda client, model: client.post("/v1/simulations", data=form(dry_run="True")),
    ],
    ids=["check", "form", "earlier JSON", "earlier form"],
)
def test_a_check_says_whether_the_model_fits_and_leaves_no_simulation(
    client: FlaskClient, worker: LeasingWorker, platform: Platform, model: str, check: Check
) -> None:
    with worker.working():
        response = check(client, model)
    assert response.status_code == 200 and response.json["fits"] and response.json["reason"] is None
    assert (response.json["dataset"], response.json["runtime"]) == ("noop", "python")
    assert client.get("/v1/simulations").json["items"] == []


def test_a_form_is_submitted_at_its_own_route_and_where_earlier_clients_send_it(client: FlaskClient) -> None:
    fields = {"scenarios": '{"range": [0, 5]}', "repeat": "2", "labels": '{"a": "1"}'}
    created = [client.post(route, data=form(**fields)) for route in ("/v1/forms/simulations", "/v1/simulations")]
    assert [response.status_code for response in created] == [201, 201]
    assert {response.json["tasks"]["total"] for response in created} == {10}
    assert created[0].headers["Location"] == f"/v1/simulations/{created[0].json['id']}"


def test_a_model_is_created_from_a_form_at_its_own_route(client: FlaskClient) -> None:
    created = client.post("/v1/forms/models", data={"file": (io.BytesIO(MODEL), "my.py")})
    assert created.status_code == 201 and client.get("/v1/models/my").json == created.json


def test_an_archived_simulation_is_repeated_at_its_own_route(client: FlaskClient, finished: str) -> None:
    simulation = client.get(f"/v1/simulations/{finished}").json
    document = {name: simulation[name] for name in ("spec", "provenance")}
    for route in ("/v1/reruns", "/v1/simulations"):
        repeated = client.post(route, json=document)
        assert repeated.status_code == 201 and repeated.json["provenance"]["model"] == simulation["provenance"]["model"]


@pytest.mark.parametrize(
    ("route", "request_body"),
    [
        ("/v1/checks", {"data": {"dataset": "noop"}, "content_type": "multipart/form-data"}),
        ("/v1/forms/checks", {"json": {"dataset": "noop"}}),
        ("/v1/forms/simulations", {"json": {"dataset": "noop"}}),
        ("/v1/forms/models", {"json": {"upload": "x"}}),
    ],
)
def test_a_route_refuses_the_other_kind_of_body(client: FlaskClient, route: str, request_body: dict[str, Any]) -> None:
    problem(client.post(route, **request_body), 415, "unsupported-media-type")


@pytest.mark.parametrize("route", ["/v1/checks", "/v1/simulations"])
def test_a_submission_names_a_model_or_an_upload_but_not_both(client: FlaskClient, route: str, model: str) -> None:
    response = client.post(route, json={"dataset": "noop", "model": model, "upload": "01jd0000000000000000000000"})
    assert "model" in problem(response, 422, "invalid")["detail"]


#: Members of a stored submission that a simulation of a registered model has, none with its default.
STORED: Mapping[str, Any] = {
    "dataset": "noop",
    "scenarios": {"tasks": [1, 2]},
    "params": {"batch": 2},
    "sweep": {"sleep_ms": [0, 1]},
    "repeat": 2,
    "workers": 1,
    "seed": 7,
    "record": "all",
    "labels": {"branch": "main"},
    "timeout": 60.0,
    "max_failures": 3,
    "placement": {"cpu": 1.0},
    "model_seeds": BY_SCENARIO,
    "worlds": 16,
    "trusted": True,
}
#: Members that others exclude, or that need a gang: tests of gangs, checks, imports and MLflow's runs have them.
ELSEWHERE = {"gang", "dry_run", "model_reference", "connection", "format", "log_to_run", "outputs"}


@pytest.mark.parametrize("route", ["/v1/reruns", "/v1/simulations"])
def test_a_rerun_has_every_member_that_a_stored_submission_may_have(
    client: FlaskClient, platform: Platform, model: str, route: str
) -> None:
    submission = Submission(model=model, runtime="python", **STORED)
    assert {*STORED, "model", "runtime"} | ELSEWHERE == {member.name for member in fields(Submission)}
    id = platform.submissions.simulations.submit(LOCAL_CALLER, submission)[0].id
    simulation = client.get(f"/v1/simulations/{id}").json
    repeated = client.post(route, json={name: simulation[name] for name in ("spec", "provenance")})
    assert repeated.status_code == 201, repeated.data
    assert repeated.json["provenance"] == simulation["provenance"]
    assert repeated.json["provenance"]["play"]["tasks"]["model_seeds"] == BY_SCENARIO
    assert {name: repeated.json["spec"][name] for name in STORED} == {**STORED, "dataset": "noop@1"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"zz": 1}, "Its `spec` has `zz`, which this version of the platform does not know: a later one wrote it."),
        ({"model_seeds": "by_moon"}, "by_moon"),
    ],
)
def test_what_a_later_version_wrote_into_an_archive_is_refused_and_not_dropped(
    client: FlaskClient, finished: str, change: Mapping[str, Any], told: str
) -> None:
    simulation = client.get(f"/v1/simulations/{finished}").json
    archived = {"spec": simulation["spec"] | change, "provenance": simulation["provenance"]}
    assert told in problem(client.post("/v1/reruns", json=archived), 422, "invalid")["detail"]


def test_a_rerun_on_a_built_in_dataset_that_is_defined_otherwise_is_refused_with_both_digests(
    client: FlaskClient, finished: str
) -> None:
    simulation = client.get(f"/v1/simulations/{finished}").json
    dataset, other = simulation["provenance"]["dataset"], f"sha256:{'0' * 64}"
    provenance = simulation["provenance"] | {"dataset": dataset | {"digest": other}}
    refused = client.post("/v1/reruns", json={"spec": simulation["spec"], "provenance": provenance})
    detail = problem(refused, 422, "invalid")["detail"]
    assert other in detail and dataset["digest"] in detail


def test_a_document_without_provenance_is_no_repetition(client: FlaskClient) -> None:
    problem(client.post("/v1/reruns", json={"dataset": "noop"}), 422, "invalid")


def test_the_document_describes_checks_by_their_own_operations(client: FlaskClient) -> None:
    document = client.get("/openapi.json").json
    assert "dry_run" not in document["components"]["schemas"]["Submission"]["properties"]
    assert set(document["paths"]["/v1/simulations"]["post"]["responses"]) >= {"201", "413"}
    assert "200" not in document["paths"]["/v1/simulations"]["post"]["responses"]
    assert set(document["paths"]["/v1/checks"]["post"]["responses"]) >= {"200", "422"}
