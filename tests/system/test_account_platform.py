"""A platform with accounts, as its operator and its people use it: the first token, a team, a run, a revocation."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.platform_process import FINAL, PlatformProcess
from tests.waiting import until

#: Seconds within which a revoked token is refused by every process.
REVOKED = 2.0


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    platform = PlatformProcess(tmp_path_factory.mktemp("accounts"), settings={"MULTI_USER": "yes"})
    yield platform.start()
    platform.stop()


def first_token(platform: PlatformProcess) -> str:
    return (platform.home / "operator-token").read_text().strip()


def ask(platform: PlatformProcess, token: str, method: str, path: str, **options: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return platform.http.request(method, path, headers=headers | options.pop("headers", {}), **options)


@pytest.fixture(scope="module")
def team(platform: PlatformProcess) -> dict[str, str]:
    """A project with a token of each role, made as docs/accounts.md says."""
    operator = first_token(platform)
    assert ask(platform, operator, "POST", "/v1/projects", json={"name": "red"}).status_code == 201
    tokens = {}
    for role in ("viewer", "submitter", "maintainer"):
        name = f"{role}-ada"
        made = ask(platform, operator, "POST", "/v1/users", json={"name": name}).json()
        put = ask(platform, operator, "PUT", f"/v1/projects/red/members/{name}", json={"role": role})
        assert put.status_code == 204
        body = {"name": "laptop", "invitation": made["invitation"]}
        tokens[role] = ask(platform, "", "POST", f"/v1/users/{name}/tokens", json=body).json()["token"]
    return tokens


def test_the_first_operators_token_is_for_its_owner_alone(platform: PlatformProcess) -> None:
    file: Path = platform.home / "operator-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    session = ask(platform, first_token(platform), "GET", "/v1/session").json()
    assert session["operator"] and session["project"] == "default"
    assert ask(platform, "", "GET", "/v1/session").status_code == 401


def test_a_member_runs_a_simulation_that_the_project_sees_and_no_other(
    platform: PlatformProcess, team: dict[str, str]
) -> None:
    body = {"dataset": "noop", "runtime": "python"}
    assert ask(platform, team["viewer"], "POST", "/v1/simulations", json=body).status_code == 403
    created = ask(platform, team["submitter"], "POST", "/v1/simulations", json=body)
    assert created.status_code == 201 and created.json()["submitted_by"] == "submitter-ada"
    path = f"/v1/simulations/{created.json()['id']}"
    until(lambda: ask(platform, team["viewer"], "GET", path).json()["state"] in FINAL)
    assert ask(platform, team["viewer"], "GET", path).json()["state"] == "succeeded"
    assert ask(platform, team["viewer"], "GET", f"{path}/results").text.count("\n") == 1
    operator = first_token(platform)
    assert ask(platform, operator, "GET", path).status_code == 404
    assert ask(platform, operator, "GET", f"{path}?project=red").status_code == 200


def test_a_body_is_refused_before_it_is_sent_and_accepted_from_who_may(
    platform: PlatformProcess, team: dict[str, str]
) -> None:
    content = b"class Model:\n    def act(self, observation):\n        return [0.0]\n" + b"#" * 3_000_000
    headers = {"Content-Type": "application/octet-stream"}
    for token, status in (("wt_none", 401), ("", 401), (team["viewer"], 403), (team["submitter"], 201)):
        answer = ask(platform, token, "PUT", "/v1/models/large?format=python", content=content, headers=headers)
        assert answer.status_code == status, answer.text


def test_a_browser_signs_in_with_a_token_and_is_out_when_that_is_revoked(
    platform: PlatformProcess, team: dict[str, str]
) -> None:
    made = ask(
        platform, team["maintainer"], "POST", "/v1/projects/red/tokens", json={"name": "browser", "role": "viewer"}
    ).json()
    own_page = {"Origin": platform.url}
    with httpx.Client(base_url=platform.url, follow_redirects=True, timeout=60.0, trust_env=False) as browser:
        page = browser.post("/sign-in", data={"token": made["token"], "next": "/"}, headers=own_page)
        assert page.status_code == 200 and browser.get("/simulations").url.path == "/simulations"
        ended = ask(platform, team["maintainer"], "DELETE", f"/v1/projects/red/tokens/{made['id']}")
        assert ended.status_code == 204
        until(lambda: browser.get("/simulations").url.path == "/sign-in", timeout=REVOKED)
    assert ask(platform, made["token"], "GET", "/v1/session").status_code == 401


def test_who_leaves_is_out_and_a_restart_changes_nothing(platform: PlatformProcess, team: dict[str, str]) -> None:
    operator = first_token(platform)
    assert ask(platform, operator, "DELETE", "/v1/users/viewer-ada").status_code == 204
    until(lambda: ask(platform, team["viewer"], "GET", "/v1/session").status_code == 401, timeout=REVOKED)
    platform.interrupt()
    platform.start()
    assert first_token(platform) == operator
    assert ask(platform, operator, "GET", "/v1/session").json()["operator"]
    assert ask(platform, team["viewer"], "GET", "/v1/session").status_code == 401
    assert ask(platform, team["submitter"], "GET", "/v1/session").json()["project"] == "red"
