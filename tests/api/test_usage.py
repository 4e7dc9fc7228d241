"""Routes /v1/storage, /v1/caches and /v1/queue: what an operator looks at."""

from collections.abc import Callable
from typing import Any

from flask.testing import FlaskClient

from core.services.platform import Platform
from core.services.uploads.models import key_of
from core.settings import Settings
from datasets.nodecache.node_cache import NodeCache
from tests.api.conftest import Submit
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


def kinds_of(client: FlaskClient) -> dict[str, Any]:
    document = until(lambda: answered(client, "/v1/storage"), 10.0, message="the storage is not measured")
    return {kind["name"]: (kind["objects"], kind["bytes"]) for kind in document["kinds"]}


def test_storage_in_use_is_summed_by_kind(
    client: FlaskClient, finished: str, register: Any, platform: Platform, upload: Any
) -> None:
    register("files", PLAIN)
    upload(b"12345")
    kinds = kinds_of(client)
    assert kinds["models"] == (1, platform.models.get("mine").size)
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
    document = until(lambda: answered(client, "/v1/storage"), 10.0, message="the storage is not measured")
    assert document["database"]["kind"] == "sqlite" and document["database"]["bytes"] > 4096
    (disk,) = document["disks"]
    assert disk["holds"] == ["data", "objects"] and 0 < disk["free"] <= disk["size"]
    assert 0 < disk["floor"] < disk["size"] and disk["below_floor"] is (disk["free"] < disk["floor"])


def test_a_disk_below_its_floor_is_reported(client: FlaskClient, platform: Platform) -> None:
    platform.disk_floor.measure = lambda folder: (1 << 20, 1 << 40)
    assert [disk["below_floor"] for disk in client.get("/v1/storage").json["disks"]] == [True]


def caches_of(client: FlaskClient, expected: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the caches by name, once one of them is as expected."""

    def caches() -> dict[str, Any]:
        items = answered(client, "/v1/caches").get("items", [])
        return {item["name"]: item for item in items} if any(map(expected, items)) else {}

    return until(caches, 10.0, message="no cache is as expected")


def test_the_node_cache_has_its_size_hits_misses_and_evictions(
    client: FlaskClient, platform: Platform, model: str, settings: Settings
) -> None:
    caches = caches_of(client, lambda cache: cache["kind"] == "node")
    assert [cache["reason"] for cache in caches.values()] == ["no simulation has used this machine's cache yet"]
    stored = platform.models.get(model)
    cache = NodeCache(settings.cache, platform.store)
    for _ in range(4):
        cache.object(key_of(stored.digest), stored.digest, holder="simulation")
    (shown,) = caches_of(client, lambda cache: cache["hits"] == 3).values()
    assert (shown["misses"], shown["hit_ratio"], shown["evictions"]) == (1, 0.75, 0)
    assert (shown["entries"], shown["bytes"], shown["pinned"]) == (1, stored.size, stored.size)
    assert shown["capacity"] > shown["bytes"] and shown["reason"] is None
