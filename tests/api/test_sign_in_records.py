"""Sign-ins in the audit log, and those of users for whom their identity provider does not stand any more."""

from typing import Any

import pytest
from flask.testing import FlaskClient

from core.services.platform import Platform
from core.store import sign_ins
from tests.api.people import People
from tests.api.test_audit import entries, last
from tests.api.test_sign_ins import (
    ORIGIN,
    PASSWORD,
    begin_device,
    browser_of,
    enter,
    fetch,
    invitation_of,
    people_forget,
)
from tests.api.test_sign_ins import ada as ada
from tests.software_passkeys import SoftwarePasskey


@pytest.fixture
def passkey(ada: FlaskClient) -> SoftwarePasskey:
    """Ada's passkey."""
    made = SoftwarePasskey(ORIGIN, "localhost")
    made.register(ada, "ada")
    return made


def who_and_what(entry: dict[str, Any]) -> tuple[object, ...]:
    return entry["user"], entry["subject"], entry["outcome"], entry["problem"]


def test_a_sign_in_is_recorded_with_its_user_its_method_and_its_session(
    people: People, ada: FlaskClient, passkey: SoftwarePasskey
) -> None:
    assert enter(browser_of(people, "192.0.2.4"), "ada", PASSWORD) == 201
    assert passkey.sign_in(browser_of(people))[0] == 201
    codes = begin_device(people)
    assert ada.post(f"/v1/sign-in/devices/{codes['user_code']}", json={"approve": True}).status_code == 204
    assert fetch(people, codes)["state"] == "approved"
    sessions = {f"tokens/{one['id']}" for one in ada.get("/v1/users/ada/tokens").json["items"]}
    recorded = set()
    for act in ("sign_in_with_invitation", "sign_in_with_password", "sign_in_with_passkey", "fetch_device_token"):
        [entry] = entries(people, act=act)
        assert who_and_what(entry) == ("ada", "users/ada", "done", None), act
        recorded.update(one for one in entry["affected"] if one.startswith("tokens/"))
    assert recorded == sessions
    [used] = entries(people, act="sign_in_with_passkey")
    assert any(one.startswith("users/ada/passkeys/") for one in used["affected"])
    assert last(people, act="sign_in_with_password")["address"] == "192.0.2.4"


def test_a_first_token_for_an_invitation_is_recorded_as_its_users(people: People) -> None:
    body = {"name": "first", "invitation": invitation_of(people, "bob")}
    assert people.ask("", "POST", "/v1/users/bob/tokens", json=body).status_code == 201
    entry = last(people, subject="users/bob")
    assert (entry["user"], entry["outcome"]) == ("bob", "done")


def test_a_refused_sign_in_is_recorded_with_the_name_that_was_tried_and_as_nobodys(
    people: People, ada: FlaskClient, passkey: SoftwarePasskey
) -> None:
    assert enter(browser_of(people), "ada", "a guess, one of many") == 401
    assert enter(browser_of(people), "nobody", "a guess, one of many") == 401
    wrong = {"user": "carl", "invitation": "wti_none"}
    assert browser_of(people).post("/v1/sign-in/invitation", json=wrong).status_code == 401
    thief = SoftwarePasskey(ORIGIN, "localhost", id=passkey.id)
    assert thief.sign_in(browser_of(people))[0] == 401
    refusals = [(entry["act"], *who_and_what(entry)) for entry in entries(people, outcome="refused")]
    assert refusals == [
        ("sign_in_with_passkey", None, "users/ada", "refused", "unauthorized"),
        ("sign_in_with_invitation", None, "users/carl", "refused", "unauthorized"),
        ("sign_in_with_password", None, "users/nobody", "refused", "unauthorized"),
        ("sign_in_with_password", None, "users/ada", "refused", "unauthorized"),
    ]


# -- away


def leave_provider(platform: Platform, people: People) -> None:
    """Let Ada be a person of the provider `company`, which does not stand for her any more."""

    def write(c: Any) -> None:
        now = platform.database.now(c)
        sign_ins.add_provided_user(c, "company", "a1", "ada", now)
        sign_ins.set_away(c, "ada", now)

    platform.database.write(write)
    people_forget(people)


def test_who_is_away_learns_it_by_his_password_his_passkey_or_his_invitation(
    people: People, platform: Platform, ada: FlaskClient, passkey: SoftwarePasskey
) -> None:
    again = people.ask("operator", "POST", "/v1/users/ada/invitation").json["invitation"]
    invited = {"user": "ada", "invitation": again}
    leave_provider(platform, people)
    browser = browser_of(people)
    by_password = browser.post("/v1/sign-in/password", json={"user": "ada", "password": PASSWORD})
    by_invitation = browser.post("/v1/sign-in/invitation", json=invited)
    for status, answer in (
        (by_password.status_code, by_password.json),
        passkey.sign_in(browser),
        (by_invitation.status_code, by_invitation.json),
    ):
        assert (status, answer["type"]) == (403, "/problems/sign-in-refused")
        assert "company" in answer["detail"] and "Sign in with it again" in answer["detail"]
    assert "Set-Cookie" not in by_password.headers and "Set-Cookie" not in by_invitation.headers
    refused = last(people, act="sign_in_with_password")
    assert who_and_what(refused) == (None, "users/ada", "refused", "sign-in-refused")
    assert people.ask("operator", "DELETE", "/v1/users/ada/providers/company").status_code == 204
    assert enter(browser, "ada", PASSWORD) == 201, "as the refusal says, an operator can end it"
    assert browser.post("/v1/sign-in/invitation", json=invited).status_code == 201, "it was not used up"


def test_nobody_else_learns_who_is_away(
    people: People, platform: Platform, ada: FlaskClient, passkey: SoftwarePasskey
) -> None:
    thief = SoftwarePasskey(ORIGIN, "localhost", id=passkey.id)

    def guesses() -> list[object]:
        browser = browser_of(people)
        password = browser.post("/v1/sign-in/password", json={"user": "ada", "password": "a guess, one of many"})
        invitation = browser.post("/v1/sign-in/invitation", json={"user": "ada", "invitation": "wti_none"})
        return [(one.status_code, one.data) for one in (password, invitation)] + [thief.sign_in(browser)]

    before = guesses()
    leave_provider(platform, people)
    assert guesses() == before


def test_a_program_whose_approver_is_away_gets_no_token(people: People, platform: Platform, ada: FlaskClient) -> None:
    codes = begin_device(people)
    assert ada.post(f"/v1/sign-in/devices/{codes['user_code']}", json={"approve": True}).status_code == 204
    leave_provider(platform, people)
    answer = people.ask("", "POST", "/v1/sign-in/devices/tokens", json={"device_code": codes["device_code"]})
    assert answer.status_code == 404
