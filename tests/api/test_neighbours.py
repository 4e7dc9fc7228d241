"""What a project is told while another has things of the same and of similar names: nothing of them, and no number."""

import json
from collections.abc import Callable

import pytest

from common.errors import TooManyDryRuns, TooManyUploads
from core.domain.access.scopes import Caller, work_of
from core.domain.submissions.submission import Submission
from core.services.platform import Platform
from core.services.uploads.uploads import UploadLimits, Uploads
from tests.api.conftest import DRY_RUNS, LeasingWorker
from tests.api.people import MODEL, People

TEXT = {"Content-Type": "text/x-python"}


def put(people: People, who: str, name: str, content: bytes = MODEL) -> None:
    sent = people.ask(who, "PUT", f"/v1/models/{name}", data=content, headers=TEXT)
    assert sent.status_code == 201, sent.text


def submit(people: People, who: str, **fields: object) -> str:
    sent = people.ask(who, "POST", "/v1/simulations", json={"dataset": "noop", "model": "brake"} | fields)
    assert sent.status_code == 201, sent.text
    id: str = sent.json["id"]
    return id


def test_a_position_in_the_queue_counts_the_simulations_of_its_own_project(people: People) -> None:
    for project in ("red", "blue"):
        put(people, f"{project} submitter", "brake")
    before = submit(people, "blue submitter")
    alone = people.ask("blue viewer", "GET", f"/v1/simulations/{before}").json
    people.ask("blue submitter", "POST", f"/v1/simulations/{before}/cancel")
    for _ in range(3):
        submit(people, "red submitter")
    first, second = submit(people, "blue submitter"), submit(people, "blue submitter")
    submit(people, "red submitter")
    listed = people.ask("blue viewer", "GET", "/v1/simulations?state=queued").json["items"]
    assert [(item["id"], item["position"]) for item in listed] == [(second, 2), (first, 1)]
    assert listed[1]["reason"] == alone["reason"]
    assert listed[0]["reason"] == "waits its turn: 1 before it"


def test_the_reader_of_a_shared_simulation_sees_its_position_as_its_owner_does(people: People) -> None:
    for project in ("red", "blue"):
        put(people, f"{project} submitter", "brake")
    submit(people, "red submitter")
    for _ in range(3):
        submit(people, "blue submitter")
    id = submit(people, "red submitter")
    assert people.ask("red maintainer", "PUT", f"/v1/simulations/{id}/shares/blue").status_code == 204
    seen = [people.ask(f"{project} viewer", "GET", f"/v1/simulations/{id}").json for project in ("red", "blue")]
    assert [one["position"] for one in seen] == [2, 2]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/models/brak", None),
        ("GET", "/v1/models/brake@goldd", None),
        ("DELETE", "/v1/models/brakee", None),
        ("POST", "/v1/simulations", {"dataset": "noop", "model": "brak"}),
        ("POST", "/v1/checks", {"dataset": "noop", "model": "brak"}),
        ("POST", "/v1/comparisons", {"dataset": "car_street", "models": ["brak", "zero"]}),
        ("GET", "/v1/models?name=brake", None),
        ("GET", "/v1/simulations?q=secret-branch", None),
        ("GET", "/v1/simulations?label=branch%3Dsecret-branch", None),
        ("GET", "/v1/simulations/counts", None),
    ],
)
def test_no_suggestion_and_no_search_finds_what_another_project_has(
    people: People, method: str, path: str, body: dict[str, object] | None
) -> None:
    options = {} if body is None else {"json": body}
    before = people.ask("blue submitter", method, path, **options)
    put(people, "red submitter", "brake")
    tagged = people.ask("red submitter", "PUT", "/v1/models/brake/tags/gold", json={"version": "1"})
    assert tagged.status_code == 200
    submit(people, "red submitter", labels={"branch": "secret-branch"})
    after = people.ask("blue submitter", method, path, **options)
    assert (after.status, after.data) == (before.status, before.data)
    own = people.ask("red submitter", method, path, **options)
    assert (own.status, own.data) != (before.status, before.data), "its own project is told"


def test_a_model_that_two_projects_have_is_deleted_by_one_while_the_other_runs_it(
    people: People, platform: Platform, worker: LeasingWorker
) -> None:
    results, deletions = [], []
    put(people, "blue submitter", "brake")
    for shares_bytes in (False, True):
        if shares_bytes:
            put(people, "red submitter", "brake")
        id = submit(people, "blue submitter", scenarios={"range": [0, 8]})
        launch = worker.launch(id)
        if shares_bytes:
            deleted = people.ask("red submitter", "DELETE", "/v1/models/brake")
            deletions.append((deleted.status_code, platform.files.models.remove_orphans()))
        worker.finish_unseen(launch)
        platform.jobs.finalization.collect(id)
        ended = people.ask("blue viewer", "GET", f"/v1/simulations/{id}").json
        assert ended["state"] == "succeeded", ended
        results.append((ended["results_digest"], ended["answer"], ended["model"]))
    assert deletions == [(204, 0)]
    assert results[0] == results[1]
    assert people.ask("blue viewer", "GET", "/v1/models/brake/content").data == MODEL


def test_the_quota_of_a_project_does_not_change_while_another_stores_its_content(people: People) -> None:
    put(people, "red submitter", "brake")
    submit(people, "red submitter")
    before = people.ask("red viewer", "GET", "/v1/projects/red/quotas").data
    put(people, "blue submitter", "brake")
    id = submit(people, "blue submitter")
    assert people.ask("red viewer", "GET", "/v1/projects/red/quotas").data == before
    assert people.ask("blue submitter", "POST", f"/v1/simulations/{id}/cancel").status_code in (200, 202)
    assert people.ask("blue submitter", "DELETE", "/v1/models/brake").status_code == 204
    assert people.ask("red viewer", "GET", "/v1/projects/red/quotas").data == before


Begin = Callable[[Platform, Caller], object]


def begin_dry_run(platform: Platform, caller: Caller) -> object:
    return platform.submissions.simulations.submit(caller, Submission(dataset="noop", model="zero", dry_run=True))


def begin_upload(platform: Platform, caller: Caller) -> object:
    uploads = Uploads(platform.database, platform.store, limits=UploadLimits(per_project=DRY_RUNS))
    return uploads.create(caller, 1)


@pytest.mark.parametrize(
    ("begin", "refusal"), [(begin_dry_run, TooManyDryRuns), (begin_upload, TooManyUploads)], ids=["dry runs", "uploads"]
)
def test_what_another_project_has_unfinished_takes_no_room_and_is_in_no_number(
    people: People, platform: Platform, begin: Begin, refusal: type[Exception]
) -> None:
    refusals = []
    for project in ("red", "blue"):
        for user in ("ada", "bob", "ada"):
            begin(platform, work_of(project, user))
        with pytest.raises(refusal) as refused:
            begin(platform, work_of(project, "bob"))
        refusals.append(str(refused.value))
    assert refusals[0] == refusals[1]


@pytest.mark.parametrize(
    ("header", "query", "status"),
    [
        ("blue", "project=red", 400),
        ("red", "project=blue", 400),
        (None, "project=blue&project=red", 400),
        (None, "project=blue&%70roject=red", 400),
        (None, "%70roject=red", 404),
        (None, "project=blue;project=red", 404),
        ("Blue", "", 404),
        ("blue%00", "", 404),
        ("blue.", "", 404),
        ("", "", 404),
        ("red", "", 404),
        ("blue", "project=blue", 200),
    ],
)
def test_a_request_that_names_another_project_in_any_way_is_not_in_it(
    people: People, header: str | None, query: str, status: int
) -> None:
    put(people, "red submitter", "brake")
    headers = {} if header is None else {"Windtunnel-Project": header}
    answer = people.ask("blue submitter", "GET", f"/v1/models?{query}", headers=headers)
    assert answer.status_code == status and "brake" not in answer.text, answer.text


def test_an_idempotency_key_of_another_project_repeats_nothing(people: People) -> None:
    key, body = {"Idempotency-Key": "one"}, {"dataset": "noop", "model": "zero"}
    made = {
        project: people.ask(f"{project} submitter", "POST", "/v1/simulations", json=body, headers=key)
        for project in ("red", "blue")
    }
    assert {answer.status_code for answer in made.values()} == {201}
    assert made["red"].json["id"] != made["blue"].json["id"]
    again = people.ask("red submitter", "POST", "/v1/simulations", json=body, headers=key)
    assert again.json["id"] == made["red"].json["id"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/simulations/retry", {"ids": ["ID"]}),
        ("POST", "/v1/simulations/cancel", {"ids": ["ID"]}),
        ("GET", "/v1/simulations?comparison=ID", None),
        ("GET", "/v1/simulations?model=ID", None),
        ("POST", "/v1/bin/ID/restore", None),
        ("POST", "/v1/simulations/ID/tasks/0/connections", {"port": 1}),
        ("PUT", "/v1/simulations/ID/shares/green", None),
        ("POST", "/v1/estimates", {"dataset": "noop", "model": "ID"}),
        ("PUT", "/v1/models/ID/shares/green", None),
        ("OPTIONS", "/v1/simulations/ID", None),
        ("TRACE", "/v1/simulations/ID", None),
    ],
)
@pytest.mark.parametrize("kind", ["simulation", "model"])
def test_bulk_requests_filters_and_odd_methods_answer_alike_of_what_is_anothers_and_of_nothing(
    people: People, method: str, path: str, body: dict[str, object] | None, kind: str
) -> None:
    nobodys = "01jz8w0k5qv3r1m9c2t7x4b6ne"
    ids = {
        "simulation": lambda: submit(people, "red submitter"),
        "model": lambda: str(people.ask("red submitter", "GET", "/v1/models/brake").json["id"]),
    }
    put(people, "red submitter", "brake")
    answers = []
    for id in (ids[kind](), nobodys):
        options = {} if body is None else {"json": json.loads(json.dumps(body).replace("ID", id))}
        answer = people.ask("blue maintainer", method, path.replace("ID", id), **options)
        answers.append((answer.status, answer.text.replace(id, "ID")))
    assert answers[0] == answers[1]
