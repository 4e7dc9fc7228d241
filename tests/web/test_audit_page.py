"""Page of the audit log: a maintainer looks for what was done, an operator sees all, others have no such page."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser import Errors, accessibility_violations, scrolls_sideways
from tests.web.accounts import Team

ADDRESS = "/operations/audit"
#: A header of a model's name cannot hold this, but the search field takes any text.
HOSTILE = """"><script>document.title = "x"</script> {{ 7 * 7 }}"""


def rows(page: Page) -> list[str]:
    return page.locator("tbody tr").all_inner_texts()


def test_a_maintainer_looks_for_what_was_done(team: Team, page: Page) -> None:
    id = team.simulation("red")
    assert team.ask("vera", "DELETE", f"/v1/simulations/{id}").status_code == 403
    team.sign_in(page, "ada", "/operations/project?project=red")
    page.get_by_role("link", name="Audit log").click()
    expect(page).to_have_url(re.compile(f"{ADDRESS}.*project=red"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Audit log of red")
    expect(page.get_by_role("row").filter(has_text="create_simulation")).to_contain_text(f"simulations/{id}")
    page.get_by_label("Outcome").select_option("refused")
    page.get_by_role("button", name="Search").click()
    [refused] = rows(page)
    assert "vera" in refused and "not-permitted" in refused and "delete_simulation" in refused
    page.get_by_label("Outcome").select_option("")
    page.get_by_label("Search", exact=True).fill(f"create_simulation {id}")
    page.get_by_role("button", name="Search").click()
    assert len(rows(page)) == 1
    page.get_by_label("User").fill("nobody")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("There is none.")).to_be_visible()


def test_an_operator_sees_all_projects_and_the_platform(team: Team, page: Page) -> None:
    team.simulation("blue")
    team.sign_in(page, "operator", f"{ADDRESS}?project=red")
    assert not any("create_project" in row or "blue" in row for row in rows(page))
    page.locator("select[name=of]").select_option("all")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Audit log of all projects")
    found = rows(page)
    assert any("create_user" in row and "the platform" in row for row in found)
    assert any("create_simulation" in row and "blue" in row for row in found)


@pytest.mark.parametrize("address", [ADDRESS, f"{ADDRESS}?outcome=done", f"{ADDRESS}?of=none"])
def test_an_operator_who_names_no_project_sees_the_log_of_the_one_that_the_page_names(team: Team, address: str) -> None:
    other, own = team.simulation("blue"), team.simulation("default")
    page = team.ask("operator", "GET", address)
    assert page.status_code == 200 and "of default" in page.text
    assert own in page.text and other not in page.text and "create_project" not in page.text


def test_pages_lead_to_older_entries(team: Team, page: Page) -> None:
    for number in range(110):
        assert team.ask("ada", "POST", "/v1/projects/red/tokens", json={"name": f"t{number}", "role": "viewer"})
    team.sign_in(page, "ada", f"{ADDRESS}?project=red&search=create_project_token")
    newest = rows(page)
    page.get_by_role("link", name="Older").click()
    expect(page.get_by_role("link", name="Older")).to_have_count(0)
    assert len(newest) == 100 and len(rows(page)) == 10


def test_others_have_no_such_page(team: Team, page: Page, page_errors: Errors) -> None:
    page_errors.expect("403")
    team.sign_in(page, "vera", "/operations/project?project=red")
    expect(page.get_by_role("link", name="Audit log")).to_have_count(0)
    answer = page.goto(f"{team.origin}{ADDRESS}?project=red")
    assert answer is not None and answer.status == 403


def test_any_text_is_looked_for_and_the_page_is_accessible(team: Team, page: Page) -> None:
    team.sign_in(page, "ada", f"{ADDRESS}?project=red")
    assert rows(page) and accessibility_violations(page) == [] and not scrolls_sideways(page)
    page.get_by_label("Search", exact=True).fill(HOSTILE)
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("There is none.")).to_be_visible()
    expect(page.get_by_label("Search", exact=True)).to_have_value(HOSTILE)
    expect(page).to_have_title(re.compile("^Audit log"))
