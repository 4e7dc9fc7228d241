"""Quotas by HTTP: who sees and sets them, what a refusal says, and what waits instead of being refused."""

from typing import Any

import pytest
from werkzeug.test import TestResponse

from core.services.platform import Platform
from tests.api.conftest import LeasingWorker
from tests.api.people import MODEL, People

RED = "/v1/projects/red/quotas"


@pytest.fixture
def team(people: People) -> People:
    for role in ("submitter", "maintainer"):
        who = f"red {role}"
        sent = people.ask(who, "PUT", "/v1/models/brake", data=MODEL, headers={"Content-Type": "text/x-python"})
        assert sent.status_code in (200, 201), sent.json
    return people


def submit(people: People, who: str = "red submitter", **fields: Any) -> TestResponse:
    return people.ask(who, "POST", "/v1/simulations", json={"dataset": "noop", "model": "brake"} | fields)


def limit(people: People, who: str = "operator", path: str = RED, **limits: int | None) -> TestResponse:
    return people.ask(who, "PUT", path, json=limits)


def test_an_operator_limits_a_project_and_every_member_sees_limits_and_use(team: People) -> None:
    answer = limit(team, queued_simulations=5, stored_bytes=10_000_000)
    assert answer.status_code == 200, answer.json
    assert submit(team).status_code == 201
    seen = team.ask("red viewer", "GET", RED).json
    assert seen == {
        "queued_simulations": {"limit": 5, "used": 1, "own": 5},
        "tasks": {"limit": None, "used": 1, "own": None},
        "stored_bytes": {"limit": 10_000_000, "used": len(MODEL), "own": 10_000_000},
        "running_workers": {"limit": None, "used": 0, "own": None},
        "resources": {},
    }
    assert limit(team, stored_bytes=None).json["queued_simulations"]["limit"] is None


def test_resources_that_run_have_limits_by_the_names_of_a_placement(team: People) -> None:
    resources: Any = {"cpu": 64, "memory": 256_000_000_000, "nvidia.com/gpu": 8}
    assert limit(team, resources=resources).status_code == 200
    assert limit(team, path="/v1/quotas", resources={"cpu": 9, "amd.com/gpu": 1}).status_code == 200  # type: ignore[arg-type]
    seen = (team.ask("red viewer", "GET", RED).json or {})["resources"]
    assert seen == {
        "amd.com/gpu": {"limit": 1, "used": 0, "own": None},
        "cpu": {"limit": 64, "used": 0, "own": 64},
        "memory": {"limit": 256_000_000_000, "used": 0, "own": 256_000_000_000},
        "nvidia.com/gpu": {"limit": 8, "used": 0, "own": 8},
    }
    every = (team.ask("operator", "GET", "/v1/quotas").json or {})["resources"]
    assert every["cpu"] == {"limit": 9, "used": None, "own": 9}
    own = limit(team, "red maintainer", "/v1/projects/red/members/operator/quotas", resources={"cpu": 2})  # type: ignore[arg-type]
    assert own.status_code in (200, 404)
    for wrong in ({"cpu": -1}, {"cpu": 1.5}, {"": 1}, {"a b": 1}, {str(n): 1 for n in range(33)}):
        assert limit(team, resources=wrong).status_code == 422, wrong  # type: ignore[arg-type]
    assert limit(team).status_code == 200
    assert set((team.ask("red viewer", "GET", RED).json or {})["resources"]) == {"cpu", "amd.com/gpu"}


@pytest.mark.parametrize("who", ["red viewer", "red submitter", "red maintainer", "blue maintainer"])
def test_only_operators_limit_projects(team: People, who: str) -> None:
    assert limit(team, who, queued_simulations=50).status_code == (404 if who.startswith("blue") else 403)
    assert limit(team, who, "/v1/quotas", queued_simulations=50).status_code == 403
    assert team.ask(who, "GET", "/v1/quotas").status_code == 403


def test_the_quotas_of_another_project_are_as_if_they_were_not_there(team: People) -> None:
    there = team.ask("blue maintainer", "GET", RED)
    nowhere = team.ask("blue maintainer", "GET", RED.replace("red", "nil"))
    assert there.status_code == nowhere.status_code == 404
    assert there.text.replace("red", "nil") == nowhere.text


def test_a_refusal_is_a_problem_with_the_quota_its_limit_and_its_use(team: People) -> None:
    assert limit(team, queued_simulations=1).status_code == 200
    assert submit(team).status_code == 201
    refused = submit(team)
    assert refused.status_code == 403 and refused.content_type == "application/problem+json"
    problem = refused.json
    assert problem["type"].endswith("/quota-exceeded")
    assert (problem["quota"], problem["limit"], problem["used"]) == ("queued_simulations", 1, 1)
    assert "an operator of the platform" in problem["detail"]
    team.ask("red submitter", "POST", f"/v1/simulations/{_first(team)}/cancel")
    assert submit(team).status_code == 201


def _first(people: People) -> str:
    id: str = people.ask("red viewer", "GET", "/v1/simulations").json["items"][0]["id"]
    return id


def test_a_refused_key_may_be_used_again_once_there_is_room(team: People) -> None:
    limit(team, queued_simulations=0)
    headers = {"Idempotency-Key": "one"}
    body = {"dataset": "noop", "model": "brake"}
    assert team.ask("red submitter", "POST", "/v1/simulations", json=body, headers=headers).status_code == 403
    limit(team)
    first = team.ask("red submitter", "POST", "/v1/simulations", json=body, headers=headers)
    again = team.ask("red submitter", "POST", "/v1/simulations", json=body, headers=headers)
    assert first.status_code == 201 and again.json["id"] == first.json["id"]


@pytest.mark.parametrize(
    ("method", "path", "options"),
    [
        ("POST", "/v1/simulations", {"json": {"dataset": "noop", "model": "brake"}}),
        ("POST", "/v1/checks", {"json": {"dataset": "noop", "model": "brake"}}),
        ("PUT", "/v1/models/other", {"data": MODEL + b"#", "headers": {"Content-Type": "text/x-python"}}),
        ("POST", "/v1/uploads", {"headers": {"Tus-Resumable": "1.0.0", "Upload-Length": "9"}}),
        ("POST", "/1.0/simluation/tests", {"json": {"runtimePath": "python", "model_data": "noop"}}),
    ],
)
def test_nothing_is_stored_or_queued_without_room(team: People, method: str, path: str, options: Any) -> None:
    limit(team, queued_simulations=0, stored_bytes=0, tasks=0)
    refused = team.ask("red submitter", method, path, **options)
    assert refused.status_code == 403 and "quota-exceeded" in refused.text, refused.text


def test_the_limit_of_a_user_is_set_by_a_maintainer_and_holds_for_that_user(team: People) -> None:
    assert team.ask("operator", "POST", "/v1/projects/red/services", json={"name": "ci", "role": "submitter"})
    made = {"name": "ci", "role": "submitter", "service": "ci"}
    token = team.ask("red maintainer", "POST", "/v1/projects/red/tokens", json=made).json["token"]
    path = "/v1/projects/red/members/ci/quotas"
    assert limit(team, "red submitter", path, queued_simulations=1).status_code == 403
    assert limit(team, "red maintainer", path, queued_simulations=1).status_code == 200
    assert submit(team, token).status_code == 201
    refused = submit(team, token)
    assert refused.status_code == 403 and "a maintainer of the project" in refused.json["detail"]
    assert team.ask("red viewer", "GET", path).json["queued_simulations"] == {"limit": 1, "used": 1, "own": 1}
    assert submit(team).status_code == 201
    nobody = path.replace("ci", "nemo")
    assert limit(team, "red maintainer", nobody, tasks=1).status_code == 404


def test_the_limits_of_every_project_hold_for_new_ones_too(team: People) -> None:
    everywhere = limit(team, path="/v1/quotas", queued_simulations=0).json["queued_simulations"]
    assert everywhere == {"limit": 0, "used": None, "own": 0}
    assert team.ask("red viewer", "GET", RED).json["queued_simulations"] == {"limit": 0, "used": 0, "own": None}
    assert submit(team).status_code == 403
    assert limit(team, queued_simulations=9).status_code == 200
    assert submit(team).status_code == 201


@pytest.mark.parametrize("value", [-1, 1.5, "5", True, 1 << 63, [5], {"limit": 5}])
def test_a_limit_is_a_whole_number(team: People, value: Any) -> None:
    answer = limit(team, tasks=value)
    assert answer.status_code == 422 and "tasks" in answer.text


def test_an_unknown_quota_is_refused_with_the_ones_there_are(team: People) -> None:
    answer = team.ask("operator", "PUT", RED, json={"workers": 3})
    assert answer.status_code == 422 and "workers" in answer.text


def test_a_batch_of_retries_keeps_what_has_room(team: People) -> None:
    ids = [submit(team).json["id"] for _ in range(3)]
    for id in ids:
        assert team.ask("red submitter", "POST", f"/v1/simulations/{id}/cancel").status_code in (200, 202)
    limit(team, queued_simulations=2)
    answer = team.ask("red submitter", "POST", "/v1/simulations/retry", json={"ids": ids})
    assert answer.status_code in (200, 207), answer.text
    assert team.ask("red viewer", "GET", RED).json["queued_simulations"]["used"] == 2
    assert "quota-exceeded" in answer.text


def test_the_model_of_another_project_costs_nothing_less_and_nothing_more(team: People) -> None:
    before = team.ask("red viewer", "GET", RED).json
    content = MODEL + b"# theirs\n"
    headers = {"Content-Type": "text/x-python"}
    assert team.ask("blue submitter", "PUT", "/v1/models/theirs", data=content, headers=headers).status_code == 201
    assert team.ask("red viewer", "GET", RED).json == before
    assert team.ask("red submitter", "PUT", "/v1/models/theirs", data=content, headers=headers).status_code == 201
    after = team.ask("red viewer", "GET", RED).json
    assert after["stored_bytes"]["used"] == before["stored_bytes"]["used"] + len(content)


def test_without_accounts_there_are_no_quotas(client: Any) -> None:
    assert client.get("/v1/projects/default/quotas").status_code == 409


@pytest.mark.parametrize("kind", ["comparisons", "pipelines"])
def test_what_submits_by_itself_waits_for_its_quota_and_says_so(team: People, platform: Platform, kind: str) -> None:
    headers = {"Content-Type": "text/x-python"}
    assert team.ask("red submitter", "PUT", "/v1/models/other", data=MODEL + b"#", headers=headers).status_code == 201
    limit(team, queued_simulations=0)
    body = {
        "comparisons": {"dataset": "car_street", "models": ["brake", "other"]},
        "pipelines": {
            "steps": [
                {"name": model, "submission": {"dataset": "noop", "model": model}} for model in ("brake", "other")
            ]
        },
    }[kind]
    created = team.ask("red submitter", "POST", f"/v1/{kind}", json=body)
    assert created.status_code == 201, created.json
    id = created.json["id"]
    advance = {
        "comparisons": platform.jobs.comparison_batches.advance,
        "pipelines": platform.pipelines.pipeline_steps.advance,
    }[kind]
    advance(id)
    seen = team.ask("red viewer", "GET", f"/v1/{kind}/{id}").json
    assert seen["state"] == "running" and "waits for its quota" in seen["reason"], seen
    limit(team)
    platform.database.write(lambda c: c.exec_driver_sql(f"UPDATE {kind} SET not_before=0"))
    advance(id)
    seen = team.ask("red viewer", "GET", f"/v1/{kind}/{id}").json
    assert seen["reason"] is None and team.ask("red viewer", "GET", RED).json["queued_simulations"]["used"] == 2


def test_an_operator_sees_who_is_nearest_to_a_limit_or_over_it(team: People, platform: Platform) -> None:
    fullest = lambda query="": (team.ask("operator", "GET", f"/v1/quotas/fullest{query}").json or {})["items"]  # noqa: E731
    assert fullest() == []
    limit(team, queued_simulations=2, tasks=10)
    limit(team, path="/v1/quotas", queued_simulations=1, stored_bytes=10 * len(MODEL))
    assert fullest() == []
    assert submit(team).status_code == submit(team).status_code == 201
    blue = team.ask("blue submitter", "PUT", "/v1/models/brake", data=MODEL, headers={"Content-Type": "text/x-python"})
    assert blue.status_code == 201 and submit(team, "blue submitter").status_code == 201
    assert fullest() == [
        {"project": "blue", "user": None, "quota": "queued_simulations", "limit": 1, "used": 1, "share": 1.0},
        {"project": "red", "user": None, "quota": "queued_simulations", "limit": 2, "used": 2, "share": 1.0},
    ]
    limit(team, path="/v1/quotas", queued_simulations=0, stored_bytes=10 * len(MODEL))
    assert [(each["project"], each["share"]) for each in fullest("?limit=1")] == [("blue", None)]
    half = [(each["project"], each["quota"]) for each in fullest("?percent=10")]
    assert half[2:] == [("red", "tasks"), ("blue", "stored_bytes"), ("red", "stored_bytes")]
    for who in ("red maintainer", "red viewer"):
        assert team.ask(who, "GET", "/v1/quotas/fullest").status_code == 403
    assert team.ask("operator", "GET", "/v1/quotas/fullest?percent=-1").status_code == 422


def test_workers_that_run_count_among_the_fullest(team: People, platform: Platform) -> None:
    assert submit(team, workers=2).status_code == 201
    id = team.ask("red viewer", "GET", "/v1/simulations").json["items"][0]["id"]  # type: ignore[index]
    LeasingWorker(platform).launch(id)
    limit(team, running_workers=2, resources={"cpu": 1})  # type: ignore[arg-type]
    items = (team.ask("operator", "GET", "/v1/quotas/fullest").json or {})["items"]
    assert [(each["quota"], each["used"], each["limit"]) for each in items] == [
        ("resources.cpu", 2.0, 1), ("running_workers", 2, 2)
    ]  # fmt: skip
