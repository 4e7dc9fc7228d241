"""Ends of projects by HTTP: a closed one accepts nothing new and ends what runs, a deleted one is gone for good."""

from typing import Any

import pytest

from core.services.platform import Platform
from tests.api.people import MODEL, People, own
from tests.waiting import until

CLOSE, RED = "/v1/projects/red/close", "/v1/projects/red"
TEXT = {"Content-Type": "text/x-python"}


def end_what_is_due(platform: Platform) -> None:
    """Run the jobs that follow."""
    platform.access.project_ends.sweep()
    for _ in range(3):
        with platform.database.read() as c:
            unended = [*c.exec_driver_sql("SELECT id FROM simulations WHERE ended_at IS NULL").scalars()]
            deleted = [*c.exec_driver_sql("SELECT id FROM simulations WHERE deleted_at IS NOT NULL").scalars()]
        for id in unended:
            platform.jobs.finalization.collect(id)
        for id in deleted:
            platform.jobs.deletion.remove(id)
        platform.access.project_ends.sweep()


def test_a_closed_project_accepts_nothing_new_and_is_read(people: People, platform: Platform) -> None:
    owned = own(people, "red")
    assert people.ask("operator", "POST", CLOSE).json["state"] == "closed"
    refused = [
        ("red submitter", "POST", "/v1/simulations", {"json": {"dataset": "noop", "model": "brake"}}),
        ("red maintainer", "PUT", "/v1/models/new", {"data": MODEL, "headers": TEXT}),
        ("red submitter", "POST", "/v1/uploads", {"headers": {"Tus-Resumable": "1.0.0", "Upload-Length": "9"}}),
        ("red submitter", "POST", f"/v1/simulations/{owned['simulation']}/retry", {}),
        ("operator", "POST", "/v1/simulations?project=red", {"json": {"dataset": "noop", "model": "brake"}}),
    ]
    for who in ("red submitter", "red maintainer", "operator"):  # what is known of a token is kept for a second
        until(lambda who=who: people.ask(who, "GET", "/v1/session?project=red").json["verbs"].count("upload") == 0)  # type: ignore[misc]
    for who, method, path, options in refused:
        answer = people.ask(who, method, path, **options)
        assert answer.status_code == 409 and "project-closed" in answer.text, (who, path, answer.text)
    assert people.ask("red viewer", "GET", "/v1/models/brake").status_code == 200
    assert people.ask("operator", "POST", CLOSE).status_code == 200  # again
    end_what_is_due(platform)
    ended = people.ask("red viewer", "GET", f"/v1/simulations/{owned['simulation']}").json
    assert ended["state"] == "cancelled"
    assert people.ask("red viewer", "GET", "/v1/session").json["projects"][0]["closed"] is True


def test_a_deleted_project_is_as_if_it_had_never_been_and_its_name_is_not_used_again(
    people: People,
    platform: Platform,
) -> None:
    own(people, "red")
    blue = own(people, "blue")
    assert people.ask("operator", "DELETE", RED).status_code == 409  # it is open
    people.ask("operator", "POST", CLOSE)
    assert people.ask("operator", "DELETE", RED).status_code == 204
    assert people.ask("operator", "GET", RED).status_code == 404
    assert people.ask("red viewer", "GET", "/v1/models").status_code == 401
    assert "red" not in people.ask("operator", "GET", "/v1/projects").text
    end_what_is_due(platform)
    with platform.database.read() as c:
        for table in ("simulations", "models", "uploads", "comparisons", "pipelines", "idempotency"):
            assert c.exec_driver_sql(f"SELECT count(*) FROM {table} WHERE project='red'").scalar() == 0, table
        assert c.exec_driver_sql("SELECT state FROM projects WHERE name='red'").scalar() == "removed"
    entries = people.ask("operator", "GET", "/v1/audit?act=delete_project&outcome=done").json["items"]
    assert "blue" not in {entry["project"] for entry in entries}
    own_entries = [entry for entry in entries if entry["project"] == "red"]
    assert {entry["user"] for entry in own_entries} == {"operator"}
    kinds = {entry["subject"].partition("/")[0] for entry in own_entries}
    assert kinds >= {"projects", "simulations", "models", "uploads"}, kinds
    assert people.ask("operator", "POST", "/v1/projects", json={"name": "red"}).status_code == 409
    assert people.ask("blue viewer", "GET", f"/v1/simulations/{blue['simulation']}").status_code == 200
    assert people.ask("blue viewer", "GET", "/v1/models/brake/content").status_code == 200


@pytest.mark.parametrize("who", ["red viewer", "red maintainer", "blue maintainer"])
@pytest.mark.parametrize(("method", "path"), [("POST", CLOSE), ("DELETE", RED)])
def test_only_operators_end_projects(people: People, who: str, method: str, path: str) -> None:
    assert people.ask(who, method, path).status_code == (404 if who.startswith("blue") else 403)
    assert people.ask("operator", "GET", RED).json["state"] == "open"


def test_the_project_of_what_was_there_before_stays(people: People) -> None:
    answer: Any = people.ask("operator", "POST", "/v1/projects/default/close")
    assert answer.status_code == 422 and "stays" in answer.text
