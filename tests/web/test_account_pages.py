"""Pages of accounts: of a project, of the platform, and of one's own tokens; who sees which forms, and what they do."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser import Errors, accessibility_violations, scrolls_sideways
from tests.waiting import until
from tests.web.accounts import Team

#: A name of a token, which may be any text.
HOSTILE = """<script>document.title = "x"</script> "><a href="/models">&amp;</a> {{ 7 * 7 }}"""

RULE = {"kind": "models", "unused_for": 7_776_000, "keep_last": 3}


def card(page: Page, heading: str) -> Locator:
    return page.get_by_role("region", name=re.compile(f"^{heading}")).and_(page.locator("section"))


def row(page: Page, text: str) -> Locator:
    return page.get_by_role("row").filter(has_text=text)


def confirm(row: Locator, label: str) -> None:
    """Press a button that asks, and the one that answers."""
    row.get_by_text(f"{label} …").click()
    row.get_by_role("button", name=re.compile(f"^{label} ")).click()


def tokens(team: Team) -> list[dict[str, object]]:
    items: list[dict[str, object]] = team.ask("operator", "GET", "/v1/projects/red/tokens", "red").json["items"]
    return items


def test_a_maintainer_adds_a_member_changes_the_role_and_removes_the_member(
    team: Team, page: Page, page_errors: Errors
) -> None:
    page_errors.expect("404")
    team.sign_in(page, "ada", "/operations/project?project=red")
    members = card(page, "Members")
    members.get_by_label("User").fill("nina")
    members.get_by_role("button", name="Add").click()
    expect(page.get_by_label("Role of nina", exact=True)).to_have_value("viewer")
    page.get_by_label("Role of nina", exact=True).select_option("submitter")
    page.get_by_role("button", name="Change the role of nina").click()
    expect(page.get_by_label("Role of nina", exact=True)).to_have_value("submitter")
    assert team.ask("nina", "GET", "/v1/session").json["projects"][0]["role"] == "submitter"
    confirm(row(page, "nina"), "Remove")
    expect(row(page, "nina")).to_have_count(0)
    members.get_by_label("User").fill("nobody")
    members.get_by_role("button", name="Add").click()
    expect(page.get_by_role("alert")).to_contain_text("There is no user 'nobody'")
    expect(members.get_by_label("User")).to_have_value("nobody")


def test_what_is_in_the_bin_comes_back_or_is_deleted_for_good(team: Team, page: Page) -> None:
    team.ask("ada", "PUT", "/v1/projects/red/retention", "red", json={"bin": True, "rules": [RULE]})
    for name in ("worn", "spent"):
        model = f"class Model:  # {name}\n    def act(self, observation):\n        return [0.0]\n".encode()
        team.ask("ada", "PUT", f"/v1/models/{name}", "red", data=model, content_type="text/x-python")
        team.ask("ada", "DELETE", f"/v1/models/{name}", "red")
    team.sign_in(page, "ada", "/operations/project?project=red")
    rules, bin = card(page, "Retention"), card(page, "Bin")
    expect(rules).to_contain_text("models, unused for")
    rules.get_by_role("button", name="Try them now").click()
    expect(rules).to_contain_text("0 models would go now")
    expect(bin).to_contain_text("2, with")
    bin.get_by_role("button", name="Restore worn@1").click()
    expect(row(page, "worn@1")).to_have_count(0)
    assert team.ask("ada", "GET", "/v1/models/worn", "red").status_code == 200
    confirm(row(page, "spent@1"), "Delete")
    expect(card(page, "Bin")).to_contain_text("It is empty.")
    team.ask("ada", "DELETE", "/v1/models/worn", "red")
    team.ask("ada", "PUT", "/v1/projects/red/retention", "red", json={})


def rules_of(team: Team) -> object:
    return team.ask("ada", "GET", "/v1/projects/red/retention", "red").json["rules"]


def test_a_maintainer_adds_a_rule_changes_it_and_removes_it(team: Team, page: Page) -> None:
    team.ask("ada", "PUT", "/v1/projects/red/retention", "red", json={"bin": True, "rules": [RULE]})
    team.sign_in(page, "ada", "/operations/project?project=red")
    new = page.get_by_role("form", name="Another rule")
    new.get_by_label("Older than, in days").fill("30")
    new.get_by_label("Keep the last").fill("100")
    new.get_by_label("Labels, one in a line").fill("branch=nightly\n\n team = a b=c ")
    new.get_by_label("failed").check()
    new.get_by_role("button", name="Add the rule").click()
    expect(card(page, "Retention")).to_contain_text("team=a b=c")
    labels = {"branch": "nightly", "team": "a b=c"}
    added = {"kind": "simulations", "older_than": 2_592_000, "keep_last": 100, "labels": labels, "states": ["failed"]}
    assert rules_of(team) == [RULE, added]

    page.get_by_label("Change rule 2").click()
    second = page.get_by_role("form", name="Rule 2")
    expect(second.get_by_label("Older than, in days")).to_have_value("30")
    expect(second.get_by_label("Labels, one in a line")).to_have_value("branch=nightly\nteam=a b=c")
    second.get_by_label("Older than, in days").fill("0.0625")
    second.get_by_label("Labels, one in a line").fill("")
    second.get_by_role("button", name="Change the rule").click()
    expect(card(page, "Retention")).to_contain_text("1 h 30 min")
    changed = {"kind": "simulations", "older_than": 5400, "keep_last": 100, "states": ["failed"]}
    assert rules_of(team) == [RULE, changed]

    rule = card(page, "Retention").get_by_role("listitem").filter(has_text="models, unused for")
    rule.get_by_text("Remove …").click()
    rule.get_by_role("button", name="Remove rule 1").click()
    expect(card(page, "Retention").get_by_role("listitem")).to_have_count(1)
    decided = team.ask("ada", "GET", "/v1/projects/red/retention", "red").json
    assert decided == {"bin": True, "rules": [changed]}, "the bin stays as it was decided"
    team.ask("ada", "PUT", "/v1/projects/red/retention", "red", json={})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"Name": "brake", "Kind": "models"}, "would take all models"),
        ({"Name": "brake", "Keep the last": "3"}, "neither unused_for nor name"),
        ({"Kind": "datasets", "Keep the last": "3", "Labels, one in a line": "a=b"}, "neither labels nor states"),
        ({"Older than, in days": "soon"}, "Older than: write a number of days"),
        ({"Unused for, in days": "-1", "Kind": "models"}, "Unused for: write a number of days"),
        ({"Older than, in days": "1", "Labels, one in a line": "nightly"}, "write each in a line of its own"),
        ({"Keep the last": "few"}, "keep_last"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_at_its_form_which_keeps_its_fields(
    team: Team, page: Page, page_errors: Errors, fields: dict[str, str], reason: str
) -> None:
    page_errors.expect("422")
    team.sign_in(page, "ada", "/operations/project?project=red")
    new = page.get_by_role("form", name="Another rule")
    for label, value in fields.items():
        field = new.get_by_label(label)
        field.select_option(value) if label == "Kind" else field.fill(value)
    new.get_by_role("button", name="Add the rule").click()
    expect(card(page, "Retention").get_by_role("alert")).to_contain_text(reason)
    for label, value in fields.items():
        expect(new.get_by_label(label)).to_have_value(value)
    assert rules_of(team) == []


def test_a_rule_that_was_changed_meanwhile_is_not_changed_again_by_an_old_page(
    team: Team, page: Page, page_errors: Errors
) -> None:
    page_errors.expect("409|422")
    team.ask("ada", "PUT", "/v1/projects/red/retention", "red", json={"rules": [RULE]})
    team.sign_in(page, "ada", "/operations/project?project=red")
    page.get_by_label("Change rule 1").click()
    form = page.get_by_role("form", name="Rule 1")
    form.get_by_label("Keep the last").fill("0")
    form.get_by_role("button", name="Change the rule").click()
    expect(card(page, "Retention").get_by_role("alert")).to_contain_text("keep_last")
    expect(form.get_by_label("Keep the last")).to_have_value("0")
    other = RULE | {"keep_last": 9}
    team.ask("ada", "PUT", "/v1/projects/red/retention", "red", json={"rules": [other]})
    form.get_by_label("Keep the last").fill("1")
    form.get_by_role("button", name="Change the rule").click()
    expect(card(page, "Retention").get_by_role("alert")).to_contain_text("changed or removed meanwhile")
    assert rules_of(team) == [other]
    team.ask("ada", "PUT", "/v1/projects/red/retention", "red", json={})


def test_only_a_maintainer_has_the_forms_of_rules_which_are_accessible(
    team: Team, page: Page, page_errors: Errors
) -> None:
    page_errors.expect("403")
    rules = [RULE, {"kind": "simulations", "older_than": 86_400, "labels": {"a": "b"}, "states": ["failed"]}]
    team.ask("ada", "PUT", "/v1/projects/red/retention", "red", json={"rules": rules})
    team.sign_in(page, "ada", "/operations/project?project=red")
    for width, scheme in ((1280, "light"), (360, "dark")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.evaluate("document.querySelectorAll('details:not(.confirm)').forEach(d => { d.open = true; })")
        assert accessibility_violations(page) == [] and not scrolls_sideways(page)
    page.get_by_role("button", name="Sign out").click()
    team.sign_in(page, "vera", "/operations/project")
    expect(card(page, "Retention")).to_contain_text("models, unused for")
    expect(page.get_by_role("form", name="rule")).to_have_count(0)
    team.ask("ada", "PUT", "/v1/projects/red/retention", "red", json={})


def test_a_token_of_a_service_account_is_shown_once_works_and_is_revoked(team: Team, page: Page) -> None:
    team.sign_in(page, "ada", "/operations/project?project=red")
    services = card(page, "Service accounts")
    services.get_by_label("Name").fill("nightly")
    services.locator("form select[name=role]").last.select_option("submitter")
    services.get_by_role("button", name="Create").click()
    expect(services.get_by_label("Role of red/nightly", exact=True)).to_have_value("submitter")
    form = card(page, "Tokens")
    form.get_by_label("Name").fill("gate")
    form.get_by_label("Role").select_option("submitter")
    form.get_by_label("Expires in days").fill("7")
    form.locator("select[name=service]").select_option("red/nightly")
    form.get_by_text("Limit it to some verbs, models or datasets").click()
    form.get_by_label("read", exact=True).check()
    form.get_by_label("Models", exact=True).fill(" brake*  idm ")
    form.get_by_role("button", name="Make the token").click()
    text = page.locator("copy-text code").inner_text()
    [made] = tokens(team)
    assert (made["user"], made["created_by"], made["verbs"]) == ("red/nightly", "ada", ["read"])
    assert (made["models"], made["datasets"]) == (["brake*", "idm"], None)
    team.tokens["gate"] = text
    assert team.ask("gate", "GET", "/v1/simulations").status_code == 200
    page.goto(f"{team.origin}/operations/project?project=red")
    assert text not in page.content()
    expect(row(page, "gate")).to_contain_text("by ada")
    expect(row(page, "gate")).to_contain_text("models brake* idm")
    confirm(row(page, "gate"), "Revoke")
    expect(row(page, "gate")).to_have_count(0)
    until(lambda: team.ask("gate", "GET", "/v1/session").status_code == 401)


@pytest.mark.parametrize("days", ["soon", "0", "-1", "nan"])
def test_days_that_are_no_number_are_refused_and_the_form_keeps_its_fields(
    team: Team, page: Page, page_errors: Errors, days: str
) -> None:
    page_errors.expect("422")
    team.sign_in(page, "vera", "/operations/project")
    form = card(page, "Tokens")
    form.get_by_label("Name").fill("mine")
    form.get_by_label("Expires in days").fill(days)
    form.get_by_role("button", name="Make the token").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(form.get_by_label("Name")).to_have_value("mine")
    assert tokens(team) == []


def test_a_name_of_a_token_is_text_on_every_page(team: Team, page: Page) -> None:
    for path, project in (("/v1/projects/red/tokens", "red"), ("/v1/users/ada/tokens", None)):
        body = {"name": HOSTILE, "role": "viewer"}
        assert team.ask("ada", "POST", path, project, json=body).status_code == 201
    team.sign_in(page, "ada", "/operations/project?project=red")
    for path in ("/operations/project?project=red", "/operations/tokens?project=red"):
        page.goto(team.origin + path)
        cell = page.get_by_role("rowheader").filter(has_text="document.title")
        assert cell.inner_text() == HOSTILE
        assert page.title() != "x" and page.locator("main td script, main th script, th a").count() == 0


def test_who_may_not_administer_sees_lists_and_no_forms_of_others(team: Team, page: Page, page_errors: Errors) -> None:
    page_errors.expect("403")
    team.ask("ada", "POST", "/v1/projects/red/tokens", "red", json={"name": "gate", "role": "viewer"})
    team.sign_in(page, "vera", "/operations")
    assert page.url.startswith(f"{team.origin}/operations/project")
    expect(row(page, "ada")).to_contain_text("maintainer")
    actions = page.locator("main form").evaluate_all("forms => forms.map((form) => new URL(form.action).pathname)")
    assert actions == ["/operations/project/tokens"]
    assert page.locator("main select[name=role] option").all_inner_texts() == ["viewer"]
    assert row(page, "gate").count() == 0
    assert page.get_by_role("link", name="Platform").count() == 0
    answer = page.goto(f"{team.origin}/operations/platform")
    assert answer is not None and answer.status == 403


def test_an_operator_creates_a_project_and_invites_a_user_who_gets_a_token(
    team: Team, page: Page, page_errors: Errors
) -> None:
    page_errors.expect("409")
    team.sign_in(page, "operator", "/operations")
    page.get_by_role("link", name="Platform").click()
    projects, users = card(page, "Projects"), card(page, "Users")
    projects.get_by_label("Name").fill("green")
    projects.get_by_role("button", name="Create").click()
    expect(projects.get_by_role("link", name="green")).to_be_visible()
    users.get_by_label("Name").fill("zoe")
    users.get_by_role("button", name="Invite").click()
    invitation = page.locator("copy-text code").inner_text()
    body = {"name": "laptop", "invitation": invitation}
    made = team.app.test_client().post("/v1/users/zoe/tokens", json=body)
    assert made.status_code == 201
    projects.get_by_role("link", name="green").click()
    expect(page.get_by_role("heading", name="Project green")).to_be_visible()
    card(page, "Members").get_by_label("User").fill("zoe")
    card(page, "Members").get_by_role("button", name="Add").click()
    expect(page.get_by_label("Role of zoe", exact=True)).to_be_visible()
    page.get_by_role("link", name="Platform").click()
    assert invitation not in page.content()
    users.get_by_label("Name").fill("ada")
    users.get_by_role("button", name="Invite").click()
    expect(page.get_by_role("alert")).to_contain_text("'ada'")
    confirm(row(page, "zoe"), "Remove")
    expect(row(page, "zoe")).to_have_count(0)
    team.tokens["zoe"] = made.json["token"]
    until(lambda: team.ask("zoe", "GET", "/v1/session").status_code == 401)


def test_limits_are_set_on_the_page_of_quotas_by_who_may(team: Team, page: Page, page_errors: Errors) -> None:
    page_errors.expect("422")
    team.sign_in(page, "operator", "/operations/quotas?project=red")
    uses, every = card(page, "The project"), card(page, "Every project that has no limit of its own")
    for quota, amount in (("stored_bytes", "2147483648"), ("resources.cpu", "8"), ("queued_simulations", "1")):
        uses.get_by_role("combobox").select_option(quota)
        uses.get_by_role("textbox").fill(amount)
        uses.get_by_role("button", name="Set").click()
        expect(row(page, f"{quota} ").first).to_contain_text("2 GiB" if quota == "stored_bytes" else amount)
    every.get_by_role("textbox").fill("99")
    every.get_by_role("button", name="Set").click()
    expect(every.get_by_role("row", name="queued_simulations")).to_contain_text("99")
    known = team.ask("operator", "GET", "/v1/projects/red/quotas").json
    assert known is not None and (known["stored_bytes"]["own"], known["resources"]["cpu"]["own"]) == (2**31, 8)
    page.evaluate("document.querySelectorAll('input[name=amount]').forEach(field => field.removeAttribute('pattern'))")
    uses.get_by_role("textbox").fill("many")
    uses.get_by_role("button", name="Set").click()
    expect(page.get_by_role("alert")).to_be_visible()
    sent = {"data": b"class Model:\n    pass\n", "content_type": "text/x-python"}
    assert team.ask("ada", "PUT", "/v1/models/brake", "red", **sent).status_code == 201
    body = {"dataset": "noop", "model": "brake"}
    assert team.ask("ada", "POST", "/v1/simulations", "red", json=body).status_code == 201
    page.goto(f"{team.origin}/operations/quotas?project=red")
    fullest = card(page, "Nearest to their limits, on the whole platform")
    expect(fullest.get_by_role("row", name="red")).to_contain_text("100 %")
    page.context.clear_cookies()
    team.sign_in(page, "ada", "/operations/quotas?project=red")
    assert uses.get_by_role("combobox").count() == 0 and fullest.count() == every.count() == 0
    page.get_by_role("navigation", name="Whose limits").get_by_role("link", name="vera").click()
    own = card(page, "vera")
    own.get_by_role("combobox").select_option("tasks")
    own.get_by_role("textbox").fill("7")
    own.get_by_role("button", name="Set").click()
    assert (team.ask("ada", "GET", "/v1/projects/red/members/vera/quotas", "red").json or {})["tasks"]["own"] == 7
    page.context.clear_cookies()
    team.sign_in(page, "vera", "/operations/quotas?project=red")
    assert page.locator("main form").count() == 0


def test_an_operator_closes_a_project_and_then_deletes_it(team: Team, page: Page) -> None:
    assert team.ask("operator", "POST", "/v1/projects", json={"name": "brief"}).status_code == 201
    team.sign_in(page, "operator", "/operations/platform")
    assert row(page, "default").get_by_text("Close").count() == 0
    confirm(row(page, "brief"), "Close")
    expect(row(page, "brief")).to_contain_text("closed")
    confirm(row(page, "brief"), "Delete")
    expect(row(page, "brief")).to_have_count(0)
    assert team.ask("operator", "GET", "/v1/projects/brief").status_code == 404


def test_ones_own_tokens_and_sessions_are_listed_made_and_ended(team: Team, page: Page) -> None:
    team.sign_in(page, "vera", "/operations/tokens")
    expect(row(page, "laptop")).to_be_visible()
    form = card(page, "Personal tokens")
    form.get_by_label("Name").fill("desk")
    form.get_by_role("button", name="Make the token").click()
    team.tokens["desk"] = page.locator("copy-text code").inner_text()
    assert team.ask("desk", "GET", "/v1/session").json["user"] == "vera"
    confirm(row(page, "desk"), "Revoke")
    expect(row(page, "desk")).to_have_count(0)
    confirm(row(page, "browser"), "End")

    def signed_out() -> bool:
        page.goto(f"{team.origin}/models")
        return page.url.startswith(f"{team.origin}/sign-in")

    until(signed_out)


def test_a_session_of_a_limited_token_is_told_why_it_sees_no_others(team: Team, page: Page) -> None:
    made = team.ask("ada", "POST", "/v1/projects/red/tokens", "red", json={"name": "browser", "role": "viewer"})
    team.tokens["limited"] = made.json["token"]
    team.sign_in(page, "limited", "/operations/tokens")
    expect(page.locator("main")).to_contain_text("limited to a project, a role, verbs or names")
    assert page.locator("main form").count() == 0


@pytest.mark.parametrize("who", ["ada", "operator"])
def test_pages_of_accounts_are_accessible_and_fit_in_both_modes_and_widths(team: Team, page: Page, who: str) -> None:
    body = {"name": "a token with quite a long name " * 3, "role": "viewer", "expires_in": 86_400}
    team.ask("ada", "POST", "/v1/projects/red/tokens", "red", json=body)
    team.ask("ada", "POST", "/v1/projects/red/services", "red", json={"name": "nightly", "role": "viewer"})
    team.sign_in(page, who, "/operations/tokens")
    team.ask("operator", "PUT", "/v1/projects/red/quotas", json={"queued_simulations": 0, "stored_bytes": 10**12})
    paths = [
        "/operations/project",
        "/operations/quotas",
        "/operations/quotas?user=ada",
        "/operations/tokens",
        "/projects",
    ]
    found: list[str] = []
    for path in [*paths, *(["/operations/platform", "/operations"] if who == "operator" else [])]:
        page.goto(f"{team.origin}{path}{'&' if '?' in path else '?'}project=red")
        for width, scheme in ((1280, "light"), (360, "dark")):
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
            found += [f"{path} {width}: {violation}" for violation in accessibility_violations(page)]
            found += [f"{path} {width}: scrolls sideways"] * scrolls_sideways(page)
    assert found == []


def test_a_maintainer_shares_a_model_its_readers_find_it_and_the_share_ends(
    team: Team, page: Page, page_errors: Errors
) -> None:
    page_errors.expect("404")
    model = {"data": b"class Model:\n    pass\n", "content_type": "text/x-python"}
    assert team.ask("ada", "PUT", "/v1/models/brake", "red", **model).status_code == 201
    team.sign_in(page, "ada", "/operations/project?project=red")
    shared = card(page, "Shared")
    shared.get_by_label("What").fill("models/nothing")
    shared.get_by_label("Project").fill("blue")
    shared.get_by_role("button", name="Share", exact=True).click()
    expect(page.get_by_role("alert")).to_be_visible()
    shared.get_by_label("What").fill("models/brake")
    shared.get_by_role("button", name="Share", exact=True).click()
    expect(row(page, "blue")).to_contain_text("brake")
    assert accessibility_violations(page) == [] and not scrolls_sideways(page)
    assert team.ask("operator", "GET", "/v1/models/red/brake", "blue").status_code == 200
    other = page.context.browser.new_context().new_page()  # type: ignore[union-attr]
    team.sign_in(other, "operator", "/models/red/brake?project=blue")
    expect(other.get_by_role("heading", level=1)).to_contain_text("red/brake")
    assert other.get_by_text("Delete …").count() == 0 and other.locator("form[action$=tags]").count() == 0
    other.goto(f"{team.origin}/models?project=blue")
    other.get_by_role("navigation", name="Whose").get_by_role("link", name="Shared with this project").click()
    assert accessibility_violations(other) == [] and not scrolls_sideways(other)
    other.get_by_role("link", name="red/brake").click()
    expect(other.get_by_role("heading", level=1)).to_contain_text("red/brake")
    other.goto(f"{team.origin}/data?shared=yes&project=blue")
    expect(other.get_by_role("region", name="Datasets")).to_contain_text("No other project shares datasets")
    other.context.close()
    confirm(row(page, "blue"), "End")
    expect(shared).to_contain_text("Nothing is shared")
    assert team.ask("operator", "GET", "/v1/models/red/brake", "blue").status_code == 404
