"""Routes of simulations: submission, idempotency, waiting, list, cancellation, retry, deletion and comparison."""

import io
import json
import threading
from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient
from sqlalchemy import update

from common.errors import Invalid, TooManyDryRuns
from core.domain.access.scopes import LOCAL_CALLER, OPERATION
from core.domain.scheduling.states import State
from core.domain.submissions.submission import Submission
from core.services.due_jobs import DueJobs
from core.services.platform import Platform
from core.services.scheduling.leases import CachedLaunch
from core.services.simulations.dry_runs import LONGEST_DRY_RUN
from core.services.simulations.finalization import Finalization
from core.services.simulations.inheritance import Inheritance, inherit
from core.store import simulations, tables
from core.store.database import Database
from datasets.objectstore.base import ObjectStore
from runtimes.harness.evaluator.runner_connection import EvaluationSetup
from tests.api.answers import MODEL, problem
from tests.api.conftest import DRY_RUNS, LeasingWorker, Submit
from tests.dispatching import last_submitted, unended
from tests.waiting import until

FIELDS = {
    "id", "state", "attempt", "model", "runtime", "dataset", "tasks", "metrics", "reason", "position", "eta",
    "created_at", "started_at", "ended_at", "links",
}  # fmt: skip
WORLDS_REFUSAL = "worlds: Write a whole number from 1 to 64, or auto."


def test_a_submission_is_answered_with_the_simulation(client: FlaskClient, submit: Submit) -> None:
    response = submit(labels={"branch": "main"}, seed=7)
    assert response.status_code == 201
    simulation = response.json
    assert simulation.keys() >= FIELDS
    assert simulation["state"] == "queued" and simulation["tasks"] == {"total": 20, "done": 0, "failed": 0}
    assert simulation["model"]["name"] == "mine" and simulation["model"]["digest"].startswith("sha256:")
    assert response.headers["Location"] == simulation["links"]["self"] == f"/v1/simulations/{simulation['id']}"
    described = client.get(simulation["links"]["self"]).json
    assert described["position"] == 1 and described["labels"] == {"branch": "main"} and described["spec"]["seed"] == 7


def test_a_simulation_has_the_digest_of_its_results_once_it_has_ended(
    client: FlaskClient, submit: Submit, finished: str
) -> None:
    assert submit().json["results_digest"] is None
    address = f"/v1/simulations/{finished}"
    digest = client.get(f"{address}/summary").json["results_digest"]
    assert digest.startswith("sha256:") and client.get(address).json["results_digest"] == digest
    listed = {item["id"]: item["results_digest"] for item in client.get("/v1/simulations").json["items"]}
    assert listed[finished] == digest


def test_every_link_of_a_simulation_exists(client: FlaskClient, finished: str) -> None:
    for name, link in client.get(f"/v1/simulations/{finished}").json["links"].items():
        assert client.get(link).status_code == 200, name


def test_a_form_may_contain_the_model(client: FlaskClient) -> None:
    form = {
        "model": (io.BytesIO(MODEL), "my.py"), "dataset": "noop", "scenarios": '{"range": [0, 5]}', "repeat": "2",
        "labels": '{"a": "1"}', "dry_run": "False", "workers": "None",
    }  # fmt: skip
    response = client.post("/v1/simulations", data=form)
    assert response.status_code == 201, response.data
    assert response.json["tasks"]["total"] == 10 and response.json["model"]["name"] == "my"
    assert response.json["runtime"]["name"] == "python"  # determined from the binary
    assert client.get("/v1/models/my").json["digest"] == response.json["model"]["digest"]


@pytest.mark.parametrize(
    ("text", "selected"),
    [("0-3", {"range": [0, 4]}), ("3", {"tasks": [3]}), ("0-1, 7", {"tasks": [0, 1, 7]})],
)
def test_scenarios_may_be_written_as_people_do_in_json_and_in_a_form(
    client: FlaskClient, model: str, text: str, selected: dict[str, Any]
) -> None:
    fields = {"model": model, "dataset": "noop", "scenarios": text}
    form = {"data": fields, "content_type": "multipart/form-data"}
    for response in (client.post("/v1/simulations", json=fields), client.post("/v1/simulations", **form)):
        assert response.status_code == 201, response.data
        assert response.json["spec"]["scenarios"] == selected


@pytest.mark.parametrize("text", ["first", "3-1", "0-99999999", "", "0,0", "1" * 40])
def test_scenarios_that_cannot_be_meant_are_refused_alike_in_json_and_in_a_form(
    client: FlaskClient, model: str, text: str
) -> None:
    fields = {"model": model, "dataset": "noop", "scenarios": text}
    form = {"data": fields, "content_type": "multipart/form-data"}
    for answer in (client.post("/v1/simulations", json=fields), client.post("/v1/simulations", **form)):
        assert answer.status_code == 422 and "scenario" in answer.json["detail"].lower(), answer.json


def test_a_form_may_refer_to_a_model_instead(client: FlaskClient, model: str) -> None:
    response = client.post(
        "/v1/simulations", data={"model": model, "dataset": "noop"}, content_type="multipart/form-data"
    )
    assert response.status_code == 201 and response.json["model"]["name"] == model


@pytest.mark.parametrize(
    ("form", "fragment"),
    [
        ({"dataset": "noop", "repeat": "two"}, "repeat"),
        ({"dataset": "noop", "labels": "{"}, "labels"),
        *(({"dataset": "noop", "worlds": worlds}, WORLDS_REFUSAL) for worlds in ("0", "65", "1.5", "True", "many")),
        ({"dataset": "noop", "colour": "red"}, "colour"),
        ({"dataset": "noop", "file": (io.BytesIO(MODEL), "a.py")}, "file"),
        ({"dataset": ["noop", "noop"]}, "2 times"),
        ({"dataset": "noop", "model": [(io.BytesIO(MODEL), "a.py"), (io.BytesIO(MODEL), "b.py")]}, "one model"),
        ({"model": (io.BytesIO(MODEL), "a.py")}, "dataset"),
    ],
)
def test_an_invalid_form_is_refused_with_the_reason(client: FlaskClient, form: dict[str, Any], fragment: str) -> None:
    response = client.post("/v1/simulations", data=form, content_type="multipart/form-data")
    assert fragment in problem(response, 422, "invalid")["detail"]
    assert client.get("/v1/models?baseline=false").json["items"] == []  # the model was not stored


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"dataset": None}, "dataset"),
        ({"dataset": 5}, "dataset"),
        ({"dataset": "noop\n"}, "dataset"),
        ({"repeat": 0}, "repeat"),
        ({"repeat": True}, "repeat"),
        ({"repeat": "2"}, "repeat"),
        ({"repeat": 1.5}, "repeat"),
        ({"seed": 2**60}, "seed"),
        ({"seed": -1}, "seed"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": 0}, "timeout"),
        ({"record": "some"}, "record"),
        *(({"worlds": worlds}, WORLDS_REFUSAL) for worlds in (0, 65, -1, 1.5, True, "many", "16", "", [1], 10**400)),
        ({"worlds": None}, "worlds: Field may not be null."),
        ({"labels": {"a\u0000": "x"}}, "labels"),
        ({"labels": {"a": 1}}, "labels"),
        ({"labels": {f"a{n}": "x" for n in range(33)}}, "labels"),
        ({"labels": []}, "labels"),
        ({"sweep": {"batch": []}}, "sweep"),
        ({"params": {"nothing": 1}}, "nothing"),
        ({"dry_run": "yes"}, "dry_run"),
        ({"dry_run": 1}, "dry_run"),
        ({"scenarios": {}}, "scenarios"),
        ({"scenarios": {"range": [0]}}, "scenarios"),
        ({"scenarios": {"range": [0, 1], "sample": 3}}, "scenarios"),
        ({"scenarios": {"tasks": [1], "seed": 3}}, "scenarios"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_an_invalid_field_is_named(submit: Submit, changes: dict[str, Any], fragment: str) -> None:
    assert fragment in problem(submit(**changes), 422, "invalid")["detail"]


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({"dataset": "nop"}, "unknown-dataset"),
        ({"dataset": "noop@99"}, "unknown-dataset"),
        ({"runtime": "pyhton"}, "unknown-runtime"),
        ({"model": "nobody"}, "unknown-model"),
        ({"runtime": "onnx"}, "format-mismatch"),
        ({"scenarios": {"range": [5, 10_000_000], "seed": 1}}, "invalid"),
        ({"scenarios": {"range": [7, 7]}}, "scenario-out-of-range"),
        ({"scenarios": {"range": [0, 9_000_000]}, "repeat": 9}, "too-many-tasks"),
    ],
)
def test_a_submission_that_cannot_run_is_refused_with_its_problem_type(
    submit: Submit, changes: dict[str, Any], slug: str
) -> None:
    assert len(problem(submit(**changes), 422, slug)["detail"]) > 20


def test_an_integer_may_have_a_decimal_point(submit: Submit) -> None:
    assert submit(repeat=2.0).json["tasks"]["total"] == 40
    assert submit(worlds=2.0).json["spec"]["worlds"] == 2


# -- scenarios side by side


def evaluation_setup(platform: Platform, launch: CachedLaunch) -> EvaluationSetup:
    """Return what an evaluator gets of a launch."""
    return msgspec.convert(platform.scheduling.leases.describe(launch)["play"], EvaluationSetup)


@pytest.mark.parametrize("worlds", [1, 16, 64, "auto"])
def test_the_number_of_worlds_arrives_at_the_evaluator(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform, worlds: int | str
) -> None:
    simulation, number = submit(worlds=worlds).json, None if worlds == "auto" else worlds
    assert simulation["spec"]["worlds"] == worlds
    assert simulation["provenance"]["play"].get("worlds") == number
    assert evaluation_setup(platform, worker.launch(simulation["id"])).worlds == number
    form = {"model": (io.BytesIO(MODEL), "m.py"), "dataset": "noop", "worlds": str(worlds)}
    assert client.post("/v1/forms/simulations", data=form).json["spec"]["worlds"] == worlds


def test_a_simulation_that_was_stored_without_worlds_is_played_and_repeated(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    created = submit().json
    spec = {name: value for name, value in created["spec"].items() if name != "worlds"}
    assert "worlds" not in created["provenance"]["play"], "what is left out has its default"
    platform.database.write(lambda c: simulations.describe(c, created["id"], spec=json.dumps(spec)))
    launch = worker.launch(created["id"])
    assert evaluation_setup(platform, launch).worlds is None
    worker.finish(launch)
    stored = client.get(f"/v1/simulations/{created['id']}").json
    assert stored["spec"] == spec
    repeated = client.post("/v1/reruns", json={name: stored[name] for name in ("spec", "provenance")})
    assert repeated.json["spec"]["worlds"] == "auto" and repeated.json["provenance"] == stored["provenance"]


def test_simulations_with_other_worlds_have_equal_digests_and_are_compared(
    client: FlaskClient, submit: Submit, worker: LeasingWorker
) -> None:
    ids = [submit(worlds=worlds).json["id"] for worlds in (1, 64)]
    for id in ids:
        worker.run_to_end(id)
    first, second = (client.get(f"/v1/simulations/{id}").json for id in ids)
    assert first["results_digest"] == second["results_digest"]
    assert first["provenance"]["play"].pop("worlds") == 1 and second["provenance"]["play"].pop("worlds") == 64
    assert first["provenance"] == second["provenance"]
    compared = client.get(f"/v1/simulations/{ids[0]}/comparison?to={ids[1]}")
    assert compared.status_code == 200 and compared.json["metrics"]["return"]["difference"] == 0


@pytest.mark.parametrize("worlds", [0, 65])
def test_worlds_that_were_not_checked_by_the_api_are_refused_too(platform: Platform, model: str, worlds: int) -> None:
    with pytest.raises(Invalid, match=r"`worlds` must be in 1\.\.64, or auto\."):
        platform.submissions.simulations.submit(LOCAL_CALLER, Submission(dataset="noop", model=model, worlds=worlds))


# -- idempotency


def test_a_repeated_key_gets_the_first_response_again(
    client: FlaskClient, submit: Submit, worker: LeasingWorker
) -> None:
    key = {"Idempotency-Key": "once"}
    first = submit(headers=key)
    assert "Idempotency-Replayed" not in first.headers
    worker.run_to_end(first.json["id"])
    second = submit(headers=key)
    assert second.status_code == first.status_code and second.data == first.data
    assert second.headers["Location"] == first.headers["Location"]
    assert second.headers["Idempotency-Replayed"] == "true"
    assert len(client.get("/v1/simulations").json["items"]) == 1


def test_a_form_sent_twice_is_the_same_request(client: FlaskClient) -> None:
    def send(model: bytes = MODEL) -> Any:
        form = {"model": (io.BytesIO(model), "m.py"), "dataset": "noop"}
        return client.post("/v1/simulations", data=form, headers={"Idempotency-Key": "form"})

    first, second = send(), send()  # the boundaries differ
    assert first.json["id"] == second.json["id"]
    problem(send(MODEL + b"#"), 422, "idempotency-mismatch")


def test_a_key_with_another_request_is_refused(submit: Submit) -> None:
    key = {"Idempotency-Key": "k"}
    assert submit(headers=key).status_code == 201
    problem(submit(headers=key, seed=1), 422, "idempotency-mismatch")
    assert submit(headers=key, seed=0).headers["Idempotency-Replayed"] == "true"  # the default value, sent explicitly


def test_a_key_of_a_deleted_simulation_is_gone(client: FlaskClient, submit: Submit, worker: LeasingWorker) -> None:
    key = {"Idempotency-Key": "k"}
    id = submit(headers=key).json["id"]
    worker.run_to_end(id)
    client.delete(f"/v1/simulations/{id}")
    problem(submit(headers=key), 410, "gone")
    assert client.get("/v1/simulations").json["items"] == []


def test_a_refused_request_does_not_use_up_its_key(submit: Submit) -> None:
    key = {"Idempotency-Key": "k"}
    problem(submit(headers=key, model="nobody"), 422, "unknown-model")
    assert submit(headers=key).status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 256, "caf\xe9", "a\tb"])
def test_an_invalid_key_is_refused(client: FlaskClient, submit: Submit, key: str) -> None:
    problem(submit(headers={"Idempotency-Key": key}), 422, "invalid")
    assert client.get("/v1/simulations").json["items"] == []


def test_concurrent_requests_with_one_key_create_one_simulation(application: Any, model: str) -> None:
    document = {"dataset": "noop", "model": model}
    responses: list[Any] = []

    def send() -> None:
        headers = {"Idempotency-Key": "race"}
        responses.append(application.test_client().post("/v1/simulations", json=document, headers=headers))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {response.status_code for response in responses} == {201}
    assert len({response.data for response in responses}) == 1
    assert sum("Idempotency-Replayed" not in response.headers for response in responses) == 1


def test_a_retry_with_a_repeated_key_is_one_simulation(
    client: FlaskClient, submit: Submit, worker: LeasingWorker
) -> None:
    id = submit().json["id"]
    worker.run_to_end(id)

    def retry(key: str, **body: Any) -> Any:
        return client.post(f"/v1/simulations/{id}/retry", json=body, headers={"Idempotency-Key": key})

    first = retry("again", only_failed=False)
    assert first.status_code == 201 and "Idempotency-Replayed" not in first.headers
    second = retry("again", only_failed=False)
    assert second.status_code == 201 and second.headers["Idempotency-Replayed"] == "true"
    assert second.json["id"] == first.json["id"] and second.headers["Location"] == first.headers["Location"]
    problem(retry("again", only_failed=True), 422, "idempotency-mismatch")
    problem(submit(headers={"Idempotency-Key": "again"}), 422, "idempotency-mismatch")
    assert retry("another", only_failed=False).json["id"] != first.json["id"]
    client.post(f"/v1/simulations/{first.json['id']}/cancel")
    client.delete(f"/v1/simulations/{id}")
    assert retry("again", only_failed=False).json["id"] == first.json["id"]  # although its origin is deleted


def test_a_key_of_a_deleted_retry_is_gone(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Any
) -> None:
    id = submit().json["id"]
    worker.run_to_end(id)
    key = {"Idempotency-Key": "again"}
    retried = client.post(f"/v1/simulations/{id}/retry", headers=key).json["id"]
    client.post(f"/v1/simulations/{retried}/cancel")
    platform.jobs.finalization.collect(retried)
    assert client.delete(f"/v1/simulations/{retried}").status_code == 204
    problem(client.post(f"/v1/simulations/{id}/retry", headers=key), 410, "gone")


# -- Prefer: wait


def test_prefer_wait_answers_at_the_end(submit: Submit, worker: LeasingWorker, platform: Platform) -> None:
    def run() -> None:
        worker.run_to_end(until(lambda: platform.submissions.simulations.list(LOCAL_CALLER)[0])[0].id)

    thread = threading.Thread(target=run)
    thread.start()
    response = submit(headers={"Prefer": "respond-async, wait=30"})
    thread.join()
    assert response.status_code == 201 and response.json["state"] == "succeeded"
    assert response.headers["Preference-Applied"] == "wait=30"
    assert response.json["tasks"] == {"total": 20, "done": 20, "failed": 2}


def test_prefer_wait_answers_after_its_seconds(submit: Submit) -> None:
    response = submit(headers={"Prefer": "wait=1"})
    assert response.json["state"] == "queued" and response.headers["Preference-Applied"] == "wait=1"


@pytest.mark.parametrize("prefer", ["wait", "wait=x", "wait=-1", "waiting=5", "return=minimal"])
def test_an_unknown_preference_is_ignored(submit: Submit, prefer: str) -> None:
    response = submit(headers={"Prefer": prefer})
    assert response.status_code == 201 and "Preference-Applied" not in response.headers


# -- list


def test_the_list_is_filtered_and_has_pages(client: FlaskClient, submit: Submit, worker: LeasingWorker) -> None:
    ids = [submit(labels={"n": str(number), "all": "x,y=z"}).json["id"] for number in range(5)]
    worker.run_to_end(ids[0])

    def ids_of(query: str) -> list[str]:
        response = client.get(f"/v1/simulations?{query}")
        assert response.status_code == 200, response.data
        return [item["id"] for item in response.json["items"]]

    assert ids_of("") == ids[::-1]
    assert ids_of("state=succeeded") == ids[:1]
    assert ids_of("state=queued&label=n=3") == [ids[3]]
    assert ids_of("label=all=x,y=z&label=n=2") == [ids[2]]
    assert ids_of("dataset=noop&runtime=python&model=mine") == ids[::-1]
    assert ids_of("dataset=other") == []
    page = client.get("/v1/simulations?limit=2&label=all=x,y=z")
    assert [item["id"] for item in page.json["items"]] == ids[:2:-1]
    link = page.headers["Link"]
    assert link.endswith('; rel="next"') and page.json["next"] in link
    assert [item["id"] for item in client.get(link.split(">")[0][1:]).json["items"]] == ids[2:0:-1]


def test_label_filters_are_exact_and_combined(client: FlaskClient, submit: Submit) -> None:
    label_sets = [{"env": "prod"}, {"env": "Prod"}, {"ENV": "prod"}, {"env": "prod", "team": "a%b_c"}]
    ids = [submit(labels=labels).json["id"] for labels in label_sets]

    def ids_of(query: str) -> list[str]:
        response = client.get(f"/v1/simulations?{query}")
        assert response.status_code == 200, response.data
        return [item["id"] for item in response.json["items"]]

    assert ids_of("label=env=prod") == [ids[3], ids[0]]
    assert ids_of("label=env=Prod") == [ids[1]]
    assert ids_of("label=ENV=prod") == [ids[2]]
    assert ids_of("label=env=PROD") == ids_of("label=Env=prod") == []
    assert ids_of("label=team=a%25b_c") == [ids[3]] and ids_of("label=team=aXb_c") == []
    # a simulation has one value per label
    assert ids_of("label=env=Prod&label=env=prod") == ids_of("label=env=prod&label=env=Prod") == []
    assert ids_of("label=env=prod&label=env=prod&label=team=a%25b_c") == [ids[3]]


@pytest.mark.parametrize("query", ["state=done", "limit=201", "label=x", "label==x", "after=%00", "status=queued"])
def test_an_invalid_filter_is_refused(client: FlaskClient, query: str) -> None:
    problem(client.get(f"/v1/simulations?{query}"), 422, "invalid")


# -- after the submission


@pytest.mark.parametrize("id", ["01jd0000000000000000000000", "x" * 26])
@pytest.mark.parametrize(
    "part", ["", "/events", "/results", "/results?format=csv", "/results?format=parquet", "/results?follow=true",
             "/logs",
             "/summary", "/archive", "/artifacts", "/artifacts/0/x", "/tasks/0/replay",
             "/comparison?to=01jd0000000000000000000000"],
)  # fmt: skip
def test_an_unknown_simulation_is_a_404(client: FlaskClient, id: str, part: str) -> None:
    problem(client.get(f"/v1/simulations/{id}{part}"), 404, "unknown-simulation")


@pytest.mark.parametrize("id", ["short", "01JD0000000000000000000000", "01jd000000000000000000000%00"])
def test_an_invalid_id_is_a_404(client: FlaskClient, id: str) -> None:
    problem(client.get(f"/v1/simulations/{id}"), 404, "not-found")


def test_a_second_cancellation_has_no_effect(client: FlaskClient, submit: Submit) -> None:
    id = submit().json["id"]
    for _ in range(2):
        response = client.post(f"/v1/simulations/{id}/cancel")
        assert response.status_code == 202 and response.json["state"] == "cancelled"


def run_one_lease(worker: LeasingWorker, launch: CachedLaunch) -> tuple[int, int]:
    """Run the tasks of one lease and a tick of the dispatcher; return the number of tasks, and of failed tasks."""
    lease = worker.lease(launch)
    worker.report(launch, lease, lease.cursor, lease.stop)
    dispatch = worker.dispatch
    snapshot = dispatch.snapshot()
    running = [simulation for simulation in snapshot.active.values() if simulation.state is State.RUNNING]
    dispatch.tick(running, snapshot.now)
    return lease.stop - lease.cursor, sum(task % 7 == 6 for task in range(lease.cursor, lease.stop))


@pytest.mark.parametrize("limit", [0, 1])
def test_a_simulation_fails_when_more_tasks_fail_than_allowed(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform, limit: int
) -> None:
    id = submit(tasks=100, max_failures=limit).json["id"]
    launch = worker.launch(id)
    done = failed = 0
    while failed <= limit:
        count, failures = run_one_lease(worker, launch)
        done, failed = done + count, failed + failures
        assert (last_submitted(worker.dispatch).outcome is None) is (failed <= limit)
    assert done < 100
    platform.jobs.finalization.collect(id)
    assert id not in {simulation.id for simulation in unended(worker.dispatch)}
    simulation = client.get(f"/v1/simulations/{id}").json
    assert simulation["state"] == "failed" and simulation["tasks"] == {"total": 100, "done": done, "failed": failed}
    assert simulation["reason"] == f"{failed} tasks failed; max_failures is {limit}"


@pytest.mark.parametrize("options", [{}, {"max_failures": 2}])
def test_a_simulation_continues_with_the_allowed_number_of_failures(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, options: dict[str, int]
) -> None:
    id = submit(**options).json["id"]
    launch = worker.launch(id)
    failed = 0
    while failed < 2:
        failed += run_one_lease(worker, launch)[1]
        assert client.get(f"/v1/simulations/{id}").json["state"] == "running"
    worker.finish(launch)
    assert client.get(f"/v1/simulations/{id}").json["tasks"] == {"total": 20, "done": 20, "failed": 2}


def test_an_ended_simulation_cannot_be_cancelled(client: FlaskClient, finished: str) -> None:
    refused = problem(client.post(f"/v1/simulations/{finished}/cancel"), 409, "illegal-transition")
    assert refused["state"] == "succeeded"


def test_a_retry_repeats_only_failed_tasks(client: FlaskClient, finished: str, worker: LeasingWorker) -> None:
    response = client.post(f"/v1/simulations/{finished}/retry")
    assert response.status_code == 201 and response.json["retry_of"] == finished
    assert response.headers["Location"] == response.json["links"]["self"]
    simulation = client.get(response.headers["Location"]).json
    assert simulation["tasks"] == {"total": 20, "done": 18, "failed": 0}


def test_a_retry_of_a_simulation_that_is_deleted_meanwhile_leaves_no_simulation(
    client: FlaskClient, finished: str, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inherit_after_deletion(database: Database, store: ObjectStore, id: str) -> Inheritance:
        inheritance = inherit(database, store, id)
        platform.submissions.simulations.delete(OPERATION, id)  # whosever retry it is
        platform.jobs.deletion.remove(id)
        return inheritance

    monkeypatch.setattr("core.services.simulations.results.inherit", inherit_after_deletion)
    problem(client.post(f"/v1/simulations/{finished}/retry"), 404, "unknown-simulation")
    assert client.get("/v1/simulations").json["items"] == []
    assert platform.submissions.simulations.list(LOCAL_CALLER) == ([], None)


def test_a_retry_reads_results_that_are_compacted_meanwhile(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = submit().json["id"]
    launch = worker.launch(id)
    lease = worker.lease(launch)
    worker.report(launch, lease, 0, 3)
    worker.report(launch, lease, 3, 5)
    worker.finish(launch)
    compacted: list[str] = []

    def inherit_after_compaction(database: Database, store: ObjectStore, id: str) -> Inheritance:
        inheritance = inherit(database, store, id)
        if not compacted:  # once, like the compaction at the end of a concurrent retry
            compacted.extend(dict.fromkeys(segment.object for segment in inheritance.kept))
            finalization = Finalization(
                platform.database,
                platform.store,
                platform.notifier,
                platform.analysis.results,
                platform.jobs.finalization.outputs,
                compact_above=1,
            )
            finalization.compact(f"{id}.0")
            assert not {*compacted} & {*platform.store.list(f"results/{id}/")}
        return inheritance

    monkeypatch.setattr("core.services.simulations.results.inherit", inherit_after_compaction)
    response = client.post(f"/v1/simulations/{id}/retry")
    assert response.status_code == 201 and len(compacted) > 1
    results = client.get(f"{response.headers['Location']}/results").data.splitlines()
    assert [json.loads(item)["task"] for item in results] == [task for task in range(20) if task % 7 != 6]
    assert len(client.get("/v1/simulations").json["items"]) == 2


def test_a_retry_may_repeat_all_tasks(client: FlaskClient, finished: str) -> None:
    response = client.post(f"/v1/simulations/{finished}/retry", json={"only_failed": False})
    assert client.get(response.headers["Location"]).json["tasks"]["done"] == 0


def test_an_invalid_retry_is_refused(client: FlaskClient, finished: str, submit: Submit) -> None:
    path = f"/v1/simulations/{finished}/retry"
    problem(client.post(path, json={"only_failed": "no"}), 422, "invalid")
    problem(client.post(path, json={"other": 1}), 422, "invalid")
    problem(client.post(path, data="x", content_type="text/plain"), 415, "unsupported-media-type")
    problem(client.post(f"/v1/simulations/{submit().json['id']}/retry"), 409, "not-finished")


def test_only_ended_simulations_can_be_deleted(client: FlaskClient, submit: Submit, finished: str) -> None:
    id = submit().json["id"]
    problem(client.delete(f"/v1/simulations/{id}"), 409, "not-finished")
    deleted = client.delete(f"/v1/simulations/{finished}")
    assert deleted.status_code == 204 and deleted.data == b""
    problem(client.get(f"/v1/simulations/{finished}"), 404, "unknown-simulation")
    assert [item["id"] for item in client.get("/v1/simulations").json["items"]] == [id]


def test_a_summary_has_failures_first_and_two_means(client: FlaskClient, finished: str) -> None:
    summary = client.get(f"/v1/simulations/{finished}/summary").json
    assert summary["tasks"]["failed"] == 2
    assert {"mean_ok", "mean_penalised"} <= summary["metrics"]["steps"].keys()
    assert len(summary["worst"]) == 2 and {task["status"] for task in summary["worst"]}.isdisjoint({"ok"})


def test_a_summary_of_an_earlier_version_may_have_an_infinity(
    client: FlaskClient, finished: str, platform: Platform
) -> None:
    summary = client.get(f"/v1/simulations/{finished}/summary").json
    summary["metrics"]["steps"]["std"] = float("inf")
    columns = {"summary": json.dumps(summary), "headline": None}  # earlier versions stored the summary alone
    platform.database.write(lambda c: simulations.describe(c, finished, **columns))
    simulation = client.get(f"/v1/simulations/{finished}")
    assert simulation.status_code == 200 and simulation.json["tasks"]["done"] == 20
    assert client.get("/v1/simulations").json["items"][0]["tasks"]["done"] == 20


def test_a_summary_exists_only_after_the_end(client: FlaskClient, submit: Submit) -> None:
    problem(client.get(f"/v1/simulations/{submit().json['id']}/summary"), 409, "not-finished")


def test_two_simulations_are_compared(
    client: FlaskClient, finished: str, submit: Submit, worker: LeasingWorker
) -> None:
    other = submit(seed=1).json["id"]
    worker.run_to_end(other)
    response = client.get(f"/v1/simulations/{finished}/comparison?to={other}")
    assert response.status_code == 200 and response.json
    problem(client.get(f"/v1/simulations/{finished}/comparison"), 422, "invalid")
    problem(client.get(f"/v1/simulations/{finished}/comparison?to=x"), 422, "invalid")


def test_the_simulation_json_of_an_archive_repeats_the_simulation(
    client: FlaskClient, finished: str, worker: LeasingWorker
) -> None:
    import zipfile

    archive = zipfile.ZipFile(io.BytesIO(client.get(f"/v1/simulations/{finished}/archive").data))
    document = json.loads(archive.read("simulation.json"))
    response = client.post("/v1/simulations", json=document)
    assert response.status_code == 201, response.data
    worker.run_to_end(response.json["id"])
    digests = {
        client.get(f"/v1/simulations/{id}/summary").json["results_digest"] for id in (finished, response.json["id"])
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    "changes", [{"provenance": {}}, {"provenance": 3}, {"spec": []}, {"spec": {"dataset": "noop", "repeat": 0}}]
)
def test_an_invalid_simulation_json_is_refused(client: FlaskClient, finished: str, changes: dict[str, Any]) -> None:
    simulation = client.get(f"/v1/simulations/{finished}").json
    document = {"spec": simulation["spec"], "provenance": simulation["provenance"]} | changes
    problem(client.post("/v1/simulations", json=document), 422, "invalid")


def test_simultaneous_dry_runs_are_limited_and_an_ended_one_makes_room(
    submit: Submit, platform: Platform, model: str
) -> None:
    submission = Submission(dataset="noop", model=model, dry_run=True)
    dry_runs = [platform.submissions.simulations.submit(LOCAL_CALLER, submission)[0].id for _ in range(DRY_RUNS)]
    refused = submit(dry_run=True)
    problem(refused, 429, "too-many-dry-runs")
    assert 1 <= int(refused.headers["Retry-After"]) <= 300
    assert "WINDTUNNEL_DRY_RUNS" in refused.json["detail"]
    assert submit().status_code == 201, "simulations are queued and have no such limit"
    platform.submissions.simulations.cancel(LOCAL_CALLER, dry_runs[0])
    assert platform.submissions.simulations.submit(LOCAL_CALLER, submission)[0].id
    problem(submit(dry_run=True), 429, "too-many-dry-runs")


def test_a_dry_run_that_no_request_waits_for_does_not_count_for_ever(platform: Platform, model: str) -> None:
    submission = Submission(dataset="noop", model=model, dry_run=True)
    for _ in range(DRY_RUNS):
        platform.submissions.simulations.submit(LOCAL_CALLER, submission)
    with pytest.raises(TooManyDryRuns):
        platform.submissions.simulations.submit(LOCAL_CALLER, submission)
    # as after a crash of the API process that waited for them
    long_ago = tables.simulations.c.created_at - LONGEST_DRY_RUN
    platform.database.write(lambda c: c.execute(update(tables.simulations).values(created_at=long_ago)))
    platform.submissions.simulations.submit(LOCAL_CALLER, submission)


def test_a_dry_run_reports_whether_the_model_fits(
    submit: Submit, worker: LeasingWorker, platform: Platform, client: FlaskClient
) -> None:
    with worker.working():
        response = submit(dry_run=True)
    assert response.status_code == 200 and response.json["fits"] and response.json["reason"] is None
    assert (response.json["dataset"], response.json["format"]) == ("noop", "python")
    assert DueJobs(platform.database).of("delete")  # the simulation of a dry run is deleted
    assert client.get("/v1/simulations").json["items"] == []
