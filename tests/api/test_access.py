"""Access with accounts: every route, by everybody, on what is own, of another project, and of nobody.

The matrix is made of the routes: a new one is in it without a line here, and fails unless it has a verb.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from flask.testing import FlaskClient

from common.errors import UnknownSimulation
from core.domain.access.roles import VERBS, AccessRole, Verb
from core.domain.access.scopes import LOCAL_CALLER, Scope, work_of
from core.services.analysis.result_tables import ResultTables
from core.services.datasets.file_sources import Sources
from core.services.datasets.scenario_specs import ScenarioSpecs
from core.services.platform import Platform
from core.settings import Settings
from server import composition as root
from tests.api.conftest import LeasingWorker
from tests.api.people import MODEL, OPERATOR, People, own
from tests.waiting import until


def test_who_a_request_is(people: People) -> None:
    session = people.ask("red submitter", "GET", "/v1/session").json
    assert session["projects"] == [{"name": "red", "role": "maintainer", "closed": False}]
    assert (session["project"], session["user"], session["by"]) == ("red", "operator", "token")
    assert set(session["verbs"]) == VERBS[AccessRole.SUBMITTER]
    assert session["token"]["project"] == "red"


def test_a_limited_token_ends_itself_and_no_other(people: People) -> None:
    body = {"name": "limited", "role": "viewer"}
    limited, other = (people.ask("operator", "POST", "/v1/users/operator/tokens", json=body).json for _ in range(2))
    who = people.ask(limited["token"], "GET", "/v1/session").json
    assert who["token"] == {"id": limited["id"], "project": None}
    path = "/v1/users/operator/tokens/"
    assert people.ask(limited["token"], "DELETE", path + other["id"]).status_code == 403
    assert people.ask(limited["token"], "DELETE", path + limited["id"]).status_code == 204


def test_what_is_anothers_is_as_if_it_were_not_there(people: People) -> None:
    red = own(people, "red")
    strange = "01jz8w0k5qv3r1m9c2t7x4b6ne"
    for path in (
        "/v1/simulations/{simulation}",
        "/v1/simulations/{simulation}/results",
        "/v1/simulations/{simulation}/events",
        "/v1/models/{model}",
        "/v1/models/{model}/content",
    ):
        there = people.ask("blue maintainer", "GET", path.format(**red))
        nowhere = people.ask("blue maintainer", "GET", path.format(**dict.fromkeys(red, strange)))
        assert there.status_code == nowhere.status_code == 404
        for value in red.values():
            there_text = there.text.replace(value, strange)
            if value in path.format(**red):
                assert there_text == nowhere.text
    assert people.ask("blue viewer", "GET", "/v1/models/brake").status_code == 404
    assert people.ask("blue viewer", "GET", "/v1/simulations").json["items"] == []
    assert len(people.ask("red viewer", "GET", "/v1/simulations").json["items"]) == 1


def routes(people: People) -> list[tuple[str, str, Verb | None]]:
    found = []
    for rule in people.app.url_map.iter_rules():
        if rule.rule.startswith("/v1/"):
            verb = people.app.view_functions[rule.endpoint].verb  # type: ignore[attr-defined]
            found += [(method, rule.rule, verb) for method in sorted(rule.methods or ()) if method != "OPTIONS"]
    return found


def address(rule: str, values: Mapping[str, str]) -> str:
    """Fill in the parameters of a route with names that nothing has."""
    import re

    def value(match: re.Match[str]) -> str:
        converter, _, name = match[1].rpartition(":")
        if name in values:
            return values[name]
        return {"id": "01jz8w0k5qv3r1m9c2t7x4b6ne", "task": "0", "file": "x", "path": "x"}.get(converter, "nothing")

    return re.sub(r"<([^>]+)>", value, rule)


@pytest.mark.parametrize("role", ["viewer", "submitter", "maintainer"])
def test_a_role_is_refused_what_it_may_not_and_only_that(people: People, role: str) -> None:
    wrong = []
    for method, rule, verb in routes(people):
        if verb is None or "/changes" in rule:
            continue
        answer = people.ask(f"red {role}", method, address(rule, {"project": "red"}), json={})
        refused = answer.status_code == 403 and "not-permitted" in (
            answer.headers.get("Content-Type", "") + answer.text
        )
        if method == "HEAD":
            refused = answer.status_code == 403
        if refused is (verb in VERBS[AccessRole(role)]) or answer.status_code in (401, 500):
            wrong.append((method, rule, verb, answer.status_code, answer.text[:200]))
    assert wrong == []


@pytest.mark.parametrize("credential", ["", "wt_none", "Bearer", "x" * 5000])
def test_without_a_valid_token_everything_is_401(people: People, credential: str) -> None:
    wrong = []
    for method, rule, _ in routes(people):
        answer = people.ask(credential, method, address(rule, {"project": "red"}), json={})
        if answer.status_code != 401 and not (credential == "" and (method, rule) in BEGINNINGS):
            wrong.append((method, rule, answer.status_code))
    assert wrong == []


#: Requests of who is not signed in yet.
BEGINNINGS = {
    ("POST", "/v1/users/<account:user>/tokens"),
    ("GET", "/v1/sign-in"),
    ("POST", "/v1/sign-in/password"),
    ("POST", "/v1/sign-in/invitation"),
    ("POST", "/v1/sign-in/passkey/question"),
    ("POST", "/v1/sign-in/passkey"),
    ("POST", "/v1/sign-in/providers/<name:provider>"),
    ("POST", "/v1/sign-in/providers/<name:provider>/answer"),
    ("POST", "/v1/sign-in/devices"),
    ("POST", "/v1/sign-in/devices/tokens"),
}


@pytest.mark.parametrize("named", ["blue", "default", "nothing", "RED", ""])
def test_a_token_of_a_project_names_no_other(people: People, named: str) -> None:
    for options in ({"headers": {"Windtunnel-Project": named}}, {"query_string": {"project": named}}):
        answers = {people.ask("red maintainer", "GET", "/v1/simulations", **options).status_code}
        assert answers == {404}
    assert people.ask("red maintainer", "GET", f"/v1/projects/{named or 'x'}/members").status_code == 404
    assert people.ask("red viewer", "GET", "/v1/simulations?project=red").status_code == 200


def test_a_project_may_be_named_once(people: People) -> None:
    both = people.ask("operator", "GET", "/v1/simulations?project=blue", headers={"Windtunnel-Project": "red"})
    assert both.status_code == 400


def test_an_operator_acts_in_a_project_by_naming_it(people: People) -> None:
    own(people, "red")
    assert people.ask("operator", "GET", "/v1/simulations").json["items"] == []  # those of `default`
    assert len(people.ask("operator", "GET", "/v1/simulations?project=red").json["items"]) == 1
    assert people.ask("operator", "GET", "/v1/simulations?project=nothing").status_code == 404


def test_an_invitation_becomes_a_token_and_a_member_of_a_project(people: People) -> None:
    invitation = people.ask("operator", "POST", "/v1/users", json={"name": "ada"}).json["invitation"]
    body = {"name": "laptop", "invitation": invitation}
    made = people.ask("", "POST", "/v1/users/ada/tokens", json=body)
    assert made.status_code == 201
    ada = made.json["token"]
    assert people.ask("", "POST", "/v1/users/ada/tokens", json=body).status_code == 401
    assert people.ask("", "POST", "/v1/users/ada/tokens", json={"name": "x"}).status_code == 403
    assert people.ask(ada, "GET", "/v1/simulations").status_code == 400  # she is in no project
    put = people.ask("operator", "PUT", "/v1/projects/red/members/ada", json={"role": "viewer"})
    assert put.status_code == 204
    service = {"name": "nightly", "role": "viewer"}
    assert people.ask("operator", "POST", "/v1/projects/red/services", json=service).status_code == 201
    members = people.ask("operator", "GET", "/v1/projects/red/members").json["items"]
    assert [(member["user"], member["service"]) for member in members] == [("ada", False), ("red/nightly", True)]


@pytest.mark.parametrize("name", ["nightly", "red/nightly", "red%2Fnightly"])
def test_a_service_account_is_named_in_its_project_with_and_without_it(people: People, name: str) -> None:
    service = {"name": "nightly", "role": "viewer"}
    for project in ("red", "blue"):
        made = people.ask("operator", "POST", f"/v1/projects/{project}/services", json=service)
        assert (made.status_code, made.json["name"]) == (201, f"{project}/nightly")
    asked = {"name": "ci", "role": "viewer", "service": name.replace("%2F", "/")}
    token = people.ask("operator", "POST", "/v1/projects/red/tokens", json=asked).json
    assert token["user"] == "red/nightly"
    assert people.ask(token["token"], "GET", "/v1/session").json["user"] == "red/nightly"
    members = "/v1/projects/red/members"
    assert people.ask("operator", "PUT", f"{members}/{name}", json={"role": "submitter"}).status_code == 204
    assert [row["role"] for row in people.ask("operator", "GET", members).json["items"]] == ["submitter"]
    limits = people.ask("operator", "PUT", f"{members}/{name}/quotas", json={"tasks": 5})
    assert limits.status_code == 200
    assert people.ask("operator", "GET", f"{members}/red/nightly/quotas").json == limits.json
    assert people.ask("operator", "DELETE", f"{members}/{name}").status_code == 204
    assert people.ask("operator", "DELETE", f"{members}/{name}").status_code == 404
    assert people.ask("operator", "DELETE", "/v1/users/red/nightly").status_code == 204
    assert people.ask("operator", "DELETE", "/v1/users/red/nightly").status_code == 404


def test_a_submitter_changes_his_own_and_a_maintainer_everybodys(people: People) -> None:
    red = own(people, "red")
    people.ask("operator", "POST", "/v1/users", json={"name": "ada", "operator": False})
    people.ask("operator", "PUT", "/v1/projects/red/members/ada", json={"role": "submitter"})
    ada = people.ask("operator", "POST", "/v1/users/ada/tokens", json={"name": "t"}).json["token"]
    for method, path in (
        ("POST", f"/v1/simulations/{red['simulation']}/cancel"),
        ("PATCH", f"/v1/simulations/{red['simulation']}"),
        ("DELETE", f"/v1/simulations/{red['simulation']}"),
        ("DELETE", f"/v1/models/{red['model']}"),
        ("PUT", "/v1/models/brake/tags/gold"),
        ("DELETE", f"/v1/uploads/{red['upload']}"),
    ):
        body = {"workers": 2} if method == "PATCH" else {"version": "1"}
        headers = {"Tus-Resumable": "1.0.0"} if "uploads" in path else {}
        options = {"headers": headers} if method == "DELETE" or "cancel" in path else {"json": body, "headers": headers}
        refused = people.ask(ada, method, path, **options)
        assert refused.status_code == 403, (method, path, refused.text)
    bulk = people.ask(ada, "POST", "/v1/simulations/cancel", json={"ids": [red["simulation"]]}).json
    assert bulk["items"][0]["status"] == "failed"
    assert people.ask("red maintainer", "POST", f"/v1/simulations/{red['simulation']}/cancel").status_code == 202


def test_a_revoked_token_is_refused(people: People) -> None:
    listed = people.ask("red maintainer", "GET", "/v1/projects/red/tokens").json["items"]
    viewer = next(token for token in listed if token["name"] == "viewer")
    assert "token" not in viewer and viewer["project"] == "red"
    assert people.ask("red viewer", "DELETE", f"/v1/projects/red/tokens/{viewer['id']}").status_code == 204
    until(lambda: people.ask("red viewer", "GET", "/v1/session").status_code == 401)  # within a second or two


def test_the_request_of_1_0_needs_a_token(people: People) -> None:
    body = '{"runtimePath": "python", "model_data": "noop"}'
    for path in ("/1.0/simluation/tests", "/1.0/simulation/tests"):
        assert people.ask("", "POST", path, data=body).status_code == 401
        assert people.ask("red viewer", "POST", path, data=body).status_code == 403
        assert people.ask("red submitter", "POST", path, data=body).status_code == 201


def test_the_request_of_1_0_without_a_token_submits_in_the_project_that_the_operator_names(
    people: People, platform: Platform, settings: Settings
) -> None:
    named = replace(settings, token=OPERATOR, multi_user=True, legacy_project="red")
    open_to_1_0 = People(root.create_flask(platform, named, {"level": 3, "missing": []}), people.tokens)
    body = '{"runtimePath": "python", "model_data": "noop"}'
    sent = open_to_1_0.ask("", "POST", "/1.0/simluation/tests", data=body)
    assert sent.status_code == 201, sent.text
    seen = people.ask("red viewer", "GET", f"/v1/simulations/{sent.json['id']}").json
    assert seen["submitted_by"] == "legacy"
    assert people.ask("blue viewer", "GET", f"/v1/simulations/{sent.json['id']}").status_code == 404
    for credential in ("wt_none", "blue viewer"):  # who sends one is who it says
        refused = open_to_1_0.ask(credential, "POST", "/1.0/simluation/tests", data=body)
        assert refused.status_code == (401 if credential == "wt_none" else 403)
    elsewhere = open_to_1_0.ask("", "POST", "/1.0/simluation/tests?project=blue", data=body)
    assert elsewhere.status_code == 404
    for method, path in (("GET", "/v1/simulations"), ("POST", "/v1/simulations"), ("GET", "/1.0/simluation/tests")):
        assert open_to_1_0.ask("", method, path).status_code == 401
    assert people.ask("operator", "POST", "/v1/users", json={"name": "legacy"}).status_code == 409
    assert people.ask("operator", "POST", "/v1/projects/red/close").status_code == 200
    assert open_to_1_0.ask("", "POST", "/1.0/simluation/tests", data=body).status_code == 401


def test_without_accounts_their_routes_say_so(client: FlaskClient) -> None:
    assert client.get("/v1/projects").status_code == 409
    session = client.get("/v1/session").json
    assert (session["accounts"], session["project"], session["user"]) == (False, "default", None)
    assert client.get("/v1/simulations?project=default").status_code == 200
    assert client.get("/v1/simulations?project=red").status_code == 404


def test_a_tag_on_anothers_version_is_not_moved(people: People) -> None:
    own(people, "red")
    assert people.ask("red submitter", "PUT", "/v1/models/brake/tags/gold", json={"version": "1"}).status_code == 200
    people.ask("operator", "POST", "/v1/users", json={"name": "ada"})
    people.ask("operator", "PUT", "/v1/projects/red/members/ada", json={"role": "submitter"})
    ada = people.ask("operator", "POST", "/v1/users/ada/tokens", json={"name": "t"}).json["token"]
    headers = {"Content-Type": "text/x-python"}
    assert people.ask(ada, "PUT", "/v1/models/brake", data=MODEL + b"#", headers=headers).status_code == 201
    moved = people.ask(ada, "PUT", "/v1/models/brake/tags/gold", json={"version": "2"})
    assert moved.status_code == 403
    with_upload = people.ask(ada, "PUT", "/v1/models/brake?tags=gold", data=MODEL + b"##", headers=headers)
    assert with_upload.status_code == 403
    assert people.ask("red viewer", "GET", "/v1/models/brake@gold").json["version"] == 1


def test_a_token_that_only_submits_brings_no_model(people: People) -> None:
    scope = {"name": "gate", "role": "submitter", "scope": {"verbs": ["read", "submit"]}}
    gate = people.ask("operator", "POST", "/v1/projects/red/tokens", json=scope).json["token"]
    named = people.ask(gate, "POST", "/v1/simulations", json={"dataset": "noop", "model": "zero"})
    assert named.status_code == 201, named.text
    reference = {"dataset": "noop", "model_reference": "https://models.example/a.onnx"}
    assert people.ask(gate, "POST", "/v1/simulations", json=reference).status_code == 403
    assert people.ask(gate, "PUT", "/v1/models/x", data=MODEL).status_code == 403


def test_the_use_of_executors_is_that_of_ones_own_project(people: People, worker: LeasingWorker) -> None:
    worker.launch(own(people, "red")["simulation"])
    used = {}
    for who in ("red viewer", "blue viewer"):
        used[who] = sum(one["in_use"] for one in people.ask(who, "GET", "/v1/executors").json["items"])
    assert used["red viewer"] > 0 and used["blue viewer"] == 0


def test_the_next_page_is_of_the_same_project(people: People) -> None:
    for _ in range(2):
        own(people, "red")
    page = people.ask("operator", "GET", "/v1/simulations?project=red&limit=1")
    address = page.headers["Link"].partition(">")[0].lstrip("<")
    assert "project=red" in address
    assert len(people.ask("operator", "GET", address).json["items"]) == 1
    escaped = people.ask("operator", "GET", "/v1/simulations?%70roject=red&limit=1")
    assert len(escaped.json["items"]) == 1


def test_the_project_of_an_address_and_that_of_a_header_are_one(people: People) -> None:
    both = people.ask("operator", "GET", "/v1/projects/red/members", headers={"Windtunnel-Project": "blue"})
    assert both.status_code == 400


def test_a_request_of_another_project_drops_no_table_of_results(
    people: People, platform: Platform, worker: LeasingWorker
) -> None:
    id = own(people, "red")["simulation"]
    worker.finish_unseen(worker.launch(id))
    specs = ScenarioSpecs(platform.database, platform.store, Sources(platform.store, {}))
    tables = ResultTables(platform.database, platform.analysis.results, specs)
    with tables.current(work_of("red"), id):
        pass
    kept = tables.size
    with pytest.raises(UnknownSimulation):
        tables.parameters(work_of("blue"), id)
    assert tables.size == kept > 0
    platform.jobs.finalization.collect(id)
    platform.submissions.simulations.delete(replace(LOCAL_CALLER, scope=Scope("red")), id)
    with pytest.raises(UnknownSimulation):
        tables.parameters(work_of("red"), id)
    assert tables.size == 0
