"""Rank: one process of a coupled program, started and awaited so that its end is known, whatever launched it.

``python rank.py FOLDER COMMAND...`` passes on what COMMAND prints, ends as it ends, and leaves a JSON document in
FOLDER, in a file with the rank's number: how and when it ended, what it used, its last lines, and the last line of
JSON that it printed.
"""

import contextlib
import ctypes
import errno
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
#: Files that are listed where a program is not among them.
LISTED_FILES = 8
#: Bytes read from a pipe at once.
PIECE = 64 << 10
#: Seconds after which a line is passed on that no line feed has ended.
LINE_PATIENCE = 0.5
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


#: Seconds of computing after which an expression that still looks for a match in a line is given up.
SEARCH_SECONDS = 1.0


class _SearchTooLong(Exception):
    """An expression looks for a match in a line for too long, as one with nested repetitions may."""


class LogRules:
    """Rules for the lines of a rank: metrics, each by an expression, and its progress, by one or as JSON.

    Of each metric the last match counts: its first group that took part, a number where it is one. Progress is the
    first such group of its expression, of 1 or, with a second one, of that. ``folder``: in which progress is noted.
    An expression that looks for a match for too long is not used any more; ``given_up``: the metrics of those.
    ``found``: the metrics in the lines of standard output, which count, and in those of standard error.
    """

    def __init__(self, folder: str, progress: str | None = None, metrics: Mapping[str, str] | None = None) -> None:
        self._metrics = {name: re.compile(text) for name, text in (metrics or {}).items()}
        self._progress = None if progress is None else re.compile(progress)
        self._folder, self._noted_at = folder, 0.0
        self._searching = False
        self._names = tuple(self._metrics)
        self.found: tuple[dict[str, float | str], ...] = ({}, {})
        self.given_up: list[str] = []
        signal.signal(signal.SIGVTALRM, self._interrupt)

    def read(self, line: str, output: int = 0) -> None:
        """Read a line of standard output, or with ``output`` 1 of standard error."""
        self._limit_search()
        try:
            for name, expression in [*self._metrics.items()]:
                try:
                    groups = self._search(expression, line)
                except _SearchTooLong:
                    del self._metrics[name]
                    self.given_up.append(name)
                    self._limit_search()
                else:
                    if groups:
                        self.found[output][name] = number_of(groups[0])
            fraction = self._fraction_of(line)
        finally:
            if self._names or self._progress is not None:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if fraction is not None and 0.0 <= fraction <= 1.0 and time.monotonic() >= self._noted_at + PROGRESS_INTERVAL:
            self._noted_at = time.monotonic()
            with open(f"{self._folder}/{PROGRESS}.new", "w") as note:
                note.write(f"{fraction:.6f}")
            os.rename(f"{self._folder}/{PROGRESS}.new", f"{self._folder}/{PROGRESS}")

    def _fraction_of(self, line: str) -> float | None:
        """Return how much is done, if a line tells it."""
        groups: list[str] = []
        if self._progress is not None:
            try:
                groups = self._search(self._progress, line)
            except _SearchTooLong:
                self._progress = None
        if groups:
            done, whole = [*map(number_of, groups), 1.0][:2]
            return done / whole if isinstance(done, float) and isinstance(whole, float) and whole > 0 else None
        match = _PROGRESS_LINE.fullmatch(line)
        return None if match is None else float(match[1])

    def _search(self, expression: re.Pattern[str], line: str) -> list[str]:
        """Return the groups that took part in a match, or the whole of one without groups; nothing without a match.

        Raise _SearchTooLong.
        """
        self._searching = True
        match = expression.search(line)
        self._searching = False
        if match is None:
            return []
        return [group for group in match.groups() if group is not None] if expression.groups else [match[0]]

    def _limit_search(self) -> None:
        if self._metrics or self._progress is not None:
            signal.setitimer(signal.ITIMER_VIRTUAL, SEARCH_SECONDS)

    def _interrupt(self, *_: object) -> None:
        if self._searching:
            self._searching = False
            raise _SearchTooLong

    @property
    def result(self) -> str | None:
        """The metrics as JSON, null for one that no line has; None if none was found."""
        found = {**self.found[1], **self.found[0]}
        return json.dumps({name: found.get(name) for name in self._names}) if found else None


def number_of(text: str) -> float | str:
    """Return the number that a text is, also with the exponent of Fortran, or the text."""
    with contextlib.suppress(ValueError):
        if "_" not in text:  # Python's digits may have some, and no simulator's
            return float(text.replace("D", "E").replace("d", "e"))
    return text.strip()


class LastLines:
    """The last lines of what a rank prints, and the last that looks like a JSON object.

    ``rules``: what else is read from its lines. ``log``: gets all that is printed. ``output``: 1: of standard error.
    """

    def __init__(self, rules: LogRules | None = None, log: "RankLog | None" = None, output: int = 0) -> None:
        self._rules, self._output = rules, output
        self._log = log
        self.lines: deque[str] = deque(maxlen=LINES)
        self.result: str | None = None
        self._begun = b""

    def add(self, data: bytes) -> None:
        """Add printed bytes."""
        if self._log is not None:
            self._log.add(data)
        *whole, self._begun = (self._begun + data).split(b"\n")
        if len(self._begun) > LONGEST_LINES:  # its first character stays too: it tells a result
            self._begun = self._begun.lstrip()[:1] + self._begun[-LONGEST_LINES:]
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
            self._rules.read(text, self._output)
        if len(line) > LONGEST_LINES:
            if line.lstrip()[:1] == b"{" and text.endswith("}"):
                self.result = "{".ljust(LONGEST_LINES + 1)  # too long, as its reader will say
        elif text.startswith("{") and text.endswith("}") and not _PROGRESS_LINE.fullmatch(text):
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

    ``all_reduce``: the seconds of those in MPI_Allreduce. ``finished``: whether it called MPI_Finalize.
    """

    waiting: float | None = None
    sent: int | None = None
    all_reduce: float | None = None
    finished: bool | None = None

    @classmethod
    def read(cls, path: str) -> "Communicated":
        """Return what the library wrote at the end of the process."""
        try:
            with open(path) as file:
                waiting, sent, all_reduce, finished = file.read(96).split()
            return cls(float(waiting), int(sent), float(all_reduce), finished == "1")
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
        code = watch(folder, command, os.pidfd_open(parent), launcher, orphaning)
        with contextlib.suppress(BrokenPipeError):  # the launcher has killed who is told
            os.write(told, str(code).encode())
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
    printed, errors = LastLines(rules, log), LastLines(rules, log, output=1)
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
        "finished": communicated.finished,
        # Files of the program by their paths in it: reasons do not tell paths of machines.
        "lines": [line.replace(f"{os.getcwd()}/", "") for line in (*printed.lines, *errors.lines)][-LINES:],
        "result": (rules and rules.result) or printed.result,
        "given_up": rules.given_up if rules is not None else [],
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
            name, hint = os.path.basename(command[0]), ""
            if error.errno in {errno.EACCES, errno.ENOEXEC}:
                hint = "; it is no program, or a script without #!"
            elif os.path.exists(command[0]):
                hint = "; what it names after #!, or its loader, is not there"
            elif "/" in command[0]:
                hint = f"; its folder has {', '.join(sorted(os.listdir())[:LISTED_FILES])}"
            os.write(2, f"the program {name} cannot be started: {error.strerror}{hint}\n".encode())
            code = 127 if isinstance(error, FileNotFoundError) else 126
    os._exit(code)


class PassedLines:
    """Output of a rank, passed on by whole lines, so that those of several ranks are not mixed.

    ``target``: a descriptor, which nobody may read.
    """

    def __init__(self, target: int) -> None:
        self._target, self._begun = target, b""

    def add(self, data: bytes) -> None:
        """Pass the lines on that are whole now, or what is longer than a line."""
        whole, feed, begun = data.rpartition(b"\n")
        if feed or len(self._begun) >= PIECE:
            self._begun += whole + feed
            self.flush()
        self._begun += begun

    def flush(self) -> bool:
        """Pass on what no line feed has ended; return whether there was any."""
        data, self._begun = self._begun, b""
        left = memoryview(data)
        with contextlib.suppress(OSError):
            while left:
                left = left[os.write(self._target, left) :]
        return bool(data)


def _pass_on(child: int, readers: Mapping[int, LastLines], launched: int) -> bool:
    """Pass on what the child prints until it has ended; return whether it has by itself.

    Once the process that was launched has ended, the child is killed: its launcher wants it to end.
    """
    passed = [PassedLines(1), PassedLines(2)]
    with selectors.DefaultSelector() as selector:
        for (descriptor, lines), target in zip(readers.items(), passed, strict=True):
            os.set_blocking(descriptor, False)
            selector.register(descriptor, selectors.EVENT_READ, (lines, target))
        end = os.pidfd_open(child)
        selector.register(end, selectors.EVENT_READ)
        selector.register(launched, selectors.EVENT_READ)
        ended: set[int] = set()
        unended = False
        while not ended & {end, launched}:
            ended = {key.fd for key, _ in selector.select(LINE_PATIENCE if unended else None)}
            unended = bool(ended) or any([target.flush() for target in passed])
            for key in [key for key in selector.get_map().values() if key.fd in ended and key.data is not None]:
                if _read(key.fd, *key.data) == 0:
                    selector.unregister(key.fd)
        if end not in ended:
            os.kill(child, signal.SIGKILL)
        for descriptor, (lines, target) in [(key.fd, key.data) for key in selector.get_map().values() if key.data]:
            while _read(descriptor, lines, target):
                pass
        os.close(end)
    for target in passed:
        target.flush()
    for lines in readers.values():
        lines.close()
    return end in ended


def _read(descriptor: int, lines: LastLines, target: PassedLines) -> int | None:
    """Pass a piece on; return its number of bytes: 0 at the end, None if nothing is there now."""
    try:
        data = os.read(descriptor, PIECE)
    except BlockingIOError:
        return None
    lines.add(data)
    target.add(data)
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
