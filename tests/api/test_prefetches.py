"""Prefetches: what follows where the store is away, or the dataset is deleted meanwhile."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from sqlalchemy import text

from common.errors import UnknownDataset
from core.domain.access.scopes import LOCAL_CALLER, Caller
from core.services.datasets.datasets import Datasets
from core.services.datasets.prefetches import Prefetches
from core.services.due_jobs import DueJobs
from core.services.platform import Platform
from core.settings import Settings
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.filesystem import FilesystemStore
from tests.archives import tar
from tests.staged_models import unreachable_cache
from tests.waiting import TIMEOUT


@pytest.fixture
def drives(platform: Platform, client: FlaskClient) -> str:
    """Id of a registered version with one file."""
    body = tar({"a.txt": b"alpha"})
    upload = platform.files.uploads.create(LOCAL_CALLER, len(body))
    platform.files.uploads.append(LOCAL_CALLER, upload.id, 0, [body])
    response = client.post("/v1/datasets", json={"name": "drives", "source": {"upload": upload.id}})
    platform.jobs.dataset_registration.register(response.json["id"])
    return str(response.json["id"])


def test_a_prefetch_waits_for_a_store_that_is_away(
    platform: Platform, settings: Settings, client: FlaskClient, drives: str
) -> None:
    assert client.post("/v1/datasets/drives/prefetch").status_code == 202
    release = text("UPDATE dataset_prefetches SET claim=NULL, claim_until=0")  # the claim expires
    unreachable = Prefetches(
        platform.database, platform.notifier, platform.catalogue.datasets, unreachable_cache(settings.home)
    )
    for _ in range(3):
        unreachable.download(drives)
        platform.database.write(lambda c: c.execute(release) and None)
        assert DueJobs(platform.database).of("prefetch") == [drives]
    platform.catalogue.prefetches.download(drives)
    assert DueJobs(platform.database).of("prefetch") == []


class SlowStore(FilesystemStore):
    """Store that calls a function before a read, and reads after the prefetch has noticed the dataset's deletion."""

    def __init__(self, root: Path, first: Callable[[], None], deleted_event: threading.Event) -> None:
        super().__init__(root)
        self._first, self._deleted_event = first, deleted_event

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        if key.startswith("packs/"):
            self._first()
            self._deleted_event.wait(TIMEOUT)
        return super().get(key, start, length)


class WatchedDatasets:
    """Datasets that set an event when a deleted dataset is requested."""

    def __init__(self, datasets: Datasets, deleted_event: threading.Event) -> None:
        self._datasets, self._deleted_event = datasets, deleted_event

    def __getattr__(self, name: str) -> Any:
        return getattr(self._datasets, name)

    def digest(self, caller: Caller, ref: str) -> str:
        try:
            return self._datasets.digest(caller, ref)
        except UnknownDataset:
            self._deleted_event.set()
            raise


def test_the_prefetch_of_a_deleted_dataset_ends_early(
    platform: Platform, settings: Settings, client: FlaskClient, drives: str
) -> None:
    deleted: list[int] = []

    def delete() -> None:
        if not deleted:
            deleted.append(client.delete("/v1/datasets/drives").status_code)

    deleted_event = threading.Event()
    cache = NodeCache(settings.home / "elsewhere", SlowStore(settings.home / "objects", delete, deleted_event))
    datasets: Any = WatchedDatasets(platform.catalogue.datasets, deleted_event)
    prefetches = Prefetches(platform.database, platform.notifier, datasets, cache)
    assert client.post("/v1/datasets/drives/prefetch").status_code == 202
    digest = platform.catalogue.datasets.get(LOCAL_CALLER, drives)["digest"]
    prefetches.download(drives)
    assert deleted == [204] and deleted_event.is_set()
    assert cache.ready(digest) is None
