"""Shared sandbox: the ranks of a gang on one machine, which run in one sandbox of their own: for a task, or a launch.

``main`` confines its process, lays out the model in a folder of the sandbox, starts the program's ranks, and sends the
runner a line of JSON at the end of a task: how each rank ended, and the result that the first one gave. With this
process's end all that the task had ends: processes, files, ports, names and shared memory. Where processes are not
confined, the task has a folder that the runner removes, and what the program leaves behind is swept.
"""

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..sandbox import Confinement, confine
from ..sandbox.namespaces import MACHINE
from ..sandbox.recipe import library_folders, loader
from .gang_memory import PROC, exceeds
from .gang_task import SHARED_MEMORY, GangEnd, GangTask, progress_line, scenario_of
from .gang_transport import adopt_orphans, dying_with, sweep
from .looked_files import LookServer
from .rank_times import RankTimes
from .task_folder import CannotFill, TaskFolder
from .task_server import TaskServer

#: Seconds between two looks at the gang's memory, and for checkpoints.
ROUND = 0.25
#: Seconds that the other ranks may go on after one has failed, so that they can tell why.
GRACE = 1.0
#: Seconds that other ranks may go on after the first one has ended without the answer that a task is waiting for.
LEFT = 30.0


def main() -> None:
    """Run one task, as one JSON object on the command line says; or this one, and those that the runner then sends."""
    task = GangTask.of(sys.argv[1])
    watcher = rank_command(task)
    runner, files = socket.socket(fileno=task.socket), socket.socket(fileno=task.files)
    looks = socket.socket(fileno=task.looks) if task.looks >= 0 else None
    if task.confinement is not None:
        kept = [each.fileno() for each in (runner, files, looks) if each is not None]
        confine(Confinement(**task.confinement, keep=kept))
    else:
        adopt_orphans()
    if task.gang.root is not None:
        sys.path[:] = [f"{MACHINE}{path}" for path in map(os.path.realpath, sys.path)]
        os.environ.pop("LD_BIND_NOW", None)  # plugins of packages may have symbols that none of their libraries has
    folder = TaskFolder(task)
    folder.prepare()
    sandbox = SharedSandbox(task, folder, files, runner, watcher)
    if looks is not None:
        sandbox.show(LookServer(looks, task.folder, own_network=has_own_network(task)), looks)
    end = sandbox.run(task.scenario)
    runner.sendall(end.text())
    if end.going:
        for line in runner.makefile("rb"):
            end = sandbox.go_on(scenario_of(line))
            if end.is_quiet:
                break  # the program had enough after the task before: the runner starts it again for this one
            runner.sendall(end.text())
            if not end.going:
                break


def has_own_network(task: GangTask) -> bool:
    """Whether the sandbox of a task has a network of its own, with a loopback device only."""
    return task.confinement is not None and (task.gang.level or 0) >= 3 and not task.gang.addresses


def rank_command(task: GangTask) -> Sequence[str]:
    """Return the command that starts a rank's watcher, as the sandbox sees it; call it before this process is confined.

    In a root of packages this machine's Python runs with this machine's loader and libraries, whatever C library the
    packages bring.
    """
    python, script = os.path.realpath(sys.executable), str(Path(__file__).with_name("rank.py"))
    flags = ("-S", "-E", "-B")
    if task.gang.root is None:
        return (sys.executable, *flags, script)
    inside = task.gang.path_inside
    libraries = ":".join(map(inside, library_folders()))
    return (inside(loader()), "--library-path", libraries, inside(python), *flags, inside(script))


class SharedSandbox:
    """The ranks of a program. ``files``: the socket over which the runner gets files of tasks; ``runner``: that on
    which it is told of progress and the end. ``watcher``: the command that starts a rank.
    """

    def __init__(
        self,
        task: GangTask,
        folder: TaskFolder,
        files: socket.socket,
        runner: socket.socket,
        watcher: Sequence[str],
    ) -> None:
        self._task, self._gang = task, task.gang
        self._folder = folder
        self._files = files
        self._runner = runner
        self._watcher = watcher
        self._progress: str | None = None
        #: Whether files, memory and processes here are those of the task alone.
        self._own_root = task.confinement is not None and not task.gang.scratch
        self._in_memory = ("/tmp", SHARED_MEMORY) if self._own_root else ()
        self._programs: list[subprocess.Popen[bytes]] = []
        self._launchers: dict[subprocess.Popen[bytes], bool] = {}
        self._selector = selectors.DefaultSelector()
        self._tasks: TaskServer | None = None
        if self._gang.start == "launch":
            self._tasks = TaskServer(folder.tasks, self._gang.numbers, folder.has_ended_well, self._selector)
        self._round_at = 0.0
        self._used = RankTimes(folder.ends, self._gang.numbers, PROC if self._own_root else Path("/proc"))

    def show(self, looks: LookServer, peer: socket.socket) -> None:
        """Answer looks, which come from a peer, while a task runs."""

        def answer() -> None:
            if not looks.answer():
                self._selector.unregister(peer)

        self._selector.register(peer, selectors.EVENT_READ, answer)

    def run(self, scenario: Mapping[str, object]) -> GangEnd:
        """Start the ranks with a task, and wait for its end; return what the runner is told."""
        rank = (*self._watcher, str(self._folder.ends))
        self._folder.begin(scenario)
        try:
            self._folder.fill_templates(scenario)
        except CannotFill as error:
            return self._end_all(0, str(error))
        try:
            for program in self._gang.programs:
                command = [*program.launcher, *(() if program.complete else (*rank, *self._gang.command))]
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    env=self._folder.environ(program.environ),
                    cwd=self._folder.work,
                    start_new_session=True,
                    preexec_fn=dying_with(os.getpid()),
                )
                self._programs.append(process)
                self._launchers[process] = bool(program.launcher)
                self._selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ)
        except OSError as error:
            name = program.launcher[0] if program.launcher else "the program"
            brought = "" if self._gang.root is None else "; is it in one of the packages? mpirun is in openmpi-bin"
            return self._end_all(0, f"{name}: {error.strerror}{brought}")
        restore = self._folder.restore
        return self._run({**scenario, **({} if restore is None else {"restore": restore})})

    def go_on(self, scenario: Mapping[str, object]) -> GangEnd:
        """Give the ranks, which are there already, a further task; return what the runner is told."""
        self._folder.begin(scenario)
        return self._run(scenario)

    def _run(self, scenario: Mapping[str, object]) -> GangEnd:
        if self._tasks is not None:
            self._tasks.begin(scenario)
        code, problem = self._wait()
        if self._tasks is not None and self._tasks.answered and not code and problem is None:
            self._folder.deliver_outputs(self._files)
            written = self._folder.result()
            result = self._tasks.result if written is None else written
            unread, used = self._folder.unread_result(), self._used.since_last()
            return GangEnd(status=0, problem=None, result=result, ranks=used, going=True, unread=unread)
        return self._end_all(code, problem)

    def _end_all(self, code: int, problem: str | None) -> GangEnd:
        """End what still runs, and return the end of all ranks."""
        for program in self._programs:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()
        until = time.monotonic() + GRACE
        while any(map(self._folder.is_kept, self._gang.numbers)) and time.monotonic() < until:
            time.sleep(0.01)  # a watcher outlives what the launcher has ended, and tells how
        if not self._own_root:
            sweep()
        self._folder.deliver_outputs(self._files)
        ends = [end for rank in self._gang.numbers if (end := self._folder.rank_end(rank)) is not None]
        result, unread = self._folder.result(), self._folder.unread_result()
        return GangEnd(status=code, problem=problem, result=result, ranks=ends, unread=unread)

    def _wait(self) -> tuple[int, str | None]:
        """Wait until the task is answered, all programs have ended, or one has failed; return what went wrong.

        That is the exit status of the program, negative for a launcher that a signal ended, and what else was wrong.
        """
        code, until, left_at = 0, None, None
        waiting = list(self._programs)
        while waiting and (until is None or time.monotonic() < until):
            self._attend(ROUND)
            if self._tasks is not None and self._tasks.answered:
                break
            if self._tasks is not None and self._tasks.is_left:
                left_at = left_at or time.monotonic()
                if time.monotonic() > left_at + LEFT:
                    return code, f"rank {self._gang.first} ended without an answer to its task, and other ranks did not"
            if time.monotonic() >= self._round_at:
                if exceeds(self._gang.memory, self._in_memory):
                    return code, f"the gang used more than its {self._gang.memory >> 20} MiB of memory"
                self._folder.deliver_checkpoints(self._files)
                self._tell_progress()
                self._round_at = time.monotonic() + ROUND
            for program in [program for program in waiting if program.poll() is not None]:
                waiting.remove(program)
                if program.returncode and not code:
                    self._folder.deliver_checkpoints(self._files)
                    code = program.returncode
                    if code < 0 and not self._launchers[program]:  # it is a rank, which a launcher would tell so
                        code = 128 - code
                    until = time.monotonic() + GRACE
        while self._tasks is not None and self._attend(0.0):
            pass  # what the ranks said before they ended
        return code, None

    def _tell_progress(self) -> None:
        """Tell the runner of the program's progress, if there is a new one."""
        progress = self._folder.progress()
        if progress is not None and progress != self._progress:
            self._progress = progress
            self._runner.sendall(progress_line(progress))

    def _attend(self, seconds: float) -> bool:
        """Wait so long for programs that end, and for what ranks say; return whether there was something."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            if key.data is not None:
                key.data()
            else:
                self._selector.unregister(key.fd)
        return bool(ready)
