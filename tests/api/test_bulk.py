"""Routes that change many simulations: cancellation and retry by ids or filters, with an outcome for each."""

from typing import Any

import pytest
from flask.testing import FlaskClient

from common.errors import Conflict, StoreUnavailable
from core.domain.access.scopes import LOCAL_CALLER
from core.services.platform import Platform
from core.services.simulations import retries
from core.services.simulations.inheritance import Inheritance
from core.store import simulations as store
from tests.api.answers import problem
from tests.api.conftest import LeasingWorker, Submit

MISSING = "0" * 26


def change(client: FlaskClient, what: str, **body: Any) -> dict[str, Any]:
    response = client.post(f"/v1/simulations/{what}", json=body)
    assert response.status_code == 200, response.data
    document: dict[str, Any] = response.json
    statuses = [item["status"] for item in document["items"]]
    assert {name: document[name] for name in ("done", "skipped", "failed")} == {
        name: statuses.count(name) for name in ("done", "skipped", "failed")
    }
    return document


def outcomes(document: dict[str, Any]) -> dict[str, str]:
    return {item["id"]: item["status"] for item in document["items"]}


def test_each_simulation_has_its_own_outcome_of_a_cancellation(
    client: FlaskClient, submit: Submit, finished: str
) -> None:
    queued = submit().json["id"]
    document = change(client, "cancel", ids=[queued, finished, MISSING, queued])
    assert outcomes(document) == {queued: "done", finished: "skipped", MISSING: "failed"}
    done, skipped, failed = document["items"]
    assert done["simulation"]["state"] == "cancelled" and done["reason"] is done["problem"] is None
    assert skipped["reason"] == "it has succeeded already" and skipped["simulation"]["id"] == finished
    assert failed["problem"]["type"] == "/problems/unknown-simulation" and failed["problem"]["status"] == 404
    assert failed["simulation"] is None


def test_a_repeated_cancellation_changes_nothing(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    queued, running = submit().json["id"], submit().json["id"]
    launch = worker.launch(running)
    worker.report(launch, lease := worker.lease(launch), 0, lease.start + 1)
    first = change(client, "cancel", ids=[queued, running])
    assert outcomes(first) == {queued: "done", running: "done"}
    second = change(client, "cancel", ids=[queued, running])
    assert [item["reason"] for item in second["items"]] == ["it is cancelled already", "it is being cancelled already"]


def test_a_filter_cancels_what_has_not_ended_page_by_page(client: FlaskClient, submit: Submit, finished: str) -> None:
    ids = [submit(labels={"team": "a"}).json["id"] for _ in range(3)]
    other = submit(labels={"team": "b"}).json["id"]
    filter = {"label": ["team=a"]}
    first = change(client, "cancel", filter=filter, limit=2)
    assert outcomes(first) == {ids[2]: "done", ids[1]: "done"} and first["next"] == ids[1]
    second = change(client, "cancel", filter=filter | {"after": first["next"]}, limit=2)
    assert outcomes(second) == {ids[0]: "done"} and second["next"] is None
    assert change(client, "cancel", filter=filter)["items"] == []
    assert client.get(f"/v1/simulations/{other}").json["state"] == "queued"
    assert outcomes(change(client, "cancel", filter={"state": ["succeeded"]})) == {finished: "skipped"}


def test_a_repeated_retry_creates_no_second_simulation(
    client: FlaskClient, submit: Submit, finished: str, platform: Platform
) -> None:
    queued = submit().json["id"]
    first = change(client, "retry", ids=[finished, queued])
    assert outcomes(first) == {finished: "done", queued: "failed"}
    retry = first["items"][0]["simulation"]
    assert retry["retry_of"] == finished and retry["submitted_by"] == "127.0.0.1"
    assert first["items"][1]["problem"]["type"] == "/problems/not-finished"
    second = change(client, "retry", ids=[finished])
    assert outcomes(second) == {finished: "skipped"} and second["items"][0]["simulation"]["id"] == retry["id"]
    client.post(f"/v1/simulations/{retry['id']}/cancel")
    platform.jobs.finalization.collect(retry["id"])
    assert client.delete(f"/v1/simulations/{retry['id']}").status_code == 204
    assert outcomes(change(client, "retry", ids=[finished])) == {finished: "done"}


def test_a_retry_by_filter_takes_those_that_did_not_succeed(client: FlaskClient, submit: Submit, finished: str) -> None:
    cancelled = submit().json["id"]
    client.post(f"/v1/simulations/{cancelled}/cancel")
    assert outcomes(change(client, "retry", filter={"dataset": "noop"})) == {cancelled: "done"}
    assert outcomes(change(client, "retry", filter={"dataset": "noop"})) == {cancelled: "skipped"}


def test_a_simulation_whose_tasks_are_all_ok_is_only_repeated_as_a_whole(
    client: FlaskClient, submit: Submit, worker: LeasingWorker
) -> None:
    id = submit(tasks=6).json["id"]  # every seventh task fails
    worker.run_to_end(id)
    assert outcomes(change(client, "retry", ids=[id])) == {id: "skipped"}
    assert outcomes(change(client, "retry", ids=[id], only_failed=False)) == {id: "done"}


@pytest.fixture
def writes(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The transactions that have been written from now on."""
    write, writes = platform.database.write, []

    def counted(work: Any, **options: Any) -> Any:
        writes.append(work)
        return write(work, **options)

    monkeypatch.setattr(platform.database, "write", counted)
    return writes


@pytest.fixture
def cancelled(client: FlaskClient, submit: Submit) -> list[str]:
    """Ids of 16 simulations that were cancelled."""
    ids = [submit().json["id"] for _ in range(16)]
    assert change(client, "cancel", ids=ids)["done"] == 16
    return ids


def test_a_page_is_cancelled_by_one_commit(client: FlaskClient, submit: Submit, writes: list[Any]) -> None:
    ids = [submit().json["id"] for _ in range(20)]
    del writes[:]
    assert change(client, "cancel", ids=ids)["done"] == 20
    assert len(writes) == 1
    assert {client.get(f"/v1/simulations/{id}").json["state"] for id in ids} == {"cancelled"}


def test_a_page_is_retried_by_one_commit(client: FlaskClient, cancelled: list[str], writes: list[Any]) -> None:
    del writes[:]
    document = change(client, "retry", ids=cancelled)
    assert document["done"] == 16 and len(writes) == 1
    assert [item["simulation"]["retry_of"] for item in document["items"]] == cancelled


def test_retries_that_inherit_many_results_are_not_one_transaction(
    client: FlaskClient,
    submit: Submit,
    worker: LeasingWorker,
    platform: Platform,
    writes: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = [submit().json["id"] for _ in range(3)]
    for id in ids:
        worker.run_to_end(id)
    inherited = len(platform.analysis.results.inheritable(ids[0]).kept)
    monkeypatch.setattr(retries, "SEGMENTS", 2 * inherited)
    del writes[:]
    assert change(client, "retry", ids=ids)["done"] == 3
    assert len(writes) == 2


def test_retries_whose_results_are_moved_meanwhile_are_tried_again(
    client: FlaskClient, finished: str, cancelled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, calls = Inheritance.apply, []

    def moved(inheritance: Inheritance, *arguments: Any) -> None:
        calls.append(inheritance.source)
        if inheritance.source == finished and calls.count(finished) <= 6:  # of the whole page, and of its halves
            raise Conflict("The results to inherit have been moved meanwhile.")
        apply(inheritance, *arguments)

    monkeypatch.setattr(Inheritance, "apply", moved)
    assert change(client, "retry", ids=[*cancelled, finished])["done"] == 17
    assert calls.count(finished) == 7


def test_what_is_deleted_meanwhile_costs_other_retries_nothing(
    client: FlaskClient, cancelled: list[str], platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = cancelled[5]
    found = store.found

    def found_before_its_deletion(c: Any, scope: Any, ids: Any) -> Any:
        rows = found(c, scope, ids)
        if gone in rows:
            platform.submissions.simulations.delete(LOCAL_CALLER, gone)
        return rows

    monkeypatch.setattr(store, "found", found_before_its_deletion)
    document = change(client, "retry", ids=cancelled)
    assert outcomes(document) == dict.fromkeys(cancelled, "done") | {gone: "failed"}
    assert document["items"][5]["problem"]["type"] == "/problems/unknown-simulation"
    assert len(client.get("/v1/simulations?limit=100").json["items"]) == 30


@pytest.mark.parametrize("what", ["cancel", "retry"])
def test_a_simulation_that_changes_meanwhile_costs_the_others_nothing(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [submit().json["id"] for _ in range(5)]
    changed = {"cancel": store.move, "retry": store.hold}[what]
    if what == "retry":
        change(client, "cancel", ids=ids)

    def conflicting(c: Any, *arguments: Any, **changes: Any) -> Any:
        if ids[1] in arguments:
            raise Conflict(f"Simulation {ids[1]} is no longer queued.")
        return changed(c, *arguments, **changes)

    monkeypatch.setattr(store, changed.__name__, conflicting)
    document = change(client, what, ids=ids)
    assert outcomes(document) == dict.fromkeys(ids, "done") | {ids[1]: "failed"}
    monkeypatch.setattr(store, changed.__name__, changed)
    if what == "cancel":
        worker.run_to_end(ids[1])  # its ranges were not closed


@pytest.mark.parametrize("what", ["cancel", "retry"])
def test_once_a_store_does_not_answer_nothing_is_tried(
    client: FlaskClient, submit: Submit, platform: Platform, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [submit().json["id"] for _ in range(3)]
    if what == "retry":
        change(client, "cancel", ids=ids)
    tried: list[Any] = []

    def away(work: Any, **options: Any) -> Any:
        tried.append(work)
        raise StoreUnavailable("The database does not answer.")

    monkeypatch.setattr(platform.database, "write", away)
    assert outcomes(change(client, what, ids=ids)) == dict.fromkeys(ids, "failed")
    assert len(tried) == 1


@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        ({}, "ids"),
        ({"ids": []}, "ids"),
        ({"ids": [MISSING] * 501}, "ids"),
        ({"ids": ["short"]}, "ids"),
        ({"ids": [MISSING], "filter": {"state": ["queued"]}}, "either"),
        ({"filter": {}}, "at least one filter"),
        ({"filter": {"state": ["lost"]}}, "state"),
        ({"filter": {"colour": "red"}}, "colour"),
        ({"filter": {"state": ["queued"]}, "limit": 501}, "limit"),
    ],
)
@pytest.mark.parametrize("what", ["cancel", "retry"])
def test_an_invalid_request_changes_nothing(
    client: FlaskClient, submit: Submit, what: str, body: dict[str, Any], fragment: str
) -> None:
    id = submit().json["id"]
    assert fragment in problem(client.post(f"/v1/simulations/{what}", json=body), 422, "invalid")["detail"]
    assert client.get(f"/v1/simulations/{id}").json["state"] == "queued"
    problem(client.post(f"/v1/simulations/{what}", data="x"), 415, "unsupported-media-type")
