"""Upgrade from release 0.2.0 in one step, of its home and of its PostgreSQL, also beside an API process of it.

A platform of 0.2.0 was killed with work in every state (tests/release_recording.py). Schemas before and after it are in
contracts/test_upgrades.py.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import text

from core.services.access.quotas import Quotas
from core.store.database import Database
from tests.release_recording import APPEND, COMPARED, KEYED, LATER, TOKEN, TUS, VERSIONS, poles, tus_upload
from tests.releases import EarlierApi, RecordedHome, recorded_home
from tests.system.platform_process import FINAL, PlatformProcess
from tests.waiting import until

RELEASE = "0.2.0"
#: Seconds in which what was recorded ends.
END_TIMEOUT = 120.0
#: Simulations that were recorded, and the states in which they are or end.
STATES = {
    "succeeded": "succeeded",
    "failed": "failed",
    "keyed": "succeeded",
    "cancelled": "cancelled",
    "running": "succeeded",
    "cancelling": "cancelled",
    "queued-0": "succeeded",
    "queued-1": "succeeded",
    "queued-2": "succeeded",
    "retried": "failed",
}
#: What a client of 0.2.0 reads; `{}` is a simulation that has ended.
READ = (
    "/v1/simulations?include=metrics",
    "/v1/simulations/counts",
    "/v1/models",
    "/v1/models/mine",
    "/v1/models/mine/content",
    "/v1/datasets",
    "/v1/datasets/poles/scenarios",
    "/v1/datasets/poles/leaderboard",
    "/v1/comparisons",
    "/v1/comparisons/counts",
    "/v1/uploads",
    "/v1/executors",
    "/v1/queue",
    "/v1/storage",
    "/v1/simulations/{}",
    "/v1/simulations/{}/summary",
    "/v1/simulations/{}/results",
    "/v1/simulations/{}/events",
    "/v1/simulations/{}/artifacts",
    "/v1/simulations/{}/tasks/0/replay",
    "/v1/simulations/{}/archive",
)
#: A submission that ends soon.
SHORT = {"model": "mine@gold", "dataset": "poles", "workers": 1, "scenarios": {"range": [0, 3]}}


class Upgrade:
    """A recorded home, the present platform on it, and an API process of the release that was there before."""

    def __init__(self, recorded: RecordedHome, earlier: EarlierApi, accounts: bool) -> None:
        self.recorded, self.ids, self.earlier, self.accounts = recorded, recorded.ids, earlier, accounts
        settings = recorded.settings | ({"MULTI_USER": "yes"} if accounts else {})
        self.platform = PlatformProcess(recorded.home, settings=settings)
        self.platform.http.headers["Authorization"] = f"Bearer {TOKEN}"
        self.http = self.platform.http
        self.upgraded_at = time.time()

    def get(self, path: str, **query: str) -> Any:
        """Return the document at a path."""
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def listed(self, kind: str, **query: str) -> set[str]:
        """Return the ids of what a project has."""
        items = self.get(f"/v1/{kind}", limit="200", **query)["items"]
        return {item["id"] for item in items if item["id"] != item.get("name")}  # without what ships with the platform

    def drain(self) -> None:
        """Wait until nothing waits or runs."""

        def drained() -> bool:
            unended = {
                state: count
                for kind in ("simulations", "comparisons")
                for state, count in self.get(f"/v1/{kind}/counts")["states"].items()
                if state not in FINAL and state != "finished"
            }
            return not any(unended.values())

        until(drained, END_TIMEOUT, lambda: str(self.get("/v1/queue")))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def upgrade(
    request: pytest.FixtureRequest, prepared_environments: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Upgrade]:
    """A platform that was upgraded while an API process of the release ran; on PostgreSQL it gets accounts at once."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    folder = tmp_path_factory.mktemp("release")
    recorded = recorded_home(RELEASE, request.param, folder / "recorded", server, f"{__file__}:{request.param}")
    with ExitStack() as stack:
        earlier = EarlierApi(RELEASE, recorded, folder / "code")
        stack.callback(earlier.stop)
        upgrade = Upgrade(recorded, earlier.wait(), accounts=request.param == "postgresql")
        stack.callback(upgrade.platform.stop)
        upgrade.platform.start()
        yield upgrade


def test_the_token_of_before_is_its_operators_in_the_project_default(upgrade: Upgrade) -> None:
    session = upgrade.get("/v1/session")
    assert session["accounts"] is upgrade.accounts
    assert session["operator"] and session["project"] == "default" and "administer" in session["verbs"]


def test_everything_is_in_the_project_default_and_in_no_other(upgrade: Upgrade) -> None:
    assert {upgrade.ids[name] for name in STATES} <= upgrade.listed("simulations")
    assert upgrade.ids["deleted"] not in upgrade.listed("simulations")
    assert upgrade.listed("comparisons") == {upgrade.ids["comparison"]}
    assert len(upgrade.listed("models")) >= len(VERSIONS)
    assert upgrade.get("/v1/models/mine@gold")["version"] == 1
    names = {item["name"] for item in upgrade.get("/v1/datasets")["items"]}
    assert {"poles", "registering"} <= names
    uploads = {f"/v1/uploads/{item['id']}" for item in upgrade.get("/v1/uploads")["items"]}
    assert {upgrade.ids["unfinished"], upgrade.ids["unused"]} <= uploads
    if upgrade.accounts:
        assert upgrade.http.post("/v1/projects", json={"name": "other"}).status_code == 201
        assert not upgrade.listed("simulations", project="other") | upgrade.listed("models", project="other")


@pytest.mark.parametrize("earlier_first", [False, True])
def test_a_key_of_the_last_day_gives_the_first_answer_at_each_version(upgrade: Upgrade, earlier_first: bool) -> None:
    clients = (upgrade.earlier.http, upgrade.http) if earlier_first else (upgrade.http, upgrade.earlier.http)
    for http in clients:
        for path, key, body, name in (
            ("/v1/simulations", "of-the-last-day", {"workers": 1, **KEYED}, "keyed"),
            ("/v1/comparisons", "compared", COMPARED, "comparison"),
            (f"/v1/simulations/{upgrade.ids['failed']}/retry", "retried", {}, "retried"),
        ):
            answer = http.post(path, json=body, headers={"Idempotency-Key": key})
            assert answer.status_code == 201 and answer.headers["Idempotency-Replayed"] == "true", answer.text
            assert answer.json()["id"] == upgrade.ids[name]
        other = http.post("/v1/simulations", json=SHORT, headers={"Idempotency-Key": "of-the-last-day"})
        assert other.status_code == 422 and "idempotency-mismatch" in other.text
    key = {"Idempotency-Key": f"new-{earlier_first}"}
    first, second = (http.post("/v1/simulations", json=SHORT, headers=key).json()["id"] for http in clients)
    assert first == second


def test_an_unfinished_upload_is_continued_by_its_address_to_its_end(upgrade: Upgrade) -> None:
    path = upgrade.ids["unfinished"]
    assert upgrade.http.head(path, headers=TUS).headers["Upload-Offset"] == "50"
    rest = upgrade.http.patch(path, content=LATER[50:], headers=APPEND | {"Upload-Offset": "50"})
    assert rest.status_code == 204, rest.text
    body = {"upload": path.rpartition("/")[2], "filename": "later.py"}
    assert upgrade.http.post("/v1/models", json=body).status_code == 201
    assert upgrade.http.get("/v1/models/later/content").content == LATER


def test_an_earlier_api_process_reads_all_after_the_migration(upgrade: Upgrade) -> None:
    """It answers for what it has written, and for what the present version has written since."""
    newer = upgrade.http.post("/v1/simulations", json=SHORT | {"worlds": 2})
    assert newer.status_code == 201, newer.text
    for path in (*READ, f"/v1/simulations/{newer.json()['id']}", f"/v1/comparisons/{upgrade.ids['comparison']}"):
        answer = upgrade.earlier.http.get(path.format(upgrade.ids["succeeded"]))
        assert answer.status_code == 200, f"{path}: {answer.text}"


def test_what_an_earlier_api_process_accepts_is_run_and_is_in_the_project_default(upgrade: Upgrade) -> None:
    http = upgrade.earlier.http
    submitted = http.post("/v1/simulations", json=SHORT, headers={"Idempotency-Key": "by-the-earlier"})
    assert submitted.status_code == 201, submitted.text
    compared = http.post("/v1/comparisons", json=COMPARED | {"seed": 5})
    assert compared.status_code == 201, compared.text
    retried = http.post(f"/v1/simulations/{upgrade.ids['failed']}/retry", json={})
    assert retried.status_code == 201, retried.text
    cancelled = upgrade.http.post("/v1/simulations", json={"model": "mine@2", "dataset": "cartpole", "workers": 1})
    assert http.post(f"/v1/simulations/{cancelled.json()['id']}/cancel").status_code == 202
    sent = http.put("/v1/models/sent", params={"format": "python"}, content=VERSIONS[0][1] + b"# sent\n")
    assert sent.status_code == 201, sent.text
    assert http.put("/v1/models/sent/tags/best", json={"version": "1"}).status_code == 200
    assert http.put("/v1/models/gone", params={"format": "python"}, content=b"# gone\n").status_code == 201
    assert http.delete("/v1/models/gone").status_code == 204
    upload = tus_upload(http, poles()).rpartition("/")[2]
    registered = http.post("/v1/datasets", json={"name": "sent", "source": {"upload": upload}})
    assert registered.status_code == 202, registered.text
    continued = tus_upload(upgrade.http, LATER[:50], length=len(LATER))
    assert http.patch(continued, content=LATER[50:], headers=APPEND | {"Upload-Offset": "50"}).status_code == 204

    ended = upgrade.platform.wait_for_end(submitted.json()["id"])
    assert (ended["state"], ended["tasks"]["done"]) == ("succeeded", 3)
    upgrade.drain()
    assert compared.json()["id"] in upgrade.listed("comparisons")
    assert upgrade.get("/v1/models/sent@best")["version"] == 1
    assert upgrade.http.get("/v1/models/gone").status_code == 404
    until(lambda: upgrade.get("/v1/datasets/sent")["state"] == "ready")
    assert upgrade.get(f"/v1/simulations/{cancelled.json()['id']}")["state"] == "cancelled"
    assert upgrade.earlier.errors() == []


def test_work_of_every_state_ends_as_it_would_have(upgrade: Upgrade) -> None:
    for name, state in STATES.items():
        simulation = upgrade.platform.wait_for_end(upgrade.ids[name], END_TIMEOUT)
        assert simulation["state"] == state, (name, simulation["reason"])
    for name in ("running", "queued-0", "succeeded"):
        total = upgrade.get(f"/v1/simulations/{upgrade.ids[name]}")["tasks"]["total"]
        assert [line["task"] for line in upgrade.platform.results(upgrade.ids[name])] == list(range(total))
    until(lambda: upgrade.get("/v1/datasets/registering")["state"] == "ready", END_TIMEOUT)
    path = f"/v1/comparisons/{upgrade.ids['comparison']}"
    until(lambda: upgrade.get(path)["state"] == "finished", END_TIMEOUT)
    assert upgrade.get(path)["models"][0]["verdict"]["decision"] == "better"


def test_the_use_of_quotas_is_right_after_one_recount_and_what_ran_since_is_charged(upgrade: Upgrade) -> None:
    upgrade.drain()
    database = Database(upgrade.recorded.url)
    try:
        quotas = Quotas(database)
        quotas.recount()  # of what the earlier process has changed
        assert quotas.recount() == 0
        with database.read() as c:
            used = c.execute(text("SELECT queued_simulations, tasks, stored_bytes FROM quota_use")).all()
            unended = c.scalar(text("SELECT count(*) FROM usage_intervals WHERE open=1 AND kind='simulation'"))
            wrong = c.scalar(text("SELECT count(*) FROM usage_intervals WHERE milliseconds<0 OR project<>'default'"))
            earlier = "SELECT 1 FROM launches l WHERE l.id=u.launch_id AND l.created_at<:upgraded_at"
            lost = c.scalar(
                text(f"SELECT count(*) FROM usage_intervals u WHERE lost=1 AND NOT EXISTS ({earlier})"),
                {"upgraded_at": upgrade.upgraded_at},
            )
            unsized = c.scalar(text("SELECT count(*) FROM simulations WHERE state='succeeded' AND stored_bytes=0"))
    finally:
        database.close()
    assert all((queued, tasks) == (0, 0) and size >= 0 for queued, tasks, size in used)
    assert (unended, wrong, unsized) == (0, 0, 0)
    assert lost == 0, "lost is what ran as the earlier platform was killed"
    assert upgrade.get("/v1/projects/default/usage")["total"]["core_seconds"] > 0


def test_the_audit_log_has_what_people_did_since_and_nothing_of_before(upgrade: Upgrade) -> None:
    if not upgrade.accounts:
        upgrade.platform.interrupt()
        upgrade.accounts = True
        upgrade.platform._settings["MULTI_USER"] = "yes"
        upgrade.platform.start()
        test_the_token_of_before_is_its_operators_in_the_project_default(upgrade)
        assert {upgrade.ids[name] for name in STATES} <= upgrade.listed("simulations", project="default")
        assert upgrade.http.post("/v1/projects", json={"name": "other"}).status_code == 201
    assert upgrade.http.post("/v1/projects", json={"name": "audited"}).status_code == 201
    entries = upgrade.get("/v1/audit")["items"]
    assert {entry["user"] for entry in entries} - {None} == {"operator"}
    of_jobs = [entry for entry in entries if entry["user"] is None]
    assert all(entry["subject"].startswith("comparisons/") for entry in of_jobs), of_jobs
    assert {entry["project"] for entry in entries} <= {"default", "other", "audited", None}
