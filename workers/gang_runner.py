"""The conductor: the runner of a gang. It leases tasks and has the gang's leader play them, one after the other.

``python -m workers.gang_runner --launch FILE --posts FOLDER``

It reads the document that workers/standalone_runner.py does, and its ``format``. It listens on ``gang.sock`` in FOLDER
for the leader (`runtimes.harness.gang.replica`), in the container beside it, and leases nothing before all replicas are
there: no lease runs out while they come. What the first replica leaves as its result is a task's metrics: nobody judges
a program but itself. A program that fails is a task that failed; a gang that loses a replica is a lost worker, and its
task is played again by the next gang until it has cost three.
"""

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
from pathlib import Path
from typing import Any

from runtimes.harness.evaluator.result_batch import Played, ResultBatch
from runtimes.harness.evaluator.tasks import Plan
from runtimes.harness.gang.gang_transport import GangConnection, ReplicaLost
from runtimes.harness.gang.replica import LATE, RESULT
from runtimes.harness.runner.runner import DONE, INTERNAL_ERROR, LAST_REQUEST, STOPPED, TASK_PATIENCE, UNREACHABLE
from runtimes.harness.runner.runner_api_client import (
    Credentials,
    GrantedLease,
    LaunchOver,
    LeaseAnswer,
    RequestRejected,
    RunnerApiClient,
    Unreachable,
)
from workers.launch_inputs import Deliveries
from workers.standalone_runner import CACHE_TOKEN, FILES, POSTS, near, say

SOCKET = "gang.sock"
#: Exit code: the gang lost a replica, or its leader; all of it begins again, or ends.
LOST = 77
#: Seconds to wait for the leader.
PATIENCE = 900.0
#: Seconds of results that make a report.
FLUSH = 1.0
_CREDENTIALS = struct.Struct("3i")


class GangStopped(Exception):
    """We were told to end."""


class GangRunner:
    """One gang, its launch, and the lease it is at."""

    def __init__(
        self, credentials: Credentials, described: Mapping[str, Any], leader: GangConnection, name: str
    ) -> None:
        play = described["play"]
        self._play = play
        self._plan = Plan(play["tasks"])
        self._patience = float(play.get("definition", {}).get("task_patience", TASK_PATIENCE))
        self._stop = threading.Event()
        self._surface = RunnerApiClient(credentials, self._stop)
        self._credentials = credentials
        self._leader = leader
        self._name = name
        self._lock = threading.Lock()  # guards what is held against the heartbeating thread
        self._held: tuple[GrantedLease, int, int] | None = None  # the lease, the task it is at, and where it ends now

    def run(self) -> None:
        """Lease, play, report, until no work is left. Raises LaunchOver, ReplicaLost or GangStopped."""
        threading.Thread(target=self._heartbeat, name="heartbeat", daemon=True).start()
        following: LeaseAnswer | None = None
        while True:
            answer = following or self._surface.lease(self._name, None)
            following = None
            if answer.ended:
                return
            if answer.lease is not None:
                following = self._work_off(answer.lease)
            elif answer.retry_after is not None:
                time.sleep(answer.retry_after)

    def _work_off(self, lease: GrantedLease) -> LeaseAnswer | None:
        lines = ResultBatch(self._play.get("definition", {}), "none", None)
        cursor, stop = lease.cursor, lease.stop
        lines.begin(cursor)
        self._hold(lease, cursor, stop)
        following: LeaseAnswer | None = None
        since = time.monotonic()
        while cursor < stop:
            task = lines.to
            self._hold(lease, task, stop)
            try:
                played = self._perform(task)
            except (ReplicaLost, GangStopped) as error:
                if len(lines):
                    self._report(lease, lines, following=False)
                if isinstance(error, ReplicaLost):
                    self._mourn(lease, task, str(error))
                raise
            lines.add(self._plan.locate(task), {}, played)
            stop = self._end(stop)
            due = lines.to >= stop or task <= lease.careful or time.monotonic() - since > FLUSH or lines.full
            if not due:
                continue
            answer = self._report(lease, lines)
            since = time.monotonic()
            if answer.lost or answer.cursor is None or answer.stop is None:
                break
            cursor, stop = answer.cursor, answer.stop
            if cursor != lines.to:
                lines.begin(cursor)
            following = answer if answer.lease or answer.retry_after is not None or answer.ended else following
        with self._lock:
            self._held = None
        return following

    def _perform(self, task: int) -> Played:
        """Have the gang play one task."""
        located = self._plan.locate(task)
        scenario: dict[str, Any] = {"index": located.index, "repeat": located.repeat, "seed": located.seed}
        scenario["params"] = dict(located.params)
        began = time.monotonic()
        self._leader.send(scenario=scenario, patience=self._patience)
        heard = self._leader.receive()
        while not heard:
            heard = self._leader.receive()
        return judged(heard[0], self._patience, time.monotonic() - began)

    def _report(self, lease: GrantedLease, lines: ResultBatch, *, following: bool = True) -> LeaseAnswer:
        batch = lines.take()
        head = {
            "worker": self._name,
            "stage": lease.stage,
            "start": lease.start,
            "fencing_token": lease.fencing_token,
            "next": following,
        }
        head |= {"from": batch["from"], "to": batch["to"], "lines": len(batch["lines"]), "rate": None}
        head |= {"artifacts": [], "sketch": batch["sketch"]}
        return self._surface.report(head, memoryview(batch["lines"]), memoryview(b""))[1]

    def _mourn(self, lease: GrantedLease, task: int, reason: str) -> None:
        said = {"worker": self._name, "stage": lease.stage, "start": lease.start, "fencing_token": lease.fencing_token}
        self._surface.death(said | {"task": task, "witness": True, "reason": f"the gang is lost: {reason}"})

    def leave(self) -> None:
        """Give back what is not played; nobody is to be blamed for it."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            lease = held[0]
            surface = RunnerApiClient(self._credentials, self._stop, patience=0.0, time_out=2 * LAST_REQUEST)
            surface.leave([{"stage": lease.stage, "start": lease.start, "fencing_token": lease.fencing_token}])

    def _hold(self, lease: GrantedLease, task: int, stop: int) -> None:
        with self._lock:
            self._held = (lease, task, stop)

    def _end(self, stop: int) -> int:
        """Return where the lease ends now: others may have taken its end over."""
        with self._lock:
            return min(stop, self._held[2]) if self._held is not None else 0

    def _heartbeat(self) -> None:
        """Keep the lease alive, and learn what was taken of it."""
        surface = RunnerApiClient(self._credentials, self._stop)
        pause = 1.0
        try:
            while not self._stop.wait(pause):
                with self._lock:
                    held = self._held
                if held is None:
                    continue
                lease, task, _ = held
                words = {"stage": lease.stage, "start": lease.start, "fencing_token": lease.fencing_token, "task": task}
                [standing] = surface.heartbeat([words])
                with self._lock:
                    if self._held is not None and self._held[0].fencing_token == lease.fencing_token:
                        end = 0 if standing.lost else min(self._held[2], standing.stop)
                        self._held = (self._held[0], self._held[1], end)
                pause = lease.ttl / 3
        except (LaunchOver, Unreachable, RequestRejected) as error:
            say(f"{error}")
            os._exit(DONE if isinstance(error, LaunchOver) else UNREACHABLE)


def judged(said: Mapping[str, Any], patience: float, seconds: float) -> Played:
    """Return how a task went, from how the program ended and what it left; both are the user's own words."""
    code, text = int(said["exit"]), said.get("result")
    if code == LATE:
        return Played("timed_out", {}, error=f"the program took longer than {patience:g} s", seconds=seconds)
    if code:
        return Played("crashed", {}, error=f"the program ended with {code}", seconds=seconds)
    try:
        metrics = json.loads(text) if text is not None and len(text) <= RESULT else None
    except (ValueError, RecursionError):
        metrics = None
    if not isinstance(metrics, dict) or not all(fits(value) for value in metrics.values()):
        words = "the first replica left no result: one JSON object of numbers, texts, yes, no and nothing"
        return Played("invalid", {}, error=words, seconds=seconds)
    return Played("ok", metrics, seconds=seconds)


def fits(value: Any) -> bool:
    """Tell whether this may be a metric."""
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def accept_leader(posts: Path, user: int) -> GangConnection:
    """Wait for the leader; nobody else is let in."""
    path = posts / SOCKET
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o666)  # who connects is told by the kernel, not by who may
        listener.listen(4)
        listener.settimeout(PATIENCE)
        while True:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                raise ReplicaLost("its leader never came") from None
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(credentials)[1] == user:
                return GangConnection(connection)
            connection.close()


def serve(document: Mapping[str, Any], posts: Path) -> tuple[int, str]:
    """Conduct a gang through its launch; return the exit code and why it ended."""
    token = Path(document["token_file"])
    credentials = Credentials(url=document["url"], launch=document["id"], token=token.read_text().strip())
    leader = accept_leader(posts, int((document.get("posts") or POSTS)["model_server"]))
    while not leader.receive():
        pass  # it says that all replicas are there
    described = RunnerApiClient(credentials, threading.Event()).launch()
    files = described.get("files") or {}
    if files.get("model"):
        folder = Path(document.get("files") or FILES)
        cache = near(token.with_name(CACHE_TOKEN))
        # A gang's program is its own world: it is handed no dataset's folder.
        path, _ = Deliveries(credentials, threading.Event(), folder, cache).bring(files, model=None, dataset="none")
        name = "model.py" if document.get("format") == "python" else "model"
        leader.send(model=path, name=name)
    conductor = GangRunner(credentials, described, leader, document.get("name") or socket.gethostname())
    try:
        conductor.run()
    except GangStopped:
        conductor.leave()
        raise
    return DONE, "there is no more work"


def stop(*_: object) -> None:
    """End in good order, once: wherever we are, what the other side has taken down is true."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise GangStopped("it was told to stop")


def main() -> None:
    """See one launch through."""
    parser = argparse.ArgumentParser(prog="workers.gang_runner", description=__doc__.split("\n")[0])
    parser.add_argument("--launch", type=Path, required=True, help="the JSON document that describes the launch")
    parser.add_argument("--posts", type=Path, required=True, help="the folder where the leader looks for us")
    given = parser.parse_args()
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=logging.INFO)
    signal.signal(signal.SIGTERM, stop)
    try:
        code, reason = serve(json.loads(given.launch.read_bytes()), given.posts)
    except LaunchOver as error:
        code, reason = DONE, f"the launch is over ({error})"
    except GangStopped as error:
        code, reason = STOPPED, str(error)
    except ReplicaLost as error:
        code, reason = LOST, f"the gang is lost: {error}"
    except (Unreachable, RequestRejected) as error:
        code, reason = UNREACHABLE, str(error)
    except (OSError, ValueError, KeyError, TypeError) as error:
        code, reason = INTERNAL_ERROR, f"the launch cannot be read: {type(error).__name__}: {error}"
    say(f"{reason} ({code})")
    os._exit(code)


if __name__ == "__main__":
    main()
