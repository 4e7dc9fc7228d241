"""Result batches: one JSON line per task, artifacts, and a sketch of the metrics."""

import math
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from ..dataset_definition import Definition
from ..model_server.model_protocol import Kernel
from ..simulators.base import Metric
from ..visible_text import visible
from .tasks import Located

TRACE = "trace.f32.zz"
TRACE_TYPE = "application/zlib"
#: Bytes of lines and artifacts above which a batch is full.
FULL = 4 << 20
_MACHINE_SPECIFIC = (
    (re.compile(r"0x[0-9a-fA-F]+"), "0x…"),
    (re.compile(r"(?<![\w.])(?:/[\w.+~-]+){2,}/?"), "…"),
    (re.compile(r"\b(pid|process|thread)([ =:]+)\d+", re.IGNORECASE), r"\1\2…"),
)


class Inference(msgspec.Struct):
    """The model's latencies in seconds; ``misses`` counts those longer than the simulator's time step."""

    p50: float
    p99: float
    p999: float
    max: float
    misses: int


class LoadedModel(msgspec.Struct):
    """What a dry run tells of the model: how it describes itself, the seconds of its loading, and its peak memory.

    ``memory``: resident bytes of its process, with its libraries; None: unknown.
    """

    info: Mapping[str, str | int | float | bool | None]
    seconds: float
    memory: int | None


class RankTiming(msgspec.Struct):
    """A rank of a gang: its host, and the seconds of processor time that it and its children used.

    ``waiting``: seconds in calls of MPI that may wait for others, of which ``all_reduce`` in MPI_Allreduce; ``sent``:
    bytes that it gave to MPI to send; None: not measured.
    """

    host: str
    computing: float
    waiting: float | None
    sent: int | None
    all_reduce: float | None = None


class Timing(msgspec.Struct, omit_defaults=True):
    """The only part of a result that may differ between two runs. ``model``: of a dry run; ``ranks``: of a gang.

    ``worlds``: the most scenarios that a request for actions was for, whose latencies are those of the request; and
    ``kernel``: how the actions were computed, "one" after the other or all "rows" together.
    """

    seconds: float
    inference: Inference | None
    worlds: int
    kernel: Kernel
    model: LoadedModel | None = None
    ranks: Sequence[RankTiming] = ()


class ResultLine(msgspec.Struct):
    """The result of a task as it is encoded."""

    task: int
    status: str
    scenario: dict[str, Any]
    metrics: Mapping[str, Metric]
    error: str | None
    artifacts: Sequence[Mapping[str, object]]
    timing: Timing


class TaskOutput(msgspec.Struct):
    """A file that a program's task leaves: ``content`` goes with the result, or is stored before as ``object``."""

    name: str
    media_type: str
    size: int
    digest: str
    content: bytes | None = None
    object: str | None = None
    crc32: int = 0


class Played(msgspec.Struct):
    """The outcome of a task. ``actions``: the bytes of the applied actions, one entry per step.

    ``outputs``: files that a program leaves.
    """

    status: str
    metrics: Mapping[str, Metric]
    error: str | None = None
    seconds: float = 0.0
    latencies: list[float] = []
    model: LoadedModel | None = None
    actions: list[bytes] = []
    worlds: int = 1
    kernel: Kernel = "one"
    ranks: Sequence[RankTiming] = ()
    outputs: Sequence[TaskOutput] = ()


def plain(value: Any) -> Any:
    """Convert a numpy scalar, which a simulator may return as a metric, to a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a metric is a number, text or nothing, not {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=plain)
NUMBERS = frozenset({int, float, bool})
#: What the sketches of failing outcomes are called, before the outcome. They are no metrics of the dataset.
FAILURE = "(failure) "


class ResultBatch:
    """Results of consecutive tasks; ``take`` returns them and begins the next batch.

    ``record``: of which tasks a trace of the actions is kept, `none`, `failures` or `all`. ``step``: the simulator's
    time step in seconds, for ``misses``; None if it has none.
    """

    def __init__(self, definition: Definition, record: str, step: float | None) -> None:
        self._metrics: list[Mapping[str, Metric]] = []
        self._text = bytearray()
        self._artifacts: list[tuple[int, str, str, int]] = []
        self._stored: list[Mapping[str, object]] = []
        self._blobs: list[bytes] = []
        self._bytes = 0
        self._record = record if definition.record else "none"
        failure = definition.failure
        values = failure.values if failure is not None else ()
        self._failing = (failure.metric if failure is not None else None, frozenset(values))
        self._failures: dict[Any, int] = dict.fromkeys(values, 0)
        self._step = step
        self.since = 0
        self.to = 0
        self.failed = 0

    def begin(self, task: int) -> None:
        """Begin the batch at this task."""
        self.since = self.to = task

    def __len__(self) -> int:
        return self.to - self.since

    @property
    def full(self) -> bool:
        """Whether the batch should be taken because of its size."""
        return len(self._text) + self._bytes > FULL

    def add(self, located: Located, extra: Mapping[str, Any], played: Played) -> None:
        """Append the next task's line; ``extra`` is added to its description of the scenario."""
        task = self.to
        scenario: dict[str, Any] = {"index": located.index, "repeat": located.repeat, "seed": located.seed}
        if extra:
            scenario.update(extra)
        if located.swept:
            scenario["params"] = located.swept
        if played.status == "ok":
            self._metrics.append(played.metrics)
            if (outcome := self._failing_outcome(played)) is not None:
                self._failures[outcome] += 1
        else:
            self.failed += 1
        artifacts: Sequence[Mapping[str, object]] = ()
        if self._record != "none" and played.actions and (self._record == "all" or self._is_failure(played)):
            trace = zlib.compress(b"".join(played.actions), 6)
            self._artifacts.append((task, TRACE, TRACE_TYPE, len(trace)))
            self._blobs.append(trace)
            self._bytes += len(trace)
            artifacts = ({"name": TRACE, "bytes": len(trace)},)
        if played.outputs:
            artifacts = [self._add_output(task, output) for output in played.outputs]
        timing = Timing(
            seconds=int(played.seconds * 1e6 + 0.5) / 1e6,
            inference=inference(played.latencies, self._step),
            worlds=played.worlds,
            kernel=played.kernel,
            model=played.model,
            ranks=played.ranks,
        )
        line = ResultLine(
            task=task,
            status=played.status,
            scenario=scenario,
            metrics=played.metrics,
            error=played.error,
            artifacts=artifacts,
            timing=timing,
        )
        _encoder.encode_into(line, self._text, -1)
        self._text += b"\n"
        self.to += 1

    def _add_output(self, task: int, output: TaskOutput) -> Mapping[str, object]:
        """Add a file of a task; return how its result names it."""
        if output.content is not None:
            self._artifacts.append((task, output.name, output.media_type, output.size))
            self._blobs.append(output.content)
            self._bytes += output.size
        elif output.object is not None:  # else the lease is lost, and with it the report
            place = {"bytes": output.size, "crc32": output.crc32, "object": output.object}
            self._stored.append({"task": task, "name": output.name, "media_type": output.media_type, **place})
        return {"name": output.name, "bytes": output.size, "digest": output.digest}

    def _is_failure(self, played: Played) -> bool:
        return played.status != "ok" or self._failing_outcome(played) is not None

    def _failing_outcome(self, played: Played) -> Metric | None:
        """Return the outcome of a task if the dataset counts it as a failure."""
        metric, bad = self._failing
        outcome = played.metrics.get(metric) if metric is not None else None
        return outcome if outcome in bad else None

    def take(self) -> dict[str, Any]:
        """Return the batch as a message and begin the next where it ends."""
        message = {
            "type": "batch",
            "from": self.since,
            "to": self.to,
            "failed": self.failed,
            "lines": self._text,
            "artifacts": self._artifacts,
            "blobs": b"".join(self._blobs),
            "stored": self._stored,
            "sketch": sketch(self._metrics) | failure_sketch(self._failures, len(self._metrics)),
        }
        self.since = self.to
        self.failed = self._bytes = 0
        self._metrics, self._text, self._artifacts, self._blobs, self._stored = [], bytearray(), [], [], []
        self._failures = dict.fromkeys(self._failures, 0)
        return message


def inference(latencies: list[float], step: float | None) -> Inference | None:
    """Summarize a task's latencies; a quantile is the smallest latency that at least this share does not exceed."""
    if len(latencies) == 1:
        return _inference_of_one(latencies[0], step)
    if not latencies:
        return None
    ordered = sorted(latencies)
    last = len(ordered) - 1
    p50, p99, p999 = (round(ordered[min(last, int(share * len(ordered)))], 7) for share in (0.5, 0.99, 0.999))
    misses = 0 if step is None else sum(latency > step for latency in ordered)
    return Inference(p50=p50, p99=p99, p999=p999, max=round(ordered[-1], 7), misses=misses)


@lru_cache(maxsize=1)  # tasks of one step side by side have the same
def _inference_of_one(latency: float, step: float | None) -> Inference:
    only = round(latency, 7)
    return Inference(p50=only, p99=only, p999=only, max=only, misses=int(step is not None and only > step))


def sketch(rows: Sequence[Mapping[str, Metric]]) -> dict[str, list[float]]:
    """Return [count, sum, sum of squares, min, max] of the numbers of every metric that has any.

    A metric is left out if its squares exceed the numbers of 64 bits.
    """
    names = rows[0].keys() if rows else ()
    sketches = {}
    for name in names:
        numbers = [row.get(name) for row in rows]
        if not set(map(type, numbers)) <= NUMBERS:
            numbers = [value for value in numbers if isinstance(value, int | float)]
        try:
            values = np.array(numbers, np.float64)
        except OverflowError:
            continue
        values = values[np.isfinite(values)]
        if len(values):
            with np.errstate(over="ignore"):
                squares = float(values.dot(values))
            if math.isfinite(squares):
                sketches[name] = [len(values), float(values.sum()), squares, float(values.min()), float(values.max())]
    return sketches


def failure_sketch(failures: Mapping[Any, int], count: int) -> dict[str, list[float]]:
    """Return the sketches of how often each outcome that is a failure occurred among ``count`` ``ok`` tasks."""
    return {
        f"{FAILURE}{outcome}": [count, hits, hits, float(0 < count == hits), float(hits > 0)]
        for outcome, hits in failures.items()
    }


def unworldly(text: str) -> str:
    """Mask what differs between two runs in an error: addresses, paths, process ids; and escape control characters.

    Here the words of models and simulators enter results and reasons.
    """
    text = visible(text)
    for pattern, instead in _MACHINE_SPECIFIC:
        text = pattern.sub(instead, text)
    return text
