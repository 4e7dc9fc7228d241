"""Webhooks on both databases: events in the transaction of what they tell of, and their delivery to real receivers."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from sqlalchemy import text
from standardwebhooks import Webhook, WebhookVerificationError

from common.client_addresses import networks
from common.errors import Conflict, Invalid, UnknownWebhook
from core.domain.access.quotas import Charge, Quota
from core.domain.access.scopes import LOCAL_CALLER, PLATFORM, Scope
from core.domain.scheduling.states import State
from core.domain.webhooks.delivery_outcomes import DISABLED_AFTER, DISABLED_FAILURES, PAUSES, WebhookState
from core.domain.webhooks.event_types import WANTED_TYPES
from core.notifications.local_notifier import LocalNotifier
from core.services.due_jobs import DueJobs
from core.services.webhooks import webhook_delivery
from core.services.webhooks.receiver_posts import ReceiverPosts
from core.services.webhooks.webhook_delivery import RETENTION, WebhookDelivery
from core.services.webhooks.webhook_secrets import FORMER_SECRET_TERM, WebhookSecrets, key_of
from core.services.webhooks.webhooks import MOST_WEBHOOKS, NewWebhook, WebhookChanges, Webhooks
from core.store import owned_rows, quotas, simulations, webhook_deliveries, webhook_events
from core.store.comparisons import COMPARISONS, add_model
from core.store.database import Connection, Database
from core.store.pipelines import PIPELINES
from core.store.tables import quota_use, webhooks
from core.store.webhook_deliveries import DeliveryRow
from tests.conftest import Clock
from tests.contracts.test_database import ROW
from tests.waiting import until
from tests.web_files import WebFiles, redirect, status, web_files

KEY = b"a key of the platform, for tests"
ALL = [type.value for type in WANTED_TYPES]
OTHER = replace(LOCAL_CALLER, scope=Scope("other"))
LOOPBACK = networks(["127.0.0.0/8", "::1/128"])


@dataclass
class Rig:
    """Webhooks of the project `default`, with a receiver on loopback, which the operator allows."""

    database: Database
    clock: Clock
    receiver: WebFiles
    posts: ReceiverPosts = field(default_factory=lambda: ReceiverPosts(LOOPBACK, silence=0.5, longest=1.0))
    notifier: LocalNotifier = field(default_factory=LocalNotifier)
    key: bytes = KEY

    @property
    def service(self) -> Webhooks:
        return Webhooks(self.database, self.notifier, WebhookSecrets(lambda: self.key), self.posts)

    @property
    def delivery(self) -> WebhookDelivery:
        secrets = WebhookSecrets(lambda: self.key)
        url = "https://sim.example.com/"
        return WebhookDelivery(self.database, secrets, self.posts, platform_url=url, chance=lambda: 0.0)

    def create(self, path: str = "/hook", types: list[str] = ALL, caller: Any = LOCAL_CALLER, **labels: str) -> str:
        self.secret = ""
        asked = NewWebhook(url=f"{self.receiver.origin}{path}", types=types, labels=labels)
        row, self.secret, _ = self.service.create(caller, asked)
        return row.id

    def deliveries(self, id: str, caller: Any = LOCAL_CALLER) -> list[DeliveryRow]:
        """The deliveries of a webhook, the oldest first."""
        rows, _ = self.service.deliveries(caller, id, after=None, limit=100)
        return list(reversed(rows))

    def received(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.receiver.bodies]


@pytest.fixture
def rig(database: Database, clock: Clock) -> Iterator[Rig]:
    with web_files() as receiver:
        receiver.answers["/hook"] = status(204)
        yield Rig(database, clock, receiver)


def simulate(database: Database, id: str = "s1", state: State = State.CANCELLED, **columns: object) -> None:
    """Insert a simulation and end it."""

    def write(c: Connection) -> None:
        stage = {"id": f"{id}.0", "simulation_id": id, "ordinal": 0, "total": 1, "state": "open"}
        simulations.add(c, {**ROW, "id": id, **columns}, stage)
        headline = json.dumps({"tasks": {"total": 1, "done": 1, "failed": 0}})
        simulations.move(c, id, State.QUEUED, state, database.now(c), reason="because", summary="{}", headline=headline)

    database.write(write)


def due(database: Database) -> list[str]:
    return DueJobs(database).of("deliver")


# -- events


def test_the_end_of_a_simulation_is_delivered_signed_as_a_cloud_event(rig: Rig, database: Database) -> None:
    id = rig.create(labels="no")  # a label of that name, which the simulation does not have
    rig.service.change(LOCAL_CALLER, id, WebhookChanges(labels={}))
    simulate(database, labels='{"suite": "nightly"}')
    assert due(database) == [id]
    rig.delivery.deliver(id)
    [body], [headers], [event] = rig.receiver.bodies, rig.receiver.headers, rig.received()
    assert Webhook(rig.secret).verify(body, headers) == event
    with pytest.raises(WebhookVerificationError):
        Webhook(rig.secret).verify(body.replace(b"because", b"becalse"), headers)
    assert headers["Content-Type"].startswith("application/cloudevents+json")
    data = event.pop("data")
    assert event == {
        "specversion": "1.0",
        "id": headers["webhook-id"],
        "source": "https://sim.example.com/v1/projects/default",
        "type": "org.windtunnel.simulation.ended",
        "subject": "simulations/s1",
        "time": "2027-01-15T08:00:00.000Z",
        "datacontenttype": "application/json",
    }
    assert data["address"] == "https://sim.example.com/v1/simulations/s1" and data["project"] == "default"
    assert (data["state"], data["reason"], data["labels"]) == ("cancelled", "because", {"suite": "nightly"})
    assert data["tasks"] == {"total": 1, "done": 1, "failed": 0} and data["model"] == "zero"
    [row] = rig.deliveries(id)
    assert (row.state, row.status, row.attempts, row.error) == ("delivered", 204, 1, None)
    assert due(database) == [] and rig.service.get(LOCAL_CALLER, id).delivered == 1


def test_a_transaction_that_is_undone_tells_nothing(rig: Rig, database: Database) -> None:
    id = rig.create()

    def write(c: Connection) -> None:
        webhook_events.quota_reached(c, "default", "", Quota.TASKS, 10, 9, 1.0)
        raise Conflict

    with pytest.raises(Conflict):
        database.write(write)
    assert rig.deliveries(id) == []


def test_a_webhook_gets_one_delivery_of_an_event_and_only_of_what_it_wants(rig: Rig, database: Database) -> None:
    every, failures, none = rig.create(), rig.create(types=["simulation.failed"]), rig.create(types=["pipeline.ended"])
    nightly = rig.create(suite="nightly")
    simulate(database, "s1", State.ERRORED)
    simulate(database, "s2", State.CANCELLED, labels='{"suite": "nightly"}')
    simulate(database, "s3", State.CANCELLED, dry_run=1)
    kinds = {id: [(row.type, row.subject) for row in rig.deliveries(id)] for id in (every, failures, none, nightly)}
    ended = ("simulation.ended", "simulations/s2")
    assert kinds[every] == [("simulation.ended", "simulations/s1"), ended]
    assert kinds[failures] == [("simulation.failed", "simulations/s1")]
    assert kinds[none] == [] and kinds[nightly] == [ended]
    assert rig.deliveries(every)[0].event_id == rig.deliveries(failures)[0].event_id


def test_nothing_is_kept_for_webhooks_of_others_or_that_are_paused(rig: Rig, database: Database) -> None:
    foreign, paused = rig.create(caller=OTHER), rig.create()
    rig.service.change(LOCAL_CALLER, paused, WebhookChanges(state=WebhookState.PAUSED))
    simulate(database)
    assert rig.deliveries(foreign, OTHER) == [] and rig.deliveries(paused) == []


def test_ends_of_comparisons_and_pipelines_and_verdicts_are_told(rig: Rig, database: Database) -> None:
    id = rig.create()

    def write(c: Connection) -> None:
        texts = dict.fromkeys(("spec", "dataset", "dataset_version", "dataset_digest"), "{}")
        row = {"project": "default", "reference": 0, "scenarios": 9, **texts}
        COMPARISONS.add(c, "c1", row, 1.0)
        model = dict.fromkeys(("digest", "spec", "provenance"), "{}")
        for ordinal, name in enumerate(("old", "new")):
            verdict = json.dumps({"decision": "better", "sentence": "new is better.", "low": 0.1})
            add_model(c, "c1", ordinal, {**model, "name": name, "verdict": verdict}, 1.0)
        webhook_events.decision(c, "default", "c1", {}, {"model": "new", "decision": "better"}, 1.0)
        COMPARISONS.move(c, "c1", "finished", 2.0)
        PIPELINES.add(c, "p1", {"project": "default", "name": "nightly"}, 1.0)
        PIPELINES.move(c, "p1", "cancelling", 2.0)
        PIPELINES.move(c, "p1", "failed", 2.0, reason="step 'a' has failed")

    database.write(write)
    rows = rig.deliveries(id)
    assert [row.type for row in rows] == ["comparison.decided", "comparison.ended", "pipeline.ended"]
    [decided, ended, pipeline] = [json.loads(row.data) for row in rows]
    assert decided["model"] == "new" and decided["decision"] == "better"
    verdict = {"model": "new", "state": "running", "reason": None, "decision": "better", "sentence": "new is better."}
    assert ended["state"] == "finished" and ended["verdicts"] == [verdict]
    assert (pipeline["name"], pipeline["state"], pipeline["reason"]) == ("nightly", "failed", "step 'a' has failed")


def charge(database: Database, tasks: int, user: str = "") -> None:
    database.write(lambda c: quotas.charge(c, "default", user, Charge(tasks=tasks), refuse=False))


def test_a_quota_is_told_of_at_each_crossing_of_80_percent_and_once(rig: Rig, database: Database) -> None:
    id = rig.create(types=["quota.reached"])
    database.write(lambda c: quotas.set_limits(c, "default", "", {Quota.TASKS: 100}))
    database.write(lambda c: quotas.set_limits(c, "default", "ada", {Quota.TASKS: 10}))
    for tasks in (79, 1, 10, -15, 10, -20, 20):  # 79, 80: told, 90, 75, 85, 65: forgotten, 85: told
        charge(database, tasks)
    charge(database, 1, "ada")
    charge(database, 8, "ada")
    rows = [json.loads(row.data) for row in rig.deliveries(id)]
    assert [(row["used"], row["limit"], row["user"]) for row in rows] == [
        (80, 100, None), (85, 100, None), (9, 10, "ada"),
    ]  # fmt: skip
    assert all(row["quota"] == "tasks" for row in rows)


def test_a_recount_tells_nothing_again(rig: Rig, database: Database) -> None:
    id = rig.create(types=["quota.reached"])
    database.write(lambda c: quotas.set_limits(c, "default", "", {Quota.TASKS: 1}))
    stage = {"id": "s9.0", "simulation_id": "s9", "ordinal": 0, "total": 1, "state": "open"}
    database.write(lambda c: simulations.add(c, {**ROW, "id": "s9"}, stage))
    assert len(rig.deliveries(id)) == 1
    database.write(lambda c: quotas.recount(c, Scope("default")))
    with database.read() as c:
        assert c.scalar(quota_use.select().with_only_columns(quota_use.c.reached)) == '["tasks"]'


def test_without_a_webhook_that_wants_it_a_charge_has_no_further_statement(rig: Rig, database: Database) -> None:
    rig.create(types=["simulation.ended"])
    database.write(lambda c: quotas.set_limits(c, "default", "", {Quota.TASKS: 10}))
    charge(database, 9)
    with database.read() as c:
        assert c.scalar(quota_use.select().with_only_columns(quota_use.c.reached)) == ""


# -- deliveries


def test_what_fails_is_sent_again_with_the_same_id_after_the_pauses_and_then_accepted(
    rig: Rig, database: Database, clock: Clock
) -> None:
    id = rig.create()
    rig.receiver.answers["/hook"] = status(500)
    simulate(database)
    rig.delivery.deliver(id)
    [row] = rig.deliveries(id)
    assert (row.state, row.status, row.error) == ("waiting", 500, "It answered 500.")
    assert row.due_at == pytest.approx(clock.now + PAUSES[0])
    assert rig.service.get(LOCAL_CALLER, id).failing_since == pytest.approx(clock.now)
    clock.now += PAUSES[0] - 1
    assert due(database) == []
    clock.now += 1.1
    assert due(database) == [id]
    rig.receiver.answers["/hook"] = status(200)
    rig.delivery.deliver(id)
    [row] = rig.deliveries(id)
    assert (row.state, row.attempts) == ("delivered", 2)
    assert rig.service.get(LOCAL_CALLER, id).failing_since is None
    assert len({headers["webhook-id"] for headers in rig.receiver.headers}) == 1 and len(rig.receiver.bodies) == 2


@pytest.mark.parametrize("code", [429, 503])
def test_a_receiver_that_is_busy_says_when_it_can_take_more(
    rig: Rig, database: Database, clock: Clock, code: int
) -> None:
    id = rig.create()
    rig.receiver.answers["/hook"] = status(code, {"Retry-After": "900"})
    simulate(database)
    rig.delivery.deliver(id)
    [row] = rig.deliveries(id)
    assert (row.state, row.status) == ("waiting", code) and row.due_at == pytest.approx(clock.now + 900)
    simulate(database, "s2")
    clock.now += 899
    assert due(database) == [], "nothing else is sent to it meanwhile"
    clock.now += 2
    rig.receiver.answers["/hook"] = status(204)
    rig.delivery.deliver(id)
    assert {row.state for row in rig.deliveries(id)} == {"delivered"}


def test_after_all_attempts_a_delivery_has_failed_and_can_be_sent_again(
    rig: Rig, database: Database, clock: Clock
) -> None:
    id = rig.create()
    rig.receiver.answers["/hook"] = status(500)
    simulate(database)
    for _ in range(len(PAUSES) + 1):
        rig.delivery.deliver(id)
        clock.now += PAUSES[-1] + 1
    [row] = rig.deliveries(id)
    assert (row.state, row.attempts) == ("failed", len(PAUSES) + 1) and due(database) == []
    rig.receiver.answers["/hook"] = status(200)
    again = rig.service.retry(LOCAL_CALLER, id, row.id)
    assert again.state == "waiting" and ("deliver", id) in rig.notifier.jobs
    rig.delivery.deliver(id)
    assert rig.deliveries(id)[0].state == "delivered"


def test_a_webhook_that_only_fails_for_days_is_disabled_with_its_reason_and_an_audit_entry(
    rig: Rig, database: Database, clock: Clock
) -> None:
    id = rig.create()
    rig.receiver.answers["/hook"] = status(500)
    for number in range(DISABLED_FAILURES):
        rig.service.ping(LOCAL_CALLER, id)
        rig.delivery.deliver(id)
        clock.now += 1 if number < DISABLED_FAILURES - 2 else DISABLED_AFTER
    row = rig.service.get(LOCAL_CALLER, id)
    assert row.state == "disabled" and "5 days" in str(row.reason) and "500" in str(row.reason)
    assert {delivery.state for delivery in rig.deliveries(id)} == {"failed"} and due(database) == []
    with database.read() as c:
        assert c.execute(text("SELECT act, subject FROM audit")).all() == [("disable_webhook", f"webhooks/{id}")]
    with pytest.raises(Conflict, match="disabled"):
        rig.service.ping(LOCAL_CALLER, id)
    row = rig.service.change(LOCAL_CALLER, id, WebhookChanges(state=WebhookState.ACTIVE))
    assert (row.state, row.reason, row.failures) == ("active", None, 0)


def test_a_receiver_that_is_gone_is_told_nothing_more(rig: Rig, database: Database) -> None:
    id = rig.create()
    rig.receiver.answers["/hook"] = status(410)
    simulate(database)
    rig.delivery.deliver(id)
    assert rig.service.get(LOCAL_CALLER, id).state == "disabled"


def test_a_redirect_is_a_failure_and_is_not_followed(rig: Rig, database: Database) -> None:
    id = rig.create("/moved")
    rig.receiver.answers["/moved"] = redirect(f"{rig.receiver.origin}/hook", 307)
    rig.service.ping(LOCAL_CALLER, id)
    rig.delivery.deliver(id)
    [row] = rig.deliveries(id)
    assert row.status == 307 and "redirects are not followed" in str(row.error)
    assert [path for path, _ in rig.receiver.requests] == ["/moved"]


def test_a_kill_between_request_and_record_sends_the_event_again_with_the_same_id(
    rig: Rig, database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = rig.create()
    simulate(database)

    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(WebhookDelivery, "_record", kill)
        rig.delivery.deliver(id)
    assert len(rig.receiver.bodies) == 1 and rig.deliveries(id)[0].state == "waiting"
    rig.delivery.deliver(id)  # the claim of the killed job holds
    assert len(rig.receiver.bodies) == 1
    clock.now += 10
    assert due(database) == [id]
    rig.delivery.deliver(id)
    [row] = rig.deliveries(id)
    assert (row.state, row.attempts) == ("delivered", 2)
    assert len(rig.receiver.bodies) == 2 and len({each["webhook-id"] for each in rig.receiver.headers}) == 1


def test_two_jobs_send_an_event_once(rig: Rig, database: Database) -> None:
    id = rig.create()
    for number in range(20):
        simulate(database, f"s{number}")
    jobs = [threading.Thread(target=rig.delivery.deliver, args=(id,)) for _ in range(3)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert len(rig.receiver.bodies) == 20 and {row.state for row in rig.deliveries(id)} == {"delivered"}


def never(request: BaseHTTPRequestHandler) -> None:
    """Answer nothing until the client has gone."""
    request.connection.settimeout(20)
    request.connection.recv(1)


def drip(request: BaseHTTPRequestHandler) -> None:
    """Answer a byte at a time, never the whole head."""
    wait = threading.Event()
    try:
        while True:
            request.wfile.write(b"H")
            request.wfile.flush()
            wait.wait(0.1)
    except OSError:
        request.close_connection = True


@pytest.mark.parametrize(("answer", "reason"), [(never, "did not answer"), (drip, "longer than 1 s")])
def test_a_slow_receiver_costs_one_request_and_then_rests(
    rig: Rig, database: Database, clock: Clock, answer: Callable[[BaseHTTPRequestHandler], None], reason: str
) -> None:
    slow, quick = rig.create("/slow"), rig.create()
    rig.receiver.answers["/slow"] = answer
    for number in range(12):
        simulate(database, f"s{number}")
    rig.delivery.deliver(slow)
    failed = [row for row in rig.deliveries(slow) if row.error]
    assert len(failed) == webhook_delivery.BATCH and all(reason in str(row.error) for row in failed)
    assert due(database) == [quick], "it rests, although others of its deliveries are due"
    rig.delivery.deliver(quick)
    assert {row.state for row in rig.deliveries(quick)} == {"delivered"}
    clock.now += 6
    rig.delivery.deliver(slow)
    assert sum(path == "/slow" for path, _ in rig.receiver.requests) == webhook_delivery.BATCH + 1


def test_what_is_too_much_is_not_kept_until_there_is_room(
    rig: Rig, database: Database, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(webhook_delivery, "FULL_COUNT", 3)
    monkeypatch.setattr(webhook_delivery, "EMPTIED_COUNT", 2)
    id = rig.create()
    rig.receiver.answers["/hook"] = status(500)
    for number in range(3):
        simulate(database, f"s{number}")
    rig.delivery.deliver(id)
    assert rig.service.get(LOCAL_CALLER, id).overfull
    simulate(database, "s9")
    assert len(rig.deliveries(id)) == 3
    rig.receiver.answers["/hook"] = status(200)
    clock.now += 400
    rig.delivery.deliver(id)
    assert not rig.service.get(LOCAL_CALLER, id).overfull


def test_old_deliveries_are_deleted(rig: Rig, database: Database, clock: Clock) -> None:
    id = rig.create()
    rig.service.ping(LOCAL_CALLER, id)
    assert rig.delivery.sweep() == 0
    clock.now += RETENTION + 1
    rig.service.ping(LOCAL_CALLER, id)
    assert rig.delivery.sweep() == 1 and len(rig.deliveries(id)) == 1


# -- secrets


def test_for_a_day_after_a_new_secret_the_one_before_signs_as_well(rig: Rig, clock: Clock) -> None:
    id, before = rig.create(), rig.secret
    _, after = rig.service.rotate(LOCAL_CALLER, id)
    assert before != after
    rig.service.ping(LOCAL_CALLER, id)
    rig.delivery.deliver(id)
    for secret in (before, after):
        Webhook(secret).verify(rig.receiver.bodies[0], rig.receiver.headers[0])
    clock.now += FORMER_SECRET_TERM
    rig.service.ping(LOCAL_CALLER, id)
    rig.delivery.deliver(id)
    Webhook(after).verify(rig.receiver.bodies[1], rig.receiver.headers[1])
    with pytest.raises(WebhookVerificationError):
        Webhook(before).verify(rig.receiver.bodies[1], rig.receiver.headers[1])


def test_no_row_has_a_secret_and_webhooks_have_different_ones(rig: Rig, database: Database) -> None:
    rig.create()
    first = rig.secret
    rig.create()
    assert first != rig.secret
    with database.read() as c:
        rows = str(c.execute(webhooks.select()).all())
    assert first.removeprefix("whsec_") not in rows and KEY.decode() not in rows


def test_a_process_with_another_key_sends_nothing_and_says_so(rig: Rig) -> None:
    id = rig.create()
    rig.service.ping(LOCAL_CALLER, id)
    rig.key = b"another key of another machine...."
    rig.delivery.deliver(id)
    assert rig.receiver.bodies == [] and "WINDTUNNEL_WEBHOOK_KEY" in str(rig.deliveries(id)[0].error)
    rig.service.rotate(LOCAL_CALLER, id)
    rig.service.retry(LOCAL_CALLER, id, rig.deliveries(id)[0].id)
    rig.delivery.deliver(id)
    assert rig.deliveries(id)[0].state == "delivered"


def test_the_key_of_a_home_is_made_once_and_for_its_owner_alone(tmp_path: Any) -> None:
    made: list[bytes] = []
    threads = [threading.Thread(target=lambda: made.append(key_of("", tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 1 and len(made) == 8 and len(made[0]) > 32
    assert [file.name for file in tmp_path.iterdir()] == ["webhook-key"]
    assert (tmp_path / "webhook-key").stat().st_mode & 0o777 == 0o600
    assert key_of("the operator's", tmp_path) == b"the operator's"


def test_a_webhook_that_is_deleted_while_its_job_sends_ends_the_job_quietly(rig: Rig, database: Database) -> None:
    id = rig.create()

    def remove_first(request: BaseHTTPRequestHandler) -> None:
        rig.service.remove(LOCAL_CALLER, id)
        status(204)(request)

    rig.receiver.answers["/hook"] = remove_first
    simulate(database)
    rig.delivery.deliver(id)
    assert len(rig.receiver.bodies) == 1 and rig.service.page(LOCAL_CALLER, after=None, limit=9) == ([], None)


# -- addresses


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/x", "https://", "/hook", "https://user:password@example.com/", "https://example.com/#part",
        "https://example.com:99999/", "http://[::1", "https://example.com/a b", "http://127.0.0.1/", "http://[::1]/",
        "http://169.254.169.254/latest", "http://10.1.2.3/", "http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/",
        "http://[fd00::1]/", "http://0.0.0.0/", "https://example.com/" + "x" * 2000,
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_or_not_one_of_http_is_refused_at_once(url: str) -> None:
    with pytest.raises(Invalid):
        ReceiverPosts().check(url)


def test_networks_of_the_operator_are_allowed_but_never_those_of_metadata() -> None:
    posts = ReceiverPosts(networks(["10.0.0.0/8", "169.254.0.0/16"]))
    posts.check("http://10.1.2.3/hook")
    assert posts.allows("::ffff:10.1.2.3") and posts.allows("8.8.8.8")
    for number in ("169.254.169.254", "192.168.1.1", "127.0.0.1", "fe80::1%eth0"):
        assert not posts.allows(number)


def answer_with(monkeypatch: pytest.MonkeyPatch, numbers: Mapping[str, list[list[str]]]) -> list[str]:
    """Let names resolve to these addresses, one list for each look-up; return the names that are looked up."""
    asked: list[str] = []
    real = socket.getaddrinfo
    left = {name: list(answers) for name, answers in numbers.items()}

    def resolve(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host not in left:
            return real(host, port, *args, **options)
        asked.append(host)
        answer = left[host].pop(0) if len(left[host]) > 1 else left[host][0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (number, port)) for number in answer]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


def test_a_name_is_resolved_once_and_the_address_that_was_checked_is_connected_to(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answer_with(monkeypatch, {"hooks.example": [["127.0.0.1"], ["169.254.169.254"]]})
    answer = rig.posts.post(f"http://hooks.example:{rig.receiver.port}/hook", b"{}", {})
    assert answer.error is None and asked == ["hooks.example"]
    assert rig.receiver.headers[0]["Host"] == f"hooks.example:{rig.receiver.port}"


def test_a_name_that_comes_to_resolve_to_a_private_address_is_not_connected_to(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = ReceiverPosts(silence=0.5, longest=1.0)
    connected: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: connected.append(address))
    answer_with(monkeypatch, {"hooks.example": [["127.0.0.1"]], "both.example": [["10.0.0.1", "169.254.169.254"]]})
    for name in ("hooks.example", "both.example"):
        answer = public.post(f"http://{name}:{rig.receiver.port}/hook", b"{}", {})
        assert answer.status is None and "WINDTUNNEL_WEBHOOK_NETWORKS" in str(answer.error)
    assert connected == [] and rig.receiver.requests == []


def test_proxies_of_the_environment_are_not_used(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert rig.posts.post(f"{rig.receiver.origin}/hook", b"{}", {}).error is None


def test_little_is_read_of_an_answer_and_it_is_shown_as_one_line(rig: Rig) -> None:
    def shout(request: BaseHTTPRequestHandler) -> None:
        request.send_response(400)
        request.end_headers()
        request.wfile.write(b"no\r\n\x1b[31m " + b"x" * 100_000)

    rig.receiver.answers["/hook"] = shout
    answer = rig.posts.post(f"{rig.receiver.origin}/hook", b"{}", {})
    assert answer.error == "It answered 400." and len(answer.excerpt) == 300 and "\x1b" not in answer.excerpt


def test_a_receiver_that_refuses_connections_is_named_so() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answer = ReceiverPosts(LOOPBACK).post(f"http://127.0.0.1:{port}/", b"", {})
    assert answer.error == "It refuses connections."


# -- projects


def test_webhooks_of_another_project_do_not_exist(rig: Rig) -> None:
    id = rig.create()
    rig.service.ping(LOCAL_CALLER, id)
    delivery = rig.deliveries(id)[0].id
    for act in (
        lambda: rig.service.get(OTHER, id),
        lambda: rig.service.change(OTHER, id, WebhookChanges(description="x")),
        lambda: rig.service.remove(OTHER, id),
        lambda: rig.service.rotate(OTHER, id),
        lambda: rig.service.ping(OTHER, id),
        lambda: rig.deliveries(id, OTHER),
        lambda: rig.service.retry(OTHER, id, delivery),
    ):
        with pytest.raises(UnknownWebhook):
            act()
    assert rig.service.page(OTHER, after=None, limit=10) == ([], None)


def test_a_project_has_a_bounded_number_of_webhooks(rig: Rig) -> None:
    for _ in range(MOST_WEBHOOKS):
        rig.create()
    with pytest.raises(Invalid, match="20 webhooks"):
        rig.create()


def test_a_webhook_and_a_project_take_their_deliveries_along(rig: Rig, database: Database) -> None:
    first, second = rig.create(), rig.create()
    simulate(database)
    rig.service.remove(LOCAL_CALLER, first)
    with database.read() as c:
        assert [row.webhook_id for row in webhook_deliveries.page(c, PLATFORM, second, None, 9)] == [second]
        assert webhook_deliveries.page(c, PLATFORM, first, None, 9) == []
    database.write(lambda c: owned_rows.forget_project(c, "default"))
    with database.read() as c:
        assert webhook_deliveries.page(c, PLATFORM, second, None, 9) == []
        assert c.execute(webhooks.select()).all() == []


def test_a_job_of_the_platform_finds_what_is_due_and_delivers_it(rig: Rig, database: Database) -> None:
    id = rig.create()
    assert due(database) == []
    simulate(database)
    until(lambda: due(database) == [id])
    rig.delivery.deliver(id)
    assert due(database) == []
