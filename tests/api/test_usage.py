"""Routes /v1/storage, /v1/caches and /v1/queue: what an operator looks at."""

from typing import Any

from flask.testing import FlaskClient

from core.services.platform import Platform
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
