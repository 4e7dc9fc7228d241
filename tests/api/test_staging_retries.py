"""Staging with an unavailable store or package index: the simulation waits in the queue, without end."""

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uv
from flask.testing import FlaskClient
from sqlalchemy import text

from common.errors import UnknownDataset
from core.domain.scheduling.preparation import Preparation
from core.domain.scheduling.states import State
from core.domain.submissions.records import Simulation
from core.domain.submissions.submission import Submission
from core.services.datasets.datasets import Datasets
from core.services.due_jobs import DueJobs
from core.services.platform import Platform
from core.services.scheduling.staging import ATTEMPTS, Staging
from core.settings import Settings
from core.store import simulations
from datasets.download.downloader import RetryLimits
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.connections import Connection
from datasets.objectstore.filesystem import FilesystemStore
from datasets.objectstore.s3 import S3Store
from runtimes import environments
from tests.archives import tar
from tests.contracts.hostile_program import program
from tests.ports import free_ports
from tests.staged_models import stage, staging_on
from tests.system.platform_process import share_environments
from tests.waiting import TIMEOUT


@pytest.fixture
def unreachable_staging(platform: Platform, settings: Settings) -> Staging:
    """Staging on a node whose object store refuses connections."""
    home = settings.home
    share_environments(home)
    nowhere = Connection(name="own", endpoint=f"http://127.0.0.1:{free_ports(1)[0]}", access_key="a", secret_key="b")
    retry_limits = RetryLimits(connect=1.0, tries=1, first=0.01)
    cache = NodeCache(home / "elsewhere", S3Store(nowhere, "objects"), retry_limits=retry_limits)
    return staging_on(platform, cache, home)


def stage_often(platform: Platform, staging: Staging, model: str) -> Simulation:
    """Stage a simulation more often than a refusal would allow; assert that it is queued after each attempt."""
    simulation, _ = platform.submissions.simulations.submit(Submission(dataset="noop", runtime="python", model=model))
    for _ in range(ATTEMPTS + 2):
        stage(platform, staging, simulation.id)
        with platform.database.read() as c:
            row = simulations.find(c, simulation.id)
            assert row.not_before > platform.database.now(c)
        assert (row.state, row.attempt) == ("queued", 1)
    return platform.submissions.simulations.get(simulation.id)


def test_staging_is_tried_again_without_end_while_the_store_is_away(
    platform: Platform, unreachable_staging: Staging, model: str, client: FlaskClient
) -> None:
    waiting = stage_often(platform, unreachable_staging, model)
    body = client.get(f"/v1/simulations/{waiting.id}").json
    assert body["state"] == "queued" and body["next_attempt_at"] is not None
    assert body["reason"].startswith("tried again in ") and "does not answer" in body["reason"]


def test_staging_waits_for_an_unavailable_package_index_and_says_so(
    platform: Platform, settings: Settings, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("UV_INDEX_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    staging = staging_on(platform, NodeCache(tmp_path / "node", platform.store), tmp_path)
    waiting = stage_often(platform, staging, model)
    assert waiting.reason and "the environment could not be prepared: " in waiting.reason


@pytest.mark.parametrize("own", [True, False])
def test_an_installer_that_is_killed_is_tried_again_and_the_model_is_not_to_blame(
    platform: Platform,
    settings: Settings,
    client: FlaskClient,
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: bool,
) -> None:
    """Of a model's own packages, and of the platform's."""
    if own:
        source = '# /// script\n# dependencies = ["alpha"]\n# ///\nclass Model:\n    def act(self, observation): ...\n'
        client.put("/v1/models/mine?filename=model.py", data=source.encode(), content_type="application/octet-stream")
        share_environments(settings.home)
    home = settings.home if own else tmp_path
    programs = Path(tempfile.mkdtemp(prefix="killed-uv-"))
    programs.chmod(0o755)
    killed = program(programs, {}, "os.kill(os.getpid(), 9)")
    staging = staging_on(platform, NodeCache(tmp_path / "node", platform.store), home, indexes=("http://127.0.0.1:9/",))
    simulation, _ = platform.submissions.simulations.submit(Submission(dataset="noop", runtime="python", model=model))
    monkeypatch.setattr(uv, "find_uv_bin", lambda: str(killed))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # which the program reads
    stage(platform, staging, simulation.id)
    shutil.rmtree(programs)
    waiting = platform.submissions.simulations.get(simulation.id)
    assert waiting.state is State.QUEUED and waiting.reason and "uv, was killed by SIGKILL" in waiting.reason


def test_packages_that_the_index_refuses_end_a_simulation(
    platform: Platform, settings: Settings, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise environments.preparation_error("Hash mismatch for `numpy==2.3.4`")

    monkeypatch.setattr(environments, "ready", lambda *arguments: None)
    monkeypatch.setattr(environments, "prepare", refuse)
    simulation, _ = platform.submissions.simulations.submit(Submission(dataset="noop", runtime="python", model=model))
    for _ in range(ATTEMPTS):
        stage(platform, platform.scheduling.staging, simulation.id)
    platform.jobs.finalization.collect(simulation.id)
    ended = platform.submissions.simulations.get(simulation.id)
    assert ended.state is State.ERRORED and ended.reason and "Hash mismatch" in ended.reason


@pytest.fixture
def drives(platform: Platform, client: FlaskClient) -> str:
    """Id of a registered version with one file."""
    body = tar({"a.txt": b"alpha"})
    upload = platform.files.uploads.create(len(body))
    platform.files.uploads.append(upload.id, 0, [body])
    response = client.post("/v1/datasets", json={"name": "drives", "source": {"upload": upload.id}})
    platform.jobs.dataset_registration.register(response.json["id"])
    return str(response.json["id"])


def test_a_prefetch_waits_for_a_store_that_is_away(
    platform: Platform, settings: Settings, client: FlaskClient, drives: str, unreachable_staging: Staging
) -> None:
    assert client.post("/v1/datasets/drives/prefetch").status_code == 202
    release = text("UPDATE dataset_prefetches SET claim=NULL, claim_until=0")  # the claim expires
    for _ in range(ATTEMPTS + 1):
        unreachable_staging.prefetch(drives)
        platform.database.write(lambda c: c.execute(release) and None)
        assert DueJobs(platform.database).of("prefetch") == [drives]
    platform.scheduling.staging.prefetch(drives)
    assert DueJobs(platform.database).of("prefetch") == []


class SlowStore(FilesystemStore):
    """Store that calls a function before a read, and reads after the staging has noticed the dataset's deletion."""

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

    def digest(self, ref: str) -> str:
        try:
            return self._datasets.digest(ref)
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
    staging = staging_on(
        platform, cache, settings.home, datasets=WatchedDatasets(platform.catalogue.datasets, deleted_event)
    )
    assert client.post("/v1/datasets/drives/prefetch").status_code == 202
    digest = platform.catalogue.datasets.get(drives)["digest"]
    staging.prefetch(drives)
    assert deleted == [204] and deleted_event.is_set()
    assert cache.ready(digest) is None


@pytest.mark.parametrize(("column", "name"), [("provenance", "Provenance"), ("bundle", "PackedFiles")])
def test_a_stored_document_that_cannot_be_read_ends_a_simulation_with_the_reason(
    platform: Platform, model: str, column: str, name: str
) -> None:
    simulation, _ = platform.submissions.simulations.submit(Submission(dataset="noop", runtime="python", model=model))
    move = {"executor": "local", "preparation": Preparation.QUICK.value}
    platform.database.write(lambda c: simulations.move(c, simulation.id, State.QUEUED, State.STAGING, 0.0, **move))
    damage = text(f"UPDATE simulations SET {column}='[]'")
    platform.database.write(lambda c: c.execute(damage) and None)
    platform.scheduling.staging.stage(simulation.id)
    with platform.database.read() as c:
        row = simulations.find(c, simulation.id)
    assert row.outcome == "errored" and row.reason and f"a {name} that cannot be read" in row.reason
