"""Replays: a scenario simulated again from its action trace, on demand, without the model."""

import hashlib
from collections.abc import Mapping

import msgspec

from common.downloads import Download
from common.errors import NoReplay, NotFound, StoreUnavailable, UnknownArtifact, UnknownDataset
from core.domain.access.scopes import PLATFORM, Caller
from core.domain.results.declared_results import declared_results
from core.domain.results.result_columns import TaskResult
from core.domain.submissions.provenance import ResolvedDataset, dataset_of, play_document
from core.notifications.notifier import Notifier
from core.services.datasets.catalogue import played
from core.services.simulations.results import Results
from core.store import datasets, simulations
from core.store.database import Database
from datasets.catalogue import Dataset
from datasets.catalogue.never_values import described_metrics
from datasets.objectstore.base import ObjectStore

#: Artifact with the action trace: float32 actions, zlib-compressed.
TRACE = "trace.f32.zz"
#: Evaluators that end while they replay a task, after which it has no replay: once may have been a kill from outside.
MOST_ENDS = 3


class Replays:
    """Enqueues the job that makes a replay, and stores its result."""

    def __init__(self, database: Database, store: ObjectStore, notifier: Notifier, results: Results) -> None:
        self._database = database
        self._store = store
        self._notifier = notifier
        self._results = results

    def get(self, caller: Caller, id: str, task: int) -> Download | None:
        """Return the replay as JSON, or None while it is made. Raise NoReplay if it cannot be made.

        A task without a trace has its result as the only scene: a program of a gang, or a simulation without a record.
        Raise StoreUnavailable while no job can be enqueued: no row in SQL asks for a replay, its client does.
        """
        try:
            self._results.artifact(caller, id, task, TRACE)
        except UnknownArtifact:
            return self._result_of(caller, id, task)
        key = _key(id, task)
        try:
            size = self._store.size(key)
        except NotFound:
            self._raise_refusal(key)
            self._check_dataset(caller, id)
            if not self._notifier.enqueue("replay", f"{id}:{task}"):
                raise StoreUnavailable(
                    "Replays are made by jobs, whose queue (REDIS_URL) does not answer. Try again shortly."
                ) from None
            return None
        etag = hashlib.sha256(f"{key}:{size}".encode()).hexdigest()[:32]
        return Download(size, "application/json", f'"{etag}"', lambda a, b: self._store.get(key, a, b - a))

    def _raise_refusal(self, key: str) -> None:
        try:
            self._store.size(f"{key}.refused")
        except NotFound:
            return
        raise NoReplay  # without the stored reason: a simulator's exception is for operators

    def _check_dataset(self, caller: Caller, id: str) -> None:
        """Raise UnknownDataset if the dataset was deleted, because its scenarios are needed."""
        with self._database.read() as c:
            row = simulations.find(c, caller.reading, id)
            dataset = dataset_of(row.provenance)
            deleted = dataset.extends is not None and datasets.content(c, row.caller.scope, dataset) is None
        if deleted:
            raise UnknownDataset(f"{dataset.name}@{dataset.version} was deleted; a replay needs its scenarios.")

    def caller_of(self, id: str) -> Caller:
        """Return for whom the job makes the replays of a simulation."""
        with self._database.read() as c:
            return simulations.find(c, PLATFORM, id).caller

    def inputs(
        self, caller: Caller, id: str, task: int
    ) -> tuple[ResolvedDataset, Dataset, Mapping[str, object], bytes]:
        """Return the inputs of a replay: the dataset in provenance, the dataset, the evaluator's set-up, the trace."""
        with self._database.read() as c:
            provenance = simulations.find(c, caller.reading, id).provenance
        blob = self._results.artifact(caller, id, task, TRACE)
        trace = b"".join(blob.read(0, blob.size))
        resolved = dataset_of(provenance)
        dataset = played(resolved)
        play = play_document(provenance, dataset.definition)
        # A replay takes the actions from the trace, and has no model that could be trusted.
        return resolved, dataset, {name: value for name, value in play.items() if name != "trusted"}, trace

    def _result_of(self, caller: Caller, id: str, task: int) -> Download:
        """Return a task's result as a replay without frames. Raise UnknownArtifact if the task has no result yet."""
        metrics = self._metrics(caller, id)
        document = self._titled(
            caller, {"scene": {"kind": "result", "metrics": metrics}, "frames": [], "dt": None}, id, task
        )
        etag = hashlib.sha256(document).hexdigest()[:32]
        return Download(len(document), "application/json", f'"{etag}"', lambda a, b: iter((document[a:b],)))

    def _metrics(self, caller: Caller, id: str) -> list[dict[str, object]]:
        """Return the metrics that a simulation's dataset declares, with titles, units and ranges."""
        return described_metrics(self._definition(caller, id))

    def _definition(self, caller: Caller, id: str) -> Mapping[str, object]:
        with self._database.read() as c:
            return played(dataset_of(simulations.find(c, caller.reading, id).provenance)).definition

    def keep(self, caller: Caller, id: str, task: int, replay: Mapping[str, object]) -> None:
        """Store a replay, with the metrics that its dataset declares. Idempotent."""
        described = dict(replay) | {"metrics": self._metrics(caller, id)}
        self._store.put(_key(id, task), (self._titled(caller, described, id, task),))
        self._notifier.publish(id)

    def _titled(self, caller: Caller, replay: Mapping[str, object], id: str, task: int) -> bytes:
        """Return a replay as JSON, with the task's name, outcome and result."""
        line = next(self._results.lines(caller, id, task, task + 1), None)
        if line is None:
            raise UnknownArtifact()
        document = msgspec.json.decode(line)
        result = msgspec.convert(document, TaskResult)
        name = result.scenario.get("name", f"task {task}")
        outcome = result.metrics.get("outcome") or result.status
        failed = self._is_failure(caller, id, result)
        titled = {"title": name, "outcome": outcome, "failed": failed, "result": document}
        return msgspec.json.encode(dict(replay) | titled)

    def _is_failure(self, caller: Caller, id: str, result: TaskResult) -> bool:
        """Tell whether a task failed: by the model's fault, or with an outcome that its dataset calls a failure."""
        failure = declared_results(self._definition(caller, id)).failure
        return result.status != "ok" or (failure is not None and result.metrics.get(failure.metric) in failure.outcomes)

    def refuse(self, id: str, task: int, reason: str) -> None:
        """Store that a task cannot be replayed, so that the job is not enqueued again."""
        self._store.put(f"{_key(id, task)}.refused", (reason.encode(),))

    def note_end(self, id: str, task: int, reason: str) -> bool:
        """Count an evaluator that ended during a task's replay; return whether it was the last, and none will be made.

        Only the job of the task calls it, so that the count needs no lock.
        """
        key = f"{_key(id, task)}.ends"
        try:
            ends = 1 + int(b"".join(self._store.get(key)))
        except NotFound:
            ends = 1
        self._store.put(key, (str(ends).encode(),))
        if ends >= MOST_ENDS:
            self.refuse(id, task, reason)
        return ends >= MOST_ENDS

    def made(self, id: str, task: int) -> bool:
        """Return whether the replay exists."""
        try:
            return self._store.size(_key(id, task)) > 0
        except NotFound:
            return False


def _key(id: str, task: int) -> str:
    return f"replays/{id}/{task}"
