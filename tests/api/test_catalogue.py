"""What can be simulated, with what, in which worlds."""

import pytest
from flask.testing import FlaskClient

from tests.api.answers import problem


def test_runtimes_tell_their_formats_and_readiness(client: FlaskClient) -> None:
    items = {one["name"]: one for one in client.get("/v1/runtimes").json["items"]}
    assert {"python", "onnx", "tensorflow"} <= set(items)
    for name, one in items.items():
        assert client.get(f"/v1/runtimes/{name}").json == one
        assert all(isinstance(format["ready"], bool) and format["name"] for format in one["formats"])


def test_an_unknown_runtime_is_named_with_its_neighbours(client: FlaskClient) -> None:
    refused = problem(client.get("/v1/runtimes/tensorflwo"), 404, "unknown-runtime")
    assert refused["nearest"] == ["tensorflow"]


def test_simulators_tell_their_datasets(client: FlaskClient) -> None:
    items = {one["name"]: one for one in client.get("/v1/simulators").json["items"]}
    assert "noop" in items["noop"]["datasets"]


def test_datasets_are_listed_in_short_and_described_in_full(client: FlaskClient) -> None:
    for brief in client.get("/v1/datasets").json["items"]:
        full = client.get(f"/v1/datasets/{brief['name']}").json
        assert {name: full[name] for name in brief} == brief
        assert "interface" in full and "params" in full
        assert full["metrics"] or brief["name"] == "program"  # which nobody judges but itself
        assert client.get(f"/v1/datasets/{brief['name']}@{brief['version']}").json == full


@pytest.mark.parametrize("ref", ["nop", "noop@99"])
def test_a_dataset_that_is_not_there(client: FlaskClient, ref: str) -> None:
    problem(client.get(f"/v1/datasets/{ref}"), 404, "unknown-dataset")
    problem(client.get(f"/v1/datasets/{ref}/scenarios"), 404, "unknown-dataset")


def test_scenarios_come_by_pages(client: FlaskClient) -> None:
    first = client.get("/v1/datasets/noop/scenarios?limit=3")
    assert [one["index"] for one in first.json["items"]] == [0, 1, 2]
    assert first.json["next"] == 3
    second = client.get(first.headers["Link"].split(">")[0][1:])
    assert [one["index"] for one in second.json["items"]] == [3, 4, 5]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=", "limit=1.5", "after=-1", "colour=red"])
def test_a_query_that_makes_no_sense_is_refused(client: FlaskClient, query: str) -> None:
    refused = problem(client.get(f"/v1/datasets/noop/scenarios?{query}"), 422, "invalid")
    assert refused["errors"][0].startswith(query.split("=")[0])
