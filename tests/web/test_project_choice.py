"""Choice of a project on a platform with accounts: the header, the cookie, addresses with a project, and two tabs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx
from flask.testing import FlaskClient
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, expect

from core.services.platform import Platform
from core.settings import Settings
from server import composition as root
from tests.browser import Errors, accessibility_violations, scrolls_sideways
from tests.web.accounts import Team
from tests.web.pages import TOKEN
from web.acting_project import COOKIE

MODEL = b"class Model:\n    def act(self, observation):\n        return [0.0]\n"


def header(page: Page) -> str:
    """Return who and where the header says that the visitor is."""
    return " ".join(page.locator(".who").inner_text().split())


def switch(page: Page, project: str) -> None:
    page.get_by_label("Project", exact=True).select_option(project)
    page.get_by_role("button", name="Switch").click()
    page.wait_for_url(f"**project={project}*")


def test_who_is_in_several_projects_is_asked_once_and_the_choice_survives_navigation(
    team: Team, page: Page, context: BrowserContext
) -> None:
    red, blue = team.simulation("red"), team.simulation("blue")
    team.sign_in(page, "ada")
    expect(page.get_by_role("heading", name="Choose a project")).to_be_visible()
    page.get_by_role("button", name="Open red").click()
    expect(page.locator(f"a[href*='{red}']").first).to_be_visible()
    assert page.locator(f"a[href*='{blue}']").count() == 0
    page.get_by_role("link", name="Models", exact=True).click()
    page.goto(f"{team.origin}/simulations/{red}")  # typed, without a project
    expect(page.locator(".who")).to_contain_text("maintainer")
    switch(page, "blue")
    assert page.url == f"{team.origin}/simulations?project=blue" and "submitter" in header(page)
    page.goto(f"{team.origin}/simulations")
    expect(page.locator(f"a[href*='{blue}']").first).to_be_visible()
    [cookie] = [cookie for cookie in context.cookies() if cookie["name"] == COOKIE]
    assert (cookie["value"], cookie["sameSite"], cookie["httpOnly"]) == ("blue", "Lax", True)
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Password").wait_for()
    assert context.cookies() == []


def test_the_choice_works_without_scripts(team: Team, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    team.sign_in(page, "ada", "/models")
    page.get_by_role("button", name="Open red").click()
    assert page.url == f"{team.origin}/models?project=red"
    switch(page, "blue")
    assert page.url == f"{team.origin}/models?project=blue"
    context.close()


def test_two_tabs_with_two_projects_do_not_disturb_each_other(team: Team, page: Page, context: BrowserContext) -> None:
    for project in ("red", "blue"):
        stored = team.ask("operator", "PUT", f"/v1/models/{project}-one?format=python", project, data=MODEL)
        assert stored.status_code == 201
    blue = team.simulation("blue")
    team.sign_in(page, "ada", "/models?project=red")
    other = context.new_page()
    other.goto(f"{team.origin}/models?project=blue")
    for tab, own, foreign in ((page, "red-one", "blue-one"), (other, "blue-one", "red-one")) * 2:
        tab.get_by_role("link", name="Data", exact=True).click()
        tab.get_by_role("link", name="Models", exact=True).click()
        expect(tab.get_by_role("link", name=own)).to_be_visible()
        assert tab.get_by_role("link", name=foreign).count() == 0
    other.get_by_role("link", name="Simulations", exact=True).click()
    other.get_by_label("Search").fill("noop")
    other.wait_for_url(re.compile("project=blue.*q=noop|q=noop.*project=blue"))
    expect(other.locator(f"a[href*='{blue}']").first).to_be_visible()
    assert not [cookie for cookie in context.cookies() if cookie["name"] == COOKIE]


def test_each_request_of_a_page_names_its_project(team: Team, page: Page) -> None:
    simulation = team.simulation("red")
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))
    team.sign_in(page, "ada", f"/simulations/{simulation}?project=red")
    page.locator("details", has=page.locator("log-view")).first.evaluate("details => { details.open = true; }")
    page.wait_for_timeout(3000)
    page.goto(f"{team.origin}/simulations?project=red")
    page.wait_for_timeout(1000)
    outside = ("/static/", "/sign-in", "/favicon")
    paths = [request.url.removeprefix(team.origin) for request in asked]
    nameless = [
        path
        for path, request in zip(paths, asked, strict=True)
        if not path.startswith(outside)
        and "project=red" not in path
        and request.headers.get("windtunnel-project") != "red"
    ]
    assert nameless == []
    for part in ("/events?", "/logs?", "/live?", "/simulations/changes?"):
        assert any(part in path for path in paths), part


def test_a_file_is_uploaded_to_the_project_of_the_tab(team: Team, page: Page) -> None:
    team.sign_in(page, "ada", "/simulations?project=blue")
    held: list[Route] = []
    page.route("**/static/upload.js*", lambda route: held.append(route))  # the file is chosen before the script comes
    page.goto(f"{team.origin}/submit?project=blue", wait_until="commit")
    page.locator("model-upload input[type=file]").set_input_files(
        {"name": "brake.py", "mimeType": "text/x-python", "buffer": MODEL}
    )
    for route in held:
        route.continue_()
    expect(page.locator("model-upload")).to_contain_text("brake, version")
    assert team.ask("ada", "GET", "/v1/models/brake", "blue").status_code == 200
    assert team.ask("ada", "GET", "/v1/models/brake", "red").status_code == 404


def test_a_link_opens_in_its_project_whatever_was_chosen_and_that_of_another_project_is_missing(
    team: Team, page: Page, page_errors: Errors
) -> None:
    page_errors.expect("404")
    red = team.simulation("red")
    team.sign_in(page, "ada", "/simulations")
    page.get_by_role("button", name="Open blue").click()
    answer = page.goto(f"{team.origin}/simulations/{red}?project=red")
    assert answer is not None and answer.status == 200
    for address in (f"/simulations/{red}", f"/simulations/{red}?project=blue", f"/simulations/{red}?project=green"):
        answer = page.goto(team.origin + address)
        assert answer is not None and answer.status == 404, address
        assert page.locator(".who").get_by_text(re.compile("^(Switch|Choose a project)$")).is_visible()


def test_a_choice_that_has_been_left_leads_to_the_list_of_projects_with_a_message(
    team: Team, page: Page, page_errors: Errors
) -> None:
    page_errors.expect("404")  # of the list, which is still open while the membership ends
    team.sign_in(page, "ada")
    page.get_by_role("button", name="Open blue").click()
    page.wait_for_url("**project=blue*")
    assert team.ask("operator", "DELETE", "/v1/projects/blue/members/ada", "blue").status_code == 204
    expect(page.locator("main")).not_to_contain_text("There is no project")
    page.wait_for_timeout(1500)  # seconds for which an identity is remembered
    page.goto(f"{team.origin}/models")
    expect(page.get_by_role("alert")).to_contain_text("There is no project 'blue' that you may see")
    page.get_by_role("button", name="Open red").click()
    assert page.url == f"{team.origin}/models?project=red"


def test_who_is_in_one_project_has_no_choice_and_who_is_in_none_is_told(team: Team, page: Page) -> None:
    team.sign_in(page, "vera")
    assert header(page) == "red vera viewer" and page.get_by_role("button", name="Switch").count() == 0
    page.get_by_role("button", name="Sign out").click()
    team.sign_in(page, "nina")
    expect(page.locator("main")).to_contain_text("You are in no project yet")
    assert accessibility_violations(page) == []


def test_pages_of_the_choice_fit_a_narrow_window(team: Team, page: Page) -> None:
    team.simulation("red")
    page.set_viewport_size({"width": 360, "height": 800})
    team.sign_in(page, "ada")
    for _ in range(2):
        assert accessibility_violations(page) == [] and not scrolls_sideways(page)
        if (button := page.get_by_role("button", name="Open red")).is_visible():
            button.click()
            page.wait_for_url("**project=red*")


@contextmanager
def signed_in(team: Team, who: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=team.origin, timeout=60.0, trust_env=False) as client:
        begun = client.post("/sign-in", data={"token": team.tokens[who]}, headers={"Origin": team.origin})
        assert begun.status_code == 303
        yield client


#: Forms of the pages, and fields with which a page of this server would change something.
FORMS = {
    "/projects": {"to": "red"},
    "/operations/project/members": {"user": "nina", "role": "maintainer"},
    "/operations/project/tokens": {"name": "theirs", "role": "viewer"},
    "/operations/tokens": {"name": "theirs"},
}
FOREIGN: tuple[dict[str, str], ...] = (
    {},
    {"Origin": "https://elsewhere.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)


def test_a_form_of_another_site_is_refused(team: Team) -> None:
    with signed_in(team, "ada") as client:
        for path, fields in FORMS.items():
            for headers in FOREIGN:
                refused = client.post(f"{path}?project=red", data=fields, headers=headers)
                refused_by = (refused.status_code, refused.headers.get("Location", "")[:8])
                assert refused_by in {(403, ""), (303, "/sign-in")}, (path, headers, refused.text)
                assert "Set-Cookie" not in refused.headers
        assert "theirs" not in client.get("/operations/tokens").text
    members = team.ask("ada", "GET", "/v1/projects/red/members", "red").json["items"]
    assert [member["user"] for member in members] == ["ada", "vera"]


def test_a_project_that_is_not_ones_own_cannot_be_chosen(team: Team) -> None:
    with signed_in(team, "vera") as client:
        for to in ("green", "blue", "Bad Name", "", "../x", "r\u00e9d"):
            refused = client.post("/projects", data={"to": to}, headers={"Origin": team.origin})
            assert refused.status_code == 404 and "Set-Cookie" not in refused.headers, to
        for hostile in ("//elsewhere.example", "https://elsewhere.example", "/\\elsewhere.example", "/v1/session"):
            chosen = client.post("/projects", data={"to": "red", "next": hostile}, headers={"Origin": team.origin})
            assert chosen.headers["Location"] == "/simulations?project=red"


def at_any_time(client: FlaskClient, path: str) -> str:
    """Return a page without the times in it."""
    return re.sub(r"\?after=\d+|\d+ s ago|just now", "", client.get(path).text)


def test_without_accounts_a_page_is_the_same_whatever_the_browser_sends(
    client: FlaskClient, platform: Platform, settings: Settings
) -> None:
    client.post("/v1/simulations", json={"dataset": "noop", "runtime": "python"})
    for path in ("/models", "/data", "/pipelines", "/simulations"):
        plain = at_any_time(client, path)
        assert "project" not in re.sub(r"<main.*</main>", "", plain, flags=re.DOTALL)
        assert 'class="who"' not in plain and "?project=" not in plain
        client.set_cookie(COOKIE, "red")
        assert at_any_time(client, path) == at_any_time(client, f"{path}?project=red") == plain
        client.delete_cookie(COOKIE)
    guarded = root.create_flask(platform, replace(settings, token=TOKEN), {"level": 3, "missing": []}).test_client()
    answer = guarded.get("/models?project=red")
    assert answer.headers["Location"] == "/sign-in?next=%2Fmodels%3Fproject%3Dred"
