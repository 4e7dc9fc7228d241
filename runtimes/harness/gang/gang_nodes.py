"""Gang nodes: the machines of a gang as its runner sees them, and a task that each of them runs a part of."""

import contextlib
import json
import os
import selectors
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Self

import msgspec

from .delivered_files import OUTPUT, DeliveredFile, Delivery
from .gang_runner import GangStopped
from .gang_task import FOLDER, GangEnd, GangTask, LocalGangSpec
from .gang_transport import GangConnection, Message, ReplicaLost
from .replica import ENDING

#: Seconds that the other nodes may go on after the part of one has failed, so that they can tell why.
GRACE = 3.0


class RunnerMessage(msgspec.Struct):
    """A message to a node: a task (JSON), a further one for a program that goes on, to end it, or that all is over."""

    task: str | None = None
    scenario: dict[str, object] | None = None
    stop: int | None = None
    over: object = None


class NodeMessage(msgspec.Struct):
    """A message of a node (gang_node.py): the end of its part of a task, or why it is lost; files; or its progress."""

    end: str | None = None
    lost: str | None = None
    delivered: str | None = None
    folder: str = ""
    files: list[tuple[int, str]] = []
    problem: str | None = None
    progress: float | None = None
    stopped: int | None = None


@dataclass(slots=True)
class JoinedNode:
    """A node that has joined; ``gang``: the part of the gang that is there."""

    connection: GangConnection
    gang: LocalGangSpec


class SpreadTask:
    """A task on several nodes, as its runner sees it: like a sandbox on one machine (sandboxed_task.py).

    ``delivered``: the task's outputs; ``problem``: why files of it cannot be kept. With the end of the context its
    sandboxes are gone. ``number``: tells it from others on these nodes. ``broken``: a node is lost.
    """

    ending = "a node is lost"

    def __init__(self, nodes: Sequence[JoinedNode], task: GangTask, number: int) -> None:
        self._nodes, self._number = nodes, number
        self.delivered = Delivery(OUTPUT)
        self.problem: str | None = None
        self.broken = False
        self._checkpoints: dict[str, dict[int, Delivery]] = {}
        for index, node in enumerate(nodes):
            part = replace(
                task,
                gang=node.gang,
                confinement=None if task.confinement is None else {**task.confinement, **_own_part(node.gang)},
                folder=FOLDER if task.confinement is not None else f"{task.folder}-{index}",
            )
            node.connection.send(task=json.dumps(asdict(part)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End what still runs. A node that does not answer is lost."""
        for files in self._checkpoints.values():
            for delivery in files.values():
                delivery.close()
        try:
            self.broken = self.broken or not self._stop()
        except ReplicaLost:
            self.broken = True

    def _stop(self) -> bool:
        """End the sandboxes; return whether all nodes have."""
        with selectors.DefaultSelector() as selector:
            for node in self._nodes:
                node.connection.send(stop=self._number)
                selector.register(node.connection.connection, selectors.EVENT_READ, node)
            until = time.monotonic() + ENDING
            while selector.get_map() and (left := until - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    for message in key.data.connection.receive():
                        said = msgspec.convert(message, NodeMessage)
                        if said.folder:
                            shutil.rmtree(said.folder, ignore_errors=True)
                        if said.stopped == self._number:
                            selector.unregister(key.fileobj)
            return not selector.get_map()

    def tell(self, scenario: Mapping[str, object]) -> None:
        """Give a further task to a program that goes on."""
        self.delivered, self.problem = Delivery(OUTPUT), None
        for node in self._nodes:
            with contextlib.suppress(ReplicaLost):  # as is heard next
                node.connection.send(scenario=scenario)

    def listen(
        self,
        control: socket.socket,
        until: float,
        on_checkpoint: Callable[[Delivery], None],
        on_progress: Callable[[float], None] = lambda fraction: None,
    ) -> bytes | None:
        """Return what all nodes tell of the end of their parts; None: not in time.

        ``on_checkpoint``: gets each checkpoint that is complete; ``on_progress``: the program's progress. Raise
        GangStopped when ``control`` becomes readable, ReplicaLost if a node or its part is lost.
        """
        ends: dict[int, GangEnd] = {}
        with selectors.DefaultSelector() as selector:
            selector.register(control, selectors.EVENT_READ)
            for index, node in enumerate(self._nodes):
                selector.register(node.connection.connection, selectors.EVENT_READ, index)
            lost, patience = None, until
            while len(ends) < len(self._nodes) and (left := patience - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    if key.data is None:
                        raise GangStopped("it was told to end")
                    for message in self._hear(key.data):
                        said = msgspec.convert(message, NodeMessage)
                        if said.delivered is not None:
                            self._take(key.data, said, on_checkpoint)
                        elif said.progress is not None:
                            on_progress(said.progress)
                        elif said.end is not None:
                            ends[key.data] = _end_of(said.end)
                        elif said.lost is not None:
                            lost = lost or f"of node {key.data}: {said.lost}"
                if lost is not None or any(map(_has_failed, ends.values())):
                    patience = min(patience, time.monotonic() + GRACE)
        if not ends and lost is None:
            return None
        whole = _whole(ends)
        if len(ends) < len(self._nodes) and not _has_failed(whole):
            if lost is None:
                return None
            raise ReplicaLost(lost)
        return whole.text()

    def _hear(self, index: int) -> Sequence[Message]:
        """Return what a node says. Raise ReplicaLost if it is lost."""
        try:
            return self._nodes[index].connection.receive()
        except ReplicaLost as error:
            self.broken = True
            raise ReplicaLost(f"node {index}: {error}") from None

    def _take(self, index: int, said: NodeMessage, on_checkpoint: Callable[[Delivery], None]) -> None:
        """Take the files that a node has left."""
        delivery = _delivery(said)
        if said.delivered == OUTPUT:
            names = {file.path for file in self.delivered.files}
            if twice := next((file.path for file in delivery.files if file.path in names), None):
                self.problem = (
                    f"two nodes left an output {twice}; put the rank into the names of files that each rank writes"
                )
            self.delivered.files += delivery.files
            self.delivered.files.sort(key=lambda file: file.path)  # whichever node was the first
            self.delivered.problem = self.delivered.problem or delivery.problem
            return
        parts = self._checkpoints.setdefault(delivery.name, {})
        parts[index] = delivery
        if len(parts) == len(self._nodes):
            del self._checkpoints[delivery.name]
            files = [file for index in sorted(parts) for file in parts[index].files]
            problem = next((part.problem for part in parts.values() if part.problem), None)
            on_checkpoint(Delivery(delivery.name, files, problem))


def _own_part(gang: LocalGangSpec) -> Mapping[str, object]:
    """Return the part of a confinement that differs between nodes."""
    return {name: value for name, value in (gang.confinement([]) or {}).items() if name != "readonly"}


def _delivery(said: NodeMessage) -> Delivery:
    """Open the files that a node has left, and remove their folder."""
    delivery = Delivery(said.delivered or OUTPUT, problem=said.problem)
    try:
        for number, (rank, path) in enumerate(said.files):
            descriptor = os.open(f"{said.folder}/{number}", os.O_RDONLY | os.O_NOFOLLOW)
            delivery.files.append(DeliveredFile(rank, path, descriptor, os.fstat(descriptor).st_size))
    except OSError as error:
        delivery.problem = delivery.problem or f"a file of the task cannot be read: {error.strerror}"
    shutil.rmtree(said.folder, ignore_errors=True)
    return delivery


def _end_of(text: str) -> GangEnd:
    try:
        return GangEnd.of(text.encode())
    except ValueError as error:
        raise ReplicaLost(f"a sandbox told something else than its end: {error}") from None


def _has_failed(end: GangEnd) -> bool:
    return bool(end.status or end.problem is not None or any(rank.exit for rank in end.ranks))


def _whole(ends: Mapping[int, GangEnd]) -> GangEnd:
    """Return the end of a task from those of its parts."""
    parts = [ends[index] for index in sorted(ends)]
    return GangEnd(
        status=next((end.status for end in parts if end.status), 0),
        problem=next((end.problem for end in parts if end.problem is not None), None),
        result=next((end.result for index, end in ends.items() if index == 0), None),
        ranks=[rank for end in parts for rank in end.ranks],
        going=bool(parts) and all(end.going for end in parts),
    )
