"""Files of tasks: a checkpoint counts from its manifest on, two are kept, and only the holder of the lease adds any."""

from pathlib import Path

import pytest

from common.errors import Conflict, NotFound
from core.domain.scheduling.ranges import Lease
from core.services.scheduling.task_files import TaskFiles
from core.store.database import Database
from datasets.objectstore.filesystem import FilesystemStore
from runtimes.harness.runner.runner_api_messages import (
    Checkpoint,
    CheckpointFile,
    CheckpointReport,
    StoredArtifact,
    TaskFileHeader,
)
from tests.contracts.test_leases import SIMULATION, STAGE, begin, lend, report


class Holder:
    """A holder of a lease, which stores files of its task."""

    def __init__(self, files: TaskFiles, lease: Lease, task: int = 0) -> None:
        self.files = files
        self._held = (STAGE, lease.start, lease.fencing_token, task)
        self.task = task

    @property
    def header(self) -> TaskFileHeader:
        return TaskFileHeader(*self._held)

    def part(self, rank: int, text: str) -> CheckpointFile:
        stored = self.files.store_part(SIMULATION, self.header, [text.encode()])
        return CheckpointFile(rank, "state", stored.object, stored.bytes)

    def finish(self, name: str, *files: CheckpointFile) -> None:
        self.files.finish(SIMULATION, CheckpointReport(*self._held, Checkpoint(name, list(files))))

    def save(self, name: str, text: str) -> None:
        self.finish(name, self.part(0, text))


@pytest.fixture
def store(tmp_path: Path) -> FilesystemStore:
    return FilesystemStore(tmp_path / "objects")


@pytest.fixture
def holder(database: Database, store: FilesystemStore) -> Holder:
    begin(database, 100)
    lease = lend(database, "first", workers=1)
    assert lease is not None and lease.stop > 1
    return Holder(TaskFiles(database, store), lease)


def content(files: TaskFiles, task: int = 0) -> dict[int, str]:
    """Return what the ranks have in the newest checkpoint."""
    newest = files.newest(SIMULATION, task)
    found = newest.files if newest is not None else []
    return {file.rank: b"".join(files.read(SIMULATION, task, file.object, 0, file.bytes)).decode() for file in found}


def test_a_checkpoint_counts_from_its_manifest_on(holder: Holder) -> None:
    assert holder.files.newest(SIMULATION, 0) is None
    holder.save("1", "first")
    parts = [holder.part(0, "second, of rank 0"), holder.part(1, "second, of rank 1")]
    assert content(holder.files) == {0: "first"}
    holder.finish("2", *parts)
    assert content(holder.files) == {0: "second, of rank 0", 1: "second, of rank 1"}


def test_two_checkpoints_are_kept_and_none_after_the_end(holder: Holder, store: FilesystemStore) -> None:
    for number in range(5):
        holder.save(str(number), f"state {number}")
    keys = list(store.list("checkpoints/"))
    assert (sum("/manifest-" in key for key in keys), sum("/part-" in key for key in keys)) == (2, 2)
    assert content(holder.files) == {0: "state 4"}
    holder.files.forget(SIMULATION, 0)
    assert list(store.list("checkpoints/")) == []


def test_a_holder_whose_lease_is_lost_stores_nothing(
    holder: Holder, database: Database, store: FilesystemStore
) -> None:
    holder.save("1", "kept")
    stale = Holder(holder.files, Lease(stage=STAGE, start=0, cursor=0, stop=4, fencing_token="another", ttl=10.0))
    with pytest.raises(Conflict):
        stale.part(0, "of a lost holder")
    with pytest.raises(Conflict):
        stale.finish("2")
    with pytest.raises(Conflict):
        holder.files.store_output("another", holder.header, [b"of another simulation"])
    assert content(holder.files) == {0: "kept"}


def test_a_task_that_has_its_result_stores_nothing(holder: Holder, database: Database) -> None:
    lease = Lease(stage=STAGE, start=0, cursor=0, stop=2, fencing_token=holder.header.fencing_token, ttl=10.0)
    report(database, lease, 0, 1)
    with pytest.raises(Conflict):
        holder.save("1", "late")
    Holder(holder.files, lease, 1).save("1", "of the next task")


def test_files_of_other_tasks_and_simulations_are_not_given_out(holder: Holder) -> None:
    part = holder.part(0, "mine")
    for simulation, task, object in ((SIMULATION, 1, part.object), ("another", 0, part.object), (SIMULATION, 0, "k")):
        with pytest.raises(NotFound):
            holder.files.read(simulation, task, object, 0, 1)
    with pytest.raises(NotFound):
        holder.finish("1", CheckpointFile(0, "state", "results/another/object", 1))


def test_a_report_names_outputs_of_its_own_tasks_only(holder: Holder) -> None:
    stored = holder.files.store_output(SIMULATION, holder.header, [b"field"])
    named = StoredArtifact(0, "field", "text/plain", stored.bytes, stored.crc32, stored.object)
    holder.files.check(SIMULATION, named)
    for simulation, task in (("another", 0), (SIMULATION, 1)):
        with pytest.raises(NotFound):
            holder.files.check(simulation, StoredArtifact(task, "field", "text/plain", 5, 0, stored.object))
