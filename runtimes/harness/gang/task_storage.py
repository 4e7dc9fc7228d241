"""Task storage: the object store as a task of a program sees it, for its outputs and its checkpoints."""

import contextlib
import functools
import hashlib
import mimetypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec

from ..evaluator.result_batch import TaskOutput
from ..runner.runner_api_client import Credentials, LaunchOver, RequestRejected, RunnerApiClient, Unreachable
from ..runner.runner_api_messages import (
    Checkpoint,
    CheckpointFile,
    CheckpointReport,
    GrantedLease,
    NewestCheckpoint,
    ProgressReport,
    StoredFile,
    TaskFileHeader,
)
from .delivered_files import DeliveredFile, Delivery, NotDeliverable

#: Bytes of outputs that are reported together with the results; larger ones are stored before.
LARGEST_REPORT = 4 << 20
#: Bytes of a checkpoint's file that are read by one request.
PIECE = 16 << 20
#: Seconds that storing a file may take, and until unreachable storage is given up.
STORING_TIMEOUT, PATIENCE = 600.0, 600.0
#: Seconds between two reports of a task's progress, and that one may take.
PROGRESS_INTERVAL = 1.0


@dataclass(frozen=True, slots=True)
class _FileBody:
    """The body of a request, which is read again when the request is repeated."""

    file: DeliveredFile

    def __iter__(self) -> Iterator[bytes]:
        return self.file.chunks()

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Length": str(self.file.size)}


class TaskFileClient(RunnerApiClient):
    """A connection to the runner API for the files of tasks."""

    def __init__(
        self,
        credentials: Credentials,
        stop: threading.Event,
        *,
        patience: float = PATIENCE,
        time_out: float = STORING_TIMEOUT,
    ) -> None:
        super().__init__(credentials, stop, patience=patience, time_out=time_out)

    def store(self, kind: str, header: TaskFileHeader, file: DeliveredFile) -> StoredFile | None:
        """Store a file, an ``output`` or one of a ``checkpoint``; None if the lease is lost."""
        body = _FileBody(file)
        path = f"/{kind}/file?{urlencode(msgspec.structs.asdict(header))}"
        status, answer = self._ask("PUT", path, body, body.headers)
        return msgspec.json.decode(answer, type=StoredFile) if status == 200 else None

    def finish(self, report: CheckpointReport) -> None:
        """Say that all files of a checkpoint are stored."""
        self._post("checkpoint", report)

    def tell_progress(self, report: ProgressReport) -> None:
        """Say how far a task is."""
        self._post("progress", report)

    def newest(self, task: int) -> Checkpoint | None:
        """Return the newest checkpoint of a task."""
        _, answer = self._ask("GET", f"/checkpoint?task={task}", b"")
        return msgspec.json.decode(answer, type=NewestCheckpoint).checkpoint

    def read(self, task: int, file: CheckpointFile) -> Iterator[bytes]:
        """Yield the bytes of a checkpoint's file."""
        for start in range(0, file.bytes, PIECE):
            query = urlencode({"task": task, "object": file.object, "start": start, "length": PIECE})
            yield self._ask("GET", f"/checkpoint/file?{query}", b"")[1]


class TaskStorage:
    """The storage of one task, under the lease that has it. ``largest``: most bytes of outputs, or of a checkpoint.

    ``used``: whether the task has a checkpoint, which is to be forgotten at its end.
    """

    def __init__(self, credentials: Credentials, lease: GrantedLease, task: int, largest: int) -> None:
        self._over = threading.Event()
        self._client = TaskFileClient(credentials, threading.Event())
        self._checkpoints = TaskFileClient(credentials, self._over)
        self._progress = TaskFileClient(credentials, threading.Event(), patience=0.0, time_out=PROGRESS_INTERVAL)
        self._percent, self._told_at = 0, -PROGRESS_INTERVAL
        self._lease = lease
        self.task = task
        self.largest = largest
        self.used = False

    def tell_progress(self, fraction: float) -> None:
        """Say how far the task is, at most once in PROGRESS_INTERVAL and for each hundredth; it may get lost."""
        percent, now = int(fraction * 100), time.monotonic()
        if percent == self._percent or now < self._told_at + PROGRESS_INTERVAL:
            return
        self._percent, self._told_at = percent, now
        lease = self._lease
        report = ProgressReport(lease.stage, lease.start, lease.fencing_token, self.task, fraction)
        with contextlib.suppress(LaunchOver, RequestRejected, Unreachable):
            self._progress.tell_progress(report)

    @property
    def has_checkpoint(self) -> bool:
        """Whether an earlier holder of the task has left a checkpoint."""
        return self._newest is not None

    @functools.cached_property
    def _newest(self) -> Checkpoint | None:
        # Another holder had the task if it was at work when it was lost, which is where this lease begins, or before.
        if self.task > max(self._lease.cursor, self._lease.careful):
            return None
        checkpoint = self._client.newest(self.task)
        self.used = checkpoint is not None
        return checkpoint

    def restore(self, folder: str) -> bool:
        """Lay out the newest checkpoint in a folder, a folder for each rank; return whether there is one.

        All users may read it, because a sandbox has its own.
        """
        checkpoint = self._newest
        if checkpoint is None:
            return False
        os.makedirs(folder, exist_ok=True)
        for file in checkpoint.files:
            path = os.path.join(folder, str(file.rank), file.path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as target:
                for piece in self._client.read(self.task, file):
                    target.write(piece)
            os.chmod(path, 0o644)
        for place, _, _ in os.walk(folder):
            os.chmod(place, 0o755)
        return True

    def keep(self, delivery: Delivery) -> str | None:
        """Store a checkpoint, and close its files; return why it could not be kept, None if it is."""
        try:
            self._check(delivery)
            if not delivery.files:
                raise NotDeliverable("there is no file in it")
            files = []
            for file in delivery.files:
                stored = self._checkpoints.store("checkpoint", self._header, file)
                if stored is None:
                    return "the task is not this gang's any more"
                files.append(CheckpointFile(file.rank, file.path, stored.object, stored.bytes))
            lease = self._lease
            checkpoint = Checkpoint(delivery.name, files)
            self._checkpoints.finish(
                CheckpointReport(lease.stage, lease.start, lease.fencing_token, self.task, checkpoint)
            )
            self.used = True
        except (NotDeliverable, LaunchOver, RequestRejected, Unreachable) as error:
            return str(error)
        finally:
            delivery.close()
        return None

    def _check(self, delivery: Delivery) -> None:
        """Raise NotDeliverable if files could not be passed on, or are too large."""
        if delivery.problem is not None:
            raise NotDeliverable(delivery.problem)
        if delivery.size > self.largest:
            raise NotDeliverable(
                f"its files have {delivery.size} bytes, and at most {self.largest} are kept (WINDTUNNEL_MAX_OUTPUT)"
            )

    def close(self) -> None:
        """End what is being stored of checkpoints: they are not needed any more."""
        self._over.set()

    def outputs(self, delivery: Delivery) -> Sequence[TaskOutput]:
        """Return the outputs of a task, the larger ones stored, and close their files. Raise NotDeliverable."""
        try:
            self._check(delivery)
            return [self._output(file, reported=delivery.size <= LARGEST_REPORT) for file in delivery.files]
        finally:
            delivery.close()

    def _output(self, file: DeliveredFile, *, reported: bool) -> TaskOutput:
        digest = hashlib.sha256()
        content = bytearray()
        for chunk in file.chunks():
            digest.update(chunk)
            if reported:
                content += chunk
        output = TaskOutput(
            name=file.path.partition("/")[2],
            media_type=mimetypes.guess_type(file.path)[0] or "application/octet-stream",
            size=file.size,
            digest=f"sha256:{digest.hexdigest()}",
            content=bytes(content) if reported else None,
        )
        if not reported and (stored := self._client.store("output", self._header, file)) is not None:
            output.object, output.crc32 = stored.object, stored.crc32
        return output

    @property
    def _header(self) -> TaskFileHeader:
        return TaskFileHeader(self._lease.stage, self._lease.start, self._lease.fencing_token, self.task)


class CheckpointUploads:
    """Stores the checkpoints of a task while it goes on: the newest, where they come faster than they are stored."""

    def __init__(self, storage: TaskStorage, say: Callable[[str], None]) -> None:
        self._storage = storage
        self._say = say
        self._waiting: Delivery | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, delivery: Delivery) -> None:
        """Store a checkpoint next, in place of one that still waits."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
            self._thread.start()
        with self._changed:
            if self._waiting is not None:
                self._waiting.close()
            self._waiting = delivery
            self._changed.notify()

    def end(self, *, needed: bool) -> None:
        """Wait until what has been added is stored; where it is not needed any more, drop it."""
        with self._changed:
            if not needed and self._waiting is not None:
                self._waiting.close()
                self._waiting = None
            self._ended = True
            self._changed.notify()
        if not needed:
            self._storage.close()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._waiting is None and not self._ended:
                    self._changed.wait()
                delivery, self._waiting = self._waiting, None
            if delivery is None:
                return
            name = delivery.name
            if (problem := self._storage.keep(delivery)) is not None:
                self._say(f"windtunnel: the checkpoint {name} is not kept: {problem}")
