"""Full disks: a simulation waits, says so in its reason and events, and goes on when there is space; on real tmpfs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import StorageFull
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.states import State
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import PlatformOptions, build
from core.services.scheduling.leases import Leases
from core.services.scheduling.staging import ATTEMPTS
from core.store import events
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.filesystem import FilesystemStore
from runtimes.environments import OutOfSpace, prepare
from tests.api.answers import MODEL, line
from tests.archives import tar
from tests.contracts.test_dispatcher import DispatcherRig
from tests.contracts.test_dispatcher import rig as rig  # a fixture
from tests.contracts.test_environments import SMALL, ignore_progress
from tests.databases import sqlite_database
from tests.executor_configs import LOCAL
from tests.reports import report_of
from tests.small_disks import SmallDisk, small_disk
from tests.staged_models import is_prepared, stage, staging_on
from tests.system.platform_process import share_environments


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", "64m") as disk:
        yield disk


def storage_events(rig: DispatcherRig, id: str) -> list[bool]:
    with rig.platform.database.read() as c:
        return [body["stored"] for body in events.bodies(c, id, "storage")]


def test_results_that_do_not_fit_on_the_disk_are_named_in_the_reason_and_in_an_event(
    rig: DispatcherRig, disk: SmallDisk
) -> None:
    platform = rig.platform
    id = rig.submit()
    launch = rig.launch(id)[1]
    leases = Leases(platform.database, FilesystemStore(disk.folder / "objects"), platform.notifier)
    runner = leases.authenticate(launch.id, launch.token)
    lease = leases.lease(runner, "d", None)
    report = report_of(lease, lease.cursor, lease.cursor + 1, line(lease.cursor))  # type: ignore[union-attr, arg-type]
    disk.fill()
    for _ in range(3):
        with pytest.raises(StorageFull):
            leases.report(runner, report)
        waiting = platform.submissions.simulations.get(LOCAL_CALLER, id)
        assert waiting.state is State.RUNNING
        assert waiting.reason and "The disk, or the object store, is full." in waiting.reason
    assert storage_events(rig, id) == [False], "an event for each change, not for each attempt"
    disk.empty()
    assert leases.report(runner, report).accepted
    assert platform.submissions.simulations.get(LOCAL_CALLER, id).reason is None
    assert storage_events(rig, id) == [False, True]


def test_a_simulation_whose_inputs_do_not_fit_on_this_node_waits_for_space_without_end(
    rig: DispatcherRig, disk: SmallDisk
) -> None:
    platform = rig.platform
    id = rig.submit()
    share_environments(disk.folder)
    cache = NodeCache(disk.folder / "node", platform.store)
    staging = staging_on(platform, cache, disk.folder)
    disk.fill()
    for _ in range(2 * ATTEMPTS):
        stage(platform, staging, id)
        waiting = platform.submissions.simulations.get(LOCAL_CALLER, id)
        assert waiting.state is State.QUEUED and waiting.next_attempt_at is not None
        assert waiting.reason and "disk" in waiting.reason and "full" in waiting.reason
    with platform.database.read() as c:
        states = [json.loads(event.body) for event in events.read_after(c, id, 0) if event.type == "state"]
    assert "full" in states[-1]["reason"]
    disk.empty()
    stage(platform, staging, id)
    assert is_prepared(platform, id)


def test_a_simulation_that_waits_for_space_in_the_node_cache_keeps_none_from_others(
    rig: DispatcherRig, tmp_path: Path
) -> None:
    platform = rig.platform
    mine = platform.files.models.get(LOCAL_CALLER, "mine")
    theirs = platform.files.models.add(LOCAL_CALLER, (MODEL, b"# theirs\n"), filename="model.py", name="theirs")
    share_environments(tmp_path)
    cache = NodeCache(tmp_path / "node", platform.store, capacity=mine.size + theirs.size - 1)
    staging = staging_on(platform, cache, tmp_path)
    running, waiting = rig.submit(), rig.submit(model="theirs")
    stage(platform, staging, running)
    assert is_prepared(platform, running)
    cache.hold("sha256:" + "0" * 64, waiting)  # an input that it had before
    stage(platform, staging, waiting)
    reason = platform.submissions.simulations.get(LOCAL_CALLER, waiting).reason
    assert reason and "when some simulations have ended" in reason
    holders: set[str] = set()
    cache.sweep(lambda found: holders.update(found) or found)  # type: ignore[func-returns-value]
    assert holders == {running}
    staging.release(running)
    stage(platform, staging, waiting)
    assert is_prepared(platform, waiting)


def test_inputs_that_can_never_fit_end_a_simulation_at_once(rig: DispatcherRig, tmp_path: Path) -> None:
    platform = rig.platform
    id = rig.submit()
    share_environments(tmp_path)
    cache = NodeCache(tmp_path / "node", platform.store, capacity=1)
    staging = staging_on(platform, cache, tmp_path)
    stage(platform, staging, id)
    ended = platform.submissions.simulations.get(LOCAL_CALLER, id)
    assert ended.state is State.ERRORED
    assert ended.reason and "raise WINDTUNNEL_CACHE_CAPACITY" in ended.reason


@pytest.mark.parametrize("full", ["objects", "scratch"])
def test_a_registration_that_does_not_fit_on_a_disk_ends_with_that_reason(
    tmp_path: Path, disk: SmallDisk, full: str
) -> None:
    folders = {"objects": tmp_path, "scratch": tmp_path, full: disk.folder}
    platform = build(
        sqlite_database(tmp_path / "d.db"),
        FilesystemStore(folders["objects"] / "objects"),
        LocalNotifier(),
        PlatformOptions(home=folders["scratch"], executor_configs=[LOCAL], sandbox={}),
    )
    manifest = json.dumps({"path": "a", "digest": "sha256:" + "0" * 64, "size": 3}).encode()
    body = {"objects": tar({"a": b"1"}, "w"), "scratch": manifest}[full]
    upload = platform.files.uploads.create(LOCAL_CALLER, len(body))
    platform.files.uploads.append(LOCAL_CALLER, upload.id, 0, iter([body]))
    source = {"objects": {"upload": upload.id}, "scratch": {"manifest": {"upload": upload.id}}}[full]
    version = platform.catalogue.datasets.register(LOCAL_CALLER, "a", source)["id"]
    disk.fill()
    platform.jobs.dataset_registration.register(version)
    dataset = platform.catalogue.datasets.get(LOCAL_CALLER, version)
    assert dataset["state"] == "failed" and "ree some space" in dataset["reason"], dataset


def test_an_object_that_does_not_fit_on_the_disk_raises_storage_full_and_leaves_nothing(disk: SmallDisk) -> None:
    store = FilesystemStore(disk.folder / "objects")
    disk.fill(spare=3 << 20)
    with pytest.raises(StorageFull):
        store.put("a/b", iter([bytes(4 << 20)]))
    assert not list(store.list("")) and not list((disk.folder / "objects" / ".partial").iterdir())
    disk.empty()
    assert store.put("a/b", iter([bytes(4 << 20)])) == 4 << 20


def test_an_environment_that_does_not_fit_on_the_disk_may_be_prepared_later(disk: SmallDisk) -> None:
    disk.fill(spare=100_000)
    with pytest.raises(OutOfSpace, match="No space left"):
        prepare(SMALL, disk.folder / "environments", ignore_progress)
    disk.empty()
    assert prepare(SMALL, disk.folder / "environments", ignore_progress).is_dir()
