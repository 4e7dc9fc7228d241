"""Gang runner: leases tasks and has the gang's leader run them, one after the other.

``python -m workers.gang_runner --launch FILE --sockets FOLDER``

It reads the document that workers/standalone_runner.py reads, and its ``format``. It listens on ``gang.sock`` in FOLDER
for the leader (`runtimes.harness.gang.replica`) in the container beside it, and takes no lease before all replicas are
connected, so that no lease expires while replicas start. The metrics of a task are the first replica's result as the
program wrote it: no evaluator judges it. A program that fails is a failed task. A gang that loses a replica is a lost
worker: the next gang repeats the task, until the task has lost three gangs.
"""

# isort: off
from runtimes.harness.dataset_definition import definition_of
from runtimes.harness.runner import stop_signal  # noqa: F401 - first: until then the kernel drops a container's SIGTERM

# isort: on
import argparse
import json
import logging
import math
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtimes.harness.evaluator.result_batch import Played, ResultBatch
from runtimes.harness.evaluator.tasks import TaskPlan
from runtimes.harness.gang.gang_transport import GangConnection, ReplicaLost
from runtimes.harness.gang.replica import LATE, RESULT
from runtimes.harness.runner.framed_socket import Batch
from runtimes.harness.runner.lease_client import HeldLease, LeaseClient
from runtimes.harness.runner.runner import DONE, INTERNAL_ERROR, LAST_REQUEST, STOPPED, TASK_PATIENCE, UNREACHABLE
from runtimes.harness.runner.runner_api_client import (
    Credentials,
    LaunchOver,
    RequestRejected,
    RunnerApiClient,
    Unreachable,
)
from workers.launch_inputs import LaunchInputs
from workers.standalone_runner import CACHE_TOKEN, CONTAINER_USERS, FILES, cache_client, report_end

SOCKET = "gang.sock"
#: Exit code: a replica or the leader is lost, so the whole gang starts again, or ends.
LOST = 77
#: Seconds to wait for the leader.
LEADER_TIMEOUT = 900.0
#: Seconds of results per report.
FLUSH = 1.0
_CREDENTIALS = struct.Struct("3i")


class GangStopped(Exception):
    """The gang runner received SIGTERM."""


@dataclass(slots=True)
class GangPage:
    """The gang's current task, and the task to stop before; shared with the heartbeat thread."""

    task: int = -1
    stop: int = 0


class GangRunner:
    """Runs a launch's tasks on one gang, which counts as one worker."""

    def __init__(
        self, credentials: Credentials, description: Mapping[str, Any], leader: GangConnection, name: str
    ) -> None:
        play = description["play"]
        self._definition = definition_of(play.get("definition", {}))
        self._plan = TaskPlan(play["tasks"])
        self._patience = self._definition.task_patience or TASK_PATIENCE
        self._stop = threading.Event()
        self._lease_client = LeaseClient(credentials, self._stop)
        self._leases = self._lease_client.holder(name)
        self._page = GangPage()
        self._leader = leader

    def run(self) -> None:
        """Lease, run, report, until no work is left. Raises LaunchOver, ReplicaLost or GangStopped."""
        threading.Thread(target=self._keep_renewing, name="heartbeat", daemon=True).start()
        while (held_lease := self._leases.next(self._page)) is not None:
            self._run_lease(held_lease)

    def _run_lease(self, held_lease: HeldLease) -> None:
        """Run a lease to its end, or until it is lost."""
        batch = ResultBatch(self._definition, "none", None)
        since = time.monotonic()
        while (tasks := self._leases.resume(held_lease)) is not None:
            batch.begin(tasks.start)
            while batch.to < self._page.stop:
                self._page.task = batch.to
                try:
                    result = self._run_task(batch.to)
                except (ReplicaLost, GangStopped) as error:
                    self._report(held_lease, batch, last=True)
                    if isinstance(error, ReplicaLost):
                        self._leases.report_death(held_lease, batch.to, f"the gang is lost: {error}")
                    raise
                batch.add(self._plan.locate(batch.to), {}, result)
                careful = batch.to <= held_lease.granted.careful + 1
                if careful or batch.full or batch.to >= self._page.stop or time.monotonic() - since > FLUSH:
                    self._report(held_lease, batch)
                    since = time.monotonic()
            self._report(held_lease, batch)  # a heartbeat may have lowered the page's stop meanwhile

    def _run_task(self, task: int) -> Played:
        """Have the gang run one task."""
        located = self._plan.locate(task)
        scenario: dict[str, Any] = {"index": located.index, "repeat": located.repeat, "seed": located.seed}
        scenario["params"] = dict(located.params)
        began = time.monotonic()
        self._leader.send(scenario=scenario, patience=self._patience)
        messages = self._leader.receive()
        while not messages:
            messages = self._leader.receive()
        return outcome_of(messages[0], self._patience, time.monotonic() - began)

    def _report(self, held_lease: HeldLease, batch: ResultBatch, *, last: bool = False) -> None:
        """Report the results so far, if there are any and the lease still wants them."""
        if not len(batch):
            return
        contents = batch.take()
        lines = memoryview(contents["lines"])
        results = Batch(since=contents["from"], to=contents["to"], lines=lines, sketch=contents["sketch"])
        if held_lease.continues_with(results):
            self._leases.report(held_lease, results, last=last)

    def leave(self) -> None:
        """Release unfinished leases without blame."""
        self._lease_client.release(2 * LAST_REQUEST)

    def _keep_renewing(self) -> None:
        """Send heartbeats; end the process once the launch is over or the runner API rejects them."""
        try:
            while not self._stop.wait(self._lease_client.renew()):
                pass
        except (LaunchOver, Unreachable, RequestRejected) as error:
            report_end(f"{error}")
            os._exit(DONE if isinstance(error, LaunchOver) else UNREACHABLE)


def outcome_of(message: Mapping[str, Any], patience: float, seconds: float) -> Played:
    """Return a task's outcome from the program's exit status and its result text."""
    code, text = int(message["exit"]), message.get("result")
    if code == LATE:
        return Played("timed_out", {}, error=f"the program took longer than {patience:g} s", seconds=seconds)
    if code:
        return Played("crashed", {}, error=f"the program exited with status {code}", seconds=seconds)
    try:
        metrics = json.loads(text) if text is not None and len(text) <= RESULT else None
    except (ValueError, RecursionError):
        metrics = None
    if not isinstance(metrics, dict) or not all(is_metric(value) for value in metrics.values()):
        error = "the first replica wrote no valid result: a JSON object of numbers, strings, booleans and nulls"
        return Played("invalid", {}, error=error, seconds=seconds)
    return Played("ok", metrics, seconds=seconds)


def is_metric(value: Any) -> bool:
    """Whether a value may be a metric."""
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def accept_leader(folder: Path, user: int) -> GangConnection:
    """Wait for the leader's connection; connections of other users are closed."""
    path = folder / SOCKET
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o666)  # every user may connect; SO_PEERCRED shows which user did
        listener.listen(4)
        listener.settimeout(LEADER_TIMEOUT)
        while True:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                raise ReplicaLost("its leader did not connect") from None
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(credentials)[1] == user:
                return GangConnection(connection)
            connection.close()


def serve(document: Mapping[str, Any], folder: Path) -> tuple[int, str]:
    """Run a launch to its end; return the exit code and the reason."""
    token = Path(document["token_file"])
    credentials = Credentials(url=document["url"], launch=document["id"], token=token.read_text().strip())
    leader = accept_leader(folder, int((document.get("container_users") or CONTAINER_USERS)["model_server"]))
    while not leader.receive():
        pass  # its first message says that all replicas are connected
    description = RunnerApiClient(credentials, threading.Event()).launch()
    files = description.get("files") or {}
    if files.get("model"):
        files_folder = Path(document.get("files") or FILES)
        cache = cache_client(token.with_name(CACHE_TOKEN))
        # A gang's program has no simulator, so no dataset's folder is downloaded.
        inputs = LaunchInputs(credentials, threading.Event(), files_folder, cache)
        path, _ = inputs.download(files, model=None, dataset="none")
        name = "model.py" if document.get("format") == "python" else "model"
        leader.send(model=path, name=name)
    runner = GangRunner(credentials, description, leader, document.get("name") or socket.gethostname())
    try:
        runner.run()
    except GangStopped:
        runner.leave()
        raise
    return DONE, "there is no more work"


def stop(*_: object) -> None:
    """Signal handler: report and release once, then exit; a report that was cut off is idempotent."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise GangStopped("the gang runner was stopped by a signal")


def main() -> None:
    """Run one launch, given by a document."""
    parser = argparse.ArgumentParser(prog="workers.gang_runner", description=__doc__.split("\n")[0])
    parser.add_argument("--launch", type=Path, required=True, help="the JSON document that describes the launch")
    parser.add_argument("--sockets", type=Path, required=True, help="the folder of the leader's socket")
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=logging.INFO)
    signal.signal(signal.SIGTERM, stop)
    try:
        code, reason = serve(json.loads(options.launch.read_bytes()), options.sockets)
    except LaunchOver as error:
        code, reason = DONE, f"the launch is over ({error})"
    except GangStopped as error:
        code, reason = STOPPED, str(error)
    except ReplicaLost as error:
        code, reason = LOST, f"the gang is lost: {error}"
    except (Unreachable, RequestRejected) as error:
        code, reason = UNREACHABLE, str(error)
    except (OSError, ValueError, KeyError, TypeError) as error:
        code, reason = INTERNAL_ERROR, f"the launch document cannot be read: {type(error).__name__}: {error}"
    report_end(f"{reason} ({code})")
    os._exit(code)


if __name__ == "__main__":
    main()
