"""A store that does not answer while a simulation is made ready: it waits in the queue, and says why; not for ever."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from core.domain.records import Simulation, Submission
from core.domain.states import State
from core.services.datasets.datasets import Datasets
from core.services.platform import Platform
from core.services.scheduling.staging import ATTEMPTS, Staging
from core.settings import Settings
from core.store import simulations
from datasets.download.downloads import RetryLimits
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.connections import Connection
from datasets.objectstore.filesystem import FilesystemStore
from datasets.objectstore.s3 import S3Store
from errors import UnknownDataset
from tests.packed import tar
from tests.ports import free_ports
from tests.system.house import share_environments
from tests.waiting import TIMEOUT


@pytest.fixture
def away(platform: Platform, settings: Settings) -> Staging:
    """The staging of a node whose object store's host refuses to be spoken to."""
    home = settings.home
    share_environments(home)
    nowhere = Connection(name="own", endpoint=f"http://127.0.0.1:{free_ports(1)[0]}", access_key="a", secret_key="b")
    retry_limits = RetryLimits(connect=1.0, tries=1, first=0.01)
    cache = NodeCache(home / "elsewhere", S3Store(nowhere, "objects"), retry_limits=retry_limits)
    return Staging(
        platform.database,
        platform.notifier,
        platform.datasets,
        cache,
        home=home,
        objects=platform.store,
    )


def given_up(platform: Platform, staging: Staging, model: str) -> Simulation:
    """Stage a simulation until that is given up, and see it wait in the queue each time before."""
    made, _ = platform.simulations.submit(Submission(dataset="noop", runtime="python", model=model))
    for attempt in range(1, ATTEMPTS + 1):
        with platform.database.read() as c:
            row = simulations.find(c, made.id)
            now = platform.database.now(c)
        assert (row.state, row.attempt) == ("queued", attempt)
        assert attempt == 1 or row.not_before > now - 1.0
        platform.database.write(lambda c: simulations.move(c, made.id, State.QUEUED, State.STAGING, 0.0))
        staging.stage(made.id)
    return platform.simulations.get(made.id)


def test_it_is_tried_again_later_and_given_up_at_last(platform: Platform, away: Staging, model: str) -> None:
    ended = given_up(platform, away, model)
    assert ended.state is State.ERRORED
    assert ended.reason and "does not answer" in ended.reason


def test_a_package_index_that_is_away_is_no_fault_of_the_model(
    platform: Platform, settings: Settings, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    staging = Staging(
        platform.database,
        platform.notifier,
        platform.datasets,
        NodeCache(tmp_path / "node", platform.store),
        home=tmp_path,
        objects=platform.store,
    )
    ended = given_up(platform, staging, model)
    assert ended.state is State.ERRORED
    assert ended.reason and ended.reason.startswith("the environment could not be prepared: ")


@pytest.fixture
def drives(platform: Platform, client: FlaskClient) -> str:
    """The id of a registered version with one file."""
    body = tar({"a.txt": b"alpha"})
    upload = platform.uploads.create(len(body))
    platform.uploads.append(upload.id, 0, [body])
    made = client.post("/v1/datasets", json={"name": "drives", "source": {"upload": upload.id}})
    platform.dataset_registration.register(made.json["id"])
    return str(made.json["id"])


class Slow(FilesystemStore):
    """A store that does something first, and answers once the staging has found its dataset gone."""

    def __init__(self, root: Path, first: Callable[[], None], gone: threading.Event) -> None:
        super().__init__(root)
        self._first, self._gone = first, gone

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        if key.startswith("packs/"):
            self._first()
            self._gone.wait(TIMEOUT)
        return super().get(key, start, length)


class Watched:
    """Datasets; the event is set when one that is asked for is not there any more."""

    def __init__(self, datasets: Datasets, gone: threading.Event) -> None:
        self._datasets, self._gone = datasets, gone

    def __getattr__(self, name: str) -> Any:
        return getattr(self._datasets, name)

    def get(self, ref: str) -> dict[str, Any]:
        try:
            return self._datasets.get(ref)
        except UnknownDataset:
            self._gone.set()
            raise


def test_a_dataset_that_is_deleted_is_not_brought_near_to_the_end(
    platform: Platform, settings: Settings, client: FlaskClient, drives: str
) -> None:
    deleted: list[int] = []

    def delete() -> None:
        if not deleted:
            deleted.append(client.delete("/v1/datasets/drives").status_code)

    gone = threading.Event()
    cache = NodeCache(settings.home / "elsewhere", Slow(settings.home / "objects", delete, gone))
    staging = Staging(
        platform.database,
        platform.notifier,
        Watched(platform.datasets, gone),  # type: ignore[arg-type]
        cache,
        home=settings.home,
        objects=platform.store,
    )
    assert client.post("/v1/datasets/drives/prefetch").status_code == 202
    digest = platform.datasets.get(drives)["digest"]
    staging.prefetch(drives)
    assert deleted == [204] and gone.is_set()
    assert cache.ready(digest) is None
