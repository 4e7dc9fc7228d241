"""Delivered files: open files of a task, which its sandbox passes to the runner, where no path leads to them.

Outputs are passed at the end of a task, the files of a checkpoint as soon as all ranks have theirs. A file is passed
open, so it outlives its name, the program and the sandbox. A message has some of the files of a delivery; its last one
says so. This module imports nothing but the standard library.
"""

import json
import os
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: The most files of a delivery, and of a message; the kernel passes 253 at once.
MOST_FILES, MOST_AT_ONCE = 500, 50
#: The most characters of a file's path, and bytes of a message.
LONGEST_PATH, LONGEST_MESSAGE = 500, 128 << 10
#: The most characters of the escaped name of a checkpoint that cannot be kept under its own.
LONGEST_NAME = 100
#: Name of the delivery of outputs; every other name is a checkpoint's.
OUTPUT = ""


class NotDeliverable(Exception):
    """Files cannot be passed on, or were not passed as they should be: their number, their names or their kind."""


@dataclass(frozen=True, slots=True)
class DeliveredFile:
    """An open file: the rank that wrote it (0 for outputs), its path, its descriptor and its bytes."""

    rank: int
    path: str
    descriptor: int
    size: int

    def close(self) -> None:
        """Close it, so that its memory can be freed."""
        os.close(self.descriptor)

    def chunks(self, longest: int = 1 << 20) -> Iterator[bytes]:
        """Yield its bytes. Raise NotDeliverable if it has become shorter meanwhile."""
        at = 0
        while at < self.size:
            chunk = os.pread(self.descriptor, min(longest, self.size - at), at)
            if not chunk:
                raise NotDeliverable(f"the file {self.path} has become shorter while it was read")
            at += len(chunk)
            yield chunk


@dataclass(slots=True)
class Delivery:
    """Files that belong together: the outputs of a task, or a checkpoint of all ranks."""

    name: str
    files: list[DeliveredFile] = field(default_factory=list)
    problem: str | None = None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def close(self) -> None:
        """Close all files."""
        for file in self.files:
            file.close()
        self.files = []


def deliver(peer: socket.socket, name: str, folders: Sequence[tuple[int, Path]]) -> None:
    """Pass the regular files in the folders of these ranks on, also those in folders within; a file is one as well.

    Of a checkpoint nothing may be left out: with anything but files and folders it is not whole.
    """
    unread: list[OSError] = []
    found = [(rank, folder, path) for rank, folder in folders for path in files_in(folder, unread.append)]
    problem = _problem_of(unread)
    if name == OUTPUT:
        kept = all(folder.is_dir() and not folder.is_symlink() for _, folder in folders if os.path.lexists(folder))
        problem = problem if kept else "WINDTUNNEL_OUTPUT is not a folder any more"
    elif problem is None:
        problem = next((left for _, folder in folders if (left := _left_out(folder)) is not None), None)
    deliver_files(peer, name, found, problem)


def _left_out(folder: Path) -> str | None:
    """Return what is neither a file nor a folder; None: there is nothing else."""
    entries = [folder, *(Path(place, name) for place, folders, files in os.walk(folder) for name in (*folders, *files))]
    for entry in entries:
        if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            return f"{entry.name[:60]} is a link, a pipe or a device"
    return None


def deliver_files(
    peer: socket.socket, name: str, found: Sequence[tuple[int, Path, str]], problem: str | None = None
) -> None:
    """Pass files on: the rank of each, its folder, and its path from the folder's parent on.

    ``problem``: why the delivery is not whole.
    """
    problem = problem or _unfit(found)
    if problem is not None:
        found, name = [], name if name == OUTPUT or is_plain(name) else ascii(name)[:LONGEST_NAME]
    for at in range(0, max(len(found), 1), MOST_AT_ONCE):
        part = found[at : at + MOST_AT_ONCE]
        opened = []
        unread: list[OSError] = []
        try:
            for rank, folder, path in part:
                try:  # links are not followed, and of a pipe this may be the reader
                    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                    opened.append((rank, path, os.open(folder.parent / path, flags)))
                except OSError as error:
                    unread.append(error)
            problem = problem or _problem_of(unread)
            message = {
                "name": name,
                "files": [(rank, path) for rank, path, _ in opened],
                "last": at + MOST_AT_ONCE >= len(found),
                "problem": problem,
            }
            socket.send_fds(peer, [json.dumps(message).encode()], [descriptor for _, _, descriptor in opened])
        finally:
            for _, _, descriptor in opened:
                os.close(descriptor)


def _unfit(found: Sequence[tuple[int, Path, str]]) -> str | None:
    """Return why files that were found cannot be passed on; None: they can."""
    if len(found) > MOST_FILES:
        return f"there are {len(found)} files, and at most {MOST_FILES} are kept"
    longest = max((path for _, _, path in found if len(path) > LONGEST_PATH), default=None)
    if longest is not None:
        return f"the path {longest[:60]}... has more than {LONGEST_PATH} characters"
    unplain = next((path for _, _, path in found if not is_plain(path)), None)
    return None if unplain is None else unfit_name(unplain)


def files_in(folder: Path, on_error: Callable[[OSError], None] | None = None) -> Iterator[str]:
    """Yield the paths of regular files, from the folder's parent on, in order; programs may put anything there.

    ``on_error``: gets why a folder or a file in it cannot be looked at.
    """
    if folder.is_symlink():
        return
    if folder.is_file():
        yield folder.name
        return
    for place, folders, names in os.walk(folder, onerror=on_error):
        folders.sort()
        for path in (Path(place, name) for name in sorted(names)):
            try:
                if stat.S_ISREG(path.lstat().st_mode):
                    yield str(path.relative_to(folder.parent))
            except OSError as error:
                if on_error is not None:
                    on_error(error)


def _problem_of(unread: Sequence[OSError]) -> str | None:
    """Return why files cannot be read; None if they are only gone: the program may remove them at any time."""
    error = next((error for error in unread if not isinstance(error, FileNotFoundError)), None)
    return None if error is None else f"{os.path.basename(error.filename)[:60]} cannot be read: {error.strerror}"


class Deliveries:
    """The runner's end. A stranger passes the files on: it is checked that they are regular and named plainly."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._begun: Delivery | None = None

    def receive(self) -> Delivery | None:
        """Receive a message; return a delivery that is complete by it. Raise EOFError or NotDeliverable."""
        data, descriptors, _, _ = socket.recv_fds(self._peer, LONGEST_MESSAGE, 2 * MOST_AT_ONCE)
        if not data:
            raise EOFError
        try:
            name, files, last, problem = _read(data)
            delivery = self._begun or Delivery(name)
            self._begun = delivery
            if len(files) != len(descriptors) or delivery.name != name or len(delivery.files) > MOST_FILES:
                raise NotDeliverable("its sandbox passed other files than it names")
            for rank, path in files:
                status = os.fstat(descriptors[0])
                if not stat.S_ISREG(status.st_mode):
                    raise NotDeliverable(f"{path} is not a regular file")
                delivery.files.append(DeliveredFile(rank, path, descriptors.pop(0), status.st_size))
            delivery.problem = problem
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        if last:
            self._begun = None
        return delivery if last else None

    def close(self) -> None:
        """Drop a delivery that has not arrived completely."""
        if self._begun is not None:
            self._begun.close()
        self._begun = None


def _read(data: bytes) -> tuple[str, Sequence[tuple[int, str]], bool, str | None]:
    """Return name, files, whether it is the last, and the problem of a message. Raise NotDeliverable."""

    def message(name: object, files: object, last: object, problem: object) -> tuple[object, object, object, object]:
        return name, files, last, problem

    try:
        name, files, last, problem = message(**json.loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise NotDeliverable(f"its sandbox passed files without their names: {error}") from None
    if not isinstance(name, str) or not isinstance(files, list) or not isinstance(problem, str | None):
        raise NotDeliverable("its sandbox passed files without their names")
    named = []
    for file in files:
        rank, path = file if isinstance(file, list) and len(file) == 2 else (None, None)
        if not isinstance(rank, int) or rank < 0 or not isinstance(path, str):
            raise NotDeliverable("its sandbox passed files without their names")
        if not is_plain(path):
            raise NotDeliverable(unfit_name(path))
        named.append((rank, path))
    if name and not is_plain(name):
        raise NotDeliverable(f"a checkpoint has the name {name!r:.100}, which cannot be kept")
    return name, named, bool(last), problem


def unfit_name(path: str) -> str:
    """Return why a file is not kept whose path is not plain."""
    return f"the file {path!r:.100} has a name that cannot be kept: use characters that print"


def is_plain(path: str) -> bool:
    """Whether a path is relative, leads nowhere else, and can be printed."""
    parts = path.split("/")
    return len(path) <= LONGEST_PATH and path.isprintable() and not {"", ".", ".."} & {*parts}
