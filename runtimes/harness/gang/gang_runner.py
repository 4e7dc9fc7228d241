"""Gang runner: leases the tasks of a launch and has a gang run them, one after the other.

The metrics of a task are the first replica's result as the program wrote it: no evaluator judges it. A program that
fails is a failed task. A gang that loses a replica is a lost worker: the task is repeated, until it has lost three.
"""

import contextlib
import json
import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ..dataset_definition import definition_of
from ..evaluator.result_batch import Played, ResultBatch, unworldly
from ..evaluator.tasks import TaskPlan
from ..runner.framed_socket import Batch
from ..runner.lease_client import HeldLease, LeaseClient
from ..runner.runner import DONE, LAST_REQUEST, TASK_PATIENCE, UNREACHABLE
from ..runner.runner_api_client import Credentials, LaunchOver, RequestRejected, Unreachable
from ..simulators.base import Metric
from .gang_log import GangLog
from .gang_transport import RESULT, ReplicaLost
from .look_answering import LookAnswering, ShownTask
from .rank_ends import with_lines
from .task_storage import TaskStorage

#: Seconds between two reports of results.
FLUSH = 1.0
#: Why a task is invalid whose program ended well.
NO_RESULT = (
    "the first replica gave no valid result: a flat JSON object of numbers, strings, booleans and nulls, in the file"
    " that WINDTUNNEL_RESULT names or as its last line of JSON"
)
RESULT_TOO_LONG = f"the result has more than {RESULT:,} characters: leave what is long as a file in WINDTUNNEL_OUTPUT"
UNREAD_RESULT = "the file of the result, which WINDTUNNEL_RESULT names, "
UNFINISHED_TASK = (
    "the first rank went on without a result of the task: give it with `task.finish`, as a flat JSON object"
)
UNPRINTED_METRICS = "the program ended well, but no line that it printed has one of its metrics: "
UNFIT_METRICS = "the program ended well, but a metric that it printed is none"
SEARCH_TOO_LONG = (
    "took longer than a second for one line that the program printed: write it without repetitions in repetitions, and"
    " from the beginning of the line (^)"
)
_metrics = msgspec.json.Decoder(dict[str, Metric])


class GangStopped(Exception):
    """The gang runner received SIGTERM."""


@dataclass(slots=True)
class GangPage:
    """The gang's current task, and the task to stop before; shared with the heartbeat thread."""

    task: int = -1
    stop: int = 0


class GangPlay(msgspec.Struct):
    """Description of a simulation's tasks that a gang's runner reads."""

    tasks: dict[str, object]
    definition: dict[str, object] = {}


class GangModel(msgspec.Struct):
    """The model of a launch, of which a gang's runner reads the digest."""

    digest: str


class GangLaunch(msgspec.Struct):
    """Description of a launch that a gang's runner reads. ``largest_output``: bytes of the files that a task leaves.

    ``shown``: whether the operator lets people look into tasks that run; ``ports``: those that they may connect to.
    """

    play: GangPlay
    largest_output: int
    model: GangModel
    shown: bool = False
    ports: list[int] = []


class RunnableGang(Protocol):
    """A gang as its runner sees it."""

    @property
    def returns(self) -> bool:
        """Whether it is there again for the next task after it was lost."""

    @property
    def at_work(self) -> ShownTask | None:
        """The task that it runs, to look into; None: there is none."""

    def run(self, scenario: Mapping[str, object], patience: float, storage: TaskStorage) -> Played:
        """Run one task, within ``patience`` seconds, with its storage; return its outcome. Raises ReplicaLost."""


class GangRunner:
    """Runs a launch's tasks on one gang, which counts as one worker. ``ended``: called when the launch is over."""

    def __init__(
        self,
        credentials: Credentials,
        launch: GangLaunch,
        gang: RunnableGang,
        name: str,
        log: GangLog,
        *,
        ended: Callable[[int, str], None],
    ) -> None:
        self._definition = definition_of(launch.play.definition)
        self._plan = TaskPlan(launch.play.tasks)
        self._credentials = credentials
        self._largest_output = launch.largest_output
        self._checkpointed: list[int] = []
        self._patience = self._definition.task_patience or TASK_PATIENCE
        self._stop = threading.Event()
        self._looks = LookAnswering(credentials, self._task_at_work, launch.ports)
        self._lease_client = LeaseClient(credentials, self._stop, on_looked=self._looks.begin)
        self._leases = self._lease_client.holder(name)
        self._page = GangPage()
        self._gang = gang
        self._log = log
        self._ended = ended
        self._reporting = threading.Lock()  # guards a batch of results while a task runs
        self._unreported: tuple[HeldLease, ResultBatch] | None = None

    def run(self) -> None:
        """Lease, run, report, until no work is left. Raises LaunchOver, ReplicaLost or GangStopped."""
        threading.Thread(target=self._keep_renewing, name="heartbeat", daemon=True).start()
        threading.Thread(target=self._keep_reporting, name="reports", daemon=True).start()
        while (held_lease := self._leases.next(self._page)) is not None:
            self._run_lease(held_lease)

    def _run_lease(self, held_lease: HeldLease) -> None:
        """Run a lease to its end, or until it is lost."""
        batch = ResultBatch(self._definition, "none", None)
        while (tasks := self._leases.resume(held_lease)) is not None:
            batch.begin(tasks.start)
            while batch.to < self._page.stop:
                self._page.task = batch.to
                try:
                    with self._letting_report(held_lease, batch):
                        result = self._run_task(held_lease, batch.to)
                except (ReplicaLost, GangStopped) as error:
                    returns = isinstance(error, ReplicaLost) and self._gang.returns
                    self._report(held_lease, batch, last=not returns)
                    if isinstance(error, ReplicaLost) and (dropped := self._leases.drop()) is not None:
                        self._leases.report_death(dropped, batch.to, f"the gang is lost: {error}")
                    if returns:
                        return
                    raise
                batch.add(self._plan.locate(batch.to), {}, result)
                careful = batch.to <= held_lease.granted.careful + 1
                if careful or batch.full or batch.to >= self._page.stop:
                    self._report(held_lease, batch)
            self._report(held_lease, batch)  # a heartbeat may have lowered the page's stop meanwhile

    @contextlib.contextmanager
    def _letting_report(self, held_lease: HeldLease, batch: ResultBatch) -> Iterator[None]:
        """Let the results of earlier tasks be reported while a task runs, which may be long."""
        self._unreported = (held_lease, batch)
        try:
            yield
        finally:
            with self._reporting:  # a report that has begun ends first
                self._unreported = None

    def _keep_reporting(self) -> None:
        """Report results that wait for the end of the task at work."""
        try:
            while not self._stop.wait(FLUSH):
                with self._reporting:
                    if self._unreported is not None:
                        self._report(*self._unreported)
        except (LaunchOver, Unreachable, RequestRejected) as error:
            self._end(error)

    def _run_task(self, held_lease: HeldLease, task: int) -> Played:
        """Have the gang run one task."""
        located = self._plan.locate(task)
        scenario: dict[str, object] = {"index": located.index, "repeat": located.repeat, "seed": located.seed}
        scenario["params"] = dict(located.params)
        storage = TaskStorage(self._credentials, held_lease.granted, task, self._largest_output)
        played = self._gang.run(scenario, self._patience, storage)
        if storage.used:
            self._checkpointed.append(task)
        return played

    def _report(self, held_lease: HeldLease, batch: ResultBatch, *, last: bool = False) -> None:
        """Report the results so far, if there are any and the lease still wants them."""
        if not len(batch):
            return
        results = msgspec.convert(batch.take(), Batch)
        results.checkpointed, self._checkpointed = self._checkpointed, []
        if held_lease.continues_with(results):
            self._log.send()
            self._leases.report(held_lease, results, last=last)

    def _task_at_work(self) -> tuple[int, ShownTask] | None:
        """Return the task at work with its number; None: there is none."""
        number, task = self._page.task, self._gang.at_work
        return None if task is None or number < 0 else (number, task)

    def leave(self) -> None:
        """Release unfinished leases without blame."""
        self._lease_client.release(2 * LAST_REQUEST)

    def _keep_renewing(self) -> None:
        """Send heartbeats; say when the launch is over or the runner API rejects them."""
        try:
            while not self._stop.wait(self._lease_client.renew()):
                pass
        except (LaunchOver, Unreachable, RequestRejected) as error:
            self._end(error)

    def _end(self, error: Exception) -> None:
        """Say, from another thread, that there is no more work here."""
        self._ended(DONE if isinstance(error, LaunchOver) else UNREACHABLE, f"{error}")


def result_of(text: str | None, seconds: float, read: Collection[str] = (), lines: Sequence[str] = ()) -> Played:
    """Return the outcome of a program that ended well, from the text of its result.

    ``read``: the names of the metrics that are read from its lines, of which ``lines`` are the last.
    """
    unfit = UNFIT_METRICS if read else NO_RESULT
    try:
        if text is not None and len(text) <= RESULT:
            metrics = _metrics.decode(text)
            for value in metrics.values():
                if isinstance(value, int):
                    float(value)  # beyond every float it is no number of statistics
            return Played("ok", metrics, seconds=seconds)
        missing = with_lines(f"{UNPRINTED_METRICS}{', '.join(read)}", lines) if read else NO_RESULT
        error = missing if text is None else RESULT_TOO_LONG
    except (msgspec.MsgspecError, RecursionError, OverflowError) as failure:
        error = f"{unfit}: {wrong_metric(text or '') or failure}"
    except UnicodeEncodeError:
        error = f"{unfit}: it is not UTF-8"
    return Played("invalid", {}, error=unworldly(error), seconds=seconds)


def wrong_metric(text: str) -> str | None:
    """Return the member of a JSON object that cannot be a metric; None: all can, or it is something else."""
    try:
        members = json.loads(text, parse_int=_whole_number)
    except (ValueError, RecursionError):
        return None
    for name, value in members.items() if isinstance(members, dict) else ():
        if isinstance(value, dict | list) or (isinstance(value, float) and not math.isfinite(value)):
            return f"{name[:100]} is {json.dumps(value)[:100]}"
    return None


def _whole_number(text: str) -> float:
    """Return a whole number; infinity for one that is beyond every float."""
    number = float(text)
    return int(text) if math.isfinite(number) else number
