"""Simulations: submitted by JSON or form, once however often it is asked, looked at, cancelled, retried, deleted."""

import io
import json
import threading
from typing import Any

import pytest
from flask.testing import FlaskClient

from core.domain.states import State
from core.services.platform import Platform
from core.services.scheduling.leases import CachedLaunch
from core.services.simulations.finalization import Finalization
from core.services.simulations.retries import Inheritance, inherit
from core.store.database import Database
from datasets.objectstore.base import ObjectStore
from tests.api.answers import MODEL, problem
from tests.api.conftest import LeasingWorker, Submit
from tests.waiting import until

FIELDS = {
    "id", "state", "attempt", "model", "runtime", "dataset", "tasks", "metrics", "reason", "position", "eta",
    "created_at", "started_at", "ended_at", "links",
}  # fmt: skip


def test_a_submission_is_answered_with_the_simulation(client: FlaskClient, submit: Submit) -> None:
    answer = submit(labels={"branch": "main"}, seed=7)
    assert answer.status_code == 201
    made = answer.json
    assert made.keys() >= FIELDS
    assert made["state"] == "queued" and made["tasks"] == {"total": 20, "done": 0, "failed": 0}
    assert made["model"]["name"] == "mine" and made["model"]["digest"].startswith("sha256:")
    assert answer.headers["Location"] == made["links"]["self"] == f"/v1/simulations/{made['id']}"
    seen = client.get(made["links"]["self"]).json
    assert seen["position"] == 1 and seen["labels"] == {"branch": "main"} and seen["spec"]["seed"] == 7


def test_every_link_leads_somewhere(client: FlaskClient, finished: str) -> None:
    for name, link in client.get(f"/v1/simulations/{finished}").json["links"].items():
        assert client.get(link).status_code == 200, name


def test_a_form_brings_the_model_along(client: FlaskClient) -> None:
    form = {
        "model": (io.BytesIO(MODEL), "my.py"), "dataset": "noop", "scenarios": '{"range": [0, 5]}', "repeat": "2",
        "labels": '{"a": "1"}', "dry_run": "False", "workers": "None",
    }  # fmt: skip
    answer = client.post("/v1/simulations", data=form)
    assert answer.status_code == 201, answer.data
    assert answer.json["tasks"]["total"] == 10 and answer.json["model"]["name"] == "my"
    assert answer.json["runtime"]["name"] == "python"  # told from the binary
    assert client.get("/v1/models/my").json["digest"] == answer.json["model"]["digest"]


def test_a_form_may_refer_to_a_model_instead(client: FlaskClient, model: str) -> None:
    answer = client.post(
        "/v1/simulations", data={"model": model, "dataset": "noop"}, content_type="multipart/form-data"
    )
    assert answer.status_code == 201 and answer.json["model"]["name"] == model


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"dataset": "noop", "repeat": "two"}, "repeat"),
        ({"dataset": "noop", "labels": "{"}, "labels"),
        ({"dataset": "noop", "colour": "red"}, "colour"),
        ({"dataset": "noop", "file": (io.BytesIO(MODEL), "a.py")}, "file"),
        ({"dataset": ["noop", "noop"]}, "2 times"),
        ({"dataset": "noop", "model": [(io.BytesIO(MODEL), "a.py"), (io.BytesIO(MODEL), "b.py")]}, "one model"),
        ({"model": (io.BytesIO(MODEL), "a.py")}, "dataset"),
    ],
)
def test_a_form_that_makes_no_sense_is_refused_in_words(client: FlaskClient, form: dict[str, Any], said: str) -> None:
    answer = client.post("/v1/simulations", data=form, content_type="multipart/form-data")
    assert said in problem(answer, 422, "invalid")["detail"]
    assert client.get("/v1/models").json["items"] == []  # nothing of it was kept


@pytest.mark.parametrize(
    ("changes", "said"),
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
def test_a_field_that_is_wrong_is_named(submit: Submit, changes: dict[str, Any], said: str) -> None:
    assert said in problem(submit(**changes), 422, "invalid")["detail"]


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
def test_what_cannot_be_done_is_said_in_words(submit: Submit, changes: dict[str, Any], slug: str) -> None:
    assert len(problem(submit(**changes), 422, slug)["detail"]) > 20


def test_a_whole_number_may_be_written_with_a_point(submit: Submit) -> None:
    assert submit(repeat=2.0).json["tasks"]["total"] == 40


# -- asked more than once


def test_the_same_key_gives_the_first_answer_again(client: FlaskClient, submit: Submit, driver: LeasingWorker) -> None:
    key = {"Idempotency-Key": "once"}
    first = submit(headers=key)
    assert "Idempotency-Replayed" not in first.headers
    driver.play(first.json["id"])
    again = submit(headers=key)
    assert again.status_code == first.status_code and again.data == first.data
    assert again.headers["Location"] == first.headers["Location"]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert len(client.get("/v1/simulations").json["items"]) == 1


def test_a_form_sent_twice_is_the_same_request(client: FlaskClient) -> None:
    def send(model: bytes = MODEL) -> Any:
        form = {"model": (io.BytesIO(model), "m.py"), "dataset": "noop"}
        return client.post("/v1/simulations", data=form, headers={"Idempotency-Key": "form"})

    first, again = send(), send()  # the boundaries differ
    assert first.json["id"] == again.json["id"]
    problem(send(MODEL + b"#"), 422, "idempotency-mismatch")


def test_a_key_is_for_one_request(submit: Submit) -> None:
    key = {"Idempotency-Key": "k"}
    assert submit(headers=key).status_code == 201
    problem(submit(headers=key, seed=1), 422, "idempotency-mismatch")
    assert submit(headers=key, seed=0).headers["Idempotency-Replayed"] == "true"  # the default, said aloud


def test_a_key_whose_simulation_was_deleted_makes_no_second_one(
    client: FlaskClient, submit: Submit, driver: LeasingWorker
) -> None:
    key = {"Idempotency-Key": "k"}
    id = submit(headers=key).json["id"]
    driver.play(id)
    client.delete(f"/v1/simulations/{id}")
    problem(submit(headers=key), 410, "gone")
    assert client.get("/v1/simulations").json["items"] == []


def test_a_refusal_is_not_remembered(submit: Submit) -> None:
    key = {"Idempotency-Key": "k"}
    problem(submit(headers=key, model="nobody"), 422, "unknown-model")
    assert submit(headers=key).status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 256, "caf\xe9", "a\tb"])
def test_a_key_of_another_shape_is_refused(client: FlaskClient, submit: Submit, key: str) -> None:
    problem(submit(headers={"Idempotency-Key": key}), 422, "invalid")
    assert client.get("/v1/simulations").json["items"] == []


def test_many_at_once_with_one_key_make_one_simulation(application: Any, model: str) -> None:
    asked = {"dataset": "noop", "model": model}
    answers: list[Any] = []

    def send() -> None:
        headers = {"Idempotency-Key": "race"}
        answers.append(application.test_client().post("/v1/simulations", json=asked, headers=headers))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.data for answer in answers}) == 1
    assert sum("Idempotency-Replayed" not in answer.headers for answer in answers) == 1


# -- waiting


def test_prefer_wait_answers_when_it_has_ended(submit: Submit, driver: LeasingWorker, platform: Platform) -> None:
    def play() -> None:
        driver.play(until(lambda: platform.simulations.list()[0])[0].id)

    thread = threading.Thread(target=play)
    thread.start()
    answer = submit(headers={"Prefer": "respond-async, wait=30"})
    thread.join()
    assert answer.status_code == 201 and answer.json["state"] == "succeeded"
    assert answer.headers["Preference-Applied"] == "wait=30"
    assert answer.json["tasks"] == {"total": 20, "done": 20, "failed": 2}


def test_prefer_wait_answers_when_the_time_is_up(submit: Submit) -> None:
    answer = submit(headers={"Prefer": "wait=1"})
    assert answer.json["state"] == "queued" and answer.headers["Preference-Applied"] == "wait=1"


@pytest.mark.parametrize("prefer", ["wait", "wait=x", "wait=-1", "waiting=5", "return=minimal"])
def test_a_preference_that_is_not_understood_is_let_be(submit: Submit, prefer: str) -> None:
    answer = submit(headers={"Prefer": prefer})
    assert answer.status_code == 201 and "Preference-Applied" not in answer.headers


# -- the list


def test_the_list_is_filtered_and_comes_by_pages(client: FlaskClient, submit: Submit, driver: LeasingWorker) -> None:
    ids = [submit(labels={"n": str(number), "all": "x,y=z"}).json["id"] for number in range(5)]
    driver.play(ids[0])

    def listed(query: str) -> list[str]:
        found = client.get(f"/v1/simulations?{query}")
        assert found.status_code == 200, found.data
        return [one["id"] for one in found.json["items"]]

    assert listed("") == ids[::-1]
    assert listed("state=succeeded") == ids[:1]
    assert listed("state=queued&label=n=3") == [ids[3]]
    assert listed("label=all=x,y=z&label=n=2") == [ids[2]]
    assert listed("dataset=noop&runtime=python&model=mine") == ids[::-1]
    assert listed("dataset=other") == []
    page = client.get("/v1/simulations?limit=2&label=all=x,y=z")
    assert [one["id"] for one in page.json["items"]] == ids[:2:-1]
    link = page.headers["Link"]
    assert link.endswith('; rel="next"') and page.json["next"] in link
    assert [one["id"] for one in client.get(link.split(">")[0][1:]).json["items"]] == ids[2:0:-1]


def test_labels_are_filtered_to_the_letter_and_each_of_them_counts(client: FlaskClient, submit: Submit) -> None:
    asked = [{"env": "prod"}, {"env": "Prod"}, {"ENV": "prod"}, {"env": "prod", "team": "a%b_c"}]
    ids = [submit(labels=labels).json["id"] for labels in asked]

    def listed(query: str) -> list[str]:
        found = client.get(f"/v1/simulations?{query}")
        assert found.status_code == 200, found.data
        return [one["id"] for one in found.json["items"]]

    assert listed("label=env=prod") == [ids[3], ids[0]]
    assert listed("label=env=Prod") == [ids[1]]
    assert listed("label=ENV=prod") == [ids[2]]
    assert listed("label=env=PROD") == listed("label=Env=prod") == []
    assert listed("label=team=a%25b_c") == [ids[3]] and listed("label=team=aXb_c") == []
    # a simulation has one value of a name, and cannot have two
    assert listed("label=env=Prod&label=env=prod") == listed("label=env=prod&label=env=Prod") == []
    assert listed("label=env=prod&label=env=prod&label=team=a%25b_c") == [ids[3]]


@pytest.mark.parametrize("query", ["state=done", "limit=201", "label=x", "label==x", "after=%00", "status=queued"])
def test_a_filter_that_makes_no_sense_is_refused(client: FlaskClient, query: str) -> None:
    problem(client.get(f"/v1/simulations?{query}"), 422, "invalid")


# -- afterwards


@pytest.mark.parametrize("id", ["01jd0000000000000000000000", "x" * 26])
@pytest.mark.parametrize(
    "part", ["", "/events", "/results", "/results?format=csv", "/results?format=parquet", "/results?follow=true",
             "/logs",
             "/summary", "/archive", "/artifacts", "/artifacts/0/x", "/tasks/0/replay",
             "/comparison?to=01jd0000000000000000000000"],
)  # fmt: skip
def test_a_simulation_that_is_not_there(client: FlaskClient, id: str, part: str) -> None:
    problem(client.get(f"/v1/simulations/{id}{part}"), 404, "unknown-simulation")


@pytest.mark.parametrize("id", ["short", "01JD0000000000000000000000", "01jd000000000000000000000%00"])
def test_an_id_of_another_shape_is_no_address(client: FlaskClient, id: str) -> None:
    problem(client.get(f"/v1/simulations/{id}"), 404, "not-found")


def test_cancelling_twice_is_harmless(client: FlaskClient, submit: Submit) -> None:
    id = submit().json["id"]
    for _ in range(2):
        answer = client.post(f"/v1/simulations/{id}/cancel")
        assert answer.status_code == 202 and answer.json["state"] == "cancelled"


def played_and_ticked(driver: LeasingWorker, launch: CachedLaunch) -> tuple[int, int]:
    """Play one lease, and let the dispatcher sum up; return how many tasks that were, and how many of them failed."""
    lease = driver.lease(launch)
    driver.report(launch, lease, lease.cursor, lease.stop)
    dispatch = driver.dispatch
    snapshot = dispatch.snapshot()
    dispatch.tick([one for one in snapshot.busy if one.state is State.RUNNING], snapshot.now)
    return lease.stop - lease.cursor, sum(task % 7 == 6 for task in range(lease.cursor, lease.stop))


@pytest.mark.parametrize("most", [0, 1])
def test_a_running_simulation_ends_as_soon_as_more_has_failed_than_may(
    client: FlaskClient, submit: Submit, driver: LeasingWorker, platform: Platform, most: int
) -> None:
    id = submit(tasks=100, max_failures=most).json["id"]
    launch = driver.launch(id)
    done = failed = 0
    while failed <= most:
        count, bad = played_and_ticked(driver, launch)
        done, failed = done + count, failed + bad
        assert (client.get(f"/v1/simulations/{id}").json["state"] == "running") is (failed <= most)
    assert done < 100 and driver.dispatch.snapshot().busy == ()
    platform.finalization.collect(id)
    seen = client.get(f"/v1/simulations/{id}").json
    assert seen["state"] == "failed" and seen["tasks"] == {"total": 100, "done": done, "failed": failed}
    assert seen["reason"] == f"{failed} tasks failed; max_failures is {most}"


@pytest.mark.parametrize("asked", [{}, {"max_failures": 2}])
def test_a_running_simulation_goes_on_with_as_many_failures_as_may_be(
    client: FlaskClient, submit: Submit, driver: LeasingWorker, asked: dict[str, int]
) -> None:
    id = submit(**asked).json["id"]
    launch = driver.launch(id)
    failed = 0
    while failed < 2:
        failed += played_and_ticked(driver, launch)[1]
        assert client.get(f"/v1/simulations/{id}").json["state"] == "running"
    driver.finish(launch)
    assert client.get(f"/v1/simulations/{id}").json["tasks"] == {"total": 20, "done": 20, "failed": 2}


def test_what_has_ended_cannot_be_cancelled(client: FlaskClient, finished: str) -> None:
    refused = problem(client.post(f"/v1/simulations/{finished}/cancel"), 409, "illegal-transition")
    assert refused["state"] == "succeeded"


def test_a_retry_plays_only_what_failed(client: FlaskClient, finished: str, driver: LeasingWorker) -> None:
    answer = client.post(f"/v1/simulations/{finished}/retry")
    assert answer.status_code == 201 and answer.json["retry_of"] == finished
    assert answer.headers["Location"] == answer.json["links"]["self"]
    seen = client.get(answer.headers["Location"]).json
    assert seen["tasks"] == {"total": 20, "done": 18, "failed": 0}


def test_a_retry_keeps_nothing_of_what_was_deleted_meanwhile(
    client: FlaskClient, finished: str, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(database: Database, store: ObjectStore, id: str) -> Inheritance:
        found = inherit(database, store, id)
        assert client.delete(f"/v1/simulations/{id}").status_code == 204
        platform.finalization.remove_deleted(id)
        return found

    monkeypatch.setattr("core.services.simulations.simulations.inherit", slow)
    problem(client.post(f"/v1/simulations/{finished}/retry"), 404, "unknown-simulation")
    assert client.get("/v1/simulations").json["items"] == []
    assert platform.simulations.list() == ([], None)


def test_a_retry_finds_what_was_moved_while_it_looked(
    client: FlaskClient, submit: Submit, driver: LeasingWorker, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = submit().json["id"]
    launch = driver.launch(id)
    lease = driver.lease(launch)
    driver.report(launch, lease, 0, 3)
    driver.report(launch, lease, 3, 5)
    driver.finish(launch)
    moved: list[str] = []

    def slow(database: Database, store: ObjectStore, id: str) -> Inheritance:
        found = inherit(database, store, id)
        if not moved:  # as another retry of it does at its end
            moved.extend(dict.fromkeys(segment.object for segment in found.kept))
            gathering = Finalization(
                platform.database, platform.store, platform.notifier, platform.results, compact_above=1
            )
            gathering.compact(f"{id}.0")
            assert not {*moved} & {*platform.store.list(f"results/{id}/")}
        return found

    monkeypatch.setattr("core.services.simulations.simulations.inherit", slow)
    answer = client.post(f"/v1/simulations/{id}/retry")
    assert answer.status_code == 201 and len(moved) > 1
    results = client.get(f"{answer.headers['Location']}/results").data.splitlines()
    assert [json.loads(one)["task"] for one in results] == [task for task in range(20) if task % 7 != 6]
    assert len(client.get("/v1/simulations").json["items"]) == 2


def test_a_retry_may_play_everything(client: FlaskClient, finished: str) -> None:
    answer = client.post(f"/v1/simulations/{finished}/retry", json={"only_failed": False})
    assert client.get(answer.headers["Location"]).json["tasks"]["done"] == 0


def test_a_retry_is_checked(client: FlaskClient, finished: str, submit: Submit) -> None:
    path = f"/v1/simulations/{finished}/retry"
    problem(client.post(path, json={"only_failed": "no"}), 422, "invalid")
    problem(client.post(path, json={"other": 1}), 422, "invalid")
    problem(client.post(path, data="x", content_type="text/plain"), 415, "unsupported-media-type")
    problem(client.post(f"/v1/simulations/{submit().json['id']}/retry"), 409, "not-finished")


def test_only_what_has_ended_can_be_deleted(client: FlaskClient, submit: Submit, finished: str) -> None:
    id = submit().json["id"]
    problem(client.delete(f"/v1/simulations/{id}"), 409, "not-finished")
    gone = client.delete(f"/v1/simulations/{finished}")
    assert gone.status_code == 204 and gone.data == b""
    problem(client.get(f"/v1/simulations/{finished}"), 404, "unknown-simulation")
    assert [one["id"] for one in client.get("/v1/simulations").json["items"]] == [id]


def test_a_summary_has_failures_first_and_two_means(client: FlaskClient, finished: str) -> None:
    summary = client.get(f"/v1/simulations/{finished}/summary").json
    assert summary["tasks"]["failed"] == 2
    assert {"mean_ok", "mean_penalised"} <= summary["metrics"]["steps"].keys()


def test_a_summary_is_there_only_at_the_end(client: FlaskClient, submit: Submit) -> None:
    problem(client.get(f"/v1/simulations/{submit().json['id']}/summary"), 409, "not-finished")


def test_two_simulations_are_compared(
    client: FlaskClient, finished: str, submit: Submit, driver: LeasingWorker
) -> None:
    other = submit(seed=1).json["id"]
    driver.play(other)
    answer = client.get(f"/v1/simulations/{finished}/comparison?to={other}")
    assert answer.status_code == 200 and answer.json
    problem(client.get(f"/v1/simulations/{finished}/comparison"), 422, "invalid")
    problem(client.get(f"/v1/simulations/{finished}/comparison?to=x"), 422, "invalid")


def test_an_archives_simulation_json_runs_it_again(client: FlaskClient, finished: str, driver: LeasingWorker) -> None:
    import zipfile

    archive = zipfile.ZipFile(io.BytesIO(client.get(f"/v1/simulations/{finished}/archive").data))
    document = json.loads(archive.read("simulation.json"))
    answer = client.post("/v1/simulations", json=document)
    assert answer.status_code == 201, answer.data
    driver.play(answer.json["id"])
    digests = {
        client.get(f"/v1/simulations/{id}/summary").json["results_digest"] for id in (finished, answer.json["id"])
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    "changes", [{"provenance": {}}, {"provenance": 3}, {"spec": []}, {"spec": {"dataset": "noop", "repeat": 0}}]
)
def test_a_document_that_is_no_simulation_json_is_refused(
    client: FlaskClient, finished: str, changes: dict[str, Any]
) -> None:
    seen = client.get(f"/v1/simulations/{finished}").json
    document = {"spec": seen["spec"], "provenance": seen["provenance"]} | changes
    problem(client.post("/v1/simulations", json=document), 422, "invalid")


def test_a_dry_run_says_whether_it_fits(
    submit: Submit, driver: LeasingWorker, platform: Platform, client: FlaskClient
) -> None:
    def play() -> None:
        driver.finish_unseen(driver.launch(until(lambda: driver.dispatch.snapshot().busy)[0].id))

    thread = threading.Thread(target=play)
    thread.start()
    answer = submit(dry_run=True)
    thread.join()
    assert answer.status_code == 200 and answer.json == {"fits": True, "reason": None}
    assert driver.dispatch.deleted()  # it leaves nothing behind
    assert client.get("/v1/simulations").json["items"] == []
