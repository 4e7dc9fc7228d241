"""Routes of the list of simulations: search, filters, counts, and who submitted a simulation."""

from typing import Any

import pytest
from flask.testing import FlaskClient

from core.services.platform import Platform
from tests.api.answers import problem
from tests.api.conftest import LeasingWorker, Submit


def listed(client: FlaskClient, query: str) -> list[str]:
    response = client.get(f"/v1/simulations?{query}")
    assert response.status_code == 200, response.data
    return [item["id"] for item in response.json["items"]]


def test_words_are_searched_in_names_labels_and_at_the_begin_of_ids(client: FlaskClient, submit: Submit) -> None:
    first = submit(labels={"branch": "Feature-7"}).json["id"]
    second = submit(labels={"branch": "main"}).json["id"]
    assert listed(client, "q=feature-7") == listed(client, "q=BRANCH%3Dfeat+NOOP") == [first]
    assert listed(client, "q=mine+python") == [second, first]
    assert listed(client, f"q={second}") == listed(client, f"q=noop+{second[:25]}") == [second]
    assert listed(client, "q=nothing") == listed(client, f"q={first}+main") == []


def test_several_states_may_be_listed(client: FlaskClient, submit: Submit, worker: LeasingWorker) -> None:
    ended, cancelled, queued = (submit().json["id"] for _ in range(3))
    worker.run_to_end(ended)
    client.post(f"/v1/simulations/{cancelled}/cancel")
    assert listed(client, "state=succeeded&state=cancelled") == [cancelled, ended]
    assert listed(client, "state=queued") == [queued] and listed(client, "") == [queued, cancelled, ended]
    problem(client.get("/v1/simulations?state=queued&state=lost"), 422, "invalid")


def test_simulations_of_a_model_and_of_a_dataset_version_are_listed(client: FlaskClient, submit: Submit) -> None:
    simulation = submit().json
    model, dataset = simulation["model"], simulation["dataset"]
    assert listed(client, f"model_digest={model['digest']}") == [simulation["id"]]
    assert listed(client, f"dataset={dataset['name']}&dataset_version={dataset['version']}") == [simulation["id"]]
    assert listed(client, f"model_digest=sha256:{'0' * 64}") == listed(client, "dataset=noop&dataset_version=0") == []
    if dataset["digest"] is not None:
        assert listed(client, f"dataset_digest={dataset['digest']}") == [simulation["id"]]
    problem(client.get("/v1/simulations?model_digest=mine"), 422, "invalid")


def test_a_simulation_records_the_address_that_submitted_it(client: FlaskClient, submit: Submit) -> None:
    simulation = submit().json
    assert simulation["submitted_by"] == "127.0.0.1"
    assert listed(client, "submitted_by=127.0.0.1") == [simulation["id"]] and listed(client, "submitted_by=me") == []


def test_a_retry_records_who_retried(client: FlaskClient, finished: str) -> None:
    retry = client.post(f"/v1/simulations/{finished}/retry", environ_base={"REMOTE_ADDR": "10.1.2.3"})
    assert retry.json["submitted_by"] == "10.1.2.3" and retry.json["retry_of"] == finished


def test_counts_name_every_state(client: FlaskClient, submit: Submit, worker: LeasingWorker) -> None:
    ended, _ = submit(labels={"team": "a"}).json["id"], submit()
    worker.run_to_end(ended)
    counts: dict[str, Any] = client.get("/v1/simulations/counts").json
    assert counts["total"] == 2 and counts["states"]["succeeded"] == counts["states"]["queued"] == 1
    assert sum(counts["states"].values()) == 2 and counts["states"]["failed"] == 0
    counts = client.get("/v1/simulations/counts?q=team%3Da").json
    assert counts["total"] == counts["states"]["succeeded"] == 1


@pytest.mark.parametrize("query", ["state=queued", "colour=red", "q=", "dataset_digest=abc", "after=01k"])
def test_an_invalid_filter_of_counts_is_refused(client: FlaskClient, query: str) -> None:
    problem(client.get(f"/v1/simulations/counts?{query}"), 422, "invalid")


def test_the_next_page_has_the_same_filters(client: FlaskClient, submit: Submit) -> None:
    ids = [submit(labels={"n": str(number)}).json["id"] for number in range(3)]
    first = client.get("/v1/simulations?q=noop&state=queued&state=running&limit=2")
    assert [item["id"] for item in first.json["items"]] == [ids[2], ids[1]]
    link = first.headers["Link"].partition(">")[0].removeprefix("<")
    assert [item["id"] for item in client.get(link).json["items"]] == [ids[0]]


def test_a_row_has_the_series_of_its_score_while_it_runs_and_after_its_end(
    client: FlaskClient, model: str, worker: LeasingWorker
) -> None:
    document = {"dataset": "cartpole", "runtime": "python", "model": model, "scenarios": {"range": [0, 48]}}
    id = client.post("/v1/simulations", json=document).json["id"]
    assert listed_item(client)["score"] is None
    launch = worker.launch(id)
    lease = worker.lease(launch)
    count = lease.stop - lease.start
    worker.report(launch, lease, lease.start, lease.stop, sketch={"return": [count, 12.0 * count, 0.0, 0.0, 23.0]})
    dispatch = worker.dispatch
    snapshot = dispatch.snapshot()
    dispatch.tick(list(snapshot.active.values()), snapshot.now)
    score = listed_item(client)["score"]
    assert (score["metric"], score["mean"]) == ("return", 12.0) and set(score["series"]) == {12.0}
    worker.finish(launch)
    score = listed_item(client)["score"]
    pairs = [[task / 2 for task in (part, part + 1) if task % 7 != 6] for part in range(0, 48, 2)]
    assert score["series"] == [sum(pair) / len(pair) for pair in pairs] and score["metric"] == "return"
    assert client.get(f"/v1/simulations/{id}/summary").json["score_series"] == score


def test_large_members_are_listed_if_they_are_asked_for(client: FlaskClient, finished: str) -> None:
    whole = client.get(f"/v1/simulations/{finished}").json
    assert listed_item(client) == {name: whole[name] for name in whole if name not in ("metrics", "provenance", "spec")}
    [item] = client.get("/v1/simulations?include=metrics&include=spec").json["items"]
    assert item == {name: whole[name] for name in whole if name != "provenance"}
    problem(client.get("/v1/simulations?include=summary"), 422, "invalid")


def test_a_row_of_the_list_is_at_most_two_kilobytes(client: FlaskClient, finished: str) -> None:
    assert len(client.get("/v1/simulations").data) < 2000 < len(client.get(f"/v1/simulations/{finished}").data)


def listed_item(client: FlaskClient) -> dict[str, Any]:
    [item] = client.get("/v1/simulations").json["items"]
    return dict(item)


def test_changes_of_the_list_are_streamed(client: FlaskClient, submit: Submit, platform: Platform) -> None:
    response = client.get("/v1/simulations/changes", buffered=False)
    assert response.status_code == 200 and response.content_type == "text/event-stream"
    pieces = iter(response.response)
    assert next(pieces) == b"retry: 2000\n\n"
    assert b'event: changes\ndata: {"ids":[],"all":false}\n\n' in next(pieces)
    assert platform.submissions.changes.waiting == 1
    id = submit().json["id"]
    assert f'data: {{"ids":["{id}"],"all":false}}'.encode() in next(pieces)
    response.close()
    assert platform.submissions.changes.waiting == 0


def test_streams_of_changes_count_among_the_bounded_streams(client: FlaskClient) -> None:
    streams = [client.get("/v1/simulations/changes", buffered=False) for _ in range(4)]
    for stream in streams:
        _, _ = next(iter(stream.response)), next(iter(stream.response))
    problem(client.get("/v1/simulations/changes"), 503, "too-many-streams")
    for stream in streams:
        stream.close()
    assert client.head("/v1/simulations/changes").status_code == 200
    problem(client.get("/v1/simulations/changes", headers={"Last-Event-ID": "x"}), 422, "invalid")
