"""Gang node: one of several machines of a gang, which runs the sandboxes that the gang's runner asks for.

``python -m runtimes.harness.gang.gang_node HOST PORT KEYFILE LEVEL INDEX`` connects to the runner, which is on the
first of them, and proves that it knows the gang's key (gang_joining.py). LEVEL is the sandbox's, 0: there is none.
Files that tasks leave are sent to the runner (sent_files.py); those that a task needs are in a folder that all machines
share, or are sent by the runner to a pod (replica.py). The output of ranks is printed on.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ..runner.captured_output import CapturedOutput
from ..sandbox import level
from .delivered_files import Delivery
from .gang_joining import ALONE, DONE, FAILED, PATIENCE, join
from .gang_nodes import RunnerMessage
from .gang_runner import GangStopped
from .gang_task import GangTask
from .gang_transport import GangConnection, Message, ReplicaLost
from .node_looks import NodeLook, NodeSeen, seen_of
from .sandboxed_task import SandboxedTask
from .sent_files import PlacedFiles, send_delivery

#: Exit code: no sandbox can be made here.
UNSAFE = 78
#: Seconds that a task may take at most: its runner ends it before.
LONGEST_TASK = 1e6
#: Seconds between two looks at what the sandboxes have printed.
PRINT_INTERVAL = 0.5


class GangNode:
    """Runs one sandbox after the other. ``placed``: gets the files that the runner sends; None: it sends none.

    ``tidy``: removes what a task has left behind where its sandbox has no root of its own.
    """

    def __init__(
        self, runner: GangConnection, placed: PlacedFiles | None = None, tidy: Callable[[], None] = lambda: None
    ) -> None:
        self._runner = runner
        self._placed = placed
        self._tidy = tidy
        self._largest = 0
        self._printed = CapturedOutput()
        self._sandboxes = contextlib.ExitStack()
        self._sandboxed: SandboxedTask | None = None
        self._awaits_end = False

    def work(self, messages: Sequence[Message]) -> int:
        """Do what the runner says, beginning with messages that have arrived already; return the exit code."""
        threading.Thread(target=self._keep_printing, name="print", daemon=True).start()
        try:
            while True:
                for message in messages:
                    if self._placed is not None and self._placed.take(message):
                        continue
                    asked = msgspec.convert(message, RunnerMessage)
                    if asked.over is not None:
                        return DONE
                    self._do(asked)
                if self._awaits_end and self._sandboxed is not None:
                    self._attend(self._sandboxed)
                messages = self._runner.receive()
        except ReplicaLost as error:
            print(f"the gang's runner is lost: {error}", file=sys.stderr)
            return FAILED
        finally:
            self._close()

    def _do(self, asked: RunnerMessage) -> None:
        if asked.task is not None:
            self._close()
            self._largest = asked.largest
            self._sandboxed = self._sandboxes.enter_context(SandboxedTask(GangTask.of(asked.task), self._printed))
            self._awaits_end = True
        elif asked.scenario is not None and self._sandboxed is not None:
            self._sandboxed.tell(asked.scenario)
            self._awaits_end = True
        elif asked.look is not None:
            self._look(asked.look)
        elif asked.stop is not None:
            self._close()
            self._print()
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
            return  # the runner says something, and may go on to wait for the end
        except ReplicaLost as error:
            said = {"lost": str(error)}
        self._awaits_end = False
        if sandboxed.problem is not None:
            sandboxed.delivered.problem = sandboxed.problem
        self._pass_on(sandboxed.delivered)
        self._runner.send(**said)

    def _look(self, look: NodeLook) -> None:
        """Answer a look into the sandbox."""
        seen, data = NodeSeen(look.id, ended=True), b""
        if self._sandboxed is not None:
            seen, data = seen_of(self._sandboxed, look)
        self._runner.send(data, seen=msgspec.to_builtins(seen))

    def _pass_on(self, delivery: Delivery) -> None:
        send_delivery(self._runner, delivery, self._largest)

    def _tell_progress(self, fraction: float) -> None:
        self._runner.send(progress=fraction)

    def _keep_printing(self) -> None:
        """Print what the sandboxes print, while this process lives."""
        while True:
            time.sleep(PRINT_INTERVAL)
            self._print()

    def _print(self) -> None:
        """Print what the sandboxes have printed; a pod's runner reads no other output of it, so it is sent too."""
        for _, printed in self._printed.take():
            with contextlib.suppress(OSError):
                os.write(1, printed)
            if self._placed is not None:
                with contextlib.suppress(ReplicaLost):  # as is seen by the other thread
                    self._runner.send(printed=printed.decode(errors="replace"))

    def _close(self) -> None:
        if self._sandboxed is not None:
            self._sandboxed, self._awaits_end = None, False
            self._sandboxes.close()
            self._tidy()


def main(host: str, port: int, key_file: Path, required: int, index: int) -> int:
    """Serve the runner of a gang until it says that it is over; return the exit code. ``required``: a sandbox level."""
    if required and (best := level()).number < required:
        missing = ", ".join(best.missing)
        print(f"{os.uname().nodename} can make no sandbox of level {required} for a gang: {missing}", file=sys.stderr)
        return UNSAFE
    runner, messages = join((host, port), key_file.read_text(), (0, index), PATIENCE)
    return GangNode(runner).work(messages)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])))
    except ReplicaLost as lost:
        print(lost, file=sys.stderr)
        sys.exit(ALONE)
