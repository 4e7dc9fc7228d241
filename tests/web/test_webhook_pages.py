"""Pages of webhooks: a maintainer makes, tests and deletes one; a viewer reads; forms that are refused say why."""

from flask import Flask
from flask.testing import FlaskClient
from playwright.sync_api import Page, expect

from core.services.platform import Platform
from tests.browser import Errors, accessibility_violations
from tests.web.accounts import Team
from tests.web.accounts import team as team
from web import application as web

PATH = "/operations/webhooks"
WANTED = {"url": "https://ci.example.com/hooks/of-red", "types": ["simulation.ended"]}


def test_a_maintainer_makes_tests_and_deletes_a_webhook(page: Page, team: Team, page_errors: Errors) -> None:
    page_errors.expect("422")
    team.sign_in(page, "ada", f"{PATH}?project=red")
    page.get_by_label("Address").fill("http://10.0.0.1/")
    page.get_by_label("a simulation has failed").check()
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("alert")).to_contain_text("not an address of the public Internet")
    expect(page.get_by_label("a simulation has failed")).to_be_checked()
    page.get_by_label("Address").fill("https://ci.example.com/hooks/1")
    page.get_by_label("Only with the label").fill("suite=nightly")
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("status", name="Secret of")).to_contain_text("whsec_")
    assert accessibility_violations(page) == []
    page.goto(f"{team.origin}{PATH}?project=red")
    expect(page.locator("body")).not_to_contain_text("whsec_")
    page.get_by_role("button", name="Send a test to").click()
    expect(page.get_by_role("rowheader")).to_contain_text("webhook.ping")
    page.goto(f"{team.origin}{PATH}?project=red")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("paused")
    page.get_by_text("Delete …").click()
    page.get_by_role("button", name="Delete it").click()
    expect(page.locator("body")).to_contain_text("There is none.")


def test_a_viewer_reads_webhooks_and_others_see_none(team: Team) -> None:
    made = team.ask("ada", "POST", "/v1/webhooks", "red", json=WANTED)
    assert made.status_code == 201
    id, browser = made.json["id"], team.app.test_client()

    def get(who: str, path: str) -> tuple[int, str]:
        answer = browser.get(path, headers={"Authorization": f"Bearer {team.tokens[who]}"})
        return answer.status_code, answer.text

    status, text = get("vera", PATH)
    assert status == 200 and WANTED["url"] in text and "Make a webhook" not in text and "Delete" not in text
    assert get("vera", f"{PATH}/{id}")[0] == 200
    assert WANTED["url"] not in get("bob", PATH)[1] and get("bob", f"{PATH}/{id}")[0] == 404


def test_without_accounts_the_pages_are_there_and_forms_do_what_they_say(
    application: Flask, platform: Platform
) -> None:
    pages: FlaskClient = web.create(application.wsgi_app).test_client()
    origin = {"Origin": "http://localhost"}
    refused = pages.post(PATH, data={"url": WANTED["url"], "types": "simulation.ended", "label": "x"}, headers=origin)
    assert refused.status_code == 422 and "NAME=VALUE" in refused.text
    made = pages.post(PATH, data={"url": WANTED["url"], "types": "simulation.ended"}, headers=origin)
    assert made.status_code == 201 and "whsec_" in made.text
    [webhook] = application.test_client().get("/v1/webhooks").json["items"]
    rotated = pages.post(f"{PATH}/rotate", data={"webhook": webhook["id"]}, headers=origin)
    assert rotated.status_code == 201 and "whsec_" in rotated.text
    assert pages.post(f"{PATH}/ping", data={"webhook": webhook["id"]}, headers=origin).status_code == 303
    [delivery] = application.test_client().get(f"/v1/webhooks/{webhook['id']}/deliveries").json["items"]
    again = {"webhook": webhook["id"], "delivery": delivery["id"]}
    assert pages.post(f"{PATH}/retry", data=again, headers=origin).status_code == 303
    paused = {"webhook": webhook["id"], "state": "paused"}
    assert pages.post(f"{PATH}/state", data=paused, headers=origin).status_code == 303
    refused = pages.post(f"{PATH}/ping", data={"webhook": webhook["id"]}, headers=origin)
    assert refused.status_code == 409 and "paused" in refused.text
