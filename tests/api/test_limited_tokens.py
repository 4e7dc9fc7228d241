"""Tokens for some models and datasets: what they may touch, and that nothing else gets them there."""

from io import BytesIO
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.api.conftest import LeasingWorker
from tests.api.people import MODEL, People

PYTHON = {"Content-Type": "text/x-python"}


def token_for(people: People, who: str = "red maintainer", role: str = "submitter", **scope: Any) -> TestResponse:
    return people.ask(who, "POST", "/v1/projects/red/tokens", json={"name": "gate", "role": role, "scope": scope})


@pytest.fixture
def limited(people: People) -> People:
    """People of whom `limited` has a token for models `brake*`."""
    for name in ("brake", "secret"):
        assert people.ask("red submitter", "PUT", f"/v1/models/{name}", data=name.encode() + b" = 1\n" + MODEL, headers=PYTHON).status_code == 201  # fmt: skip  # noqa: E501
    made = token_for(people, models=["brake*"])
    assert made.status_code == 201, made.text
    shown = made.json or {}
    assert (shown["models"], shown["datasets"]) == (["brake*"], None)
    people.tokens = {**people.tokens, "limited": shown["token"]}
    return people


def digest_of(people: People, name: str) -> str:
    return str((people.ask("red viewer", "GET", f"/v1/models/{name}").json or {})["digest"])


def test_a_model_that_does_not_match_is_refused_by_every_name_that_it_has(limited: People) -> None:
    id = (limited.ask("red viewer", "GET", "/v1/models/secret").json or {})["id"]
    for ref in ("secret", "secret@1", "red/secret", id, digest_of(limited, "secret")):
        for path in (f"/v1/models/{ref}", f"/v1/models/{ref}/content"):
            refused = limited.ask("limited", "GET", path)
            assert refused.status_code == 403 and "limited to models that match brake*" in refused.text, path
        sent = limited.ask("limited", "POST", "/v1/simulations", json={"dataset": "noop", "model": ref})
        assert sent.status_code == 403, sent.text
    assert limited.ask("limited", "GET", "/v1/models/brake/content").status_code == 200
    assert (
        limited.ask("limited", "POST", "/v1/simulations", json={"dataset": "noop", "model": "brake"}).status_code == 201
    )
    listed = [item["name"] for item in (limited.ask("limited", "GET", "/v1/models").json or {})["items"]]
    assert {"brake", "secret"} <= {*listed}, "lists have names alone"


def test_it_neither_makes_nor_changes_what_does_not_match(limited: People) -> None:
    put = limited.ask("limited", "PUT", "/v1/models/gold", data=MODEL, headers=PYTHON)
    assert put.status_code == 403
    assert limited.ask("limited", "PUT", "/v1/models/brake-2", data=MODEL, headers=PYTHON).status_code == 201
    body = {"model": (BytesIO(MODEL), "gold.py"), "dataset": "noop"}
    assert limited.ask("limited", "POST", "/v1/simulations", data=body).status_code == 403
    for method, path, json in (
        ("PUT", "/v1/models/secret/tags/gold", {"version": "1"}),
        ("DELETE", "/v1/models/secret", None),
        ("POST", "/v1/imports", {"model_reference": "https://models.example/brake.py"}),
        ("POST", "/v1/imports", {"model_reference": "https://models.example/brake.py", "name": "gold"}),
    ):
        answer = limited.ask("limited", method, path, json=json)
        assert answer.status_code == (422 if json and "model_reference" in json and "name" not in json else 403), path
    for datasets, made, status in ((["made-*"], "other", 403), (["made-*"], "made-1", 201)):
        text = (token_for(limited, datasets=datasets).json or {})["token"]
        body = {"dataset": "noop", "model": "brake", "outputs": {"out": {"as": "dataset", "name": made}}}
        sent = limited.ask(text, "POST", "/v1/simulations", json=body)
        assert sent.status_code == status, sent.text
    assert limited.ask("red viewer", "GET", "/v1/models/secret").status_code == 200
    assert limited.ask("red viewer", "GET", "/v1/models/gold").status_code == 404


@pytest.mark.parametrize("role", ["submitter", "maintainer"])
def test_it_makes_no_token_and_shares_nothing(limited: People, role: str) -> None:
    text = (token_for(limited, role=role, models=["brake*"]).json or {})["token"]
    assert token_for(limited, text, role="viewer").status_code == 403
    assert token_for(limited, text, role="viewer", models=["brake*"]).status_code == 403
    assert limited.ask(text, "PUT", "/v1/models/secret/shares/blue").status_code == 403
    assert limited.ask(text, "PUT", "/v1/projects/red/members/operator", json={"role": "viewer"}).status_code == 403


def test_what_ships_with_the_platform_is_for_every_token(limited: People) -> None:
    text = (token_for(limited, models=["brake*"], datasets=["streets"]).json or {})["token"]
    assert limited.ask(text, "GET", "/v1/datasets/cartpole").status_code == 200
    assert limited.ask(text, "GET", "/v1/models/cartpole").status_code == 200


def test_a_dataset_that_does_not_match_is_not_registered(limited: People) -> None:
    text = (token_for(limited, datasets=["streets@gold", "maps-*"]).json or {})["token"]
    source = {"manifest": [{"path": "a", "digest": "sha256:" + "0" * 64, "size": 1}]}
    for name, status in (("maps-1", 202), ("other", 403), ("streets", 403)):
        sent = limited.ask(text, "POST", "/v1/datasets", json={"name": name, "source": source})
        assert sent.status_code == status, sent.text
    assert (
        limited.ask("red submitter", "POST", "/v1/datasets", json={"name": "other", "source": source}).status_code
        == 202
    )
    for method, path in (("GET", "other"), ("GET", "other/files"), ("DELETE", "other"), ("GET", "other@1")):
        assert limited.ask(text, method, f"/v1/datasets/{path}").status_code == 403, path
    assert limited.ask(text, "GET", "/v1/datasets/maps-1").status_code == 200


def test_what_another_project_shares_matches_with_its_name(limited: People) -> None:
    sent = limited.ask("blue submitter", "PUT", "/v1/models/brake", data=b"x = 2\n" + MODEL, headers=PYTHON)
    assert sent.status_code == 201
    assert limited.ask("blue maintainer", "PUT", "/v1/models/brake/shares/red").status_code < 300
    assert limited.ask("red submitter", "GET", "/v1/models/blue/brake").status_code == 200
    assert limited.ask("limited", "GET", "/v1/models/blue/brake").status_code == 403
    text = (token_for(limited, models=["blue/*"]).json or {})["token"]
    assert limited.ask(text, "GET", "/v1/models/blue/brake").status_code == 200
    assert limited.ask(text, "GET", "/v1/models/brake").status_code == 403, "its own one"


def test_an_archive_has_no_model_that_does_not_match(limited: People, worker: LeasingWorker) -> None:
    body = {"dataset": "noop", "model": "secret", "scenarios": {"range": [0, 3]}}
    id = (limited.ask("red submitter", "POST", "/v1/simulations", json=body).json or {})["id"]
    worker.finish_unseen(worker.launch(id))
    assert limited.ask("red viewer", "GET", f"/v1/simulations/{id}/archive").status_code == 200
    assert limited.ask("limited", "GET", f"/v1/simulations/{id}/archive").status_code == 403
    assert limited.ask("limited", "GET", f"/v1/simulations/{id}/archive?model=false").status_code == 200


def test_a_comparison_and_a_pipeline_name_only_what_matches(limited: People) -> None:
    comparison = {"dataset": "noop", "models": ["brake", "secret"]}
    assert limited.ask("limited", "POST", "/v1/comparisons", json=comparison).status_code == 403
    for model, status in (("secret", 403), ("brake", 201)):
        steps = [{"name": "one", "submission": {"dataset": "noop", "model": model}}]
        sent = limited.ask("limited", "POST", "/v1/pipelines", json={"steps": steps})
        assert sent.status_code == status, sent.text


def test_a_session_has_the_limits_of_its_token(limited: People) -> None:
    begun = limited.ask("limited", "POST", "/v1/session")
    cookie = begun.headers["Set-Cookie"].partition(";")[0]
    client = limited.app.test_client(use_cookies=False)
    assert client.get("/v1/models/brake", headers={"Cookie": cookie}).status_code == 200
    assert client.get("/v1/models/secret", headers={"Cookie": cookie}).status_code == 403


def test_it_brings_back_from_the_bin_only_what_matches(people: People) -> None:
    assert people.ask("red maintainer", "PUT", "/v1/projects/red/retention", json={"bin": True}).status_code == 200
    ids = {}
    for name in ("brake", "secret"):
        put = people.ask("red submitter", "PUT", f"/v1/models/{name}?tags=gold", data=MODEL, headers=PYTHON)
        assert put.status_code == 201, put.text
        ids[name] = (put.json or {})["id"]
    for patterns, brake in ((["brake@gold"], 204), (["brake@2"], 403), (["*@silver"], 403), (["brake"], 204)):
        made = token_for(people, models=patterns)
        token = (made.json or {})["token"]
        for name in ids:
            assert people.ask("red submitter", "DELETE", f"/v1/models/{name}").status_code in (204, 404)
        assert people.ask(token, "POST", f"/v1/bin/{ids['secret']}/restore").status_code == 403, patterns
        assert people.ask(token, "POST", f"/v1/bin/{ids['brake']}/restore").status_code == brake, patterns
    for_datasets = (token_for(people, datasets=["streets"]).json or {})["token"]
    assert people.ask(for_datasets, "POST", f"/v1/bin/{ids['secret']}/restore").status_code == 204, "of models, all"
