"""Sent files: files that pass between the runner of a gang and its nodes, over the connections that they have anyway.

The runner sends what a task needs and a node lacks: the model, packages, a checkpoint. A node sends what a task leaves,
with the sizes first, so that the runner can refuse it. Both send pieces, and wait for the other to take them. This
module imports nothing but the standard library.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .delivered_files import MOST_FILES, DeliveredFile, Delivery, NotDeliverable, is_plain
from .gang_transport import LONGEST_DATA, GangConnection, Message, ReplicaLost

#: A file of a delivery that a node announces: rank, path, bytes, and whether it can be executed.
Announced = tuple[int, str, int, bool]


def send_delivery(runner: GangConnection, delivery: Delivery, largest: int) -> None:
    """Send the files of a delivery, unless they have more than ``largest`` bytes; close them."""
    try:
        if delivery.size > largest:
            delivery.problem = (
                f"its files have {delivery.size} bytes, and at most {largest} are kept (WINDTUNNEL_MAX_OUTPUT)"
            )
        files = [] if delivery.problem is not None else delivery.files
        announced = [(file.rank, file.path, file.size, _can_execute(file)) for file in files]
        runner.send(delivered=delivery.name, files=announced, problem=delivery.problem)
        for file in files:
            for chunk in file.chunks(LONGEST_DATA):
                runner.send(chunk)
    except (NotDeliverable, OSError) as error:
        runner.send(broken=str(error))
    finally:
        delivery.close()


def _can_execute(file: DeliveredFile) -> bool:
    return bool(os.fstat(file.descriptor).st_mode & 0o100)


@dataclass(slots=True)
class ArrivingDelivery:
    """A delivery that a node has announced. ``folder``: for its files, in which they have no names."""

    delivery: Delivery
    folder: str
    awaited: list[Announced] = field(default_factory=list)
    _at: int = 0

    @classmethod
    def of(
        cls, name: str, files: Sequence[Announced], problem: str | None, folder: str, largest: int
    ) -> "ArrivingDelivery":
        """Return what a node has announced. Raise ReplicaLost for more or other files than a node may send."""
        plain = all(rank >= 0 and size >= 0 and is_plain(path) for rank, path, size, _ in files)
        if not plain or (name and not is_plain(name)) or len(files) > MOST_FILES:
            raise ReplicaLost("it sent files whose names or number are not allowed")
        if sum(size for _, _, size, _ in files) > largest:
            raise ReplicaLost(f"it sent more than {largest} bytes of files")
        arriving = cls(Delivery(name, problem=problem), folder, list(files))
        arriving._open()
        return arriving

    @property
    def complete(self) -> bool:
        """Whether all files are there."""
        return not self.awaited

    def add(self, data: bytes) -> None:
        """Add bytes to the file that is being received. Raise ReplicaLost for more than were announced."""
        if not self.awaited or self._at + len(data) > self.awaited[0][2]:
            raise ReplicaLost("it sent more of a file than it had announced")
        file = self.delivery.files[-1]
        self._at += os.pwrite(file.descriptor, data, self._at)
        self._open()

    def fail(self, problem: str) -> None:
        """Give up the files: the node could not read them."""
        self.awaited = []
        self.close()
        self.delivery.problem = problem

    def close(self) -> None:
        """Close what has arrived."""
        self.delivery.close()

    def _open(self) -> None:
        """Open the next file of which bytes are awaited; the empty ones before it are there already."""
        begun = len(self.delivery.files) > 0 and bool(self.awaited)
        if begun and self._at < self.awaited[0][2]:
            return
        if begun:
            self.awaited.pop(0)
        self._at = 0
        while self.awaited:
            rank, path, size, executable = self.awaited[0]
            descriptor, name = tempfile.mkstemp(dir=self.folder)
            os.unlink(name)
            os.fchmod(descriptor, 0o700 if executable else 0o600)
            self.delivery.files.append(DeliveredFile(rank, path, descriptor, size))
            if size:
                return
            self.awaited.pop(0)


def send_path(node: GangConnection, name: str, path: Path) -> None:
    """Send a file, or a folder with all that is in it, to the place of this name at a node."""
    node.send(place=name, folder=path.is_dir())
    if path.is_file():
        _send_file(node, name, "", path)
        return
    for relative in _paths_in(path):
        source = path / relative
        if source.is_symlink():
            node.send(into=name, path=relative, link=os.readlink(source))
        else:
            _send_file(node, name, relative, source)


def _paths_in(folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        linked = [name for name in folders if Path(place, name).is_symlink()]
        for name in (*names, *linked):
            yield str(Path(place, name).relative_to(folder))


def _send_file(node: GangConnection, name: str, relative: str, source: Path) -> None:
    executable = os.access(source, os.X_OK)
    with open(source, "rb") as file:
        data = file.read(LONGEST_DATA)
        node.send(data, into=name, path=relative, executable=executable)
        while data := file.read(LONGEST_DATA):
            node.send(data, into=name, path=relative)


class PlacedFiles:
    """The files that a node has from its runner, which its ranks may read; ``folder``: in which they are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, message: Message) -> bool:
        """Do what a message says of files; return whether it was one about files."""
        if "place" in message:
            self._clear(self._folder / str(message["place"]), folder=bool(message["folder"]))
        elif "into" in message:
            path = self._folder / str(message["into"]) / str(message["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            if "link" in message:
                path.symlink_to(str(message["link"]))
                return True
            with open(path, "ab") as file:
                file.write(message.get("data", b""))
            if message.get("executable"):
                path.chmod(0o755)
        else:
            return False
        return True

    def _clear(self, path: Path, *, folder: bool) -> None:
        """Make room for a file or a folder of this name."""
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if folder:
            path.mkdir(parents=True)
