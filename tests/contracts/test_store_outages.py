"""Outages of the object store: simulations wait without end and go on afterwards, on a real S3 server and a folder."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import text

from common.errors import NotFound, PlatformError, StoreUnavailable
from core.domain.access.scopes import LOCAL_CALLER, PLATFORM
from core.domain.scheduling.states import State
from core.domain.submissions.submission import Submission
from core.services.due_jobs import DueJobs
from core.services.scheduling.dispatch import MAX_BARREN_ATTEMPTS
from core.services.scheduling.leases import Leases
from core.services.scheduling.staging import ATTEMPTS, STAGE, Staging
from core.services.simulations.finalization import Finalization
from core.services.simulations.results import Results
from core.services.store_health import StoreHealth
from core.services.uploads.models import Models, key_of
from core.store import events, simulations
from datasets.download.downloader import RetryLimits
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore import open_store, prepare_store
from datasets.objectstore.base import ObjectStore
from datasets.objectstore.filesystem import FilesystemStore
from datasets.objectstore.s3 import S3Store
from tests.api.answers import MODEL
from tests.contracts.test_dispatcher import DispatcherRig, dispatcher_rig
from tests.contracts.test_dispatcher import rig as rig  # a fixture
from tests.databases import sqlite_database
from tests.s3_servers import S3Server, fresh_bucket
from tests.small_disks import small_disk
from tests.staged_models import is_prepared, stage
from tests.staged_models import staging_on as staging_of_platform
from tests.system.platform_process import share_environments
from tests.waiting import until
from workers.background_jobs import Jobs


@dataclass
class Outage:
    """A store that a test takes away and brings back."""

    store: ObjectStore
    begin: Callable[[], object]
    end: Callable[[], object]


@pytest.fixture(params=["server killed", "bucket removed", "folder removed"])
def outage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outage]:
    if request.param == "folder removed":
        folder, away = tmp_path / "objects-of-test", tmp_path / "away"
        yield Outage(FilesystemStore(folder), lambda: folder.rename(away), lambda: away.rename(folder))
        return
    server: S3Server = request.getfixturevalue("own_minio")
    store = open_store(server.url(fresh_bucket()), (server.access_key, server.secret_key))
    assert isinstance(store, S3Store)
    if request.param == "server killed":
        yield Outage(store, server.kill, server.start)
    else:
        disk, away = server.folder / "disk" / store.bucket, tmp_path / "away"
        yield Outage(store, lambda: shutil.move(disk, away), lambda: shutil.move(away, disk))
    store.close()


def test_an_object_is_never_said_to_be_missing_while_the_store_is_away(outage: Outage) -> None:
    outage.store.put("models/a", [b"alpha"])
    health = StoreHealth(outage.store)
    assert health.problem(30.0) is None
    outage.begin()
    for use in (
        lambda: outage.store.size("models/a"),
        lambda: b"".join(outage.store.get("models/a")),
        lambda: outage.store.put("models/b", [b"beta"]),
        lambda: list(outage.store.list("models/")),
    ):
        with pytest.raises(StoreUnavailable):
            use()
    assert "OBJECT_STORE_URL" in str(StoreHealth(outage.store).problem(30.0))
    outage.end()
    until(lambda: StoreHealth(outage.store).problem(30.0) is None)
    assert b"".join(outage.store.get("models/a")) == b"alpha"
    with pytest.raises(NotFound):
        outage.store.size("models/b")


def staging_on(rig: DispatcherRig, store: ObjectStore, folder: Path) -> Staging:
    platform = rig.platform
    limits = RetryLimits(connect=1.0, tries=1, first=0.01)
    cache = NodeCache(folder / "node", store, retry_limits=limits)
    folder.mkdir()
    share_environments(folder)
    return staging_of_platform(platform, cache, folder, store_health=StoreHealth(store))


def test_a_simulation_waits_in_the_queue_for_as_long_as_the_store_is_away(
    rig: DispatcherRig, outage: Outage, tmp_path: Path
) -> None:
    platform = rig.platform
    id = rig.submit()
    digest = platform.submissions.simulations.get(LOCAL_CALLER, id).model.digest
    key = f"models/{digest.removeprefix('sha256:')}"
    outage.store.put(key, platform.store.get(key))
    staging = staging_on(rig, outage.store, tmp_path / "other-node")
    pauses = []
    outage.begin()
    for _ in range(2 * ATTEMPTS):
        stage(platform, staging, id)
        waiting = platform.submissions.simulations.get(LOCAL_CALLER, id)
        assert (waiting.state, waiting.attempt) == (State.QUEUED, 1)
        assert waiting.reason and "object store" in waiting.reason
        with platform.database.read() as c:
            pauses.append(simulations.find(c, PLATFORM, id).not_before - platform.database.now(c))
    assert waiting.next_attempt_at is not None and waiting.reason.startswith("tried again in ")
    assert pauses[0] <= STAGE.retry.first and STAGE.retry.longest / 2 < pauses[-1] <= STAGE.retry.longest
    outage.end()
    stage(platform, staging, id)
    assert is_prepared(platform, id)
    with platform.database.read() as c:
        assert simulations.find(c, PLATFORM, id).staging_failures == 0


def test_a_model_that_the_store_does_not_have_is_asked_for_again_a_few_times(
    rig: DispatcherRig, tmp_path: Path
) -> None:
    platform, objects = rig.platform, FilesystemStore(tmp_path / "restored-later")
    objects.put("any", [b"thing"])
    came_back, gone = rig.submit(), rig.submit()
    key = f"models/{platform.submissions.simulations.get(LOCAL_CALLER, gone).model.digest.removeprefix('sha256:')}"
    staging = staging_on(rig, objects, tmp_path / "other-node")
    for attempt in range(1, ATTEMPTS):
        for id in (came_back, gone):
            stage(platform, staging, id)
            waiting = platform.submissions.simulations.get(LOCAL_CALLER, id)
            assert (waiting.state, waiting.attempt) == (State.QUEUED, attempt + 1)
    stage(platform, staging, gone)
    ended = platform.submissions.simulations.get(LOCAL_CALLER, gone)
    assert ended.state is State.ERRORED and ended.reason and key in ended.reason
    objects.put(key, platform.store.get(key))
    stage(platform, staging, came_back)
    assert is_prepared(platform, came_back)


def test_a_model_that_is_not_on_this_node_is_staged_while_the_store_is_away(
    rig: DispatcherRig, outage: Outage, tmp_path: Path
) -> None:
    platform = rig.platform
    submitted = rig.submit()
    provenance = platform.submissions.simulations.get(LOCAL_CALLER, submitted).provenance
    key = key_of(provenance.played_model.digest)
    outage.store.put(key, platform.store.get(key))
    present = staging_on(rig, outage.store, tmp_path / "present")
    until(
        lambda: present.missing(submitted, provenance, {}, "east") is None,
        message="it is staged though the store answers",
    )
    outage.begin()
    away = staging_on(rig, outage.store, tmp_path / "away-node")
    assert away.missing(submitted, provenance, {}, "east"), "its launch would wait for the store without a reason"
    NodeCache(tmp_path / "away-node" / "node", platform.store).object(key, provenance.played_model.digest)
    assert away.missing(submitted, provenance, {}, "east") is None, "the model is on this node: the store is not needed"
    outage.end()


def test_a_launch_that_could_not_fetch_its_model_is_followed_by_staging(rig: DispatcherRig) -> None:
    id = rig.submit()
    rig.east.refusal = rig.west.refusal = StoreUnavailable("the model has not arrived")
    rig.until(lambda: rig.platform.submissions.simulations.get(LOCAL_CALLER, id).next_attempt_at)
    waiting = rig.platform.submissions.simulations.get(LOCAL_CALLER, id)
    assert waiting.state is State.QUEUED
    assert waiting.reason and "the model has not arrived" in waiting.reason
    rig.east.refusal = rig.west.refusal = None
    rig.end_pauses()
    assert rig.dispatch.simulation(id).staging_failures == 1, "the next attempt begins with staging"
    rig.play(rig.launch(id)[1])
    assert rig.dispatch.simulation(id).staging_failures == 0


@pytest.mark.parametrize("outage", ["folder removed"], indirect=True)
def test_a_simulation_whose_summary_waits_for_the_store_says_so(rig: DispatcherRig, outage: Outage) -> None:
    id = rig.submit()
    rig.play(rig.launch(id)[1])
    rig.dispatcher.step()
    platform = rig.platform
    results = Results(platform.database, outage.store, platform.submissions.changes)
    outputs = platform.jobs.finalization.outputs
    finalization = Finalization(platform.database, outage.store, platform.notifier, results, outputs)
    outage.begin()
    services = replace(platform.jobs, finalization=finalization)
    jobs = Jobs(
        services,
        platform.files,
        platform.catalogue,
        platform.pipelines,
        platform.upkeep,
        environments_folder=Path(),
        sandbox=None,
    )
    jobs.table["collect"](id)  # does not fail
    waiting = platform.submissions.simulations.get(LOCAL_CALLER, id)
    assert waiting.state is State.RUNNING and waiting.reason and "its summary waits" in waiting.reason
    release = text("UPDATE simulations SET claim=NULL, claim_until=0")  # the claim expires
    platform.database.write(lambda c: c.execute(release) and None)
    assert DueJobs(platform.database).of("collect") == [id]
    platform.jobs.finalization.collect(id)
    ended = platform.submissions.simulations.get(LOCAL_CALLER, id)
    assert (ended.state, ended.reason) == (State.SUCCEEDED, None)


def test_launches_that_end_while_the_store_is_away_do_not_count_as_barren(
    rig: DispatcherRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    health = rig.platform.scheduling.store_health
    problems = ["the object store does not answer"] * (MAX_BARREN_ATTEMPTS + 2)
    monkeypatch.setattr(StoreHealth, "problem", lambda self, wait=0.0: problems[0] if problems else None)
    id = rig.submit()
    while problems:
        executor, launch = rig.launch(id)
        executor.end(launch.id, 1, "its inputs cannot be downloaded")
        rig.until(lambda: rig.state(id) is State.QUEUED)
        waiting = rig.platform.submissions.simulations.get(LOCAL_CALLER, id)
        assert waiting.reason is not None and problems[0] in waiting.reason
        problems.pop()
        rig.end_pauses()
    assert health.problem() is None
    rig.play(rig.launch(id)[1])
    rig.until(lambda: rig.platform.jobs.finalization.collect(id) or rig.state(id) is State.SUCCEEDED)


@pytest.fixture(params=["key without PutObject", "read-only disk"])
def refusal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outage]:
    """A store that can be read and refuses objects while a test lets it."""
    if request.param == "read-only disk":
        with small_disk(tmp_path / "disk", "64m") as disk:
            yield Outage(FilesystemStore(disk.folder / "objects"), disk.refuse_writes, disk.accept_writes)
        return
    server: S3Server = request.getfixturevalue("own_minio")
    reading = ["s3:GetObject", "s3:ListBucket", "s3:GetBucketLocation", "s3:DeleteObject", "s3:CreateBucket"]
    keys = server.user("platform", [*reading, "s3:PutObject"])
    store = open_store(server.url(fresh_bucket()), keys)
    store.put("models/a", [b"alpha"])  # makes the bucket
    yield Outage(
        store,
        lambda: server.user("platform", reading),
        lambda: server.user("platform", [*reading, "s3:PutObject"]),
    )
    store.close()


def test_a_store_that_can_be_read_and_refuses_objects_does_not_work(refusal: Outage) -> None:
    health = StoreHealth(refusal.store)
    assert health.problem(30.0) is None
    refusal.begin()
    assert StoreHealth(refusal.store).problem(30.0) is not None
    assert "can be read and refuses objects" in str(StoreHealth(refusal.store).problem(30.0))
    refusal.end()
    until(lambda: StoreHealth(refusal.store).problem(30.0) is None)


def test_launches_whose_results_the_store_refuses_are_no_barren_attempts_and_the_simulation_goes_on(
    refusal: Outage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreHealth, "problem", lambda self, wait=0.0: None)  # it is believed for a while
    home = tmp_path / "home"
    home.mkdir()
    with dispatcher_rig(home, sqlite_database(home / "windtunnel.db"), refusal.store) as rig:
        rig.platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
        id = rig.submit()
        for attempt in range(MAX_BARREN_ATTEMPTS + 2):
            executor, launch = rig.launch(id)
            if attempt == 0:
                rig.play(launch, 10)
                rig.dispatch.tick([rig.dispatch.simulation(id)], 0.0)
                refusal.begin()
            with pytest.raises(PlatformError):
                rig.play(launch, 20)
            executor.end(launch.id, 1, "its results could not be delivered")
            rig.until(lambda: rig.state(id) is State.QUEUED)
            waiting = rig.platform.submissions.simulations.get(LOCAL_CALLER, id)
            assert waiting.reason is not None and "its results cannot be stored" in waiting.reason
            rig.end_pauses()
        refusal.end()
        rig.play(rig.launch(id)[1])
        rig.until(lambda: rig.platform.jobs.finalization.collect(id) or rig.state(id) is State.SUCCEEDED)
        assert len(rig.results(id)) == 40


def test_results_that_others_have_stored_since_end_a_refusal(rig: DispatcherRig) -> None:
    id = rig.submit()
    for body, refused in (
        (("storage", {"stored": False, "message": "full"}), "full"),
        (("progress", {"done": 3}), None),
        (("storage", {"stored": False, "message": "full again"}), "full again"),
        (("storage", {"stored": True, "message": "its results are stored again"}), None),
    ):
        rig.platform.database.write(lambda c, body=body: events.say(c, id, *body, 0.0))
        assert rig.dispatch.refused_results(id) == refused


class AwayStore(FilesystemStore):
    """A folder that takes and gives nothing."""

    def put(self, key: str, chunks: object) -> int:
        raise StoreUnavailable("The object store does not answer.")

    def size(self, key: str) -> int:
        raise StoreUnavailable("The object store does not answer.")


@pytest.mark.parametrize("model", ["mine", "cartpole"])
def test_a_launch_is_described_while_the_store_is_away(rig: DispatcherRig, tmp_path: Path, model: str) -> None:
    platform = rig.platform
    dataset = "noop" if model == "mine" else "cartpole"
    launch = rig.launch(rig.submit(model=model, dataset=dataset, scenarios={"range": [0, 2]}))[1]
    platform.database.write(lambda c: c.execute(text("UPDATE simulations SET bundle = NULL")) and None)
    leases = Leases(platform.database, AwayStore(tmp_path / "away"), platform.notifier)
    files = leases.describe(leases.authenticate(launch.id, launch.token))["files"]
    assert files["model"]["size"] == platform.files.models.get(LOCAL_CALLER, model).size


def test_a_submission_of_a_shipped_model_is_accepted_while_the_store_is_away_and_staged_afterwards(
    rig: DispatcherRig, tmp_path: Path
) -> None:
    platform = rig.platform
    away = Models(platform.database, AwayStore(tmp_path / "away"), tmp_path / "scratch")
    resolver = platform.submissions.simulations._resolver
    resolver._models, present = away, resolver._models
    try:
        accepted, _ = platform.submissions.simulations.submit(
            LOCAL_CALLER, Submission(dataset="car_street", runtime="python")
        )
    finally:
        resolver._models = present
    assert accepted.state is State.QUEUED
    assert rig.dispatch.simulation(accepted.id).staging_failures == 1
    store = FilesystemStore(tmp_path / "objects-of-test")
    staging = staging_on(rig, store, tmp_path / "other-node")
    stage(platform, staging, accepted.id)
    assert is_prepared(platform, accepted.id)
    assert list(store.list("models/")) == [f"models/{accepted.model.digest.removeprefix('sha256:')}"]


def test_a_bucket_that_can_never_be_used_is_refused_with_a_sentence(minio: S3Server) -> None:
    for name in ("Not_A_Bucket", "ab", "192.168.0.1"):
        with pytest.raises(ValueError, match=r"OBJECT_STORE_URL: .* is not the name of a bucket"):
            open_store(f"s3://{name}?endpoint={minio.endpoint}")
    with pytest.raises(ValueError, match="cannot be used: the server answers"):
        prepare_store(minio.url(fresh_bucket()), (minio.access_key, "wrong"))
    prepare_store(minio.url(fresh_bucket()), (minio.access_key, minio.secret_key))
