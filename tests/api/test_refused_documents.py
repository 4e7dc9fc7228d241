"""Submissions whose meaning would be a guess: what is refused, with the words, and null as if left out."""

from typing import Any

import pytest
from flask.testing import FlaskClient

DOCUMENT = {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, 1]}}


@pytest.mark.parametrize("name", ["labels", "params", "sweep", "placement", "gang", "workers"])
def test_a_member_that_is_null_is_as_if_left_out(client: FlaskClient, model: str, name: str) -> None:
    created = client.post("/v1/simulations", json={**DOCUMENT, "model": model, name: None})
    assert created.status_code == 201, created.json
    plain = client.post("/v1/simulations", json={**DOCUMENT, "model": model})
    assert created.json["spec"] == plain.json["spec"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"scenarios": 5}, 'scenarios: Write numbers and ranges, such as "0-99", or an object such as'),
        ({"placement": "local"}, "placement: Not a JSON object. Its fields are: annotations, claims, cpu"),
        ({"gang": []}, "gang: Not a JSON object. Its fields are: build, command, communication"),
        ({"sweep": {"x": [1, 2, 1]}}, "sweep.x: The value 1 is there 2 times"),
    ],
)
def test_a_member_that_cannot_be_meant_is_refused_with_what_to_send(
    client: FlaskClient, model: str, document: Any, message: str
) -> None:
    refused = client.post("/v1/simulations", json={**DOCUMENT, "model": model, **document})
    assert refused.status_code == 422 and any(message in error for error in refused.json["errors"]), refused.json


def test_a_name_that_is_twice_in_an_object_is_refused_by_its_name(client: FlaskClient) -> None:
    for body in (
        '{"dataset": "noop", "seed": 1, "seed": 2}',
        '{"dataset": "noop", "labels": {"seed": "a", "seed": "b"}}',
    ):
        refused = client.post("/v1/simulations", data=body, headers={"Content-Type": "application/json"})
        assert refused.status_code == 400 and "the member 'seed' twice" in refused.json["detail"], refused.json


@pytest.mark.parametrize(("former", "name"), [("model_data", "dataset"), ("runtimePath", "runtime")])
def test_a_former_name_beside_the_present_one_is_refused_with_both(client: FlaskClient, former: str, name: str) -> None:
    body = {"dataset": "noop", "runtime": "python", former: "other"}
    refused = client.post("/1.0/simulation/tests", json=body)
    assert refused.status_code == 422 and f"`{former}` is the former name of `{name}`" in refused.json["detail"]
