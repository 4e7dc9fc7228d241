"""Tags of models over HTTP: set, moved and deleted; `name@tag` in every operation; submissions keep the version."""

import hashlib
import io
from typing import Any

import pytest
from flask.testing import FlaskClient

from core.domain.access.scopes import LOCAL_CALLER
from core.services.platform import Platform
from core.store import model_locks
from runtimes import environments
from tests.api.answers import MODEL, problem
from tests.api.test_model_comparisons import Runs, better
from tests.api.test_model_comparisons import runs as runs

BYTES = {"Content-Type": "application/octet-stream"}
#: A model with dependencies, and therefore with a lock.
SCRIPT = b"# /// script\n# dependencies = ['b']\n# ///\n" + MODEL


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def put(client: FlaskClient, data: bytes, name: str = "prod", query: str = "") -> dict[str, Any]:
    """Create the next version of a name; return it."""
    sent = client.put(f"/v1/models/{name}?filename=model.py{query}", data=data, headers=BYTES)
    assert sent.status_code == 201, sent.data
    document: dict[str, Any] = sent.json
    return document


def set_tag(client: FlaskClient, tag: str, version: str, name: str = "prod") -> Any:
    return client.put(f"/v1/models/{name}/tags/{tag}", json={"version": version})


@pytest.fixture
def prod(client: FlaskClient) -> str:
    """Name of a model with two versions, of which the first has the tag `gold`."""
    put(client, MODEL)
    put(client, MODEL + b"#")
    assert set_tag(client, "gold", "1").status_code == 200
    return "prod"


def test_tags_can_be_moved_and_latest_is_automatic(client: FlaskClient, prod: str) -> None:
    assert client.get("/v1/models/prod@gold").json["version"] == 1
    assert client.get("/v1/models/prod@latest").json["version"] == 2
    moved = set_tag(client, "gold", "2")
    assert moved.json["tags"] == ["gold"] and moved.json["version"] == 2
    assert client.get("/v1/models/prod@gold").json == moved.json
    assert client.get("/v1/models/prod@1").json["tags"] == []
    assert set_tag(client, "gold", digest(MODEL)).json["version"] == 1
    problem(set_tag(client, "latest", "1"), 422, "invalid")
    problem(set_tag(client, "7", "1"), 422, "invalid")
    problem(set_tag(client, "gold", "x y"), 422, "invalid")
    assert client.delete("/v1/models/prod/tags/gold").status_code == 204
    problem(client.get("/v1/models/prod@gold"), 404, "unknown-model")
    problem(client.delete("/v1/models/prod/tags/gold"), 404, "not-found")
    problem(set_tag(client, "gold", "1", name="nowhere"), 404, "unknown-model")
    problem(set_tag(client, "gold", "9"), 404, "unknown-model")


def test_an_unknown_tag_is_answered_with_the_tags_that_there_are(client: FlaskClient, prod: str) -> None:
    for response in (client.get("/v1/models/prod@best"), client.delete("/v1/models/prod@best")):
        detail = problem(response, 404, "unknown-model")["detail"]
        assert detail == "The model prod has no version or tag 'best'. Its tags: latest, gold."
    submitted = client.post("/v1/simulations", json={"dataset": "noop", "model": "prod@best"})
    assert "Its tags: latest, gold." in problem(submitted, 422, "unknown-model")["detail"]


def test_a_shipped_model_has_no_tags(client: FlaskClient) -> None:
    assert client.get("/v1/models/idm").json["tags"] == []
    assert client.get("/v1/models/idm@latest").json == client.get("/v1/models/idm").json
    assert "without tags" in problem(set_tag(client, "gold", "1", name="idm"), 409, "shipped-model")["detail"]
    assert "without tags" in problem(client.get("/v1/models/idm@gold"), 404, "unknown-model")["detail"]
    problem(client.delete("/v1/models/idm/tags/gold"), 404, "not-found")


def test_a_list_of_models_has_their_tags(client: FlaskClient, prod: str) -> None:
    put(client, MODEL, name="other")
    items = client.get("/v1/models").json["items"]
    assert [(item["name"], item["version"], item["tags"]) for item in items if not item["baseline"]] == [
        ("other", 1, []),
        ("prod", 2, []),
        ("prod", 1, ["gold"]),
    ]
    assert all(item["tags"] == [] for item in items if item["baseline"])


def test_tags_are_set_when_a_model_is_created_whichever_way_it_is_sent(client: FlaskClient) -> None:
    assert put(client, MODEL, query="&tags=gold,stable")["tags"] == ["gold", "stable"]
    form = {"file": (io.BytesIO(MODEL + b"#"), "model.py"), "name": "prod", "tags": "gold"}
    sent = client.post("/v1/forms/models", data=form)
    assert sent.status_code == 201 and (sent.json["version"], sent.json["tags"]) == (2, ["gold"])
    upload = client.post("/v1/uploads", headers={"Tus-Resumable": "1.0.0", "Upload-Length": str(len(MODEL))})
    patch = {"Tus-Resumable": "1.0.0", "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    assert client.patch(upload.headers["Location"], data=MODEL, headers=patch).status_code == 204
    body = {"upload": upload.headers["Location"], "name": "prod", "filename": "model.py", "tags": ["candidate"]}
    sent = client.post("/v1/models", json=body)
    assert sent.status_code == 201 and (sent.json["version"], sent.json["tags"]) == (3, ["candidate"])
    assert client.get("/v1/models/prod@stable").json["version"] == 1


@pytest.mark.parametrize("tags", ["latest", "3", "", "gold,", "a b", ",".join(f"t{number}" for number in range(21))])
def test_a_model_with_tags_that_are_not_accepted_is_not_created(client: FlaskClient, tags: str) -> None:
    sent = client.put(f"/v1/models/prod?filename=model.py&tags={tags}", data=MODEL, headers=BYTES)
    problem(sent, 422, "invalid")
    assert client.get("/v1/models?baseline=false").json["items"] == []


def test_every_operation_takes_a_tag(client: FlaskClient, platform: Platform) -> None:
    put(client, SCRIPT, query="&tags=gold")
    put(client, MODEL)
    platform.database.write(lambda c: model_locks.add(c, digest(SCRIPT), environments.target(), "b==1.0\n", 0.0))
    assert client.get("/v1/models/prod@gold/lock").text == "b==1.0\n"
    assert client.get("/v1/models/prod@gold/content").data == SCRIPT
    checked = client.post("/v1/models/prod@gold/check", json={"datasets": ["nowhere"]})
    problem(checked, 422, "unknown-dataset")  # the model is found, or it would be a 404
    problem(client.post("/v1/models/prod@best/check", json={"datasets": ["noop"]}), 404, "unknown-model")
    assert client.delete("/v1/models/prod@gold").status_code == 204
    problem(client.get("/v1/models/prod@1"), 404, "unknown-model")
    assert client.get("/v1/models/prod").json["version"] == 2


def test_a_simulation_keeps_the_version_that_had_the_tag_when_it_was_submitted(
    client: FlaskClient, platform: Platform, prod: str
) -> None:
    submitted = client.post("/v1/simulations", json={"dataset": "noop", "model": "prod@gold"})
    model = submitted.json["model"]
    assert (model["name"], model["version"], model["digest"]) == ("prod", 1, digest(MODEL))
    set_tag(client, "gold", "2")
    id = submitted.json["id"]
    assert client.get(f"/v1/simulations/{id}").json["model"] == model
    assert platform.submissions.simulations.get(LOCAL_CALLER, id).provenance.model.digest == digest(MODEL)
    client.post(f"/v1/simulations/{id}/cancel")
    assert client.post(f"/v1/simulations/{id}/retry", json={}).json["model"] == model
    again = client.post("/v1/simulations", json={"dataset": "noop", "model": "prod@gold"})
    assert again.json["model"]["version"] == 2


def test_a_repeated_request_gets_its_simulation_also_after_the_tag_has_moved(client: FlaskClient, prod: str) -> None:
    body, key = {"dataset": "noop", "model": "prod@gold"}, {"Idempotency-Key": "k"}
    first = client.post("/v1/simulations", json=body, headers=key)
    set_tag(client, "gold", "2")
    assert client.post("/v1/simulations", json=body, headers=key).data == first.data


def test_a_tagged_version_in_use_cannot_be_deleted_and_keeps_its_tag(client: FlaskClient, prod: str) -> None:
    id = client.post("/v1/simulations", json={"dataset": "noop", "model": "prod@gold"}).json["id"]
    assert problem(client.delete("/v1/models/prod@gold"), 409, "in-use")["simulation"] == id
    assert client.get("/v1/models/prod@gold").json["tags"] == ["gold"]


def test_a_comparison_with_a_tag_plays_the_version_that_had_it_at_the_request(client: FlaskClient, runs: Runs) -> None:
    old, new = client.get("/v1/models/old").json["digest"], client.get("/v1/models/new").json["digest"]
    assert set_tag(client, "gold", "1", name="old").json["tags"] == ["gold"]
    id = runs.create("new", "old@gold", scenarios={"range": [0, 60]})
    put(client, MODEL, name="old", query="&tags=gold")
    assert client.get("/v1/models/old@gold").json["version"] == 2
    ended = runs.finish(id, better)
    assert ended["state"] == "finished"
    for side, expected in ((ended["reference"], old), (ended["models"][0], new)):
        played = [client.get(f"/v1/simulations/{play['id']}").json["model"]["digest"] for play in side["simulations"]]
        assert played and set(played) == {expected}


def test_a_model_joins_a_comparison_by_its_tag(client: FlaskClient, runs: Runs) -> None:
    id = runs.create("new", "old", scenarios={"range": [0, 60]})
    set_tag(client, "candidate", "1", name="other")
    joined = runs.post(f"{id}/models", models=["other@candidate"])
    assert [model["digest"] for model in joined["models"]][1] == client.get("/v1/models/other").json["digest"]


def test_a_candidate_that_has_the_tag_of_its_reference_is_refused(client: FlaskClient, runs: Runs) -> None:
    set_tag(client, "gold", "1", name="old")
    refused = runs.request("old", "old@gold")
    assert "old and old@gold are the same model" in problem(refused, 422, "invalid")["detail"]
