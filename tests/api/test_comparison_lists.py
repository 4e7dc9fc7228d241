"""Routes of the list of comparisons, with the filters of simulations, and of simulations without their batches."""

from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.api.answers import problem
from tests.api.conftest import Submit
from tests.api.test_model_comparisons import Runs, equal
from tests.api.test_model_comparisons import runs as runs

Filters = dict[str, Any]


def ids(client: FlaskClient, path: str, **query: Any) -> list[str]:
    response = client.get(f"/v1/{path}", query_string=query)
    assert response.status_code == 200, response.data
    counts = client.get(f"/v1/{path}/counts", query_string=query).json
    found = [item["id"] for item in response.json["items"]]
    assert counts["total"] == sum(counts["states"].values()) == len(found), "counts are those of the list"
    return found


def test_batches_of_comparisons_are_listed_apart_from_other_simulations(
    client: FlaskClient, runs: Runs, submit: Submit
) -> None:
    alone = submit().json["id"]
    first, second = runs.create("new", "old"), runs.create("other", "old")
    for id in (first, second):
        runs.advance(id)
    batches = [runs.waiting(id) for id in (first, second)]
    assert ids(client, "simulations", comparison="none") == [alone]
    assert ids(client, "simulations", comparison="none", dataset="car_street") == []
    for id, played in zip((first, second), batches, strict=True):
        assert sorted(ids(client, "simulations", comparison=id)) == sorted(played)
        assert ids(client, "simulations", comparison=id, model="old") and len(played) == 2
    assert sorted(ids(client, "simulations")) == sorted([alone, *batches[0], *batches[1]])
    problem(client.get("/v1/simulations?comparison=all"), 422, "invalid")
    cancelled = client.post("/v1/simulations/cancel", json={"filter": {"comparison": "none"}}).json
    assert [item["id"] for item in cancelled["items"]] == [alone]


def test_a_comparison_is_listed_by_what_its_models_are(client: FlaskClient, runs: Runs) -> None:
    first = runs.create("new", "old", labels={"branch": "main", "note": 'a "b" ä'}, scenarios={"range": [0, 20]})
    second = runs.create("other", "old")
    for id in (first, second):
        runs.advance(id)
    described = runs.get(first)
    digest, dataset = described["models"][0]["digest"], described["dataset"]
    only_first: list[Filters] = [
        {"model": "new"}, {"model_digest": digest}, {"label": "branch=main"}, {"label": 'note=a "b" ä'},
        {"label": f"comparison={first}"}, {"q": "NEW car_street"}, {"q": first[:25]}, {"q": "branch=main old"},
    ]  # fmt: skip
    both: list[Filters] = [
        {}, {"model": "old"}, {"dataset": "car_street"}, {"runtime": "python"}, {"q": "old"},
        {"dataset": "car_street", "dataset_version": dataset["version"]}, {"dataset_digest": dataset["digest"]},
        {"submitted_by": "127.0.0.1"},
    ]  # fmt: skip
    neither: list[Filters] = [
        {"model": "ne"}, {"runtime": "onnx"}, {"q": "nothing"}, {"dataset": "noop"}, {"label": "branch=mai"},
        {"model": "new", "label": f"comparison={second}"},
    ]  # fmt: skip
    assert [ids(client, "comparisons", **filters) for filters in only_first] == [[first]] * len(only_first)
    assert [ids(client, "comparisons", **filters) for filters in both] == [[second, first]] * len(both)
    assert [ids(client, "comparisons", **filters) for filters in neither] == [[]] * len(neither)


def test_comparisons_are_counted_by_their_own_state(client: FlaskClient, runs: Runs) -> None:
    runs.finish(runs.create("new", "old", scenarios={"range": [0, 20]}), equal)
    running = runs.create("other", "old")  # without a batch so far
    assert ids(client, "comparisons", q="OTHER car_str") == ids(client, "comparisons", model="other") == [running]
    counts = client.get("/v1/comparisons/counts").json
    assert counts == {
        "total": 2, "states": {"running": 1, "cancelling": 0, "finished": 1, "failed": 0, "cancelled": 0},
    }  # fmt: skip
    listed = client.get("/v1/comparisons?state=running&state=failed&model=old").json
    assert [item["id"] for item in listed["items"]] == [running]


@pytest.mark.parametrize("query", ["state=queued", "comparison=none", "runtime=", "model_digest=mine", "after=0"])
def test_an_invalid_filter_of_comparisons_is_refused(client: FlaskClient, query: str) -> None:
    problem(client.get(f"/v1/comparisons/counts?{query}"), 422, "invalid")
