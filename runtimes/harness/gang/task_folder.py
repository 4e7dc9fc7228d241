"""Task folder: the files of a gang's task in its sandbox, which its program reads and writes, and the runner takes.

The program may write anything there: regular files are read, of limited size, and links are not followed.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from .delivered_files import OUTPUT, deliver, deliver_files, files_in
from .gang_task import GangTask
from .gang_transport import RESULT
from .rank import CHECKPOINT, LOGS, PROGRESS, RULES, TIMES
from .rank_ends import RankEnd

#: The most characters of a rank's document: its last lines and its result, escaped.
LONGEST_END = 1 << 20
#: Folders of a package environment that hold programs and shared libraries.
PROGRAMS, LIBRARIES = "bin", "lib"
#: A parameter in a template, by its name.
PARAMETER = re.compile(r"\{\{\s*(\w{1,100})\s*\}\}")
#: Names of a program that is one file.
PROGRAM_NAMES = ("model.py", "model")
#: Packages that every program has: `windtunnel_program`.
OWN_PACKAGES = Path(__file__).with_name("program")


class CannotFill(Exception):
    """A template of a case cannot be filled with the parameters of a task."""


class TaskFolder:
    """The folder of a task; with programs that go on to other tasks, of one after the other.

    ``work``: the working directory, a copy of the model. ``ends``: the ranks' documents. ``tasks``: the socket at which
    a program takes its tasks.
    """

    def __init__(self, task: GangTask) -> None:
        self._task, self._gang = task, task.gang
        self._folder = Path(task.folder)
        self.work = self._folder / "model"
        self.ends = self._folder / "ranks"
        self.tasks = self._folder / "tasks.sock"
        self._output = self._folder / "output"
        self._scenario, self._result = self._folder / "scenario.json", self._folder / "result.json"
        self._checkpoints = [self._folder / "checkpoints" / str(rank) for rank in self._gang.numbers]
        self._logs = self._folder / "logs" if task.shown else None

    def prepare(self) -> None:
        """Lay out model and interpreter."""
        self.ends.mkdir(parents=True)
        if self._logs is not None:
            self._logs.mkdir()
        model = Path(self._gang.path_inside(self._task.model))
        if model.is_dir():
            _copy_writable(model, self.work)
        else:
            self.work.mkdir(parents=True)
            shutil.copyfile(model, self.work / self._gang.name)
            (self.work / self._gang.name).chmod(0o755)
            for name in PROGRAM_NAMES:  # a command may have either, whatever the format of the file
                with contextlib.suppress(FileExistsError):
                    (self.work / name).symlink_to(self._gang.name)
        for path, text in self._gang.contents.items():
            (self.work / path).parent.mkdir(parents=True, exist_ok=True)
            (self.work / path).write_text(text)
            (self.work / path).chmod(0o755 if text.startswith("#!") else 0o644)
        if self._task.built is not None:
            _copy_writable(Path(self._gang.path_inside(self._task.built)), self.work)
        self._before = self._times() if self._task.builds else {}
        if self._gang.root is None:
            self._make_interpreter()

    def _times(self) -> Mapping[str, int]:
        """Return when each file of the working directory was changed, in nanoseconds."""
        return {path: _changed_at(self.work.parent / path) for path in files_in(self.work)}

    def _make_interpreter(self) -> None:
        """Make `python` and its packages: a virtual environment, so that processes started by it have them too."""
        packages = self._folder / "python" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        (packages / "site-packages").mkdir(parents=True)
        folders = [*self._gang.packages, str(OWN_PACKAGES)]
        (packages / "site-packages" / "packages.pth").write_text("\n".join(folders) + "\n")
        programs = self._folder / "python" / "bin"
        programs.mkdir()
        home = os.path.dirname(os.path.realpath(sys.executable))
        (self._folder / "python" / "pyvenv.cfg").write_text(f"home = {home}\n")
        for name in ("python", "python3"):
            (programs / name).symlink_to(os.path.realpath(sys.executable))

    def begin(self, scenario: Mapping[str, object]) -> None:
        """Write the scenario of a task; remove what is there of the task before."""
        for folder in (self._output, *self._checkpoints):
            _remove(folder)
            folder.mkdir(parents=True, exist_ok=True)
        _remove(self._result)
        _remove(self._scenario)
        self._scenario.write_text(json.dumps(scenario))

    def fill_templates(self, scenario: Mapping[str, object]) -> None:
        """Write a task's parameters into the templates of its case. Raise CannotFill if one has no value."""
        if not self._gang.templates:
            return
        values = {"ranks": self._gang.ranks, **_parameters(**scenario)}  # type: ignore[arg-type]
        for name in self._gang.templates:
            path = self.work / name
            try:
                text = path.read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise CannotFill(f"the template {name} cannot be read: {error}") from None
            path.write_text(fill_template(text, values, name))

    @property
    def restore(self) -> str | None:
        """The folder of the first task's newest checkpoint, as the program sees it; None: it has none."""
        return None if self._task.restore is None else self._gang.path_inside(self._task.restore)

    def progress(self) -> str | None:
        """Return the progress that the first rank has noted, if it has."""
        return _text_of(self.ends / PROGRESS, 20)

    def environ(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a program; ``variables``: of its own."""
        folders = self._gang.packages
        programs = [f"{self._folder}/python/bin", *(f"{folder}/{PROGRAMS}" for folder in folders)]
        libraries = [*self._gang.libraries, *(f"{folder}/{LIBRARIES}" for folder in folders)]
        machine = [
            "/usr/local/bin",
            "/usr/bin",
            "/bin",
            *([] if self._gang.root is None else ["/usr/sbin", "/usr/games"]),
        ]
        paths = {
            "WINDTUNNEL_SCENARIO": self._scenario.name,
            "WINDTUNNEL_RESULT": self._result.name,
            "WINDTUNNEL_OUTPUT": self._output.name,
            CHECKPOINT: "checkpoints",
        }
        gang = self._gang
        places = {TIMES: gang.times, "WINDTUNNEL_DATASET": gang.data}
        optional = {name: None if path is None else gang.path_inside(path) for name, path in places.items()}
        # A program that goes on is told with each task: the checkpoint is of the first one alone.
        optional["WINDTUNNEL_RESTORE"] = self.restore if gang.start == "task" else None
        optional[RULES] = json.dumps(self._gang.rules) if self._gang.rules else None
        optional[LOGS] = None if self._logs is None else str(self._logs)
        if self._gang.start == "launch":
            paths["WINDTUNNEL_TASKS"] = self.tasks.name
        return {
            **os.environ,
            "PATH": ":".join([*filter(os.path.isdir, programs), *machine]),
            "LD_LIBRARY_PATH": ":".join(filter(os.path.isdir, libraries)),
            "PYTHONHASHSEED": "0",
            "PYTHONUNBUFFERED": "1",
            **self._gang.environ,
            **{name: value for name, value in optional.items() if value is not None},
            **variables,
            **{name: str(self._folder / file) for name, file in paths.items()},
        }

    def deliver_checkpoints(self, peer: socket.socket) -> None:
        """Pass on the checkpoints that are complete, the oldest first, and remove them: they take memory.

        A checkpoint is complete when each rank has an entry of its name in its folder, to which it has renamed it.
        """
        complete = set.intersection(*map(_names, self._checkpoints))
        for name in sorted(complete, key=lambda name: _changed_at(self._checkpoints[0] / name)):
            entries = [folder / name for folder in self._checkpoints]
            deliver(peer, name, list(zip(self._gang.numbers, entries, strict=True)))
            for entry in entries:
                _remove(entry)

    def deliver_outputs(self, peer: socket.socket) -> None:
        """Pass on the outputs of the task; of a build the files that it made or changed."""
        if self._task.builds:
            made = [path for path, time in self._times().items() if time != self._before.get(path)]
            deliver_files(peer, OUTPUT, [(0, self.work, path) for path in made])
        else:
            deliver(peer, OUTPUT, [(0, self._output)])

    def is_kept(self, rank: int) -> bool:
        """Return whether a rank was started, and its watcher has not told its end yet."""
        return (self.ends / f".pid-{rank}").exists() and not (self.ends / str(rank)).exists()

    def has_ended_well(self, rank: int) -> bool:
        """Return whether a rank has ended, with exit status 0."""
        end = self.rank_end(rank)
        return end is not None and end.exit == 0

    def rank_end(self, rank: int) -> RankEnd | None:
        """Return how a rank ended; None if it was not started, or its program wrote another document."""
        if self.is_kept(rank):
            return RankEnd.lost_end(rank, socket.gethostname())
        text = _text_of(self.ends / str(rank), LONGEST_END)
        try:
            end = None if text is None else RankEnd.of(json.loads(text))
        except (ValueError, RecursionError):
            return None
        return end if end is not None and end.rank == rank else None

    def result(self) -> str | None:
        """Return the result that the program wrote (of a too long one RESULT + 1 characters), or None.

        The text of a folder, or of a file that cannot be read, is empty.
        """
        text = _text_of(self._result, RESULT + 1)
        return "" if text is None and os.path.lexists(self._result) else text

    def unread_result(self) -> str | None:
        """Return why the result that the program wrote has no text; None: it has one, or the program wrote none."""
        try:
            status = self._result.lstat()
        except OSError:
            return None
        for is_kind, kind in ((stat.S_ISLNK, "a link"), (stat.S_ISDIR, "a folder")):
            if is_kind(status.st_mode):
                return f"is {kind}, which is not read: write a file"
        if not stat.S_ISREG(status.st_mode):
            return "is no file"
        if not status.st_size:
            return "is empty"
        return None if os.access(self._result, os.R_OK) else "cannot be read: its mode does not allow it"


def _parameters(params: Mapping[str, object], **others: object) -> Mapping[str, object]:
    """Return the parameters of a scenario's members, and its other members by their names."""
    return {**others, **params}


def fill_template(text: str, values: Mapping[str, object], name: str) -> str:
    """Return a template with the values of its parameters; `{{name}}` is one. Raise CannotFill if one has none."""

    def value(match: re.Match[str]) -> str:
        found = values.get(match[1])
        if found is None:
            raise CannotFill(f"{name} has {{{{{match[1]}}}}}, and the task has no parameter {match[1]}")
        return found if isinstance(found, str) else json.dumps(found)

    return PARAMETER.sub(value, text)


def _copy_writable(source: Path, target: Path) -> None:
    """Copy a folder into another: a stored model is read-only, and programs write beside it.

    Unlike with `shutil.copytree`, extended attributes are left alone, because a sandbox may not ask for them.
    """
    target.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(source):
        copy = target / entry.name
        if entry.is_symlink():
            copy.symlink_to(os.readlink(entry.path))
        elif entry.is_dir():
            _copy_writable(Path(entry.path), copy)
        else:
            shutil.copyfile(entry.path, copy)
            copy.chmod(stat.S_IMODE(entry.stat().st_mode) | stat.S_IWUSR)


def _remove(path: Path) -> None:
    """Remove a file or a folder, if it is there; the program may be writing to it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _names(folder: Path) -> set[str]:
    """Return the names in a folder that do not begin with a dot; the program may have removed it."""
    with contextlib.suppress(OSError):
        return {name for name in os.listdir(folder) if not name.startswith(".")}
    return set()


def _changed_at(path: Path) -> int:
    """Return when an entry of a folder was changed, in nanoseconds; 0 if it is not there any more."""
    with contextlib.suppress(OSError):
        return path.lstat().st_mtime_ns
    return 0


def _text_of(path: Path, longest: int) -> str | None:
    """Return the text of a file that the program may have made, up to so many characters; None if it is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # of a pipe it may be the reader
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
        return file.read(longest)
