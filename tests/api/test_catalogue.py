"""Routes of runtimes, simulators and built-in datasets."""

import pytest
from flask.testing import FlaskClient

from core.services.platform import Platform
from tests.api.answers import problem


def test_runtimes_are_listed_with_formats_and_readiness(client: FlaskClient) -> None:
    items = {item["name"]: item for item in client.get("/v1/runtimes").json["items"]}
    assert {"python", "onnx", "tensorflow"} <= set(items)
    for name, item in items.items():
        assert client.get(f"/v1/runtimes/{name}").json == item
        assert all(isinstance(format["ready"], bool) and format["name"] for format in item["formats"])


def test_a_runtime_shows_its_limits_and_those_of_each_format(client: FlaskClient, platform: Platform) -> None:
    for runtime in client.get("/v1/runtimes").json["items"]:
        described = client.get(f"/v1/runtimes/{runtime['name']}").json
        for limits in (described["limits"], *(format["limits"] for format in described["formats"])):
            assert limits["memory"] == 4 << 30 and limits["act_deadline"] == "the dataset's `deadline`"
            assert 0 < limits["largest_model"] <= platform.files.models.largest
            assert limits["load_time"] > limits["reset_time"] > 0
        least = min(format["limits"]["largest_model"] for format in described["formats"])
        assert described["limits"]["largest_model"] == least


def test_an_unknown_runtime_that_resembles_no_other_suggests_none(client: FlaskClient) -> None:
    refused = problem(client.get("/v1/runtimes/matlab"), 404, "unknown-runtime")
    assert refused["nearest"] == [] and "onnx" in refused["detail"]


def test_the_problem_of_an_unknown_runtime_has_similar_names(client: FlaskClient) -> None:
    refused = problem(client.get("/v1/runtimes/tensorflwo"), 404, "unknown-runtime")
    assert refused["nearest"] == ["tensorflow"]


def test_simulators_are_listed_with_their_datasets(client: FlaskClient) -> None:
    items = {item["name"]: item for item in client.get("/v1/simulators").json["items"]}
    assert "noop" in items["noop"]["datasets"]


def test_datasets_are_listed_in_brief_and_described_in_full(client: FlaskClient) -> None:
    for brief in client.get("/v1/datasets").json["items"]:
        full = client.get(f"/v1/datasets/{brief['name']}").json
        assert {name: full[name] for name in brief} == brief
        assert "interface" in full and "params" in full
        assert full["metrics"] or brief["name"] in {"program", "fmu", "openenv"}  # a program, and templates
        assert client.get(f"/v1/datasets/{brief['name']}@{brief['version']}").json == full


def test_a_built_in_dataset_has_its_versions_and_its_bare_name_is_the_first(client: FlaskClient) -> None:
    listed = client.get("/v1/datasets/car_street/versions").json["items"]
    assert [entry["version"] for entry in listed] == ["2", "1"]
    described = {ref: client.get(f"/v1/datasets/{ref}").json for ref in ("car_street", "car_street@2")}
    assert client.get("/v1/datasets/car_street@1").json == described["car_street"]
    assert client.get("/v1/datasets/car_street@latest").json == described["car_street@2"]
    names = [{metric["name"]: metric for metric in each["metrics"]} for each in described.values()]
    assert names[1].keys() - names[0].keys() == {"min_ttc_any"} and names[1]["min_ttc_any"]["never"] == 100.0
    assert described["car_street@2"]["seeds"] == described["car_street"]["digest"]
    assert [item["name"] for item in client.get("/v1/datasets").json["items"]].count("car_street") == 1
    refused = problem(client.get("/v1/datasets/car_street@3"), 404, "unknown-dataset")
    assert refused["detail"] == "The dataset car_street has no version '3'; it has 1, 2."


@pytest.mark.parametrize("ref", ["nop", "noop@99"])
def test_an_unknown_dataset_is_a_404(client: FlaskClient, ref: str) -> None:
    problem(client.get(f"/v1/datasets/{ref}"), 404, "unknown-dataset")
    problem(client.get(f"/v1/datasets/{ref}/scenarios"), 404, "unknown-dataset")


def test_scenarios_are_listed_in_pages(client: FlaskClient) -> None:
    first = client.get("/v1/datasets/noop/scenarios?limit=3")
    assert [item["index"] for item in first.json["items"]] == [0, 1, 2]
    assert first.json["next"] == 3
    second = client.get(first.headers["Link"].split(">")[0][1:])
    assert [item["index"] for item in second.json["items"]] == [3, 4, 5]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=", "limit=1.5", "after=-1", "colour=red"])
def test_an_invalid_query_is_refused(client: FlaskClient, query: str) -> None:
    refused = problem(client.get(f"/v1/datasets/noop/scenarios?{query}"), 422, "invalid")
    assert refused["errors"][0].startswith(query.split("=")[0])
