"""Sign-in with passwords and invitations, and of programs by a code; and what a guesser cannot do to others."""

from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient

from core.authenticators.passwords import LONGEST_PASSWORD
from core.domain.access.password_attempts import BURST_ATTEMPTS
from core.services.platform import Platform
from tests.api.answers import problem
from tests.api.people import People

PASSWORD = "correct horse battery staple"
ORIGIN = "http://localhost"


def browser_of(people: People, address: str = "192.0.2.1") -> FlaskClient:
    """Return a browser on a page of the platform."""
    browser = people.app.test_client()
    browser.environ_base |= {"HTTP_ORIGIN": ORIGIN, "REMOTE_ADDR": address}
    return browser


def invitation_of(people: People, user: str) -> str:
    made = people.ask("operator", "POST", "/v1/users", json={"name": user})
    assert made.status_code == 201, made.json
    return str(made.json["invitation"])


def enter(browser: FlaskClient, user: str, password: str) -> int:
    return browser.post("/v1/sign-in/password", json={"user": user, "password": password}).status_code


@pytest.fixture
def ada(people: People) -> Iterator[FlaskClient]:
    """Ada's browser: she has accepted her invitation, and has a password."""
    browser = browser_of(people)
    body = {"user": "ada", "invitation": invitation_of(people, "ada")}
    assert browser.post("/v1/sign-in/invitation", json=body).status_code == 201
    assert browser.put("/v1/users/ada/password", json={"password": PASSWORD}).status_code == 204
    yield browser


def test_an_invitation_is_a_session_once_and_for_its_user_alone(people: People) -> None:
    invited = invitation_of(people, "ada")
    invitation_of(people, "bob")
    browser = browser_of(people)
    for user, text in (("bob", invited), ("ada", invited[:-1] + "x"), ("nobody", invited), ("ada", "wti_")):
        refused = browser.post("/v1/sign-in/invitation", json={"user": user, "invitation": text})
        assert (refused.status_code, refused.json["type"]) == (401, "/problems/unauthorized")
    begun = browser.post("/v1/sign-in/invitation", json={"user": "ada", "invitation": invited})
    assert (begun.status_code, begun.json) == (201, {"user": "ada"})
    cookie = begun.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and invited not in cookie
    assert browser.get("/v1/session").json["user"] == "ada"
    again = browser_of(people).post("/v1/sign-in/invitation", json={"user": "ada", "invitation": invited})
    assert again.status_code == 401


def test_who_has_lost_his_ways_is_invited_again_and_the_first_invitation_is_void(people: People) -> None:
    first = invitation_of(people, "ada")
    assert people.ask("red maintainer", "POST", "/v1/users/ada/invitation").status_code == 403
    second = people.ask("operator", "POST", "/v1/users/ada/invitation")
    assert second.status_code == 201 and second.json["user"] == "ada"
    browser = browser_of(people)
    assert browser.post("/v1/sign-in/invitation", json={"user": "ada", "invitation": first}).status_code == 401
    body = {"user": "ada", "invitation": second.json["invitation"]}
    assert browser.post("/v1/sign-in/invitation", json=body).status_code == 201
    service = people.ask("red maintainer", "POST", "/v1/projects/red/services", json={"name": "ci", "role": "viewer"})
    assert service.status_code == 201
    assert people.ask("operator", "POST", "/v1/users/ci/invitation").status_code == 404, "a service has no sign-in"


def test_a_password_opens_a_session_that_can_be_ended_like_a_token(people: People, ada: FlaskClient) -> None:
    browser = browser_of(people)
    assert enter(browser, "ada", PASSWORD) == 201
    sessions = browser.get("/v1/users/ada/tokens").json["items"]
    assert [one["name"] for one in sessions] == ["browser, by password", "browser, by invitation"]
    assert all(one["session"] for one in sessions)
    assert ada.delete(f"/v1/users/ada/tokens/{sessions[0]['id']}").status_code == 204
    people_forget(people)
    assert browser.get("/v1/session").status_code == 401
    assert ada.get("/v1/session").status_code == 200


@pytest.mark.parametrize("password", ["", "short", " " * 11, "x" * (LONGEST_PASSWORD + 1)])
def test_a_password_has_twelve_characters_and_not_a_thousand(ada: FlaskClient, password: str) -> None:
    refused = ada.put("/v1/users/ada/password", json={"password": password, "current": PASSWORD})
    assert refused.status_code == 422


def test_a_password_is_changed_by_who_knows_it_and_removed_by_an_operator(people: People, ada: FlaskClient) -> None:
    for current in ("", "wrong password, which is long"):
        refused = ada.put("/v1/users/ada/password", json={"password": PASSWORD + "2", "current": current})
        assert refused.status_code == 422 and "current" in refused.json["detail"]
    body = {"password": PASSWORD + "2", "current": PASSWORD}
    assert ada.put("/v1/users/ada/password", json=body).status_code == 204
    assert enter(browser_of(people), "ada", PASSWORD) == 401
    assert enter(browser_of(people), "ada", PASSWORD + "2") == 201
    mine = people.ask("red maintainer", "GET", "/v1/users/ada/sign-in-methods")
    assert mine.status_code == 403
    for name in ("ada", "nobody"):
        others = problem(people.ask("operator", "PUT", f"/v1/users/{name}/password", json=body), 403, "not-permitted")
        assert f"POST /v1/users/{name}/invitation" in others["detail"]
    problem(people.ask("operator", "POST", "/v1/users/ada/passkeys/question"), 403, "not-permitted")
    assert people.ask("operator", "GET", "/v1/users/ada/sign-in-methods").json["password"] is True
    assert people.ask("operator", "DELETE", "/v1/users/ada/password").status_code == 204
    assert enter(browser_of(people), "ada", PASSWORD + "2") == 401


def test_who_leaves_has_no_password(people: People, ada: FlaskClient) -> None:
    assert people.ask("operator", "DELETE", "/v1/users/ada").status_code == 204
    assert enter(browser_of(people), "ada", PASSWORD) == 401


def test_guessers_wait_and_who_has_signed_in_before_does_not(people: People, ada: FlaskClient) -> None:
    known = browser_of(people, "192.0.2.7")
    assert enter(known, "ada", PASSWORD) == 201
    for number in range(BURST_ATTEMPTS):
        assert enter(browser_of(people, f"198.51.100.{number}"), "ada", "a guess, one of many") == 401
    guesser = browser_of(people, "203.0.113.9")
    refused = guesser.post("/v1/sign-in/password", json={"user": "ada", "password": PASSWORD})
    assert refused.status_code == 429 and 1 <= int(refused.headers["Retry-After"]) <= 31
    assert refused.json["type"] == "/problems/too-many-passwords"
    assert enter(known, "ada", PASSWORD) == 201, "a browser that is known is not held up by others"
    assert enter(guesser, "bob", "a guess, one of many") == 401, "other users are not held up"
    assert ada.get("/v1/session").status_code == 200


def test_no_answer_tells_which_users_there_are(people: People, ada: FlaskClient) -> None:
    bodies = []
    for user in ("ada", "nobody", "operator"):
        answer = browser_of(people).post("/v1/sign-in/password", json={"user": user, "password": "wrong password"})
        bodies.append((answer.status_code, answer.data))
    assert len(set(bodies)) == 1


def test_a_limited_session_changes_no_way_to_sign_in(people: People, ada: FlaskClient) -> None:
    assert people.ask("operator", "PUT", "/v1/projects/red/members/ada", json={"role": "maintainer"}).status_code == 204
    people_forget(people)
    made = ada.post("/v1/projects/red/tokens", json={"name": "gate", "role": "submitter"})
    assert made.status_code == 201, made.json
    limited = {"Authorization": f"Bearer {made.json['token']}"}
    asks = [
        ("PUT", "/v1/users/ada/password", {"password": PASSWORD + "3", "current": PASSWORD}),
        ("DELETE", "/v1/users/ada/password", None),
        ("POST", "/v1/users/ada/passkeys/question", None),
        ("GET", "/v1/users/ada/sign-in-methods", None),
        ("DELETE", "/v1/users/ada/providers/company", None),
    ]
    for method, path, body in asks:
        answer = people.app.test_client().open(path, method=method, json=body, headers=limited)
        assert (answer.status_code, answer.json["type"]) == (403, "/problems/not-permitted"), path


# -- programs


def begin_device(people: People) -> dict[str, str]:
    begun = browser_of(people).post("/v1/sign-in/devices", json={"client": "windtunnel on laptop"})
    assert begun.status_code == 201, begun.json
    return dict(begun.json)


def fetch(people: People, codes: dict[str, str]) -> dict[str, str | None]:
    answer = people.ask("", "POST", "/v1/sign-in/devices/tokens", json={"device_code": codes["device_code"]})
    assert answer.status_code == 200, answer.json
    return dict(answer.json)


def test_a_program_is_signed_in_by_a_code_that_a_person_approves(people: People, ada: FlaskClient) -> None:
    codes = begin_device(people)
    assert codes["verification_uri"] == "http://localhost/device"
    assert fetch(people, codes) == {"state": "waiting", "user": None, "token": None}
    shown = ada.get(f"/v1/sign-in/devices/{codes['user_code'].lower().replace('-', '')}")
    assert shown.status_code == 200
    assert shown.json["client"] == "windtunnel on laptop" and shown.json["address"] == "192.0.2.1"
    assert ada.post(f"/v1/sign-in/devices/{codes['user_code']}", json={"approve": True}).status_code == 204
    first = fetch(people, codes)
    assert first["state"] == "approved" and first["user"] == "ada"
    assert people.ask(str(first["token"]), "GET", "/v1/session").json["user"] == "ada"
    second = fetch(people, codes)  # the answer was lost
    people_forget(people)
    assert people.ask(str(first["token"]), "GET", "/v1/session").status_code == 401
    assert people.ask(str(second["token"]), "GET", "/v1/session").json["user"] == "ada"


def test_a_code_is_answered_once_and_by_who_is_signed_in_alone(people: People, ada: FlaskClient) -> None:
    codes = begin_device(people)
    path = f"/v1/sign-in/devices/{codes['user_code']}"
    assert browser_of(people).post(path, json={"approve": True}).status_code == 401
    assert people.ask("red maintainer", "POST", path, json={"approve": True}).status_code == 403, "a limited token"
    assert ada.post(path, json={"approve": False}).status_code == 204
    assert ada.post(path, json={"approve": True}).status_code == 404
    assert ada.get(path).status_code == 404
    assert fetch(people, codes)["state"] == "refused"


@pytest.mark.parametrize("in_session", [False, True])
def test_a_token_that_ends_earlier_signs_in_no_program(people: People, ada: FlaskClient, in_session: bool) -> None:
    made = ada.post("/v1/users/ada/tokens", json={"name": "of an hour", "expires_in": 3600})
    assert made.status_code == 201, made.json
    codes = begin_device(people)
    path = f"/v1/sign-in/devices/{codes['user_code']}"
    browser = browser_of(people)
    headers = {"Authorization": f"Bearer {made.json['token']}"}
    if in_session:  # a page that the token was entered on
        assert browser.post("/v1/session", headers=headers).status_code == 204
        headers = {}
    refused = browser.post(path, json={"approve": True}, headers=headers)
    assert (refused.status_code, refused.json["type"]) == (403, "/problems/not-permitted")
    assert fetch(people, codes)["state"] == "waiting"
    assert browser.post(path, json={"approve": False}, headers=headers).status_code == 204


def test_a_token_without_an_end_signs_in_a_program(people: People) -> None:
    codes = begin_device(people)
    approved = people.ask("operator", "POST", f"/v1/sign-in/devices/{codes['user_code']}", json={"approve": True})
    assert approved.status_code == 204, approved.text
    assert fetch(people, codes)["user"] == "operator"


@pytest.mark.parametrize("code", ["", "BCDFGHJK", "wtd_" + "0" * 46, "x" * 100])
def test_a_code_that_nobody_was_given_gets_nothing(people: People, code: str) -> None:
    answer = people.ask("", "POST", "/v1/sign-in/devices/tokens", json={"device_code": code})
    assert answer.status_code == 404 if code else answer.status_code == 422


def test_who_has_left_signs_in_no_program(people: People, ada: FlaskClient) -> None:
    codes = begin_device(people)
    assert ada.post(f"/v1/sign-in/devices/{codes['user_code']}", json={"approve": True}).status_code == 204
    assert people.ask("operator", "DELETE", "/v1/users/ada").status_code == 204
    answer = people.ask("", "POST", "/v1/sign-in/devices/tokens", json={"device_code": codes["device_code"]})
    assert answer.status_code == 404


def test_an_old_code_is_forgotten(people: People, platform: Platform, ada: FlaskClient) -> None:
    codes = begin_device(people)
    platform.database.write(
        lambda c: c.exec_driver_sql("UPDATE device_sign_ins SET expires_at = expires_at - 601") and None
    )
    assert ada.get(f"/v1/sign-in/devices/{codes['user_code']}").status_code == 404
    begin_device(people)
    with platform.database.read() as c:
        assert c.exec_driver_sql("SELECT count(*) FROM device_sign_ins").scalar() == 1


def test_a_wrong_bearer_is_no_beginning(people: People) -> None:
    answer = people.ask("wt_nobody", "POST", "/v1/sign-in/devices", json={"client": "x"})
    assert answer.status_code == 401


def test_another_site_begins_nothing(people: People) -> None:
    for path in ("password", "invitation", "passkey/question", "devices", "providers/company"):
        answer = people.app.test_client().post(
            f"/v1/sign-in/{path}", json={}, headers={"Origin": "https://evil.example"}
        )
        assert (answer.status_code, answer.json["type"]) == (403, "/problems/forbidden-origin")


def test_without_accounts_there_is_nobody_to_sign_in(client: FlaskClient) -> None:
    ways = client.get("/v1/sign-in").json
    assert ways == {
        "accounts": False, "token": False, "password": False, "passkey": False, "device": False, "providers": []
    }  # fmt: skip
    refused = client.post("/v1/sign-in/password", json={"user": "ada", "password": PASSWORD})
    assert (refused.status_code, refused.json["type"]) == (409, "/problems/accounts-off")


def people_forget(people: People) -> None:
    """Let the application look credentials up again, as it does after a second."""
    people.app.extensions["windtunnel"].access.authentication._kept.clear()
