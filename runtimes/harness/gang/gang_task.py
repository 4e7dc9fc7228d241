"""Gang task: what the shared sandbox of a gang on this machine is told, and what it tells of its end.

Both cross a process boundary as JSON; this module imports nothing but the standard library.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..sandbox.namespaces import MACHINE
from .rank_ends import RankEnd

#: Address space of a rank, in bytes: MPI maps memory that it does not use. What it uses is limited otherwise.
ADDRESSES = 1 << 46
#: Processes and threads of each rank, and those besides for each processor: libraries start pools of threads, whose
#: sizes follow from the machine. TensorFlow's two workers had 110 each on two processors.
TASKS_OF_RANK, TASKS_OF_PROCESSOR = 256, 16
#: Open files of each process.
FILES = 1024
#: How a line begins that tells of progress; the end is a line of JSON.
PROGRESS = b"progress "
#: Where ranks share memory by name.
SHARED_MEMORY = "/dev/shm"
#: The folder of a task's files in its sandbox, where it is in memory.
FOLDER = "/tmp/windtunnel"


def tasks_of(ranks: int, processors: int) -> int:
    """Return how many processes and threads a gang's sandbox may have, with those that start and watch its ranks."""
    return (TASKS_OF_RANK + TASKS_OF_PROCESSOR * processors) * (ranks + 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchedProgram:
    """A program that a sandbox starts: ``launcher`` before the gang's command, and environment variables of its own.

    ``complete``: the launcher is the whole command; another one, elsewhere, says what it is to start.
    """

    launcher: Sequence[str]
    environ: Mapping[str, str]
    complete: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalGangSpec:
    """A launch's gang on this machine, or the part of it that is there.

    ``python``: the interpreter; ``harness``: the folder of this package; ``packages``: folders of the program's
    packages, the first one first; ``hosts``: names that are this machine, its own first; ``addresses``: of all
    hosts by name, if there are other machines; ``first`` and ``ranks``: the number of the first process that is
    started here, and how many there are; ``memory``: bytes of all of them; ``name``: of a model that is one file;
    ``level``: of the sandbox, None: there is none; ``times``: the library that measures how ranks communicate
    (compiled/mpi_times.c), if any; ``start``: whether the programs are started for each "task", or once for the
    "launch"; ``build``: the command that compiles the program, if it is compiled.

    ``scratch``: the folder that ranks may fill where their sandbox has no folders of its own (level 2).

    ``root``: the folder of packages that is the root of the sandbox, if there is one; ``libraries``: paths in it that
    its loader searches besides; ``rules``: what is read from the log (`rank.LogRules`); ``templates``: files of the
    case in which parameters are written in place of their names; ``environ``: variables of the program; ``contents``:
    texts of files of the case, by their paths, beside those of the model.

    ``data``: the folder of the dataset's files, if it has any for programs.
    """

    python: str
    harness: str
    packages: Sequence[str]
    programs: Sequence[LaunchedProgram]
    command: Sequence[str]
    hosts: Sequence[str]
    ranks: int
    memory: int
    name: str
    level: int | None
    times: str | None = None
    start: str = "task"
    build: Sequence[str] = ()
    first: int = 0
    scratch: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)
    root: str | None = None
    libraries: Sequence[str] = ()
    rules: Mapping[str, object] = field(default_factory=dict)
    templates: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    contents: Mapping[str, str] = field(default_factory=dict)
    data: str | None = None

    @property
    def numbers(self) -> range:
        """The numbers of the ranks here."""
        return range(self.first, self.first + self.ranks)

    @property
    def metrics(self) -> Sequence[str]:
        """The names of the metrics that are read from the lines that the program prints."""

        def names(metrics: Mapping[str, str] | None = None, **others: object) -> Sequence[str]:
            return list(metrics or ())

        return names(**self.rules)  # type: ignore[arg-type]

    def path_inside(self, path: str) -> str:
        """Return where the ranks see a path of this machine."""
        return path if self.root is None else MACHINE + os.path.realpath(path)

    def confinement(self, readonly: Sequence[str]) -> Mapping[str, object] | None:
        """Return the confinement of its ranks, which may read these paths besides; None: there is none."""
        if self.level is None:
            return None
        besides = [] if self.root is None else [self.harness, *([] if self.times is None else [self.times])]
        if self.data is not None:
            besides.append(self.data)
        return {
            "readonly": [*self.packages, *readonly, *besides],
            "hosts": self.hosts,
            "addresses": self.addresses,
            "level": self.level,
            "memory": self.memory,
            "libraries": ADDRESSES,
            "writable_tmp_mb": self.memory >> 20,
            "processes": tasks_of(self.ranks, os.cpu_count() or 1),
            "files": FILES,
            "root": self.root,
            "writable": [self.scratch, SHARED_MEMORY] if self.scratch else [],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class GangTask:
    """One task for a sandbox. ``confinement``: of `Confinement`; None for no sandbox. ``model``: path of its files.

    ``folder``: of the task's own files, to be made. ``restore``: the folder of a checkpoint, if there is one.
    ``built``: the folder of files that the program's build has made; ``builds``: this is the build, and the files that
    it makes are delivered in place of outputs. ``shown``: whether it may be looked into. ``socket``, ``files`` and
    ``looks``: the descriptors on which the end is told, files are delivered, and looks are answered.
    """

    gang: LocalGangSpec
    confinement: Mapping[str, Any] | None
    model: str
    scenario: Mapping[str, object]
    folder: str
    restore: str | None = None
    built: str | None = None
    builds: bool = False
    shown: bool = False
    socket: int = -1
    files: int = -1
    looks: int = -1

    @classmethod
    def of(cls, text: str) -> "GangTask":
        """Return what a JSON document describes."""

        def spec(programs: Sequence[Mapping[str, object]], **others: object) -> LocalGangSpec:
            return LocalGangSpec(programs=[LaunchedProgram(**program) for program in programs], **others)  # type: ignore[arg-type]

        def task(gang: Mapping[str, object], **others: object) -> "GangTask":
            return cls(gang=spec(**gang), **others)  # type: ignore[arg-type]

        return task(**json.loads(text))


@dataclass(frozen=True, kw_only=True, slots=True)
class GangEnd:
    """The end of a task. ``status``: of what the sandbox started; ``problem``: what else went wrong.

    ``result``: the text that the program wrote to its file, None: it wrote none. ``unread``: why that has no text.
    ``going``: the program goes on to the next task.
    """

    status: int
    problem: str | None
    result: str | None
    ranks: Sequence[RankEnd]
    going: bool = False
    unread: str | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether the program ended without an error, and without an answer."""
        failed = self.status or self.problem is not None or any(rank.exit for rank in self.ranks)
        return not self.going and not failed and self.result is None

    @classmethod
    def of(cls, text: bytes) -> "GangEnd":
        """Return what a sandbox has told. Raises ValueError if it is something else."""

        def gang_end(
            status: object,
            problem: object,
            result: object,
            ranks: Sequence[object],
            going: object,
            unread: object,
        ) -> "GangEnd":
            if not isinstance(status, int):
                raise ValueError("the status of a gang's end is not a number")
            if not isinstance(problem, str | None) or not isinstance(result, str | None):
                raise ValueError("a text of a gang's end is not a text")
            if not isinstance(unread, str | None):
                raise ValueError("a text of a gang's end is not a text")
            ends = [RankEnd.of(rank) for rank in ranks]
            return cls(status=status, problem=problem, result=result, ranks=ends, going=bool(going), unread=unread)

        try:
            return gang_end(**json.loads(text))
        except (TypeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None

    def text(self) -> bytes:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


def scenario_of(line: bytes) -> Mapping[str, object]:
    """Return the scenario of a further task, as the runner sends it to a program that goes on."""
    scenario: Mapping[str, object] = json.loads(line)
    return scenario


def progress_line(fraction: str) -> bytes:
    """Return the line by which a sandbox tells of its program's progress."""
    return PROGRESS + fraction.encode() + b"\n"


def progress_of(line: bytes) -> float | None:
    """Return the progress that a line tells, between 0 and 1; None if it tells something else."""
    try:
        fraction = float(line.removeprefix(PROGRESS)) if line.startswith(PROGRESS) else -1.0
    except ValueError:
        return None
    return fraction if 0.0 <= fraction <= 1.0 else None
