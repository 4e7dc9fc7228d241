"""Gang node: one of several machines of a gang, which runs the sandboxes that the gang's runner asks for.

``python -m runtimes.harness.gang.gang_node HOST PORT KEYFILE LEVEL INDEX`` connects to the runner, which is on the
first of them, and proves that it knows the gang's key (gang_transport.py). LEVEL is the sandbox's, 0: there is none.
Files of tasks are passed on in a folder that all machines share; messages are lines of JSON; what is printed is printed
on.
"""

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..runner.captured_output import CapturedOutput
from ..sandbox import level
from .delivered_files import Delivery, NotDeliverable
from .gang_nodes import RunnerMessage
from .gang_runner import GangStopped
from .gang_task import GangTask
from .gang_transport import GangConnection, Message, ReplicaLost
from .replica import ALONE, DONE, FAILED, PATIENCE, join
from .sandboxed_task import SandboxedTask

#: Exit code: no sandbox can be made here.
UNSAFE = 78
#: Seconds that a task may take at most: its runner ends it before.
LONGEST_TASK = 1e6
#: Seconds between two looks at what the sandboxes have printed.
PRINT_INTERVAL = 0.5


class GangNode:
    """Runs one sandbox after the other. ``shared``: the folder in which it leaves files for the runner."""

    def __init__(self, runner: GangConnection, shared: Path, index: int) -> None:
        self._runner = runner
        self._shared = shared
        self._index = index
        self._printed = CapturedOutput()
        self._sandboxes = contextlib.ExitStack()
        self._sandboxed: SandboxedTask | None = None

    def serve(self, messages: Sequence[Message]) -> int:
        """Do what the runner says, beginning with messages that have arrived already; return the exit code."""
        try:
            while True:
                for message in messages:
                    asked = msgspec.convert(message, RunnerMessage)
                    if asked.over is not None:
                        return DONE
                    self._do(asked)
                messages = self._runner.receive()
        except ReplicaLost as error:
            print(f"the gang's runner is lost: {error}", file=sys.stderr)
            return FAILED
        finally:
            self._sandboxes.close()

    def _do(self, asked: RunnerMessage) -> None:
        if asked.task is not None:
            self._close()
            self._sandboxed = self._sandboxes.enter_context(SandboxedTask(GangTask.of(asked.task), self._printed))
            self._attend(self._sandboxed)
        elif asked.scenario is not None and self._sandboxed is not None:
            self._sandboxed.tell(asked.scenario)
            self._attend(self._sandboxed)
        elif asked.stop is not None:
            self._close()
            self._runner.send(stopped=asked.stop)

    def _attend(self, sandboxed: SandboxedTask) -> None:
        """Wait for the end of a task, or for the runner to say something else; tell how it ended."""
        said: dict[str, str] = {}
        try:
            text = sandboxed.listen(
                self._runner.connection, time.monotonic() + LONGEST_TASK, self._pass_on, self._tell_progress
            )
            said = {"end": text.decode()} if text else {"lost": f"its sandbox ended: {sandboxed.ending}"}
        except GangStopped:
            pass
        except ReplicaLost as error:
            said = {"lost": str(error)}
        if not said:
            return
        if sandboxed.problem is not None:
            sandboxed.delivered.problem = sandboxed.problem
        self._pass_on(sandboxed.delivered)
        self._runner.send(**said)

    def _pass_on(self, delivery: Delivery) -> None:
        """Write files to the shared folder, and say where they are; the runner removes them."""
        folder = Path(tempfile.mkdtemp(prefix=f"node-{self._index}-", dir=self._shared))
        try:
            for number, file in enumerate(delivery.files):
                with open(folder / str(number), "wb") as target:
                    for chunk in file.chunks():
                        target.write(chunk)
        except (NotDeliverable, OSError) as error:
            delivery.problem = delivery.problem or str(error)
        files = [(file.rank, file.path) for file in delivery.files]
        delivery.close()
        self._runner.send(delivered=delivery.name, folder=str(folder), files=files, problem=delivery.problem)

    def _tell_progress(self, fraction: float) -> None:
        self._runner.send(progress=fraction)

    def keep_printing(self) -> None:
        """Print what the sandboxes print, while this process lives."""
        while True:
            time.sleep(PRINT_INTERVAL)
            for _, printed in self._printed.take():
                with contextlib.suppress(OSError):
                    os.write(1, printed)

    def _close(self) -> None:
        self._sandboxed = None
        self._sandboxes.close()


def main(host: str, port: int, key_file: Path, required: int, index: int) -> int:
    """Serve the runner of a gang until it says that it is over; return the exit code. ``required``: a sandbox level."""
    if required and (best := level()).number < required:
        missing = ", ".join(best.missing)
        print(f"{os.uname().nodename} can make no sandbox of level {required} for a gang: {missing}", file=sys.stderr)
        return UNSAFE
    runner, messages = join((host, port), key_file.read_text(), (0, index), PATIENCE)
    node = GangNode(runner, key_file.parent, index)
    threading.Thread(target=node.keep_printing, name="print", daemon=True).start()
    return node.serve(messages)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])))
    except ReplicaLost as lost:
        print(lost, file=sys.stderr)
        sys.exit(ALONE)
