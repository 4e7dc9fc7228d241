"""Routes /v1/storage, /v1/caches and /v1/queue: what an operator looks at."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient

from core.domain.access.scopes import LOCAL_CALLER
from core.services.platform import Platform
from core.services.uploads.models import key_of
from core.settings import Settings
from core.store import executors
from datasets.nodecache.node_cache import NodeCache
from tests.api.conftest import LeasingWorker, Submit
from tests.api.test_datasets import PLAIN
from tests.api.test_datasets import register as register
from tests.api.test_datasets import upload as upload
from tests.api.test_datasets import work as work
from tests.waiting import until


def answered(client: FlaskClient, path: str) -> dict[str, Any]:
    """Return a document that has been measured."""
    response = client.get(path)
    assert response.status_code == 200, response.data
    document: dict[str, Any] = response.json
    return document if document["measured_at"] else {}


def storage_of(client: FlaskClient) -> dict[str, Any]:
    """Return the storage in use once it is measured."""
    return until(lambda: answered(client, "/v1/storage"), message="the storage is not measured")


def kinds_of(client: FlaskClient) -> dict[str, Any]:
    return {kind["name"]: (kind["objects"], kind["bytes"]) for kind in storage_of(client)["kinds"]}


def test_storage_in_use_is_summed_by_kind(
    client: FlaskClient, finished: str, register: Any, platform: Platform, upload: Any
) -> None:
    register("files", PLAIN)
    upload(b"12345")
    kinds = kinds_of(client)
    assert kinds["models"] == (1, platform.files.models.get(LOCAL_CALLER, "mine").size)
    assert kinds["datasets"] == (1, sum(map(len, PLAIN.values())))
    results = client.get(f"/v1/simulations/{finished}/results").data
    assert kinds["results"][1] == len(results) and kinds["results"][0] >= 1
    assert kinds["uploads"][0] >= 1 and kinds["uploads"][1] >= 5


def test_results_that_a_retry_inherits_count_once(client: FlaskClient, finished: str, submit: Submit) -> None:
    retried = client.post(f"/v1/simulations/{finished}/retry", json={"only_failed": True})
    assert retried.status_code in (201, 202), retried.data
    results = client.get(f"/v1/simulations/{finished}/results").data
    assert kinds_of(client)["results"][1] == len(results)


def test_storage_has_the_size_of_the_database_and_the_disks_with_their_floor(client: FlaskClient) -> None:
    document = storage_of(client)
    assert document["database"]["kind"] == "sqlite" and document["database"]["bytes"] > 4096
    (disk,) = document["disks"]
    assert disk["holds"] == ["data", "objects"] and 0 < disk["free"] <= disk["size"]
    assert 0 < disk["floor"] < disk["size"] and disk["below_floor"] is (disk["free"] < disk["floor"])


def test_a_disk_below_its_floor_is_reported(client: FlaskClient, platform: Platform) -> None:
    platform.files.disk_floor.measure = lambda folder: (1 << 20, 1 << 40)
    assert [disk["below_floor"] for disk in client.get("/v1/storage").json["disks"]] == [True]


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_environments_and_what_the_node_cache_holds_are_counted_by_kind(
    client: FlaskClient, platform: Platform, model: str, settings: Settings
) -> None:
    numpy = write(settings.environments, "aaa/site/numpy/core.so", b"1234567")
    write(settings.environments, "bbb/site/torch.so", b"123")
    write(settings.environments, "bbb/site/copy.py", b"12")
    os.link(numpy, settings.environments / "bbb" / "numpy.so")  # environments share equal files
    (settings.environments / "bbb" / "home").symlink_to("/")
    write(settings.environments, ".ccc.draft/site/x", b"1")
    write(settings.environments, ".aaa.lock", b"")
    stored = platform.files.models.get(LOCAL_CALLER, model)
    cache = NodeCache(settings.cache, platform.store)
    cache.object(key_of(stored.digest), stored.digest)

    def install(folder: Path, on_progress: Any) -> None:
        write(folder, "scipy.so", b"12345")

    cache.derived("sha256:" + "0" * 64, install, size=0, holder="simulation")

    def machine() -> dict[str, Any]:
        document: dict[str, Any] = client.get("/v1/storage").json["machine"]
        return document if document["measured_at"] else {}

    kinds = until(machine, message="the machine's storage is not measured")["kinds"]
    assert {kind["name"]: (kind["objects"], kind["bytes"]) for kind in kinds} == {
        "environments": (2, 7 + 3 + 2 + 1),
        "cached_datasets": (0, 0),
        "cached_models": (1, stored.size),
        "cached_environments": (1, 5),
    }


def caches_of(client: FlaskClient, expected: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the caches by name, once one of them is as expected."""

    def caches() -> dict[str, Any]:
        items = answered(client, "/v1/caches").get("items", [])
        return {item["name"]: item for item in items} if any(map(expected, items)) else {}

    return until(caches, message="no cache is as expected")


def test_the_node_cache_has_its_size_hits_misses_and_evictions(
    client: FlaskClient, platform: Platform, model: str, settings: Settings
) -> None:
    caches = caches_of(client, lambda cache: cache["kind"] == "node")
    assert [cache["reason"] for cache in caches.values()] == ["no simulation has used this machine's cache yet"]
    stored = platform.files.models.get(LOCAL_CALLER, model)
    cache = NodeCache(settings.cache, platform.store)
    for _ in range(4):
        cache.object(key_of(stored.digest), stored.digest, holder="simulation")
    (shown,) = caches_of(client, lambda cache: cache["hits"] == 3).values()
    assert (shown["misses"], shown["hit_ratio"], shown["evictions"]) == (1, 0.75, 0)
    assert (shown["entries"], shown["bytes"], shown["pinned"]) == (1, stored.size, stored.size)
    assert shown["capacity"] > shown["bytes"] and shown["reason"] is None


def queue_of(client: FlaskClient, expected: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Return the queue once it is as expected."""

    def queue() -> dict[str, Any]:
        document = answered(client, "/v1/queue")
        return document if document and expected(document) else {}

    return until(queue, message=lambda: f"the queue is {client.get('/v1/queue').json}")


def test_the_queue_has_what_waits_by_reason_and_what_runs_by_executor(
    client: FlaskClient, submit: Submit, worker: LeasingWorker
) -> None:
    assert queue_of(client, lambda queue: True)["waiting"] == {
        "simulations": 0,
        "tasks": 0,
        "oldest_at": None,
        "reasons": [],
    }
    first = submit().json
    submit(placement={"executor": "local"})
    queue = queue_of(client, lambda queue: queue["waiting"]["simulations"] == 2)
    assert queue["waiting"]["tasks"] == 2 * first["tasks"]["total"]
    assert queue["waiting"]["oldest_at"][:19] == first["created_at"][:19]
    reasons = {reason["executor"]: reason["reason"] for reason in queue["waiting"]["reasons"]}
    assert reasons == {None: "waits for free workers", "local": "waits for free workers of local"}
    (load,) = queue["executors"]
    assert load == {"name": "local", "launches": 0, "leases": 0, "tasks": 0, "rate": 0}
    lease = worker.lease(worker.launch(first["id"]))
    queue = queue_of(client, lambda queue: queue["executors"][0]["leases"] == 1)
    (load,) = queue["executors"]
    assert (load["launches"], load["tasks"]) == (1, lease.stop - lease.cursor)
    assert {reason["state"] for reason in queue["waiting"]["reasons"]} <= {"queued", "launching"}


def test_the_queue_names_an_executor_that_does_not_answer(
    client: FlaskClient, submit: Submit, platform: Platform
) -> None:
    down = {"kind": "local", "workers": 1, "in_use": 0, "healthy": 0, "last_error": "it is on fire"}
    platform.database.write(lambda c: executors.keep(c, "local", down, 1.0))
    submit(placement={"executor": "local"})
    queue = queue_of(client, lambda queue: queue["waiting"]["simulations"] == 1)
    assert queue["waiting"]["reasons"][0]["reason"] == "waits for local: it is on fire"
