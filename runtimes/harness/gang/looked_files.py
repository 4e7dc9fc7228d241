"""Looked-at files: the folders and files of a task that runs, as a person sees them while they grow.

A look is answered inside: the first process of the task's sandbox lists a folder, or opens a file and passes it to the
runner. So a look shows nothing that the program could not read itself, and no path of the machine is ever opened for
one. The program may put anything into its folders: links are not followed, pipes and devices are not read, and an
answer has a bounded size whatever is there. This module imports nothing but the standard library.
"""

import contextlib
import errno
import heapq
import json
import os
import socket
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from .delivered_files import is_plain

#: Names that are read of a folder at most, the most entries of an answer, and their most bytes as JSON.
MOST_NAMES, MOST_ENTRIES, LONGEST_LIST = 10_000, 500, 64 << 10
#: Bytes of a question and of an answer without a file's content.
LONGEST_QUESTION, LONGEST_ANSWER = 8 << 10, 128 << 10
#: Seconds that the first process of a sandbox has for an answer; it looks after its ranks, too.
ANSWER_TIMEOUT = 5.0
#: The most bytes of a file in one answer.
LARGEST_PIECE = 512 << 10
#: Seconds that a program in a sandbox has to accept a connection.
ACCEPT_TIMEOUT = 1.0
#: Folders of a task, in its own folder, that are shown.
PLACES = ("output", "model", "checkpoints", "logs")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotShown(Exception):
    """There is nothing to see: no such file, or something that is not shown."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The sight of a look: entries of a folder (``more``: it has others), or bytes of a file.

    ``start``: where the bytes begin, after the offset that was asked for if there is a hole; ``size``: of the file.
    """

    entries: Sequence[Mapping[str, object]] = ()
    more: bool = False
    start: int = 0
    size: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class _LookQuestion:
    """A question of a runner: its ``number`` is in the answer. ``path``: of a folder or file, or a port."""

    number: int
    kind: str
    path: str


class LookServer:
    """Answers looks inside a sandbox. ``folder``: of the task; make it before its program is started.

    ``own_network``: whether the sandbox's loopback device is the task's alone, so that its ports may be connected to.
    """

    def __init__(self, peer: socket.socket, folder: str, *, own_network: bool = False) -> None:
        self._peer = peer
        self._own_network = own_network
        self._root = os.open(folder, _FOLDER)

    def answer(self) -> bool:
        """Answer one look; return whether there may be another."""
        try:
            question = self._peer.recv(LONGEST_QUESTION)
        except OSError:
            return False
        if not question:
            return False
        asked, opened = _LookQuestion(**json.loads(question)), list[int]()
        try:
            answer = self._answer(asked, opened)
        except (NotShown, OSError) as error:
            answer = {"problem": error.strerror if isinstance(error, OSError) else str(error)}
        with contextlib.suppress(OSError):  # the runner does not wait any longer
            socket.send_fds(self._peer, [json.dumps({**answer, "number": asked.number}).encode()], opened)
        for descriptor in opened:
            os.close(descriptor)
        return True

    def _answer(self, question: _LookQuestion, opened: list[int]) -> Mapping[str, object]:
        """Return the answer to a question; a file or socket that goes with it is put into ``opened``."""
        if question.kind == "connect":
            opened.append(self._connect(int(question.path)))
            return {}
        parts = parts_of(question.path)
        if question.kind == "read":
            if len(parts) < 2:
                raise NotShown("it is a folder")
            opened.append(self._file(parts))
            return {}
        if not parts:
            return self._places()
        descriptor = self._open(parts, _FOLDER)
        try:
            return listing_of(descriptor)
        finally:
            os.close(descriptor)

    def _places(self) -> Mapping[str, object]:
        places = []
        for name in PLACES:
            with contextlib.suppress(OSError):
                places.append(_entry(name, os.stat(name, dir_fd=self._root, follow_symlinks=False)))
        return {"entries": places, "more": False}

    def _file(self, parts: Sequence[str]) -> int:
        """Return the descriptor of a regular file. Raise NotShown, or OSError."""
        folder = self._open(parts[:-1], _FOLDER)
        try:
            # Asked first: to open a device may have an effect.
            _require_file(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False))
            descriptor = os.open(parts[-1], _FILE, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            _require_file(os.fstat(descriptor))
        except NotShown:
            os.close(descriptor)
            raise
        return descriptor

    def _connect(self, port: int) -> int:
        """Return the descriptor of a connection to a port. Raise NotShown, or OSError if nothing listens there."""
        if not self._own_network:
            raise NotShown("its network is not its own")
        with socket.socket() as connection:
            connection.settimeout(ACCEPT_TIMEOUT)
            connection.connect(("127.0.0.1", port))
            connection.settimeout(None)
            return connection.detach()

    def _open(self, parts: Sequence[str], flags: int) -> int:
        """Return the descriptor of a path beneath the task's folder, of which no part is a link."""
        at = os.dup(self._root)
        for part in parts:
            try:
                following = os.open(part, flags, dir_fd=at)
            except OSError as error:
                if error.errno in (errno.ENOTDIR, errno.ELOOP):
                    raise NotShown("it is not a folder, or a link, which is not followed") from None
                raise
            finally:
                os.close(at)
            at = following
        return at


def parts_of(path: str) -> Sequence[str]:
    """Return the names of a path; none of the empty one. Raise NotShown for a path that leads elsewhere."""
    if not path:
        return ()
    parts = path.split("/")
    if not is_plain(path) or parts[0] not in PLACES:
        raise NotShown(f"a path begins with one of {', '.join(PLACES)}, and leads nowhere else")
    return parts


def _require_file(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotShown("it is not a regular file")


def listing_of(folder: int) -> Mapping[str, object]:
    """Return the entries of a folder, of too many those that were changed last, by name."""
    found: list[tuple[int, str, os.stat_result]] = []
    with os.scandir(folder) as entries:
        for entry in islice(entries, MOST_NAMES):
            with contextlib.suppress(OSError):  # removed meanwhile
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime_ns, entry.name, status))
        more = next(entries, None) is not None
    shown: list[tuple[str, Mapping[str, object]]] = []
    length = 0
    for _, name, status in heapq.nlargest(MOST_ENTRIES, found, key=lambda each: each[0]):
        entry_shown = _entry(name, status)
        length += len(json.dumps(entry_shown)) + 2
        if length > LONGEST_LIST:
            break
        shown.append((name, entry_shown))
    entries_shown = [entry for _, entry in sorted(shown, key=lambda each: each[0])]
    return {"entries": entries_shown, "more": more or len(shown) < len(found)}


def _entry(name: str, status: os.stat_result) -> Mapping[str, object]:
    """Return an entry of a folder. A name that cannot be asked for has escapes, and is of no kind that can be read."""
    kind = "folder" if stat.S_ISDIR(status.st_mode) else "file" if stat.S_ISREG(status.st_mode) else "other"
    if not is_plain(name):
        name = os.fsencode(name).decode(errors="backslashreplace")
        name, kind = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in name), "other"
    return {"name": name, "kind": kind, "bytes": status.st_size, "changed_at": status.st_mtime}


class Looker:
    """The runner's end: asks one question after the other. ``peer``: the socket to a sandbox."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._asked = 0

    def look(self, kind: str, path: str, offset: int, length: int) -> Seen:
        """Look into the sandbox. Raise NotShown, or OSError if it is gone or does not answer."""
        answer, descriptor = self._ask(kind, path)
        if kind != "read":
            if descriptor is not None:
                os.close(descriptor)
            return Seen(entries=answer.entries, more=answer.more)
        if descriptor is None:
            raise NotShown("its sandbox passed no file")
        try:
            _require_file(os.fstat(descriptor))  # a stranger has passed it
            return piece_of(descriptor, offset, length)
        finally:
            os.close(descriptor)

    def connect(self, port: int) -> socket.socket:
        """Return a connection to a port of the sandbox. Raise NotShown, or OSError."""
        _, descriptor = self._ask("connect", str(port))
        if descriptor is None:
            raise NotShown("its sandbox passed no connection")
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise NotShown("its sandbox passed no connection")
        connection = socket.socket(fileno=descriptor)
        if (connection.family, connection.type) != (socket.AF_INET, socket.SOCK_STREAM):
            connection.close()
            raise NotShown("its sandbox passed another connection")
        return connection

    def _ask(self, kind: str, path: str) -> "tuple[_ShownAnswer, int | None]":
        """Return the answer to a question, and the descriptor that goes with it, which the caller closes."""
        self._asked += 1
        self._peer.settimeout(ANSWER_TIMEOUT)
        self._peer.send(json.dumps({"number": self._asked, "kind": kind, "path": path}).encode())
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._peer, LONGEST_ANSWER, 8)
            try:
                if not data:
                    raise OSError(errno.ECONNRESET, "the task has ended")
                answer = _read_answer(data)
                if answer.number != self._asked:
                    continue  # to a question whose answer came too late
                if answer.problem is not None:
                    raise NotShown(answer.problem)
                return answer, descriptors.pop(0) if len(descriptors) == 1 else None
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)


def piece_of(descriptor: int, offset: int, length: int) -> Seen:
    """Return bytes of a file from an offset on, from its end if that is negative; holes are left out."""
    size = os.fstat(descriptor).st_size
    start = max(size + offset, 0) if offset < 0 else offset
    try:
        start = os.lseek(descriptor, start, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole from there on, or the end
            return Seen(start=max(size, 0), size=size)
        # The kernel does not know holes of this file.
    data = os.pread(descriptor, min(length, LARGEST_PIECE), start)
    return Seen(start=start, size=max(size, start + len(data)), data=data)


@dataclass(frozen=True, slots=True)
class _ShownAnswer:
    """The answer of a sandbox, apart from a file that it has passed."""

    number: object
    entries: Sequence[Mapping[str, object]]
    more: bool
    problem: str | None


def _read_answer(data: bytes) -> _ShownAnswer:
    """Return what a sandbox has answered. Raise NotShown if it is something else."""

    def answer(number: object, entries: object = (), more: object = False, problem: object = None) -> _ShownAnswer:
        if not isinstance(entries, list | tuple) or len(entries) > MOST_ENTRIES:
            raise ValueError("no entries")
        text = problem[:500] if isinstance(problem, str) else None
        return _ShownAnswer(number, [_read_entry(**entry) for entry in entries], bool(more), text)

    try:
        return answer(**json.loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise NotShown(f"its sandbox answered something else: {error}") from None


def _read_entry(*, name: object, kind: object, bytes: object, changed_at: object) -> Mapping[str, object]:
    kinds: Mapping[str, Callable[[object], bool]] = {
        "name": lambda value: isinstance(value, str) and len(value) < LONGEST_QUESTION,
        "kind": lambda value: value in ("file", "folder", "other"),
        "bytes": lambda value: isinstance(value, int) and 0 <= value < 1 << 53,
        "changed_at": lambda value: isinstance(value, int | float) and abs(value) < 1e12,
    }
    entry = {"name": name, "kind": kind, "bytes": bytes, "changed_at": changed_at}
    if not all(check(entry[member]) for member, check in kinds.items()):
        raise ValueError("an entry is not one")
    return entry
