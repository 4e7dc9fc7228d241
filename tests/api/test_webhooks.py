"""Webhooks by HTTP: who makes and sees them, their secrets, tests, deliveries, and what is refused."""

import json
from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families
from standardwebhooks import Webhook

from core.notifications.local_notifier import LocalNotifier
from core.services.due_jobs import DueJobs
from core.services.platform import Platform, PlatformOptions, build
from core.settings import Settings
from datasets.objectstore import open_store
from server import composition as root
from tests.api.conftest import LeasingWorker, Submit
from tests.api.people import People
from tests.databases import sqlite_database
from tests.executor_configs import LOCAL
from tests.web_files import WebFiles, status, web_files

WANTED = {"url": "https://ci.example.com/hooks/1?key=of-the-receiver", "types": ["simulation.ended"]}


@pytest.fixture
def platform(settings: Settings) -> Iterator[Platform]:
    """A platform whose operator allows webhooks on loopback."""
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    options = PlatformOptions(
        home=settings.home, executor_configs=[LOCAL], sandbox={"level": 3}, webhook_networks=["127.0.0.0/8"]
    )
    yield build(database, open_store(settings.objects), LocalNotifier(), options)
    database.close()


@pytest.fixture
def receiver() -> Iterator[WebFiles]:
    with web_files() as running:
        running.answers["/hook"] = status(204)
        yield running


def restarted(platform: Platform, settings: Settings, webhook_key: str = "") -> FlaskClient:
    """Start another process of the API on the same rows."""
    options = PlatformOptions(
        home=settings.home, executor_configs=[LOCAL], sandbox={"level": 3}, webhook_key=webhook_key
    )
    other = build(platform.database, open_store(settings.objects), LocalNotifier(), options)
    return root.create_flask(other, settings, {"level": 3, "missing": []}).test_client()


def deliver(platform: Platform) -> None:
    """Do what the job does, as the dispatcher would start it."""
    for id in DueJobs(platform.database).of("deliver"):
        platform.upkeep.webhook_delivery.deliver(id)


def test_a_platform_without_accounts_tells_of_the_end_of_a_simulation(
    client: FlaskClient, platform: Platform, submit: Submit, worker: LeasingWorker, receiver: WebFiles
) -> None:
    made = client.post("/v1/webhooks", json={"url": f"{receiver.origin}/hook", "types": ["simulation.ended"]})
    assert made.status_code == 201 and made.headers["Location"] == f"/v1/webhooks/{made.json['id']}"
    id = submit(labels={"suite": "nightly"}).json["id"]
    worker.run_to_end(id)
    deliver(platform)
    event = Webhook(made.json["secret"]).verify(receiver.bodies[0], receiver.headers[0])
    assert event["subject"] == f"simulations/{id}" and event["data"]["state"] == "succeeded"
    assert event["data"]["tasks"] == {"total": 20, "done": 20, "failed": 2}
    assert event["data"]["labels"] == {"suite": "nightly"}
    [row] = client.get(f"{made.headers['Location']}/deliveries").json["items"]
    assert (row["state"], row["status"], row["attempts"], row["event_id"]) == ("delivered", 204, 1, event["id"])
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    outcomes = {sample.labels["outcome"]: sample.value for sample in families["windtunnel_webhook_requests"].samples}
    assert outcomes == {"delivered": 1, "failed": 0}
    assert families["windtunnel_webhook_oldest_due_seconds"].samples[0].value == 0


def test_a_secret_is_shown_once_and_a_query_never(client: FlaskClient) -> None:
    made = client.post("/v1/webhooks", json=WANTED).json
    assert made["secret"].startswith("whsec_")
    rest = json.dumps([client.get(f"/v1/webhooks/{made['id']}").json, client.get("/v1/webhooks").json])
    assert (
        "whsec_" not in rest
        and "of-the-receiver" not in rest
        and "https://ci.example.com/hooks/1?…" in json.loads(rest)[0]["url"]
    )
    rotated = client.post(f"/v1/webhooks/{made['id']}/rotate").json
    assert rotated["secret"] != made["secret"] and rotated["former_secret_until"]


def test_a_repeated_request_has_the_same_webhook_and_the_same_secret(client: FlaskClient) -> None:
    key = {"Idempotency-Key": "one"}
    made = client.post("/v1/webhooks", json=WANTED, headers=key)
    again = client.post("/v1/webhooks", json=WANTED, headers=key)
    assert (made.status_code, again.status_code) == (201, 201)
    assert again.json == made.json and again.headers["Idempotency-Replayed"] == "true"
    assert len(client.get("/v1/webhooks").json["items"]) == 1
    other = client.post("/v1/webhooks", json=WANTED | {"description": "another"}, headers=key)
    assert (other.status_code, other.json["type"]) == (422, "/problems/idempotency-mismatch")
    assert client.delete(f"/v1/webhooks/{made.json['id']}").status_code == 204
    assert client.post("/v1/webhooks", json=WANTED, headers=key).status_code == 410
    assert client.get("/v1/webhooks").json["items"] == []


def test_a_test_is_sent_at_once_and_its_delivery_can_be_sent_again(
    client: FlaskClient, platform: Platform, receiver: WebFiles
) -> None:
    made = client.post("/v1/webhooks", json=WANTED | {"url": f"{receiver.origin}/nowhere"}).json
    address = f"/v1/webhooks/{made['id']}"
    ping = client.post(f"{address}/ping")
    assert ping.status_code == 202 and ping.json["state"] == "waiting" and ping.json["next_attempt_at"]
    assert ("deliver", made["id"]) in platform.notifier.jobs  # type: ignore[attr-defined]
    deliver(platform)
    [row] = client.get(f"{address}/deliveries").json["items"]
    assert (row["type"], row["status"], row["error"]) == ("webhook.ping", 404, "It answered 404.")
    assert client.patch(address, json={"url": f"{receiver.origin}/hook"}).status_code == 200
    again = client.post(f"{address}/deliveries/{row['id']}/retry")
    assert again.status_code == 202 and again.json["event_id"] == row["event_id"]
    deliver(platform)
    assert client.get(f"{address}/deliveries").json["items"][0]["state"] == "delivered"
    nothing = client.post(f"{address}/deliveries/{made['id']}/retry")
    assert nothing.status_code == 404 and nothing.json["type"] == "/problems/unknown-delivery"


def test_a_webhook_is_changed_paused_and_deleted(client: FlaskClient) -> None:
    address = f"/v1/webhooks/{client.post('/v1/webhooks', json=WANTED).json['id']}"
    changed = client.patch(address, json={"state": "paused", "labels": {"a": "b"}, "types": ["quota.reached"]}).json
    assert (changed["state"], changed["labels"], changed["types"]) == ("paused", {"a": "b"}, ["quota.reached"])
    refused = client.post(f"{address}/ping")
    assert refused.status_code == 409 and "state" in refused.json["detail"]
    assert client.patch(address, json={}).json["state"] == "paused"
    assert client.delete(address).status_code == 204 and client.get(address).status_code == 404
    assert client.delete(address).json["type"] == "/problems/unknown-webhook"


@pytest.mark.parametrize(
    "change",
    [
        {"url": "http://10.0.0.1/"}, {"url": "ftp://ci.example.com"}, {"url": ""}, {"types": []}, {"types": ["ping"]},
        {"types": ["webhook.ping"]}, {"labels": {"a": 1}}, {"labels": []}, {"more": 1}, {"state": "disabled"},
        {"description": "two\nlines"},
    ],
)  # fmt: skip
def test_what_cannot_be_a_webhook_is_refused_with_a_sentence(client: FlaskClient, change: dict[str, object]) -> None:
    address = f"/v1/webhooks/{client.post('/v1/webhooks', json=WANTED).json['id']}"
    for answer in (client.post("/v1/webhooks", json=WANTED | change), client.patch(address, json=change)):
        assert answer.status_code == 422 and answer.json["detail"], answer.json
    assert len(client.get("/v1/webhooks").json["items"]) == 1


def test_webhooks_are_listed_by_page(client: FlaskClient) -> None:
    ids = [client.post("/v1/webhooks", json=WANTED).json["id"] for _ in range(3)]
    first = client.get("/v1/webhooks?limit=2")
    assert [item["id"] for item in first.json["items"]] == ids[:0:-1] and "after=" in first.headers["Link"]
    assert [item["id"] for item in client.get(f"/v1/webhooks?after={first.json['next']}").json["items"]] == ids[:1]


@pytest.mark.parametrize("who", ["red viewer", "red submitter", "blue maintainer"])
def test_maintainers_decide_and_members_read(people: People, who: str) -> None:
    made = people.ask("red maintainer", "POST", "/v1/webhooks", json=WANTED)
    assert made.status_code == 201
    address, member = f"/v1/webhooks/{made.json['id']}", who.startswith("red")
    assert people.ask(who, "GET", address).status_code == (200 if member else 404)
    assert people.ask(who, "GET", f"{address}/deliveries").status_code == (200 if member else 404)
    assert len(people.ask(who, "GET", "/v1/webhooks").json["items"]) == int(member)
    for method, path, body in (
        ("PATCH", "", {"state": "paused"}), ("POST", "/rotate", None), ("POST", "/ping", None), ("DELETE", "", None),
    ):  # fmt: skip
        answer = people.ask(who, method, address + path, json=body) if body else people.ask(who, method, address + path)
        assert answer.status_code == (403 if member else 404), (method, path)
    if member:
        assert people.ask(who, "POST", "/v1/webhooks", json=WANTED).status_code == 403
    assert people.ask("red maintainer", "GET", address).json["state"] == "active"


def test_what_a_maintainer_does_is_in_the_audit_log_without_secret_and_address(people: People) -> None:
    made = people.ask("red maintainer", "POST", "/v1/webhooks", json=WANTED).json
    people.ask("red maintainer", "POST", f"/v1/webhooks/{made['id']}/rotate")
    answer = people.ask("red maintainer", "GET", f"/v1/audit?subject=webhooks/{made['id']}")
    assert [entry["act"] for entry in answer.json["items"]] == ["rotate_webhook", "create_webhook"]
    assert "whsec" not in answer.text and "ci.example.com" not in answer.text


@pytest.mark.parametrize("webhook_key", ["", "the key of another platform, of 40 signs"])
def test_a_start_without_the_key_of_the_webhooks_says_so_once_and_in_the_checks(
    client: FlaskClient, platform: Platform, settings: Settings, caplog: pytest.LogCaptureFixture, webhook_key: str
) -> None:
    id = client.post("/v1/webhooks", json=WANTED).json["id"]
    key = settings.home / "webhook-key"
    assert client.get("/readyz").json["checks"]["webhooks"] == "ok"
    assert restarted(platform, settings).get("/readyz").json["checks"]["webhooks"] == "ok" and not caplog.records
    kept = key.read_bytes()
    key.unlink()
    second = restarted(platform, settings, webhook_key)
    [logged] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    ready = second.get("/readyz")
    assert ready.status_code == 200 and ready.json["checks"]["webhooks"] == logged
    assert "WINDTUNNEL_WEBHOOK_KEY" in logged and "windtunnel webhooks rotate" in logged
    assert not key.exists(), "a check makes no key"
    key.write_bytes(kept)
    assert restarted(platform, settings).get("/readyz").json["checks"]["webhooks"] == "ok"
    key.unlink()
    assert second.post(f"/v1/webhooks/{id}/rotate").status_code == 200
    assert second.get("/readyz").json["checks"]["webhooks"] == "ok"


def test_a_platform_without_webhooks_needs_no_key(
    client: FlaskClient, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    assert client.get("/readyz").json["checks"]["webhooks"] == "ok"
    assert not (settings.home / "webhook-key").exists() and not caplog.records


def test_a_webhook_that_the_platform_has_disabled_needs_no_key(
    client: FlaskClient, platform: Platform, settings: Settings
) -> None:
    client.post("/v1/webhooks", json=WANTED)
    (settings.home / "webhook-key").unlink()
    second = restarted(platform, settings)
    assert second.get("/readyz").json["checks"]["webhooks"] != "ok"
    platform.database.write(lambda c: c.exec_driver_sql("UPDATE webhooks SET state='disabled'"))
    assert second.get("/readyz").json["checks"]["webhooks"] == "ok"
