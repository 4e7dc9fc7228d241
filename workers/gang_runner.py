"""Gang runner of a pod: has the gang's leader, in the container beside it, run the tasks of a launch.

``python -m workers.gang_runner --launch FILE --sockets FOLDER``

It reads the document that workers/standalone_runner.py reads, and its ``format``. It listens on ``gang.sock`` in FOLDER
for the leader (`runtimes.harness.gang.replica`), and takes no lease before all replicas are connected, so that no lease
expires while replicas start.
"""

# isort: off
from runtimes.harness.runner import stop_signal  # noqa: F401 - first: until then the kernel drops a container's SIGTERM

# isort: on
import argparse
import json
import logging
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

import msgspec

from runtimes.harness.evaluator.result_batch import Played
from runtimes.harness.gang.gang_runner import GangLaunch, GangRunner, GangStopped, outcome_of
from runtimes.harness.gang.gang_transport import GangConnection, ReplicaLost
from runtimes.harness.gang.task_storage import TaskStorage
from runtimes.harness.runner.runner import DONE, INTERNAL_ERROR, STOPPED, UNREACHABLE
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
_CREDENTIALS = struct.Struct("3i")


class ProgramEnd(msgspec.Struct):
    """How a task's program ended: its exit status, and the text of its result."""

    exit: int
    result: str | None = None


class PodGang:
    """A gang of pods, by the connection to its leader. After a loss all of its pods start again, the leader's too."""

    returns = False

    def __init__(self, leader: GangConnection) -> None:
        self._leader = leader

    def run(self, scenario: Mapping[str, object], patience: float, storage: TaskStorage) -> Played:
        """Run one task."""
        began = time.monotonic()
        self._leader.send(scenario=scenario, patience=patience)
        messages = self._leader.receive()
        while not messages:
            messages = self._leader.receive()
        end = msgspec.convert(messages[0], ProgramEnd)
        return outcome_of(end.exit, end.result, patience, time.monotonic() - began)


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
    name = document.get("name") or socket.gethostname()
    launch = msgspec.convert(description, GangLaunch)
    runner = GangRunner(credentials, launch, PodGang(leader), name, ended=end)
    try:
        runner.run()
    except GangStopped:
        runner.leave()
        raise
    return DONE, "there is no more work"


def end(code: int, reason: str) -> None:
    """End this process: the launch is over, or cannot go on."""
    report_end(reason)
    os._exit(code)


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
