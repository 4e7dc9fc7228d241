"""Delivered files: open files of a task, which its sandbox passes to the runner, where no path leads to them.

Outputs are passed at the end of a task, the files of a checkpoint as soon as all ranks have theirs. A file is passed
open, so it outlives its name, the program and the sandbox. A message has some of the files of a delivery; its last one
says so. This module imports nothing but the standard library.
"""

import contextlib
import json
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: The most files of a delivery, and of a message; the kernel passes 253 at once.
MOST_FILES, MOST_AT_ONCE = 500, 50
#: The most characters of a file's path, and bytes of a message.
LONGEST_PATH, LONGEST_MESSAGE = 500, 128 << 10
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
    """Pass the regular files in the folders of these ranks on, also those in folders within; a file is one as well."""
    deliver_files(peer, name, [(rank, folder, path) for rank, folder in folders for path in files_in(folder)])


def deliver_files(peer: socket.socket, name: str, found: Sequence[tuple[int, Path, str]]) -> None:
    """Pass files on: the rank of each, its folder, and its path from the folder's parent on."""
    problem = None
    if len(found) > MOST_FILES:
        problem = f"there are {len(found)} files, and at most {MOST_FILES} are kept"
    elif longest := max((path for _, _, path in found if len(path) > LONGEST_PATH), default=None):
        problem = f"the path {longest[:60]}... has more than {LONGEST_PATH} characters"
    if problem is not None:
        found = []
    for at in range(0, max(len(found), 1), MOST_AT_ONCE):
        part = found[at : at + MOST_AT_ONCE]
        opened = []
        try:
            for rank, folder, path in part:
                # Links are not followed, and of a pipe this may be the reader. The program may have removed it by now.
                with contextlib.suppress(OSError):
                    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                    opened.append((rank, path, os.open(folder.parent / path, flags)))
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


def files_in(folder: Path) -> Iterator[str]:
    """Yield the paths of regular files, from the folder's parent on, in order; programs may put anything there."""
    if folder.is_symlink():
        return
    if folder.is_file():
        yield folder.name
    for place, folders, names in os.walk(folder):
        folders.sort()
        for path in (Path(place, name) for name in sorted(names)):
            with contextlib.suppress(OSError):
                if stat.S_ISREG(path.lstat().st_mode):
                    yield str(path.relative_to(folder.parent))


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
        if not isinstance(rank, int) or rank < 0 or not isinstance(path, str) or not is_plain(path):
            raise NotDeliverable(f"a file has the name {file!r:.100}, which cannot be kept")
        named.append((rank, path))
    if name and not is_plain(name):
        raise NotDeliverable(f"a checkpoint has the name {name!r:.100}, which cannot be kept")
    return name, named, bool(last), problem


def is_plain(path: str) -> bool:
    """Whether a path is relative, leads nowhere else, and can be printed."""
    parts = path.split("/")
    return len(path) <= LONGEST_PATH and path.isprintable() and not {"", ".", ".."} & {*parts}
