"""API 1.0: the request of the README works verbatim, however curl encodes the JSON."""

import json
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.api.answers import problem

PATHS = ["/1.0/simluation/tests", "/1.0/simulation/tests"]
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def body(model: str) -> dict[str, Any]:
    return {"runtimePath": "python", "model_data": "noop", "model": model, "scenarios": {"range": [0, 3]}}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("headers", [FORM, {"Content-Type": "application/json"}, {}])
def test_the_request_of_the_readme_creates_a_simulation(
    client: FlaskClient, body: dict[str, Any], path: str, headers: dict[str, str]
) -> None:
    host = {"Host": "karrozzeria:5000"}
    response = client.post(path, data=json.dumps(body), headers=headers | host)
    assert response.status_code == 201, response.data
    assert response.json["runtime"]["name"] == "python" and response.json["dataset"]["name"] == "noop"
    assert response.headers["Location"] == f"/v1/simulations/{response.json['id']}"
    assert client.get(response.headers["Location"]).json["state"] == "queued"


def test_characters_that_a_form_parser_changes_are_kept(client: FlaskClient, body: dict[str, Any]) -> None:
    labels = {"note": "a=b&c=d+e%20f;g"}
    response = client.post(PATHS[0], data=json.dumps(body | {"labels": labels}), headers=FORM)
    assert response.json["labels"] == labels


def test_a_url_encoded_body_is_decoded(client: FlaskClient, body: dict[str, Any]) -> None:
    from urllib.parse import quote, quote_plus

    for encode in (quote, quote_plus):
        encoded = encode(json.dumps(body | {"labels": {"note": "1+1 = 2"}}))
        response = client.post(PATHS[0], data=encoded, headers=FORM)
        assert response.status_code == 201 and response.json["labels"] == {"note": "1+1 = 2"}


def test_field_names_of_v1_are_accepted(client: FlaskClient, model: str) -> None:
    response = client.post(PATHS[0], data=json.dumps({"runtime": "python", "dataset": "noop", "model": model}))
    assert response.status_code == 201


def test_an_invalid_1_0_request_is_a_problem(client: FlaskClient) -> None:
    refused = client.post(PATHS[0], data='{"runtimePath": "tensorflwo", "model_data": "noop"}', headers=FORM)
    assert problem(refused, 422, "unknown-runtime")["nearest"] == ["tensorflow"]
    problem(client.post(PATHS[0], data="runtimePath=tensorflow&model_data=noop", headers=FORM), 400, "bad-request")
    problem(
        client.post(PATHS[0], data={"model_data": "noop"}, content_type="multipart/form-data"),
        415,
        "unsupported-media-type",
    )
    problem(client.get(PATHS[0]), 405, "method-not-allowed")
    missing = problem(client.post(PATHS[0], data="{}", headers=FORM), 422, "invalid")
    assert "dataset" in missing["detail"]
