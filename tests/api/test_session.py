"""Sessions of browsers: a cookie in place of the token, from pages of this server only."""

from dataclasses import replace

import pytest
from flask.testing import FlaskClient

from api.credentials import COOKIE, cookie_of, session_of
from core.services.platform import Platform
from core.settings import Settings
from server import composition as root
from tests.api.answers import problem

TOKEN = "correct-horse-battery"
OWN_PAGE = {"Origin": "http://localhost"}


@pytest.fixture
def guarded(platform: Platform, settings: Settings) -> FlaskClient:
    return root.create_flask(platform, replace(settings, token=TOKEN), {"level": 3, "missing": []}).test_client()


def signed_in(client: FlaskClient, **headers: str) -> str:
    """Begin a session; return the Set-Cookie header."""
    answer = client.post("/v1/session", headers={"Authorization": f"Bearer {TOKEN}", **headers})
    assert answer.status_code == 204
    return answer.headers["Set-Cookie"]


def test_the_token_begins_a_session_that_reads_and_writes(guarded: FlaskClient) -> None:
    problem(guarded.get("/v1/simulations"), 401, "unauthorized")
    signed_in(guarded)
    assert guarded.get("/v1/simulations").status_code == 200
    submitted = guarded.post("/v1/simulations", json={"dataset": "noop", "runtime": "python"}, headers=OWN_PAGE)
    assert submitted.status_code == 201


def test_a_session_cookie_is_kept_from_scripts_and_other_sites(guarded: FlaskClient) -> None:
    attributes = {part.strip() for part in signed_in(guarded).split(";")}
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= attributes
    assert TOKEN not in signed_in(guarded)


@pytest.mark.parametrize(("origin", "expected"), [("https://lab.example", True), ("http://lab.example", False)])
def test_a_session_over_https_has_a_secure_cookie(
    platform: Platform, settings: Settings, origin: str, expected: bool
) -> None:
    behind_ingress = replace(settings, token=TOKEN, names=("lab.example",))
    client = root.create_flask(platform, behind_ingress, {"level": 3, "missing": []}).test_client()
    cookie = signed_in(client, Host="lab.example", Origin=origin)
    assert ("Secure" in cookie) is expected


def test_a_session_does_not_write_without_an_origin(guarded: FlaskClient) -> None:
    signed_in(guarded)
    body = {"dataset": "noop", "runtime": "python"}
    problem(guarded.post("/v1/simulations", json=body), 401, "unauthorized")
    assert guarded.post("/v1/simulations", json=body, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 201
    foreign = guarded.post("/v1/simulations", json=body, headers={"Origin": "http://evil.example"})
    problem(foreign, 403, "forbidden-origin")
    problem(guarded.get("/v1/simulations", headers={"Sec-Fetch-Site": "same-site"}), 403, "forbidden-origin")


def test_a_wrong_token_begins_no_session(guarded: FlaskClient) -> None:
    refused = guarded.post("/v1/session", headers={"Authorization": "Bearer wrong-horse-battery"})
    problem(refused, 401, "unauthorized")
    assert "Set-Cookie" not in refused.headers


@pytest.mark.parametrize(
    "cookie",
    [
        f"{COOKIE}={TOKEN}",
        f"{COOKIE}={session_of('another-horse-battery')}",
        f"{COOKIE}=",
        f"{COOKIE}=\xe9",
        COOKIE,
        "\x00=;;;",
    ],
)
def test_another_cookie_is_no_session(guarded: FlaskClient, cookie: str) -> None:
    problem(guarded.get("/v1/simulations", headers={"Cookie": cookie}), 401, "unauthorized")


def test_a_wrong_token_is_refused_in_a_session_too(guarded: FlaskClient) -> None:
    signed_in(guarded)
    problem(guarded.get("/v1/simulations", headers={"Authorization": "Bearer wrong"}), 401, "unauthorized")


def test_a_session_ends_when_it_is_deleted(guarded: FlaskClient) -> None:
    signed_in(guarded)
    assert guarded.delete("/v1/session", headers=OWN_PAGE).status_code == 204
    problem(guarded.get("/v1/simulations"), 401, "unauthorized")


def test_a_server_without_a_token_sets_no_cookie(client: FlaskClient) -> None:
    answer = client.post("/v1/session")
    assert answer.status_code == 204 and "Set-Cookie" not in answer.headers


def test_a_session_cookie_is_read_beside_others() -> None:
    assert cookie_of(f"theme=dark; {COOKIE}=abc; other=1") == "abc"
