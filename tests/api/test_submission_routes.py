"""Routes with one kind of body and of response: checks, repetitions and forms; and what earlier clients send."""

import io
import threading
from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from core.services.platform import Platform
from tests.api.answers import MODEL, problem
from tests.api.conftest import LeasingWorker, unended
from tests.waiting import until

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
    def run() -> None:
        worker.finish_unseen(worker.launch(until(lambda: unended(worker.dispatch))[0].id))

    thread = threading.Thread(target=run)
    thread.start()
    response = check(client, model)
    thread.join()
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


def test_a_document_without_provenance_is_no_repetition(client: FlaskClient) -> None:
    problem(client.post("/v1/reruns", json={"dataset": "noop"}), 422, "invalid")


def test_the_document_describes_checks_by_their_own_operations(client: FlaskClient) -> None:
    document = client.get("/openapi.json").json
    assert "dry_run" not in document["components"]["schemas"]["Submission"]["properties"]
    assert set(document["paths"]["/v1/simulations"]["post"]["responses"]) >= {"201", "413"}
    assert "200" not in document["paths"]["/v1/simulations"]["post"]["responses"]
    assert set(document["paths"]["/v1/checks"]["post"]["responses"]) >= {"200", "422"}
