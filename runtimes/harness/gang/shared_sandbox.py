"""Shared sandbox: the ranks of a gang on one machine, which run one task together in one sandbox of their own.

``main`` confines its process, lays out the model in a folder of the sandbox, starts the program's ranks, and sends one
JSON document to the runner: how each rank ended, and the result that the first one wrote. With this process's end all
that the task had ends: processes, files, ports, names and shared memory. Where processes are not confined, the task has
a folder that the runner removes, and what the program leaves behind is swept.
"""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..sandbox import Confinement, confine
from .gang_task import GangEnd, GangTask
from .gang_transport import RESULT, adopt_orphans, dying_with, lay_out, sweep
from .rank import TIMES
from .rank_ends import RankEnd

#: The sandbox's own processes.
PROC = Path("/proc/own")
#: The most characters of a rank's document: its last lines and its result, escaped.
LONGEST_END = 1 << 20
#: Seconds between two looks at the gang's memory.
ROUND = 0.25
#: Seconds that the other ranks may go on after one has failed, so that they can tell why.
GRACE = 1.0
#: Folders of a package environment that hold programs and shared libraries.
PROGRAMS, LIBRARIES = "bin", "lib"


def main() -> None:
    """Run one task, as one JSON object on the command line says."""
    task = GangTask.of(sys.argv[1])
    runner = socket.socket(fileno=task.socket)
    if task.confinement is not None:
        confine(Confinement(**task.confinement, keep=(runner.fileno(),)))
    else:
        adopt_orphans()
    sandbox = SharedSandbox(task)
    sandbox.prepare()
    runner.sendall(sandbox.run().text())


class SharedSandbox:
    """A task's folder and its ranks."""

    def __init__(self, task: GangTask) -> None:
        self._task, self._gang = task, task.gang
        self._folder = Path(task.folder)
        self._work = self._folder / "model"
        self._ends = self._folder / "ranks"
        self._in_memory = () if task.confinement is None else ("/tmp", "/dev/shm")
        self._programs: list[subprocess.Popen[bytes]] = []

    def prepare(self) -> None:
        """Lay out model, interpreter and scenario."""
        self._ends.mkdir(parents=True)
        model = Path(self._task.model)
        if model.is_dir():
            shutil.copytree(model, self._work, symlinks=True)
            for folder, _, files in os.walk(self._work):  # a stored model is read-only, and programs write beside it
                os.chmod(folder, 0o755)
                for name in files:
                    path = os.path.join(folder, name)
                    if not os.path.islink(path):
                        os.chmod(path, os.stat(path).st_mode | stat.S_IWUSR)
        else:
            packed = self._folder / "packed"
            shutil.copyfile(model, packed)
            lay_out(packed, self._work, self._gang.name)
            only = self._work / self._gang.name
            if only.is_file():
                only.chmod(0o755)
        self._make_interpreter()
        (self._folder / "scenario.json").write_text(json.dumps(self._task.scenario))

    def _make_interpreter(self) -> None:
        """Make `python` and its packages: a virtual environment, so that processes started by it have them too."""
        packages = self._folder / "python" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        (packages / "site-packages").mkdir(parents=True)
        (packages / "site-packages" / "packages.pth").write_text("\n".join(self._gang.packages) + "\n")
        programs = self._folder / "python" / "bin"
        programs.mkdir()
        home = os.path.dirname(os.path.realpath(sys.executable))
        (self._folder / "python" / "pyvenv.cfg").write_text(f"home = {home}\n")
        for name in ("python", "python3"):
            (programs / name).symlink_to(os.path.realpath(sys.executable))

    def run(self) -> GangEnd:
        """Start the ranks and wait for their ends; return what the runner is told."""
        rank = (sys.executable, "-S", "-E", "-B", str(Path(__file__).with_name("rank.py")), str(self._ends))
        code, problem = 0, None
        try:
            for program in self._gang.programs:
                command = [*program.launcher, *rank, *self._gang.command]
                self._programs.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        env=self._environ(program.environ),
                        cwd=self._work,
                        start_new_session=True,
                        preexec_fn=dying_with(os.getpid()),
                    )
                )
        except OSError as error:
            problem = f"{program.launcher[0] if program.launcher else 'the program'}: {error.strerror}"
        else:
            code, problem = self._wait()
        self._end()
        ends = [end for rank in range(self._gang.ranks) if (end := self._rank_end(rank)) is not None]
        return GangEnd(status=code, problem=problem, result=self._result(), ranks=ends)

    def _environ(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return a program's environment."""
        folders = self._gang.packages
        programs = [f"{self._folder}/python/bin", *(f"{folder}/{PROGRAMS}" for folder in folders)]
        paths = {"WINDTUNNEL_SCENARIO": "scenario.json", "WINDTUNNEL_RESULT": "result.json"}
        return {
            **os.environ,
            "PATH": ":".join([*filter(os.path.isdir, programs), "/usr/local/bin", "/usr/bin", "/bin"]),
            "LD_LIBRARY_PATH": ":".join(filter(os.path.isdir, (f"{folder}/{LIBRARIES}" for folder in folders))),
            "PYTHONHASHSEED": "0",
            "PYTHONUNBUFFERED": "1",
            **({} if self._gang.times is None else {TIMES: self._gang.times}),
            **variables,
            **{name: str(self._folder / file) for name, file in paths.items()},
        }

    def _wait(self) -> tuple[int, str | None]:
        """Wait until all programs have ended, or one has failed; return its exit status, and what else went wrong."""
        code, until, memory = 0, None, self._gang.memory
        waiting = list(self._programs)
        while waiting and (until is None or time.monotonic() < until):
            try:
                waiting[0].wait(ROUND)
            except subprocess.TimeoutExpired:
                if exceeds(memory, self._in_memory):
                    return code, f"the gang used more than its {memory >> 20} MiB of memory"
            for program in [program for program in waiting if program.poll() is not None]:
                waiting.remove(program)
                if program.returncode and not code:
                    code = program.returncode if program.returncode > 0 else 128 - program.returncode
                    until = time.monotonic() + GRACE
        return code, None

    def _end(self) -> None:
        """End what still runs."""
        for program in self._programs:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()
        if self._task.confinement is None:
            sweep()

    def _rank_end(self, rank: int) -> RankEnd | None:
        """Return how a rank ended; None if it left no document, or its program wrote another."""
        text = _text_of(self._ends / str(rank), LONGEST_END)
        try:
            end = None if text is None else RankEnd.of(json.loads(text))
        except (ValueError, RecursionError):
            return None
        return end if end is not None and end.rank == rank else None

    def _result(self) -> str | None:
        """Return the result that the program wrote (of a too long one RESULT + 1 characters), or None."""
        return _text_of(self._folder / "result.json", RESULT + 1)


def _text_of(path: Path, longest: int) -> str | None:
    """Return the text of a file that the program may have made, up to so many characters; None if it is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # of a pipe it may be the reader
    except OSError:
        return None
    with open(descriptor, errors="replace") as file:
        return file.read(longest) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def exceeds(memory: int, mounted: Iterable[str], proc: Path = PROC) -> bool:
    """Return whether the processes that can be seen, and the files in memory, use more than this many bytes.

    ``mounted``: where file systems in memory are mounted. Memory that processes share counts once; only where it could
    matter is it looked for how many share it, because that walks through all pages.
    """
    files = sum((use.f_blocks - use.f_bfree) * use.f_frsize for use in map(os.statvfs, mounted))
    own, shared = _fields(proc, "status", "RssAnon", "RssShmem")
    if own + max(shared, files) <= memory:
        return False
    own, shared = _fields(proc, "smaps_rollup", "Pss_Anon", "Pss_Shmem")
    return own + max(shared, files) > memory


def _fields(proc: Path, name: str, *fields: str) -> list[int]:
    """Return the bytes in these fields of a file of each process, added up."""
    totals = dict.fromkeys(fields, 0)
    for path in proc.glob(f"[0-9]*/{name}"):
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue  # it has just ended, or may not be looked at
        for field, _, value in (line.partition(":") for line in lines):
            if field in totals:
                totals[field] += int(value.split()[0]) << 10
    return list(totals.values())
