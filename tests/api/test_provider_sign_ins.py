"""Sign-in with a real identity provider: who one is, what its groups give and take, and what does not get in."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest
from flask import Flask
from flask.testing import FlaskClient

from core.domain.access import identity_providers
from core.services.access.provider_sign_ins import ProviderSignIns
from core.services.platform import Platform
from core.settings import Settings
from server import composition as root
from tests.api.people import OPERATOR
from tests.identity_providers import TestIdentityProvider, sign_in_at
from tests.identity_providers import identity_provider as identity_provider

GROUPS = {
    "drivers": {"projects": {"red": "submitter"}},
    "leads": {"projects": {"red": "maintainer", "blue": "viewer"}},
    "admins": {"operator": True},
}
ADA = {"preferred_username": "Ada.Lovelace", "email": "ada@example.com", "groups": ["drivers"]}
OPERATING = {"Authorization": f"Bearer {OPERATOR}"}


class Company:
    """A platform whose people sign in with a provider."""

    def __init__(self, app: Flask, platform: Platform, provider: TestIdentityProvider) -> None:
        self.app, self.platform, self.provider = app, platform, provider

    def browser(self) -> FlaskClient:
        """A browser on a page of the platform."""
        browser = self.app.test_client()
        browser.environ_base["HTTP_ORIGIN"] = "http://localhost"
        return browser

    def begin(self, browser: FlaskClient, body: Mapping[str, object] | None = None) -> str:
        begun = browser.post("/v1/sign-in/providers/company", json=body or {})
        assert begun.status_code == 201, begun.json
        return str(begun.json["address"])

    def answer(self, browser: FlaskClient, back: str) -> tuple[int, dict[str, object]]:
        sent = dict(parse_qsl(urlsplit(back).query))
        answer = browser.post("/v1/sign-in/providers/company/answer", json=sent)
        return answer.status_code, answer.json

    def enter(self, account: str, **body: object) -> tuple[FlaskClient, int, dict[str, object]]:
        """Sign in; return the browser, and the answer."""
        browser = self.browser()
        return browser, *self.answer(browser, sign_in_at(self.begin(browser, body), account))

    def roles(self, browser: FlaskClient) -> dict[str, str]:
        """Return the roles of who is signed in, as they are now and not as they were a second ago."""
        self.platform.access.authentication._kept.clear()
        session = browser.get("/v1/session").json
        return {one["name"]: one["role"] for one in session["projects"]}


@pytest.fixture
def company(platform: Platform, settings: Settings, identity_provider: TestIdentityProvider) -> Iterator[Company]:
    yield opened(platform, settings, identity_provider)


def opened(platform: Platform, settings: Settings, provider: TestIdentityProvider, **more: object) -> Company:
    known = identity_providers.parse(provider.configuration(title="The Company", groups=GROUPS, **more))
    signing = ProviderSignIns(platform.database, known)
    platform = replace(
        platform,
        sign_in=replace(platform.sign_in, provider_sign_ins=signing),
    )
    app = root.create_flask(platform, replace(settings, token=OPERATOR, multi_user=True), {"level": 3, "missing": []})
    for project in ("red", "blue"):
        made = app.test_client().post("/v1/projects", json={"name": project}, headers=OPERATING)
        assert made.status_code == 201, made.json
    return Company(app, platform, provider)


def test_who_signs_in_is_a_user_with_the_roles_of_his_groups(company: Company) -> None:
    company.provider.people({"a1": ADA})
    browser, status, answer = company.enter("a1", next="/models")
    assert (status, answer) == (201, {"user": "ada-lovelace", "next": "/models"})
    session = browser.get("/v1/session").json
    assert session["user"] == "ada-lovelace" and not session["operator"]
    assert company.roles(browser) == {"red": "submitter"}
    ways = company.browser().get("/v1/sign-in").json
    assert ways["providers"] == [{"name": "company", "title": "The Company"}]


def test_the_page_leads_to_the_provider_and_back(company: Company) -> None:
    company.provider.people({"a1": ADA})
    browser = company.browser()
    assert b"Sign in with The Company" in browser.get("/sign-in").data
    begun = browser.post("/sign-in/with/company", data={"next": "/models"}, headers={"Origin": "http://localhost"})
    assert begun.status_code == 200, begun.text
    address = begun.text.split("url=")[1].split('"')[0].replace("&amp;", "&")
    back = sign_in_at(address, "a1")
    ended = browser.get(f"{urlsplit(back).path}?{urlsplit(back).query}")
    assert ended.status_code == 200 and "url=/models" in ended.text, ended.text
    assert b"ada-lovelace" in browser.get("/operations/sign-in").data


def test_a_next_page_of_another_site_is_not_gone_to(company: Company) -> None:
    company.provider.people({"a1": ADA})
    for wanted in ("https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "/v1/models"):
        browser = company.browser()
        back = sign_in_at(company.begin(browser, {"next": wanted}), "a1")
        ended = browser.get(f"{urlsplit(back).path}?{urlsplit(back).query}")
        assert "url=/simulations" in ended.text


def test_who_is_in_no_group_of_the_platform_is_no_user(company: Company) -> None:
    company.provider.people({"b2": {"preferred_username": "bob", "groups": ["cooks"]}})
    _, status, answer = company.enter("b2")
    assert status == 403 and answer["type"].endswith("/sign-in-refused") and "invitation" in str(answer["detail"])
    users = company.browser().get("/v1/users", headers=OPERATING).json["items"]
    assert [user["name"] for user in users] == ["operator"]


def test_an_invitation_makes_a_person_the_invited_user(company: Company) -> None:
    company.provider.people({"b2": {"preferred_username": "bob", "groups": []}})
    operator = company.browser()
    invited = operator.post("/v1/users", json={"name": "robert"}, headers=OPERATING).json["invitation"]
    _, status, answer = company.enter("b2", user="robert", invitation=invited)
    assert (status, answer["user"]) == (201, "robert")
    _, status, answer = company.enter("b2")
    assert (status, answer["user"]) == (201, "robert"), "the invitation is needed once"
    company.provider.people({"c3": {"preferred_username": "carl"}})
    _, status, _ = company.enter("c3", user="robert", invitation=invited)
    assert status == 401, "an invitation is used once"


def test_a_person_is_never_a_user_of_the_same_name_or_address(company: Company) -> None:
    operator = company.browser()
    assert operator.post("/v1/users", json={"name": "ada-lovelace"}, headers=OPERATING).status_code == 201
    company.provider.people({"a1": ADA, "x9": {**ADA}, "x8": {"preferred_username": "operator", "groups": ["drivers"]}})
    assert company.enter("a1")[2]["user"] == "ada-lovelace-2"
    assert company.enter("x9")[2]["user"] == "ada-lovelace-3"
    assert company.enter("x8")[2]["user"] == "operator-2"
    assert company.enter("a1")[2]["user"] == "ada-lovelace-2"


def test_groups_give_and_take_at_the_next_sign_in_but_not_what_a_maintainer_gave(company: Company) -> None:
    operator = company.browser()
    company.provider.people({"a1": {**ADA, "groups": ["drivers", "leads", "admins"]}})
    browser, *_ = company.enter("a1")
    assert browser.get("/v1/session").json["operator"]
    assert company.roles(browser) == {"red": "maintainer", "blue": "viewer"}
    path = "/v1/projects/default/members/ada-lovelace"
    assert operator.put(path, json={"role": "viewer"}, headers=OPERATING).status_code == 204
    company.provider.people({"a1": {**ADA, "groups": ["drivers"]}})
    browser, *_ = company.enter("a1")
    assert not browser.get("/v1/session").json["operator"]
    assert company.roles(browser) == {"red": "submitter", "default": "viewer"}


def test_groups_are_read_again_within_the_hour_without_the_person(company: Company) -> None:
    company.provider.people({"a1": {**ADA, "groups": ["leads"]}})
    browser, *_ = company.enter("a1")
    personal = browser.post("/v1/users/ada-lovelace/tokens", json={"name": "laptop"})
    assert personal.status_code == 201, personal.json
    service = browser.post("/v1/projects/red/services", json={"name": "nightly", "role": "submitter"})
    assert service.status_code == 201
    running = browser.post(
        "/v1/projects/red/tokens", json={"name": "ci", "role": "submitter", "service": "nightly"}
    ).json["token"]
    company.provider.people({"a1": {**ADA, "groups": ["drivers"]}})
    assert company.platform.sign_in.provider_sign_ins.read_due() == 0, "it was read just now"
    assert read_an_hour_later(company) == 1
    assert company.roles(browser) == {"red": "submitter"}
    company.provider.people({})
    assert read_an_hour_later(company) == 1
    forget_outcomes(company)
    laptop = {"Authorization": f"Bearer {personal.json['token']}"}
    assert browser.get("/v1/session").status_code == 401
    assert company.browser().get("/v1/session", headers=laptop).status_code == 401
    assert company.browser().get("/v1/session", headers={"Authorization": f"Bearer {running}"}).status_code == 200
    company.provider.people({"a1": ADA})
    browser, status, _ = company.enter("a1")
    forget_outcomes(company)
    assert status == 201 and company.browser().get("/v1/session", headers=laptop).status_code == 200


def test_a_provider_that_is_away_takes_nothing(company: Company) -> None:
    company.provider.people({"a1": ADA})
    browser, *_ = company.enter("a1")
    company.provider.stop()
    read_an_hour_later(company)
    forget_outcomes(company)
    assert company.roles(browser) == {"red": "submitter"}
    begun = company.browser().post("/v1/sign-in/providers/company", json={})
    assert begun.status_code in (201, 503)  # its discovery may be known still
    company.provider.start()


def test_who_was_removed_does_not_come_back_by_signing_in(company: Company) -> None:
    company.provider.people({"a1": ADA})
    browser, *_ = company.enter("a1")
    assert company.browser().delete("/v1/users/ada-lovelace", headers=OPERATING).status_code == 204
    forget_outcomes(company)
    assert browser.get("/v1/session").status_code == 401
    _, status, answer = company.enter("a1")
    assert status == 403 and "removed" in str(answer["detail"])


def test_an_answer_counts_in_the_browser_that_asked_and_once(company: Company) -> None:
    company.provider.people({"a1": ADA, "e5": {"preferred_username": "eve", "groups": ["drivers"]}})
    browser, other = company.browser(), company.browser()
    back = sign_in_at(company.begin(browser), "a1")
    status, _ = company.answer(other, back)
    assert status == 403, "another browser has no part in it"
    mine, theirs = company.begin(browser), company.begin(other)
    status, _ = company.answer(browser, sign_in_at(theirs, "e5"))
    assert status == 403, "an answer that Eve got is not the answer to mine"
    status, _ = company.answer(browser, sign_in_at(mine, "a1"))
    assert status == 403, "the question was used up by the wrong answer"
    back = sign_in_at(company.begin(browser), "a1")
    assert company.answer(browser, back)[0] == 201
    assert company.answer(browser, back)[0] == 403, "a code is replayed"


def test_a_signed_in_user_gets_another_way_and_parts_from_it(company: Company) -> None:
    company.provider.people({"b2": {"preferred_username": "bob", "groups": ["leads"]}})
    operator = company.browser()
    invited = operator.post("/v1/users", json={"name": "robert"}, headers=OPERATING).json["invitation"]
    browser = company.browser()
    body = {"user": "robert", "invitation": invited}
    assert browser.post("/v1/sign-in/invitation", json=body).status_code == 201
    assert company.answer(browser, sign_in_at(company.begin(browser), "b2")) == (201, {"user": "robert", "next": "/"})
    assert company.roles(browser) == {"red": "maintainer", "blue": "viewer"}
    assert browser.delete("/v1/users/robert/providers/company").status_code == 204
    assert company.roles(browser) == {}


def test_a_session_that_comes_back_from_a_provider_of_the_same_site_is_in_nobodys_way(company: Company) -> None:
    company.provider.people({"a1": ADA})
    browser, *_ = company.enter("a1")
    back = sign_in_at(company.begin(browser, {"next": "/models"}), "a1")
    del browser.environ_base["HTTP_ORIGIN"]  # a link has none, and the browser sends its cookies to a page of its site
    ended = browser.get(f"{urlsplit(back).path}?{urlsplit(back).query}")
    assert ended.status_code == 200 and "url=/models" in ended.text, ended.text


def test_who_is_parted_from_a_provider_that_does_not_stand_for_him_comes_back_by_his_own_ways(company: Company) -> None:
    company.provider.people({"a1": ADA})
    browser, *_ = company.enter("a1")
    company.provider.people({})
    read_an_hour_later(company)
    forget_outcomes(company)
    assert browser.get("/v1/session").status_code == 401
    path = "/v1/users/ada-lovelace/providers/company"
    assert company.browser().delete(path, headers=OPERATING).status_code == 204
    forget_outcomes(company)
    assert browser.get("/v1/session").json["projects"] == []


def test_what_is_kept_of_a_person_is_sealed(company: Company) -> None:
    company.provider.people({"a1": ADA})
    company.enter("a1")
    with company.platform.database.read() as c:
        [sealed] = c.exec_driver_sql("SELECT refresh FROM provided_users").scalars()
    assert sealed.count(".") == 4 and json.dumps(sealed).isascii()  # JWE, compact (RFC 7516)


def read_an_hour_later(company: Company) -> int:
    company.platform.database.write(
        lambda c: c.exec_driver_sql("UPDATE provided_users SET read_at = read_at - 3601") and None
    )
    return company.platform.sign_in.provider_sign_ins.read_due()


def forget_outcomes(company: Company) -> None:
    company.platform.access.authentication._kept.clear()
