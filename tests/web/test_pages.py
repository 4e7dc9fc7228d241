"""Pages in a real browser, on an API without runners: the list, filters, paging, sessions, errors and accessibility."""

import re

import httpx
import pytest
from flask import Flask
from flask.testing import FlaskClient
from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.browser import Errors, accessibility_violations, scrolls_sideways
from tests.web.pages import TOKEN


def submitted(application: Flask, count: int = 1, **fields: object) -> list[str]:
    """Submit simulations, the first of which is the oldest; return their ids."""
    client = application.test_client()
    body = {"dataset": "noop", "runtime": "python", **fields}
    return [client.post("/v1/simulations", json=body).json["id"] for _ in range(count)]


def names(page: Page) -> list[str]:
    """Return the addresses of the listed simulations."""
    return page.locator("#rows tbody a.name").evaluate_all("links => links.map(a => a.pathname.split('/').pop())")


def test_the_root_leads_to_the_list(page: Page, origin: str) -> None:
    page.goto(origin)
    assert page.url == f"{origin}/simulations"
    expect(page.get_by_role("heading", level=1)).to_have_text("Simulations")
    expect(page.get_by_text("No simulation yet")).to_be_visible()


def test_the_list_shows_new_simulations_without_a_reload(page: Page, origin: str, application: Flask) -> None:
    page.goto(origin)
    [id] = submitted(application, labels={"team": "perception"})
    expect(page.locator(f"#row-{id}")).to_contain_text("queued")
    expect(page.locator(f"#row-{id}")).to_contain_text("team=perception")
    application.test_client().post(f"/v1/simulations/{id}/cancel")
    expect(page.locator(f"#row-{id}")).to_contain_text("cancelled")


def test_filters_apply_as_they_are_chosen_and_stay_in_the_address(page: Page, origin: str, application: Flask) -> None:
    [first] = submitted(application, labels={"team": "planning"})
    [second] = submitted(application, labels={"team": "perception"})
    page.goto(origin)
    assert names(page) == [second, first]
    page.get_by_label("Search").fill("team=planning")
    expect(page.locator(f"#row-{second}")).to_have_count(0)
    assert names(page) == [first]
    page.wait_for_url("**/simulations?*team%3Dplanning*")
    page.reload()
    assert names(page) == [first]
    page.get_by_label("Runtime").select_option("onnx")
    expect(page.get_by_text("No simulation matches.")).to_be_visible()
    page.get_by_label("Runtime").select_option("python")
    expect(page.locator(f"#row-{first}")).to_be_visible()


def test_a_filtered_list_stays_filtered_when_it_refreshes(page: Page, origin: str, application: Flask) -> None:
    [kept] = submitted(application, labels={"team": "planning"})
    page.goto(origin)
    page.get_by_label("Search").fill("team=planning")
    page.wait_for_url("**team%3Dplanning*")
    submitted(application, labels={"team": "perception"})
    with page.expect_response(lambda response: "planning" in response.url):
        page.evaluate("document.body.dispatchEvent(new CustomEvent('refresh'))")
    [newer] = submitted(application, labels={"team": "planning"})
    expect(page.locator(f"#row-{newer}")).to_be_visible()
    assert names(page) == [newer, kept]


def test_a_late_answer_for_former_filters_leaves_the_list_filtered(page: Page, origin: str, application: Flask) -> None:
    [kept] = submitted(application, labels={"team": "planning"})
    [other] = submitted(application)
    page.goto(origin)
    held: list[Route] = []
    with page.expect_request(f"{origin}/simulations"):  # of this event, or of the page's own refresh just before
        page.route(f"{origin}/simulations", lambda route: held.append(route), times=1)
        page.evaluate("document.body.dispatchEvent(new CustomEvent('refresh'))")
    page.get_by_label("Search").fill("team=planning")
    expect(page.locator(f"#row-{other}")).to_have_count(0)
    with page.expect_response(f"{origin}/simulations"):
        held[0].continue_()
    [newer] = submitted(application, labels={"team": "planning"})
    expect(page.locator(f"#row-{newer}")).to_be_visible()
    assert names(page) == [newer, kept]


def test_of_two_filters_chosen_at_once_the_later_holds(page: Page, origin: str, application: Flask) -> None:
    [cancelled], [kept] = submitted(application), submitted(application, labels={"team": "planning"})
    application.test_client().post(f"/v1/simulations/{cancelled}/cancel")
    page.goto(origin)
    page.route(re.compile("state=cancelled"), lambda route: None)
    with page.expect_request(re.compile("state=cancelled")):
        page.get_by_role("navigation", name="States").get_by_role("link", name="cancelled").click()
    with page.expect_event("requestfailed", lambda request: "state=cancelled" in request.url):
        page.get_by_label("Search").fill("team=planning")
    expect(page.locator(f"#row-{cancelled}")).to_have_count(0)
    assert names(page) == [kept]
    expect(page).to_have_url(re.compile("q=team"))


def test_a_state_is_chosen_beside_a_search(page: Page, origin: str, application: Flask) -> None:
    queued, cancelled, other = submitted(application, 2, labels={"team": "planning"}) + submitted(application)
    for id in (cancelled, other):
        application.test_client().post(f"/v1/simulations/{id}/cancel")
    page.goto(origin)
    chips = page.get_by_role("navigation", name="States")
    expect(chips).to_contain_text("queued 1")
    expect(chips).to_contain_text("cancelled 2")
    chips.get_by_role("link", name="cancelled").click()
    expect(page.locator(f"#row-{queued}")).to_have_count(0)
    assert names(page) == [other, cancelled]
    page.get_by_label("Search").fill("planning")
    expect(page.locator(f"#row-{other}")).to_have_count(0)
    assert names(page) == [cancelled]
    page.get_by_role("link", name="Clear filters").click()
    expect(page.locator("#rows tbody tr")).to_have_count(3)


def test_a_label_leads_to_the_simulations_that_have_it(page: Page, origin: str, application: Flask) -> None:
    [labelled] = submitted(application, labels={"team": "planning"})
    submitted(application)
    page.goto(origin)
    page.get_by_role("link", name="team=planning").click()
    expect(page.locator("#rows tbody tr")).to_have_count(1)
    assert names(page) == [labelled]


def test_older_simulations_are_on_further_pages(page: Page, origin: str, application: Flask) -> None:
    ids = submitted(application, 32)
    page.goto(origin)
    assert names(page) == ids[:1:-1]
    page.get_by_role("link", name="Older").click()
    expect(page.get_by_role("link", name="Newest")).to_be_visible()
    assert names(page) == ids[1::-1]


def test_a_page_asks_for_the_token_once_and_no_script_can_read_it(
    page: Page, context: BrowserContext, guarded_origin: str, page_errors: Errors
) -> None:
    page_errors.expect("401")
    page.goto(f"{guarded_origin}/simulations?state=queued")
    page.get_by_label("Token").fill("wrong-horse-battery")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not the token")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{guarded_origin}/simulations?state=queued")
    assert page.evaluate("document.cookie") == ""
    [cookie] = context.cookies()
    stored = page.evaluate("JSON.stringify([localStorage, sessionStorage])")
    assert TOKEN not in stored and cookie["value"] not in stored
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and TOKEN not in cookie["value"]
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert context.cookies() == []


def test_a_link_from_another_site_opens_a_page_of_a_session(page: Page, guarded_origin: str) -> None:
    page.goto(guarded_origin)
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/simulations")
    elsewhere = guarded_origin.replace("127.0.0.1", "localhost")  # another site to a browser
    page.goto(f"{elsewhere}/sign-in")
    page.evaluate("address => { location.href = address; }", f"{guarded_origin}/simulations?state=running")
    expect(page.get_by_role("heading", level=1)).to_have_text("Simulations")
    assert page.url == f"{guarded_origin}/simulations?state=running"


def test_a_missing_page_says_so(page: Page, origin: str, page_errors: Errors) -> None:
    page_errors.expect("404")
    page.goto(f"{origin}/simulations/nothing/here")
    expect(page.get_by_role("heading", level=1)).to_have_text("Not Found")


def test_a_part_of_a_page_that_is_refused_says_why(page: Page, origin: str, page_errors: Errors) -> None:
    page_errors.expect("422")
    page.goto(origin)
    search = page.get_by_label("Search")
    expect(search).to_have_attribute("maxlength", "200")
    search.fill("team\tplanning")
    expect(page.get_by_role("status")).to_contain_text("q: ")
    search.fill("team")
    expect(page.get_by_role("status")).to_be_empty()


def test_each_reason_of_a_refusal_is_said_once(client: FlaskClient) -> None:
    one = client.get("/simulations?state=nope").text
    assert one.count("state.0: ") == 1
    several = client.get("/simulations?state=nope&state=none").text
    assert several.count("state.0: ") == several.count("state.1: ") == 1


def test_a_browser_gets_a_page_for_an_address_that_does_not_exist(guarded_origin: str) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Authorization": f"Bearer {TOKEN}"}
    client = {**browser, "Accept": "*/*"}
    for headers, path, kind in [
        (browser, "/nope", "text/html"), (browser, "/v1/nope", "application/problem+json"),
        (client, "/nope", "application/problem+json"), ({"Accept": "text/html"}, "/nope", "text/html"),
    ]:  # fmt: skip
        answer = httpx.get(guarded_origin + path, headers=headers)
        assert (answer.status_code, answer.headers["Content-Type"].partition(";")[0]) == (404, kind), (headers, path)
    assert httpx.get(f"{guarded_origin}/docs", headers=browser).status_code == 200


def test_a_page_names_pages_and_buttons_instead_of_addresses_of_the_api(client: FlaskClient) -> None:
    missing = client.get("/simulations/01m8bav082wpa6sjckpx866ys5")
    assert missing.status_code == 404 and "The page /simulations lists them" in missing.text
    assert "There is nothing at /simulations/nope." in client.get("/simulations/nope").text


def test_text_that_cannot_be_a_token_is_said_to_be_none(guarded_origin: str) -> None:
    for token, reason in (("", "Enter the token."), ("Schlüssel", "not a valid token")):
        answer = httpx.post(f"{guarded_origin}/sign-in", data={"token": token}, headers={"Origin": guarded_origin})
        assert answer.status_code == 422 and reason in answer.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_list_is_accessible(page: Page, origin: str, application: Flask, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    submitted(application, 3, labels={"team": "perception"})
    page.goto(origin)
    assert accessibility_violations(page) == []


@pytest.mark.parametrize("width", [360, 3840])
def test_the_list_fits_the_window(page: Page, origin: str, application: Flask, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    submitted(application, 3, labels={"team": "a-team-with-a-rather-long-name-that-has-no-spaces"})
    page.goto(origin)
    expect(page.locator("#rows tbody tr")).to_have_count(3)
    assert not scrolls_sideways(page)


@pytest.mark.parametrize("address", ["https://evil.example/", "//evil.example", "/\\evil.example", "/v1/session", ""])
def test_a_session_does_not_begin_with_a_page_of_another_server(guarded_origin: str, address: str) -> None:
    body = {"token": TOKEN, "next": address}
    answer = httpx.post(f"{guarded_origin}/sign-in", data=body, headers={"Origin": guarded_origin})
    assert answer.status_code == 303 and answer.headers["Location"] == "/simulations"


def test_chosen_simulations_are_cancelled_together(page: Page, origin: str, application: Flask) -> None:
    ids = submitted(application, 3)
    application.test_client().post(f"/v1/simulations/{ids[0]}/cancel")
    page.goto(origin)
    page.get_by_label("all on this page").check()
    page.evaluate("document.body.dispatchEvent(new CustomEvent('refresh'))")  # what is chosen stays chosen
    page.get_by_role("button", name="Cancel the chosen").click()
    dialog = page.get_by_role("dialog", name="Cancel 2 simulations?")
    expect(dialog).to_contain_text("1 of the chosen has ended already")
    expect(dialog.get_by_role("listitem")).to_have_count(2)
    assert accessibility_violations(page) == []
    dialog.get_by_role("button", name="Cancel them").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("status")).to_contain_text("2 of 3 are cancelled. Unchanged: 1 (it is cancelled already).")
    for id in ids:
        expect(page.locator(f"#row-{id}")).to_contain_text("cancelled")
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("status")).to_be_empty()


def test_simulations_go_on_whose_cancellation_is_not_confirmed(page: Page, origin: str, application: Flask) -> None:
    [id] = submitted(application)
    page.goto(origin)
    page.locator(f"#row-{id}").get_by_role("checkbox").check()
    for answer in ("Escape", "Let it go on"):
        page.get_by_role("button", name="Cancel the chosen").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(id)
        if answer == "Escape":
            page.keyboard.press(answer)
        else:
            dialog.get_by_role("link", name=answer).click()
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("button", name="Cancel the chosen")).to_be_focused()
    assert application.test_client().get(f"/v1/simulations/{id}").json["state"] == "queued"


def test_without_scripts_a_page_asks_before_simulations_are_cancelled(client: FlaskClient, application: Flask) -> None:
    ids = submitted(application, 2)
    form = {"ids": ids, "action": "cancel", "here": "/simulations?q=noop"}
    asked = client.post("/simulations/bulk", data=form).text
    assert "Cancel 2 simulations?" in asked and 'href="/simulations?q=noop"' in asked
    assert client.get("/v1/simulations/counts").json["states"]["queued"] == 2
    assert client.post("/simulations/bulk", data={**form, "confirmed": "true"}).location == "/simulations?q=noop"
    assert client.get("/v1/simulations/counts").json["states"]["cancelled"] == 2


def test_chosen_simulations_are_repeated_together(page: Page, origin: str, application: Flask) -> None:
    ids = submitted(application, 2)
    for id in ids:
        application.test_client().post(f"/v1/simulations/{id}/cancel")
    page.goto(origin)
    for id in ids:
        page.locator(f"#row-{id}").get_by_role("checkbox").check()
    page.get_by_role("button", name="Repeat the chosen").click()
    expect(page.get_by_role("status")).to_contain_text("2 of 2 are repeated")
    expect(page.locator("#rows tbody tr")).to_have_count(4)
