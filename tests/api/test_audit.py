"""The audit log by HTTP: what is in it, who reads it, how it is asked for, and what is never in it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from sqlalchemy import text

from core.domain.access.audit import AuditEntry
from core.services.platform import Platform
from tests.api.people import MODEL, OPERATOR, People, own

LOG = "/v1/audit"
PYTHON = {"Content-Type": "text/x-python"}


def entries(people: People, who: str = "operator", **asked: Any) -> list[dict[str, Any]]:
    answer = people.ask(who, "GET", LOG, query_string=asked)
    assert answer.status_code == 200, answer.json
    items: list[dict[str, Any]] = answer.json["items"]
    return items


def last(people: People, who: str = "operator", **asked: Any) -> dict[str, Any]:
    return entries(people, who, **asked)[0]


def submit(people: People, who: str = "red submitter", **options: Any) -> Any:
    return people.ask(who, "POST", "/v1/simulations", json={"dataset": "noop", "model": "brake"}, **options)


@pytest.fixture
def team(people: People) -> People:
    """The people, of whom the operator, whose all tokens are, is a member of both projects."""
    for project in ("red", "blue"):
        path = f"/v1/projects/{project}/members/operator"
        assert people.ask("operator", "PUT", path, json={"role": "maintainer"}).status_code == 204
    answer = people.ask("red submitter", "PUT", "/v1/models/brake", data=MODEL, headers=PYTHON)
    assert answer.status_code == 201, answer.json
    return people


def test_an_act_is_recorded_with_who_what_where_and_which_token(team: People) -> None:
    id = submit(team, environ_base={"REMOTE_ADDR": "192.0.2.7"}).json["id"]
    [entry] = entries(team, act="create_simulation")
    token = team.ask("red submitter", "GET", "/v1/session").json["token"]["id"]
    assert len(entry["id"]) == 26 and entry["at"] and entry["request"]
    expected = {
        "project": "red",
        "user": "operator",
        "token": token,
        "address": "192.0.2.7",
        "subject": f"simulations/{id}",
        "outcome": "done",
        "problem": None,
        "times": 1,
    }
    assert {name: entry[name] for name in expected} == expected


def test_what_an_address_names_is_the_subject_and_the_rest_is_affected(team: People) -> None:
    id = submit(team).json["id"]
    assert team.ask("red submitter", "POST", f"/v1/simulations/{id}/cancel").status_code in (200, 202)
    assert team.ask("red maintainer", "POST", "/v1/projects/red/tokens", json={"name": "a", "role": "viewer"})
    assert last(team, act="cancel_simulation")["subject"] == f"simulations/{id}"
    token = last(team, act="create_project_token")
    assert token["subject"] == "projects/red" and token["affected"][0].startswith("tokens/")
    [found] = entries(team, subject=token["affected"][0])
    assert found["id"] == token["id"]
    assert last(team, act="put_model")["subject"] == "models/brake"


def test_each_of_many_that_a_request_changes_has_an_entry(team: People) -> None:
    ids = [submit(team).json["id"] for _ in range(3)]
    assert team.ask("red submitter", "POST", "/v1/simulations/cancel", json={"ids": ids}).status_code == 200
    found = entries(team, act="cancel_simulations")
    assert {entry["subject"] for entry in found} == {f"simulations/{id}" for id in ids}
    assert len({entry["request"] for entry in found}) == 1


def test_a_refused_try_is_recorded_with_its_problem(team: People) -> None:
    assert team.ask("red viewer", "DELETE", "/v1/models/brake").status_code == 403
    assert team.ask("operator", "PUT", "/v1/projects/red/quotas", json={"queued_simulations": 0}).status_code == 200
    assert submit(team).status_code == 403
    denied, over = last(team, act="delete_model"), last(team, act="create_simulation")
    assert (denied["outcome"], denied["problem"], denied["status"]) == ("refused", "not-permitted", 403)
    assert (over["outcome"], over["problem"]) == ("refused", "quota-exceeded")
    assert [entry["outcome"] for entry in entries(team, act="create_simulation")] == ["refused"]


def test_equal_refusals_are_counted_in_one_entry(team: People, platform: Platform) -> None:
    for _ in range(5):
        assert team.ask("red viewer", "DELETE", "/v1/models/brake").status_code == 403
    platform.access.audit.flush(every=True)
    found = entries(team, act="delete_model")
    assert sum(entry["times"] for entry in found) == 5 and len(found) <= 2


def test_what_another_project_has_is_refused_and_recorded_where_it_was_tried(team: People) -> None:
    id = submit(team).json["id"]
    assert team.ask("blue submitter", "GET", f"/v1/simulations/{id}").status_code == 404
    entry = last(team, outcome="refused")
    assert (entry["project"], entry["act"], entry["subject"]) == ("blue", "get_simulation", f"simulations/{id}")
    assert entries(team, "red maintainer", outcome="refused") == []


def test_reads_of_files_are_recorded_and_reads_of_documents_are_not(team: People) -> None:
    id = submit(team).json["id"]
    before = len(entries(team))
    for path in ("/v1/models", "/v1/models/brake", f"/v1/simulations/{id}", "/v1/session", "/v1/simulations"):
        assert team.ask("red viewer", "GET", path).status_code == 200
    assert len(entries(team)) == before
    assert team.ask("red viewer", "GET", "/v1/models/brake/content").status_code == 200
    assert team.ask("red viewer", "GET", f"/v1/simulations/{id}/results").status_code == 200
    read = {entry["act"] for entry in entries(team)[:-before]}
    assert read == {"get_simulation_results", "get_model_content"}
    assert last(team)["outcome"] == "unchanged"


def test_a_wrong_token_is_recorded_by_address_and_without_the_token(team: People) -> None:
    wrong = "wt_" + "x" * 46
    for _ in range(3):
        assert team.ask(wrong, "GET", "/v1/models", environ_base={"REMOTE_ADDR": "192.0.2.9"}).status_code == 401
    entry = last(team, act="authenticate")
    assert (entry["address"], entry["user"], entry["problem"]) == ("192.0.2.9", None, "unauthorized")
    assert entries(team, search="xxxx") == []


def test_nobody_without_a_credential_fills_the_log(team: People) -> None:
    before = len(entries(team))
    for _ in range(3):
        assert team.ask("", "GET", "/v1/models").status_code == 401
    assert len(entries(team)) == before


def test_signing_in_and_out_on_the_page_is_recorded_and_a_wrong_token_with_the_browsers_address(team: People) -> None:
    browser = {"headers": {"Origin": "http://localhost"}, "environ_base": {"REMOTE_ADDR": "192.0.2.5"}}
    wrong = team.app.test_client().post("/sign-in", data={"token": "wt_wrong"}, **browser)
    assert wrong.status_code == 401
    assert last(team, act="authenticate")["address"] == "192.0.2.5"
    client = team.app.test_client()
    assert client.post("/sign-in", data={"token": team.tokens["operator"]}, **browser).status_code == 303
    began = last(team, act="begin_session")
    assert (began["user"], began["address"], began["outcome"]) == ("operator", "192.0.2.5", "done")
    assert client.post("/sign-out", **browser).status_code == 303
    ended = last(team, act="end_session")
    assert (ended["outcome"], f"tokens/{ended['token']}") == ("done", began["subject"])


def test_an_invitation_that_is_wrong_is_recorded_at_its_user(team: People) -> None:
    assert team.ask("operator", "POST", "/v1/users", json={"name": "ada"}).status_code == 201
    body = {"name": "first", "invitation": "wti_guess"}
    assert team.ask("", "POST", "/v1/users/ada/tokens", json=body).status_code >= 400
    entry = last(team, act="create_personal_token")
    assert (entry["subject"], entry["user"], entry["outcome"]) == ("users/ada", None, "refused")


def test_uploads_and_the_first_api_are_recorded(team: People) -> None:
    tus = {"Tus-Resumable": "1.0.0", "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    made = team.ask("red submitter", "POST", "/v1/uploads", headers=tus | {"Upload-Length": "9"})
    address = made.headers["Location"]
    id = address.rpartition("/")[2]
    overridden = tus | {"X-HTTP-Method-Override": "PATCH"}
    assert team.ask("red submitter", "POST", f"/v1/uploads/{id}", data=b"x" * 9, headers=overridden).status_code == 204
    assert team.ask("red submitter", "DELETE", f"/v1/uploads/{id}", headers=tus).status_code == 204
    acts = ["delete_upload", "append_upload", "create_upload"]
    assert [entry["act"] for entry in entries(team, subject=f"uploads/{id}")] == acts
    body = {"runtimePath": "python", "model_data": "noop"}
    assert team.ask("red submitter", "POST", "/1.0/simluation/tests", json=body).status_code in (200, 201)
    entry = last(team, act="create_simulation_by_1_0")
    assert entry["outcome"] == "done" and entry["subject"].startswith("simulations/")


def test_a_repeated_request_changes_nothing_and_says_so(team: People) -> None:
    headers = {"Idempotency-Key": "one"}
    assert submit(team, headers=headers).json["id"] == submit(team, headers=headers).json["id"]
    assert [entry["outcome"] for entry in entries(team, act="create_simulation")] == ["unchanged", "done"]


def test_an_operator_in_a_project_of_others_is_marked_with_all_that_he_reads(people: People) -> None:
    assert people.ask("operator", "GET", "/v1/models", headers={"Windtunnel-Project": "red"}).status_code == 200
    entry = last(people, "red maintainer", act="list_models")
    assert (entry["user"], entry["outsider"], entry["outcome"]) == ("operator", True, "unchanged")
    made = people.ask("operator", "POST", "/v1/projects/red/services", json={"name": "ci", "role": "viewer"})
    assert made.status_code == 201 and last(people, act="create_service")["outsider"] is True


def test_a_member_is_not_marked_and_reads_unseen(team: People) -> None:
    assert team.ask("red viewer", "GET", "/v1/models").status_code == 200
    assert last(team, act="put_model")["outsider"] is False
    assert entries(team, act="list_models") == []


def test_a_maintainer_sees_the_project_and_an_operator_everything(team: People) -> None:
    assert team.ask("blue submitter", "PUT", "/v1/models/other", data=MODEL, headers=PYTHON).status_code == 201
    assert {entry["project"] for entry in entries(team, "red maintainer")} == {"red"}
    assert {entry["project"] for entry in entries(team)} == {"red", "blue", None}
    named = team.ask("operator", "GET", LOG, query_string={"project": "blue"}).json["items"]
    assert {entry["project"] for entry in named} == {"blue"}


@pytest.mark.parametrize("who", ["red viewer", "red submitter"])
def test_others_do_not_read_it(team: People, who: str) -> None:
    assert team.ask(who, "GET", LOG).status_code == 403
    assert team.ask(who, "GET", LOG, query_string={"project": "blue"}).status_code == 404


def test_acts_of_the_platform_are_in_no_project(team: People) -> None:
    made = team.ask("operator", "POST", "/v1/users", json={"name": "ada"}, headers={"Windtunnel-Project": "red"})
    assert made.status_code == 201
    entry = last(team, act="create_user")
    assert (entry["project"], entry["subject"], entry["outsider"]) == (None, "users/ada", False)


@pytest.mark.parametrize(
    ("asked", "acts"),
    [
        ({"act": "put_model"}, {"put_model"}),
        ({"outcome": "refused"}, {"delete_model"}),
        ({"subject": "models/brake"}, {"put_model", "delete_model"}),
        ({"subject": "models"}, {"put_model", "delete_model"}),
        ({"search": "PUT_model brake"}, {"put_model"}),
        ({"search": "brak%"}, set()),
        ({"user": "nemo"}, set()),
        ({"token": "nemo"}, set()),
        ({"until": "2001-01-01T00:00:00Z"}, set()),
        ({"since": "2001-01-01T00:00:00Z", "act": "put_model"}, {"put_model"}),
        ({"since": "2999-01-01T00:00:00Z"}, set()),
    ],
)
def test_entries_are_filtered(team: People, asked: Mapping[str, str], acts: set[str]) -> None:
    assert team.ask("red viewer", "DELETE", "/v1/models/brake").status_code == 403
    assert {entry["act"] for entry in entries(team, "red maintainer", **asked)} == acts


@pytest.mark.parametrize("asked", [{"since": "yesterday"}, {"outcome": "good"}, {"limit": "0"}, {"who": "me"}])
def test_a_filter_that_is_none_is_refused(team: People, asked: Mapping[str, str]) -> None:
    assert team.ask("operator", "GET", LOG, query_string=asked).status_code == 422


def test_pages_have_every_entry_once_newest_first(team: People) -> None:
    for _ in range(7):
        assert submit(team).status_code == 201
    seen: list[int] = []
    path: str | None = f"{LOG}?limit=3"
    while path:
        answer = team.ask("operator", "GET", path)
        seen += [entry["id"] for entry in answer.json["items"]]
        path = answer.headers["Link"].split(">")[0][1:] if "Link" in answer.headers else None
    assert seen == sorted(set(seen), reverse=True) and len(seen) == len(entries(team, limit="1000"))


@pytest.mark.parametrize(
    "options", [{"query_string": {"format": "ndjson"}}, {"headers": {"Accept": "application/x-ndjson"}}]
)
def test_the_whole_log_is_a_file_of_json_lines(team: People, options: Any) -> None:
    listed = entries(team, limit="1000")
    answer = team.ask("operator", "GET", LOG, **options)
    assert answer.mimetype == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["id"] for line in lines] == [entry["id"] for entry in listed]
    assert lines == listed


def texts(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for value in document.values():
            yield from texts(value)
    elif isinstance(document, list):
        for value in document:
            yield from texts(value)
    elif isinstance(document, str):
        yield document


def test_no_secret_is_in_it(people: People, platform: Platform) -> None:
    own(people, "red")
    invitation = people.ask("operator", "POST", "/v1/users", json={"name": "ada"}).json["invitation"]
    body = {"name": "first", "invitation": invitation}
    personal = people.ask("", "POST", "/v1/users/ada/tokens", json=body).json["token"]
    again = people.ask("", "POST", "/v1/users/ada/tokens", json=body)
    assert again.status_code >= 400
    cookie = people.ask(personal, "POST", "/v1/session").headers["Set-Cookie"]
    session = cookie.partition("=")[2].partition(";")[0]
    people.ask(personal, "DELETE", f"/v1/models/{personal}")
    people.ask(personal, "DELETE", f"/v1/nowhere/{personal}")
    people.ask(f"{personal[:-1]}!", "GET", "/v1/models")
    secrets = {*people.tokens.values(), OPERATOR, invitation, personal, session}
    platform.access.audit.flush(every=True)
    with platform.database.read() as c:
        rows = c.execute(text("SELECT * FROM audit")).all()
    assert len(rows) > 10
    stored = "\n".join(str(value) for row in rows for value in row)
    assert [secret for secret in secrets if secret in stored] == []
    assert {"redeem", "begin_session"} & {entry["act"] for entry in entries(people, limit="1000")} == {"begin_session"}


def test_an_act_whose_entry_cannot_be_written_is_not_done(team: People, platform: Platform) -> None:
    platform.database.write(
        lambda c: c.execute(text("CREATE TRIGGER no_audit BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no'); END"))
    )
    assert submit(team).status_code >= 500
    platform.database.write(lambda c: c.execute(text("DROP TRIGGER no_audit")))
    assert team.ask("red viewer", "GET", "/v1/simulations").json["items"] == []


def test_every_route_that_changes_something_has_an_act_and_a_subject(people: People) -> None:
    from core.domain.access.audit import subject_of

    changing = [
        rule
        for rule in people.app.url_map.iter_rules()
        if rule.methods and rule.methods & {"POST", "PUT", "PATCH", "DELETE"}
    ]
    assert len(changing) > 40
    for rule in changing:
        assert subject_of(rule.rule, rule.rule), rule
        assert people.app.view_functions[rule.endpoint].__name__ != "respond", rule


def test_entries_that_are_too_old_are_forgotten(team: People, platform: Platform) -> None:
    count = len(entries(team, limit="1000"))
    platform.database.write(lambda c: c.execute(text("UPDATE audit SET at = at - 401 * 86400 WHERE act = 'put_model'")))
    assert platform.access.audit.sweep() == 1
    assert len(entries(team, limit="1000")) == count - 1


def test_entries_wait_while_the_database_is_away(team: People, platform: Platform, monkeypatch: Any) -> None:
    from common.errors import StoreUnavailable

    def away(*arguments: object, **options: object) -> None:
        raise StoreUnavailable

    audit = platform.access.audit
    with monkeypatch.context() as patched:
        patched.setattr(platform.database, "write", away)
        audit.observe(AuditEntry(act="lost", user="ada"))
        audit.flush()
    audit.flush(every=True)
    assert [entry["times"] for entry in entries(team, act="lost")] == [1]


def test_without_accounts_there_is_no_audit_log(client: Any, platform: Platform) -> None:
    assert client.put("/v1/models/brake", data=MODEL, headers=PYTHON).status_code == 201
    assert client.get(LOG).status_code == 409
    platform.access.audit.flush(every=True)
    with platform.database.read() as c:
        assert c.scalar(text("SELECT count(*) FROM audit")) == 0
