"""Task files: what the tasks of a program leave in the object store while they run, outputs and checkpoints.

A file belongs to a lease: its key has the lease's fencing token, so that two holders of a task, one of which is lost
and does not know it, never write the same object. A checkpoint counts from its manifest on, which is written last.
Whatever is left over is swept after the simulation's end.
"""

import secrets
import zlib
from collections.abc import Iterable, Iterator

import msgspec

from common.errors import Conflict, NotFound
from core.store import leases
from core.store.database import Database
from datasets.objectstore.base import ObjectStore
from runtimes.harness.runner.runner_api_messages import (
    Checkpoint,
    CheckpointReport,
    ProgressReport,
    StoredArtifact,
    StoredFile,
    TaskFileHeader,
)

#: Checkpoints that are kept of each task: a reader of the older one may be at work while the newer one is written.
KEPT_CHECKPOINTS = 2
#: Prefix of the keys of checkpoints; outputs are beside the results.
CHECKPOINTS = "checkpoints/"
_MANIFEST = "manifest-"


class TaskFiles:
    """Stores and reads the files of tasks."""

    def __init__(self, database: Database, store: ObjectStore) -> None:
        self._database = database
        self._store = store

    def store_output(self, simulation: str, header: TaskFileHeader, chunks: Iterable[bytes]) -> StoredFile:
        """Store an output of a task. Raise Conflict if the lease is lost."""
        return self._put(simulation, f"results/{simulation}/{header.task:012d}-", header, chunks)

    def store_part(self, simulation: str, header: TaskFileHeader, chunks: Iterable[bytes]) -> StoredFile:
        """Store a file of a checkpoint, which a manifest is to name. Raise Conflict if the lease is lost."""
        return self._put(simulation, f"{_folder(simulation, header.task)}part-", header, chunks)

    def _put(self, simulation: str, prefix: str, header: TaskFileHeader, chunks: Iterable[bytes]) -> StoredFile:
        self.require_held(simulation, header)
        key = f"{prefix}{header.fencing_token}-{secrets.token_hex(6)}"
        crc32 = 0

        def with_checksum() -> Iterator[bytes]:
            nonlocal crc32
            for chunk in chunks:
                crc32 = zlib.crc32(chunk, crc32)
                yield chunk

        return StoredFile(key, self._store.put(key, with_checksum()), crc32)

    def finish(self, simulation: str, report: CheckpointReport) -> None:
        """Write the manifest of a checkpoint; delete all but the newest ones. Raise Conflict if the lease is lost."""
        now = self.require_held(simulation, report)
        folder = _folder(simulation, report.task)
        for file in report.checkpoint.files:
            if not file.object.startswith(folder):
                raise NotFound("A file of the checkpoint is not of this task.")
        manifests = list(self._store.list(f"{folder}{_MANIFEST}"))
        # The newest is the last by name, also after a clock was set back.
        last = int(manifests[-1].removeprefix(f"{folder}{_MANIFEST}").partition("-")[0]) if manifests else 0
        manifests.append(f"{folder}{_MANIFEST}{max(int(now * 1e6), last + 1):020d}-{report.fencing_token}")
        self._store.put(manifests[-1], (msgspec.json.encode(report.checkpoint),))
        kept: set[str] = set()
        for number, each in enumerate(reversed(manifests)):
            files = {file.object for file in self._read(each).files}
            if number < KEPT_CHECKPOINTS:
                kept |= files
                continue
            self._store.delete(each)
            for part in files - kept:
                self._store.delete(part)

    def newest(self, simulation: str, task: int) -> Checkpoint | None:
        """Return the newest complete checkpoint of a task, or None."""
        manifests = list(self._store.list(f"{_folder(simulation, task)}{_MANIFEST}"))
        return self._read(manifests[-1]) if manifests else None

    def read(self, simulation: str, task: int, object: str, start: int, length: int) -> Iterator[bytes]:
        """Yield bytes of a checkpoint's file. Raise NotFound if it is not one of this task."""
        if not object.startswith(f"{_folder(simulation, task)}part-"):
            raise NotFound("This is not a file of a checkpoint of this task.")
        return self._store.get(object, start, length)

    def check(self, simulation: str, stored: StoredArtifact) -> None:
        """Raise NotFound unless a report's artifact was stored as an output of its task."""
        if not stored.object.startswith(f"results/{simulation}/{stored.task:012d}-"):
            raise NotFound("An artifact of the report is not an output of its task.")

    def forget(self, simulation: str, task: int) -> None:
        """Delete the checkpoints of a task that has ended: the manifests first."""
        for key in sorted(self._store.list(_folder(simulation, task))):
            self._store.delete(key)

    def _read(self, manifest: str) -> Checkpoint:
        return msgspec.json.decode(b"".join(self._store.get(manifest)), type=Checkpoint)

    def require_held(self, simulation: str, lease: TaskFileHeader | CheckpointReport | ProgressReport) -> float:
        """Return the database's time. Raise Conflict unless a lease of the simulation is held that has this task."""
        with self._database.read() as c:
            now, state = self._database.now(c), leases.range_state(c, lease.stage, lease.start)
            if (
                state is None
                or (state.state, state.fencing_token) != ("leased", lease.fencing_token)
                or not state.position.cursor <= lease.task < state.position.stop
                or leases.simulation_of(c, lease.stage) != simulation
            ):
                raise Conflict("The lease of this task is lost.")
        return now


def _folder(simulation: str, task: int) -> str:
    return f"{CHECKPOINTS}{simulation}/{task:012d}/"
