"""Allow-lists of executors: a name of the cluster that its operator has not allowed is refused with the setting."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient

from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.executor_config import ExecutorConfig, GangSupport
from core.domain.scheduling.states import State
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.services.scheduling.dispatch import Dispatch
from core.settings import Settings
from datasets.objectstore import open_store
from server import composition as root
from tests.api.answers import MODEL
from tests.databases import sqlite_database
from tests.dispatching import last_submitted
from workers.executors.registry import kind

ALLOWED = {
    "annotations": ["example.com/*"],
    "networks": ["fast"],
    "claims": ["one-gpu"],
    "resources": ["nvidia.com/gpu"],
    "node_selector": ["pool=gpu"],
    "exclusive": ["topology.kubernetes.io/zone"],
    "queue": ["team-*"],
    "priority": ["low"],
    "image": ["registry.example/team/*"],
    "runtime_ref": ["torch-distributed"],
}
#: Options that an operator alone may set: sidecars, roles, networks without policies, priorities, other nodes.
REFUSED: dict[str, Any] = {
    "annotations": {"sidecar.istio.io/inject": "true"},
    "networks": ["kube-system/host-network"],
    "claims": {"any": "every-gpu"},
    "resources": {"smarter-devices/fuse": "1"},
    "node_selector": {"node-role.kubernetes.io/control-plane": ""},
    "exclusive": "kubernetes.io/hostname",
    "queue": "production",
    "priority": "system-node-critical",
}
PERMITTED: dict[str, Any] = {
    "annotations": {"example.com/team": "a"},
    "networks": ["fast"],
    "claims": {"any": "one-gpu"},
    "resources": {"nvidia.com/gpu": "1"},
    "node_selector": {"pool": "gpu"},
    "exclusive": "topology.kubernetes.io/zone",
    "queue": "team-a",
    "priority": "low",
}
CLUSTER = ExecutorConfig(
    name="cluster",
    kind="kubernetes",
    workers=4,
    equivalents=kind("kubernetes").equivalents,
    gangs=GangSupport(unattended=True),
)
GENEROUS = replace(CLUSTER, name="generous", allowed=ALLOWED)
LAPTOP = ExecutorConfig(name="laptop", kind="local", workers=64, ignored=kind("local").ignored)
CONFIGS = [CLUSTER, GENEROUS, LAPTOP]
GANGS = ["cluster", "generous"]


@pytest.fixture
def platform(settings: Settings) -> Iterator[Platform]:
    """A platform with a cluster that allows nothing, a cluster that allows some names, and a kind that ignores them."""
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    yield build(
        database,
        open_store(settings.objects),
        LocalNotifier(),
        PlatformOptions(
            home=settings.home,
            executor_configs=CONFIGS,
            sandbox={"level": 3},
            own_environments=GANGS,
        ),
    )
    database.close()


@pytest.fixture
def client(platform: Platform, settings: Settings) -> FlaskClient:
    platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
    return root.create_flask(platform, settings, {"level": 3, "missing": []}).test_client()


def dispatch_of(platform: Platform, *configs: ExecutorConfig) -> Dispatch:
    return Dispatch(platform.database, platform.notifier, executor_configs=configs, runner_api_url="http://x")


def post(client: FlaskClient, executor: str | None = None, **placement: Any) -> Any:
    placement |= {"executor": executor} if executor else {}
    document = {"dataset": "noop", "model": "mine", "scenarios": {"range": [0, 3]}, "placement": placement}
    return client.post("/v1/simulations", json=document)


def post_gang(client: FlaskClient, executor: str | None = None, **gang: Any) -> Any:
    gang = {"size": 2, "command": ["python", "model.py"]} | gang
    document = {"dataset": "program", "model": "mine", "scenarios": {"range": [0, 1]}, "gang": gang}
    return client.post("/v1/simulations", json=document | ({"placement": {"executor": executor}} if executor else {}))


@pytest.mark.parametrize("option", REFUSED)
@pytest.mark.parametrize("executor", ["cluster", "generous"])
def test_a_name_that_is_not_allowed_is_refused_with_the_setting(
    client: FlaskClient, option: str, executor: str
) -> None:
    refused = post(client, executor, **{option: REFUSED[option]})
    assert (refused.status_code, refused.mimetype) == (422, "application/problem+json"), refused.json
    assert refused.json["type"] == "/problems/not-allowed"
    assert f"executors.{executor}.allowed.{option}" in refused.json["detail"]
    assert "ask the operator" in refused.json["detail"]
    assert [error for error in refused.json["errors"] if error.startswith(f"placement.{option}: ")]
    assert client.get("/v1/simulations").json["items"] == []


@pytest.mark.parametrize("option", PERMITTED)
def test_an_allowed_name_is_accepted_and_runs_only_where_it_is_allowed(
    client: FlaskClient, platform: Platform, option: str
) -> None:
    assert post(client, "cluster", **{option: PERMITTED[option]}).status_code == 422
    accepted = post(client, **{option: PERMITTED[option]})
    assert accepted.status_code == 201, accepted.json
    queued = last_submitted(dispatch_of(platform, *CONFIGS))
    assert [config.name for config in CONFIGS if config.name in (queued.eligible or ())] == ["generous", "laptop"]


@pytest.mark.parametrize(
    ("option", "gang"),
    [
        ("image", {"image": "attacker.example/miner:1"}),
        ("image", {"image": "attacker.example/miner:1", "operator": "mpi-operator"}),
        ("runtime_ref", {"runtime_ref": "privileged", "operator": "trainer"}),
    ],
)
def test_a_gang_whose_image_or_runtime_is_not_allowed_is_refused(
    client: FlaskClient, option: str, gang: dict[str, Any]
) -> None:
    refused = post_gang(client, **gang)
    assert (refused.status_code, refused.json["type"]) == (422, "/problems/not-allowed")
    for executor in GANGS:  # and not the laptop, which starts no gangs
        assert f"executors.{executor}.allowed.{option}" in refused.json["detail"]
    assert "laptop" not in refused.json["detail"]


def test_a_gang_with_an_allowed_image_is_accepted(client: FlaskClient, platform: Platform) -> None:
    accepted = post_gang(client, image="registry.example/team/mpi:5")
    assert accepted.status_code == 201, accepted.json
    queued = last_submitted(dispatch_of(platform, *CONFIGS))
    assert [config.name for config in CONFIGS if config.name in (queued.eligible or ())] == ["generous"]


def test_a_network_is_not_attached_by_an_annotation(client: FlaskClient) -> None:
    for annotation in ("k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network"):
        refused = post(client, "generous", annotations={annotation: "fast"})
        assert refused.status_code == 422 and "use placement.networks instead" in refused.json["detail"]


def test_forms_retries_and_repeated_archives_are_held_to_the_same_list(client: FlaskClient, platform: Platform) -> None:
    placement = {"executor": "cluster", "priority": "high"}
    form = {"dataset": "noop", "model": "mine", "placement": json.dumps(placement)}
    refused = client.post("/v1/simulations", data=form, content_type="multipart/form-data")
    assert refused.json["type"] == "/problems/not-allowed"
    accepted = post(client, "cluster").json
    archived = {"spec": accepted["spec"] | {"placement": placement}, "provenance": accepted["provenance"]}
    assert client.post("/v1/simulations", json=archived).json["type"] == "/problems/not-allowed"


def test_executors_are_listed_with_the_names_that_they_allow(client: FlaskClient) -> None:
    cluster, generous, laptop = client.get("/v1/executors").json["items"]
    assert (cluster["allowed"], generous["allowed"], laptop["allowed"]) == ({}, ALLOWED, {})


def test_a_queued_simulation_waits_for_the_executors_that_allow_it(client: FlaskClient, platform: Platform) -> None:
    id = post_gang(client, image="registry.example/team/mpi:5").json["id"]
    dispatch = dispatch_of(platform, *CONFIGS)
    health = {"kind": "kubernetes", "workers": 4, "in_use": 0, "healthy": 1, "last_error": None}
    away = health | {"healthy": 0, "last_error": "no route to host"}
    dispatch.report_health({"cluster": health, "generous": away, "laptop": health})
    assert client.get(f"/v1/simulations/{id}").json["reason"] == "waits for generous: no route to host"


def test_a_queued_simulation_ends_at_its_turn_when_the_list_was_shortened(
    client: FlaskClient, platform: Platform
) -> None:
    id = post(client, "generous", queue="team-a").json["id"]
    dispatch = dispatch_of(platform, CLUSTER, replace(GENEROUS, allowed={"queue": ["team-b"]}), LAPTOP)
    simulation = last_submitted(dispatch)
    assert simulation.eligible is None
    assert not dispatch.admit(simulation, "generous")
    platform.jobs.finalization.collect(id)
    ended = client.get(f"/v1/simulations/{id}").json
    assert ended["state"] == State.ERRORED
    assert "placement.queue: team-a is not in executors.generous.allowed.queue (team-b)" in ended["reason"]


def test_an_admitted_simulation_is_not_launched_when_the_list_was_shortened(
    client: FlaskClient, platform: Platform
) -> None:
    """As after a restart of the dispatcher while the simulation was staged, or after the loss of its launch."""
    id = post(client, "generous", annotations={"example.com/team": "a"}).json["id"]
    before = dispatch_of(platform, *CONFIGS)
    assert before.admit(last_submitted(before), "generous")
    after = dispatch_of(platform, CLUSTER, replace(GENEROUS, allowed={}), LAPTOP)
    assert after.launch(last_submitted(after)) is None
    platform.jobs.finalization.collect(id)
    ended = client.get(f"/v1/simulations/{id}").json
    assert ended["state"] == State.ERRORED and "executors.generous.allowed.annotations (empty)" in ended["reason"]
    assert after.snapshot().launches == ()


def test_a_queued_simulation_moves_to_an_executor_that_still_allows_it(client: FlaskClient, platform: Platform) -> None:
    assert post_gang(client, image="registry.example/team/mpi:5").status_code == 201
    dispatch = dispatch_of(platform, replace(CLUSTER, allowed=ALLOWED), replace(GENEROUS, allowed={}))
    queued = last_submitted(dispatch)
    assert queued.eligible is not None and "cluster" in queued.eligible and "generous" not in queued.eligible


def test_an_admitted_simulation_is_queued_for_an_executor_that_still_allows_it(
    client: FlaskClient, platform: Platform
) -> None:
    id = post_gang(client, image="registry.example/team/mpi:5").json["id"]
    before = dispatch_of(platform, *CONFIGS)
    assert before.admit(last_submitted(before), "generous")
    after = dispatch_of(platform, replace(CLUSTER, allowed=ALLOWED), replace(GENEROUS, allowed={}), LAPTOP)
    assert after.launch(last_submitted(after)) is None
    assert client.get(f"/v1/simulations/{id}").json["state"] == State.QUEUED
    queued = last_submitted(after)
    assert queued.eligible is not None and "cluster" in queued.eligible and "generous" not in queued.eligible


def test_a_stored_simulation_of_an_earlier_version_is_refused_at_its_turn_and_when_it_is_retried(
    client: FlaskClient, platform: Platform, settings: Settings
) -> None:
    id = post(client, "generous", priority="low").json["id"]
    platform.submissions.simulations.cancel(LOCAL_CALLER, id)
    tightened = PlatformOptions(
        home=settings.home,
        executor_configs=[CLUSTER, replace(GENEROUS, allowed={})],
        sandbox={"level": 3},
        own_environments=GANGS,
    )
    later = build(platform.database, open_store(settings.objects), LocalNotifier(), tightened)
    client = root.create_flask(later, settings, {"level": 3, "missing": []}).test_client()
    assert client.get(f"/v1/simulations/{id}").json["spec"]["placement"]["priority"] == "low"
    retried = client.post(f"/v1/simulations/{id}/retry", json={"only_failed": False})
    assert (retried.status_code, retried.json["type"]) == (422, "/problems/not-allowed"), retried.json
