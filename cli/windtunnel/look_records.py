"""Records of looks into tasks that run, as the platform describes them."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from windtunnel.record import Record


class TaskEntry(Record, frozen=True, kw_only=True):
    """A `file` or a `folder` of a task; `other` is not shown."""

    name: str
    kind: str
    bytes: int = 0
    changed_at: datetime | None = None


class ListedFolder(Record, frozen=True, kw_only=True):
    """The entries of a folder of a task; ``more``: it has more than these."""

    task: int
    path: str = ""
    entries: list[TaskEntry] = msgspec.field(default_factory=list)
    more: bool = False


class TaskLook(Record, frozen=True, kw_only=True):
    """Who has looked at what in a task, how often, and how many bytes of it."""

    task: int
    kind: str
    path: str
    looked_by: str
    times: int
    bytes: int
    first_at: datetime
    last_at: datetime


class ProgramConnection(Record, frozen=True, kw_only=True):
    """A connection to a port of a program."""

    id: str


class SentPiece(Record, frozen=True, kw_only=True):
    """The answer to a piece of a connection: whether it is on its way, or the connection is ``over``."""

    accepted: bool = False
    over: bool = False


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Bytes of a file of a task: where they begin, and the bytes of the whole file at that moment."""

    start: int
    size: int
    data: bytes

    @property
    def end(self) -> int:
        """Where the next piece begins."""
        return self.start + len(self.data)


@dataclass(frozen=True, slots=True)
class ReceivedPieces:
    """Bytes from a program: the number of the piece to ask for next; ``state``: `open`, `ended` or `over`."""

    next: int
    data: bytes
    state: str
