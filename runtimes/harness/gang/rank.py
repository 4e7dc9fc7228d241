"""Rank: one process of a coupled program, started and awaited so that its end is known, whatever launched it.

``python rank.py FOLDER COMMAND...`` passes on what COMMAND prints, ends as it ends, and leaves a JSON document in
FOLDER, in a file with the rank's number: how and when it ended, what it used, its last lines, and the last line of
JSON that it printed.
"""

import contextlib
import ctypes
import json
import os
import re
import resource
import select
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

#: Variables that say a process's rank: of MPICH and Slurm, of Open MPI, and of a replica that is started by itself.
NUMBERS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "WINDTUNNEL_RANK")
#: Lines that are kept, and the most bytes of them; a result is one of them.
LINES, LONGEST_LINES = 12, 64 << 10
#: Bytes read from a pipe at once.
PIECE = 64 << 10
PR_SET_PDEATHSIG = 1
#: The variables that name the library that measures how a rank communicates (compiled/mpi_times.c), and its file.
TIMES, MEASURES = "WINDTUNNEL_GANG_TIMES", "WINDTUNNEL_MPI_TIMES"

#: The variable that has, as JSON, what is read from the lines that the first rank prints (`LogRules`).
RULES = "WINDTUNNEL_LOG_RULES"
#: The file that has the first rank's progress, in the folder of the ranks' documents; seconds between two.
PROGRESS, PROGRESS_INTERVAL = ".progress", 0.5

#: The variable that names the folder of what each rank prints, where a person may look at it (looked_files.py); bytes
#: that are kept of a rank's are between these.
LOGS, LEAST_LOG, MOST_LOG = "WINDTUNNEL_RANK_LOGS", 256 << 10, 512 << 10

#: The variable that names the folder of a rank's checkpoints: that of all ranks, until the rank is known.
CHECKPOINT = "WINDTUNNEL_CHECKPOINT"


#: A line of progress that any program may print.
_PROGRESS_LINE = re.compile(r'\{"progress": ?([01](?:\.\d{0,20})?|\.\d{1,20})\}')


class LogRules:
    """Rules for the lines of a rank: metrics, each by an expression, and its progress, by one or as JSON.

    Of each metric the last match counts: its first group, a number where it is one. Progress is the first group of its
    expression, of 1 or, with a second group, of that. ``folder``: in which progress is noted.
    """

    def __init__(self, folder: str, progress: str | None = None, metrics: Mapping[str, str] | None = None) -> None:
        self._metrics = {name: re.compile(text) for name, text in (metrics or {}).items()}
        self._progress = None if progress is None else re.compile(progress)
        self._folder, self._noted_at = folder, 0.0
        self.found: dict[str, float | str] = {}

    def read(self, line: str) -> None:
        """Read a line."""
        for name, expression in self._metrics.items():
            if match := expression.search(line):
                self.found[name] = number_of(match[1] if match.re.groups else match[0])
        fraction = None
        if self._progress is not None and (match := self._progress.search(line)):
            done, *total = [number_of(group) for group in match.groups() or (match[0],)]
            whole = total[0] if total else 1.0
            if isinstance(done, float) and isinstance(whole, float) and whole > 0:
                fraction = done / whole
        elif match := _PROGRESS_LINE.fullmatch(line):
            fraction = float(match[1])
        if fraction is not None and 0.0 <= fraction <= 1.0 and time.monotonic() >= self._noted_at + PROGRESS_INTERVAL:
            self._noted_at = time.monotonic()
            with open(f"{self._folder}/{PROGRESS}.new", "w") as note:
                note.write(f"{fraction:.6f}")
            os.rename(f"{self._folder}/{PROGRESS}.new", f"{self._folder}/{PROGRESS}")

    @property
    def result(self) -> str | None:
        """The metrics as JSON, null for one that no line has; None if none was found."""
        return json.dumps({name: self.found.get(name) for name in self._metrics}) if self.found else None


def number_of(text: str) -> float | str:
    """Return the number that a text is, also with the exponent of Fortran, or the text."""
    try:
        return float(text.replace("D", "E").replace("d", "e"))
    except ValueError:
        return text.strip()


class LastLines:
    """The last lines of what a rank prints, and the last that looks like a JSON object.

    ``rules``: what else is read from its lines. ``log``: gets all that is printed.
    """

    def __init__(self, rules: LogRules | None = None, log: "RankLog | None" = None) -> None:
        self._rules = rules
        self._log = log
        self.lines: deque[str] = deque(maxlen=LINES)
        self.result: str | None = None
        self._begun = b""

    def add(self, data: bytes) -> None:
        """Add printed bytes."""
        if self._log is not None:
            self._log.add(data)
        *whole, self._begun = (self._begun + data).split(b"\n")
        self._begun = self._begun[-LONGEST_LINES:]
        for line in whole:
            self._keep(line)

    def close(self) -> None:
        """Add the line that no line feed ended."""
        if self._begun:
            self._keep(self._begun)
        self._begun = b""

    def _keep(self, line: bytes) -> None:
        printed = line[-LONGEST_LINES:].strip()
        text = printed.decode(errors="replace").strip()
        if not text:
            return
        self.lines.append(text[:1000])
        if self._rules is not None:
            self._rules.read(text)
        if text.startswith("{") and text.endswith("}") and not _PROGRESS_LINE.fullmatch(text):
            self.result = printed.decode(errors="surrogateescape")


class RankLog:
    """The output of a rank, in a file that keeps the end of it.

    The file grows to the length of all that was printed, and its beginning becomes a hole, which takes no memory: a
    position in it stays what it was.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        self._kept, self._end = bytearray(), 0

    def add(self, data: bytes) -> None:
        """Add printed bytes. A log that cannot be written is left as it is: nothing depends on it."""
        self._kept += data
        self._end += len(data)
        with contextlib.suppress(OSError):
            if len(self._kept) <= MOST_LOG:
                os.pwrite(self._descriptor, data, self._end - len(data))
                return
            page = resource.getpagesize()  # a hole has whole pages: what is left of one would read as zeros
            del self._kept[: -LEAST_LOG - (page - (self._end - LEAST_LOG) % page) % page or None]
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, self._kept, self._end - len(self._kept))


class Communicated(NamedTuple):
    """How a rank communicated by MPI: seconds in calls that may wait, and bytes that it sent; None: not measured.

    ``all_reduce``: the seconds of those in MPI_Allreduce.
    """

    waiting: float | None = None
    sent: int | None = None
    all_reduce: float | None = None

    @classmethod
    def read(cls, path: str) -> "Communicated":
        """Return what the library wrote at the end of the process."""
        try:
            with open(path) as file:
                waiting, sent, all_reduce = file.read(96).split()
            return cls(float(waiting), int(sent), float(all_reduce))
        except (OSError, ValueError):  # it communicated otherwise, or was killed
            return cls()


def number() -> int:
    """Return this process's rank."""
    return int(next((os.environ[name] for name in NUMBERS if name in os.environ), "0"))


def main(folder: str, command: Sequence[str]) -> int:
    """Run the command; return its exit status, negative for a signal.

    A launcher that ends all ranks, as after MPI_Abort, kills what it has started: this process. The program and its
    watcher are in a session of their own, so that the watcher can tell how the rank ended, and what it said last. A
    launcher that is itself lost kills nothing: this process sees that it has gone, says so to the watcher, and ends.
    """
    (telling, told), (orphaning, orphaned) = os.pipe(), os.pipe()
    parent, launcher = os.getpid(), os.pidfd_open(os.getppid())
    if not os.fork():
        os.close(telling)
        os.close(orphaned)
        os.setsid()
        os.write(told, str(watch(folder, command, os.pidfd_open(parent), launcher, orphaning)).encode())
        os._exit(0)
    os.close(told)
    os.close(orphaning)
    waiting = select.poll()
    for descriptor in (telling, launcher):
        waiting.register(descriptor, select.POLLIN)
    if not {descriptor for descriptor, _ in waiting.poll()} & {telling}:
        os.write(orphaned, b"x")
        return -signal.SIGKILL
    with open(telling, "rb") as watcher:
        return int(watcher.read() or -signal.SIGKILL)


def watch(folder: str, command: Sequence[str], launched: int, launcher: int, orphaning: int) -> int:
    """Run the command until it ends, or the process that was launched (a pidfd) has; write the rank's document.

    ``launcher``: what launched that process (a pidfd); ``orphaning``: the pipe on which it says that this was lost.
    """
    rank, began = number(), time.time()
    os.environ["WINDTUNNEL_RANK"] = str(rank)
    if CHECKPOINT in os.environ:
        os.environ[CHECKPOINT] += f"/{rank}"
    read = json.loads(os.environ.pop(RULES, "{}"))
    rules = LogRules(folder, **read) if rank == 0 else None
    logs = os.environ.pop(LOGS, None)
    log = None if logs is None else RankLog(f"{logs}/{rank}")
    printed, errors = LastLines(rules, log), LastLines(log=log)
    pipes = [os.pipe(), os.pipe()]
    parent = os.getpid()
    if not (child := os.fork()):
        _become(command, [writing for _, writing in pipes], parent, f"{folder}/.mpi-{rank}")
    with open(f"{folder}/.pid-{rank}", "w") as note:
        note.write(str(child))
    for _, writing in pipes:
        os.close(writing)
    readers = {reading: reader for (reading, _), reader in zip(pipes, (printed, errors), strict=True)}
    ended_alone = _pass_on(child, readers, launched)
    _, status = os.waitpid(child, 0)
    ended = time.time()
    code = os.waitstatus_to_exitcode(status)
    # A launcher waits for its ranks: if it is gone before one that fails, it was lost, and the rank may fail for that.
    orphaned = _has_ended(launcher) if ended_alone else bool(os.read(orphaning, 1))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    communicated = Communicated.read(f"{folder}/.mpi-{rank}")
    document = {
        "rank": rank,
        "host": socket.gethostname(),
        "exit": code,
        "by_launcher": not ended_alone,
        "orphaned": orphaned and code != 0,
        "began": began,
        "ended": ended,
        "computing": used.ru_utime + used.ru_stime,
        "waiting": communicated.waiting,
        "sent": communicated.sent,
        "all_reduce": communicated.all_reduce,
        # Files of the program by their paths in it: reasons do not tell paths of machines.
        "lines": [line.replace(f"{os.getcwd()}/", "") for line in (*printed.lines, *errors.lines)][-LINES:],
        "result": (rules and rules.result) or printed.result,
    }
    with open(f"{folder}/.{rank}", "w") as draft:
        json.dump(document, draft)
    os.rename(f"{folder}/.{rank}", f"{folder}/{rank}")
    return code


def _has_ended(process: int) -> bool:
    """Return whether a process (a pidfd) has ended."""
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    return bool(waiting.poll(0))


def _become(command: Sequence[str], outputs: Sequence[int], parent: int, measures: str) -> NoReturn:
    """Become the program, which dies with its parent. Descriptors of a launcher are kept.

    ``measures``: the file in which it is to tell how it communicated.
    """
    if (library := os.environ.pop(TIMES, None)) is not None:
        os.environ |= {"LD_PRELOAD": library, MEASURES: measures}
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, descriptor in enumerate(outputs, 1):
        os.dup2(descriptor, number)
    code = 126
    if os.getppid() == parent:
        try:
            os.execvp(command[0], list(command))
        except OSError as error:
            # Without its folder: reasons do not tell paths of machines.
            name = os.path.basename(command[0])
            os.write(2, f"the program {name} cannot be started: {error.strerror}\n".encode())
            code = 127 if isinstance(error, FileNotFoundError) else 126
    os._exit(code)


def _pass_on(child: int, readers: Mapping[int, LastLines], launched: int) -> bool:
    """Pass on what the child prints until it has ended; return whether it has by itself.

    Once the process that was launched has ended, the child is killed: its launcher wants it to end.
    """
    with selectors.DefaultSelector() as selector:
        for (descriptor, lines), target in zip(readers.items(), (1, 2), strict=True):
            os.set_blocking(descriptor, False)
            selector.register(descriptor, selectors.EVENT_READ, (lines, target))
        end = os.pidfd_open(child)
        selector.register(end, selectors.EVENT_READ)
        selector.register(launched, selectors.EVENT_READ)
        ended: set[int] = set()
        while not ended & {end, launched}:
            ended = {key.fd for key, _ in selector.select()}
            for key in [key for key in selector.get_map().values() if key.fd in ended and key.data is not None]:
                if _read(key.fd, *key.data) == 0:
                    selector.unregister(key.fd)
        if end not in ended:
            os.kill(child, signal.SIGKILL)
        for descriptor, (lines, target) in [(key.fd, key.data) for key in selector.get_map().values() if key.data]:
            while _read(descriptor, lines, target):
                pass
        os.close(end)
    for lines in readers.values():
        lines.close()
    return end in ended


def _read(descriptor: int, lines: LastLines, target: int) -> int | None:
    """Pass a piece on; return its number of bytes: 0 at the end, None if nothing is there now."""
    try:
        data = os.read(descriptor, PIECE)
    except BlockingIOError:
        return None
    lines.add(data)
    left = memoryview(data)
    with contextlib.suppress(OSError):  # nobody reads it
        while left:
            left = left[os.write(target, left) :]
    return len(data)


def end_like(code: int) -> NoReturn:
    """End this process as the program ended: its launcher tells a signal from an exit status."""
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has its action for good
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    end_like(main(sys.argv[1], sys.argv[2:]))
