"""Task server: the socket at which a program that goes on from task to task takes them and gives its results.

A rank connects, says its rank, and gets each task as a line of JSON; it answers with a line when it is done with it.
The answer of the first one is the result. A task is over when every rank has answered that has not ended
well; or the first one, if it says that it takes the tasks alone and tells the others itself.
"""

import json
import selectors
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from .gang_transport import RESULT

#: Said in place of its number by a first rank that takes the tasks alone.
ALONE = "alone"
#: The most bytes of an answer.
LONGEST_ANSWER = 2 * RESULT


class _TaskTaker:
    """A connected rank. ``number``: None until it has said it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.number: int | None = None
        self.read = b""


class TaskServer:
    """Serves one task after the other to the ranks. ``selector``: waits for them too, and calls what it has of them.

    ``ranks``: their numbers; ``ended``: whether one of them has ended, and well.
    """

    def __init__(
        self, path: Path, ranks: range, ended: Callable[[int], bool], selector: selectors.BaseSelector
    ) -> None:
        self._all = ranks
        self._ended = ended
        self._selector = selector
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(128)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._ranks: list[_TaskTaker] = []
        self._line = b""
        self._awaited: set[int] = set()
        #: The text of the first rank's result of the task, as far as ranks here give one; None: not yet.
        self.result: str | None = None

    def begin(self, task: Mapping[str, object]) -> None:
        """Give a task to all ranks that are there, and to those that come while it lasts."""
        self._line = json.dumps(task).encode() + b"\n"
        self._awaited, self.result = {*self._all}, None
        for rank in list(self._ranks):
            self._give(rank)

    @property
    def answered(self) -> bool:
        """Whether the task is over."""
        if self.result is not None:
            self._awaited = {rank for rank in self._awaited if not self._ended(rank)}
        return not self._awaited

    @property
    def is_left(self) -> bool:
        """Whether the first rank has ended without an answer, so that there will be none."""
        return self.result is None and self._ended(self._all[0])

    def close(self) -> None:
        """Tell the ranks that there is no further task."""
        for rank in list(self._ranks):
            self._drop(rank)
        self._listener.close()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        rank = _TaskTaker(connection)
        self._ranks.append(rank)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(rank))

    def _read(self, rank: _TaskTaker) -> None:
        try:
            piece = rank.connection.recv(LONGEST_ANSWER)
        except OSError:
            piece = b""
        rank.read += piece
        while b"\n" in rank.read:
            line, _, rank.read = rank.read.partition(b"\n")
            self._take(rank, line)
        if len(rank.read) > LONGEST_ANSWER:
            self._take(rank, rank.read)
        if not piece or len(rank.read) > LONGEST_ANSWER:
            self._drop(rank)

    def _take(self, rank: _TaskTaker, line: bytes) -> None:
        """Take a line of a rank: its number at first, then answers. Whatever else it says is as if it had gone."""
        if rank.number in self._awaited:
            self._awaited.remove(rank.number)
            if rank.number == self._all[0]:
                self.result = line.decode(errors="surrogateescape")
            return
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        if rank.number is None and said in (ALONE, *self._all):
            rank.number = 0 if said == ALONE else said
            if said == ALONE:
                self._all, self._awaited = range(1), self._awaited & {0}
            if rank.number in self._awaited:
                self._give(rank)
        else:
            self._drop(rank)

    def _give(self, rank: _TaskTaker) -> None:
        if rank.number is not None:
            try:
                rank.connection.sendall(self._line)
            except OSError:
                self._drop(rank)

    def _drop(self, rank: _TaskTaker) -> None:
        if rank not in self._ranks:
            return
        self._selector.unregister(rank.connection)
        rank.connection.close()
        self._ranks.remove(rank)
