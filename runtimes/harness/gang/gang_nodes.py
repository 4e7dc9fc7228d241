"""Gang nodes: the machines of a gang as its runner sees them, and a task that each of them runs a part of."""

import contextlib
import json
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

import msgspec

from ..runner.captured_output import CapturedOutput
from .delivered_files import OUTPUT, Delivery
from .gang_runner import GangStopped
from .gang_task import FOLDER, GangEnd, GangTask, LocalGangSpec
from .gang_transport import GangConnection, Message, ReplicaLost
from .looked_files import NotShown, Seen
from .node_looks import NodeLook, NodeLooks, NodeSeen
from .rank_ends import is_killed
from .sent_files import ArrivingDelivery, send_path

#: Seconds that a node may take to end its part of a task.
ENDING = 60.0
#: Seconds that the other nodes may go on after the part of one has failed, so that they can tell why.
GRACE = 3.0


class RunnerMessage(msgspec.Struct):
    """A message to a node: a task (JSON), a further one for a program that goes on, a look into it, to end it, or that
    all is over.

    ``largest``: bytes of the files that a task may leave.
    """

    task: str | None = None
    largest: int = 0
    scenario: dict[str, object] | None = None
    look: NodeLook | None = None
    stop: int | None = None
    over: object = None


class NodeMessage(msgspec.Struct):
    """A message of a node (gang_node.py): the end of its part of a task, or why it is lost; files that it sends, or why
    they are broken off; its progress; or what its program has printed.
    """

    end: str | None = None
    lost: str | None = None
    delivered: str | None = None
    files: list[tuple[int, str, int, bool]] = []
    data: bytes | None = None
    broken: str | None = None
    problem: str | None = None
    progress: float | None = None
    printed: str = ""
    seen: NodeSeen | None = None
    stopped: int | None = None


class PodFolders(msgspec.Struct):
    """The description that a pod gives of itself when it has joined (replica.py).

    It says where its interpreter and its harness are, where the runner's files are placed, its image's packages are,
    and its ranks may write; the sandbox level that it reaches, with the layers that are ``missing`` for more; and the
    variables and folders of libraries that its devices have brought.
    """

    python: str
    harness: str
    files: str
    site: str
    scratch: str
    level: int
    missing: str
    environ: dict[str, str]
    libraries: list[str]


@dataclass(slots=True)
class JoinedNode:
    """A node that has joined; ``gang``: the part of the gang that is there. It sees the runner's folders."""

    connection: GangConnection
    gang: LocalGangSpec
    arriving: ArrivingDelivery | None = None

    def part(self, task: GangTask, index: int) -> GangTask:
        """Return its part of a task."""
        return self._part(task, self.gang, f"{task.folder}-{index}" if self.gang.level is None else FOLDER)

    def _part(self, task: GangTask, gang: LocalGangSpec, folder: str) -> GangTask:
        confinement = gang.confinement([path for path in (task.model, task.built, task.restore) if path is not None])
        return replace(task, gang=gang, confinement=confinement, folder=folder)


@dataclass(slots=True)
class JoinedPod(JoinedNode):
    """A pod that has joined: it is sent what it lacks. ``site``: how the runner calls the packages of a pod's image."""

    folders: PodFolders = field(kw_only=True)
    site: str = field(kw_only=True)
    _placed: dict[str, str] = field(default_factory=dict)

    def part(self, task: GangTask, index: int) -> GangTask:
        """Return its part of a task, once it has all files of it."""
        gang = self.gang
        packages = [self._place(path) for path in gang.packages]
        times = gang.times and self._path_at_pod(gang.times)
        gang = replace(
            gang,
            python=self.folders.python,
            harness=self.folders.harness,
            scratch=self.folders.scratch,
            programs=[replace(program, launcher=[*map(self._own, program.launcher)]) for program in gang.programs],
            packages=packages,
            times=times,
            data=gang.data and self._place(gang.data, "dataset"),
        )
        if gang.level is None:  # what its devices need
            gang = replace(gang, environ=self.folders.environ, libraries=self.folders.libraries)
        task = replace(
            task,
            model=self._place(task.model),
            built=task.built and self._place(task.built),
            restore=task.restore and self._place(task.restore, "restore"),
        )
        return self._part(task, gang, f"{self.folders.scratch}/windtunnel")

    def _place(self, path: str, name: str = "") -> str:
        """Send a file or folder, unless it is there already; return where it is at the pod."""
        if path == self.site:
            return self.folders.site
        if path not in self._placed:
            name = name or str(len(self._placed))
            send_path(self.connection, name, Path(path))
            self._placed[path] = f"{self.folders.files}/{name}"
        return self._placed[path]

    def _own(self, argument: str) -> str:
        """Return an argument of a launcher with the pod's interpreter or harness in place of the runner's."""
        if argument == self.gang.python:
            return self.folders.python
        own = argument.removeprefix(self.gang.harness)
        return argument if own == argument else self.folders.harness + own

    def _path_at_pod(self, path: str) -> str | None:
        """Return where a file in a folder of packages is at the pod."""
        parent = next((folder for folder in self._placed if path.startswith(f"{folder}/")), None)
        return None if parent is None else self._placed[parent] + path.removeprefix(parent)


class SpreadTask:
    """A task on several nodes, as its runner sees it: like a sandbox on one machine (sandboxed_task.py).

    ``delivered``: the task's outputs; ``problem``: why files of it cannot be kept. With the end of the context its
    sandboxes are gone. ``number``: tells it from others on these nodes. ``broken``: a node is lost. ``scratch``: a
    folder for files that arrive, of at most ``largest`` bytes at once; ``printed``: gets what pods say that they print.
    """

    ending = "a node is lost"

    def __init__(
        self,
        nodes: Sequence[JoinedNode],
        task: GangTask,
        number: int,
        *,
        scratch: str,
        largest: int,
        printed: CapturedOutput,
    ) -> None:
        self._nodes, self._number = nodes, number
        self._scratch, self._largest, self._printed = scratch, largest, printed
        self.delivered = Delivery(OUTPUT)
        self.problem: str | None = None
        self.broken = False
        self._checkpoints: dict[str, dict[int, Delivery]] = {}
        self._shown = task.shown
        self._looks = NodeLooks(number, len(nodes), lambda index, look: nodes[index].connection.send(look=look))
        for index, node in enumerate(nodes):
            node.connection.send(task=json.dumps(asdict(node.part(task, index))), largest=largest)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End what still runs. A node that does not answer is lost."""
        self._looks.end()
        for files in self._checkpoints.values():
            for delivery in files.values():
                delivery.close()
        for node in self._nodes:
            if node.arriving is not None:
                node.arriving.close()
                node.arriving = None
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
                        said = _message_of(message)
                        self._printed.add("gang", said.printed.encode())
                        if said.stopped == self._number:
                            selector.unregister(key.fileobj)
            return not selector.get_map()

    def look(self, kind: str, path: str, offset: int, length: int) -> Seen:
        """Look into it, from any thread. Raise NotShown, or OSError if it has ended or does not answer."""
        if not self._shown:
            raise NotShown("the task cannot be looked into")
        try:
            return self._looks.look(kind, path, offset, length)
        except ReplicaLost as error:
            raise ConnectionResetError(str(error)) from None

    def connect(self, port: int) -> socket.socket:
        """Raise NotShown: the runner cannot be given a connection of another machine."""
        raise NotShown("ports of gangs on several machines, on Slurm and in pods are not forwarded")

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
                        said = _message_of(message)
                        self._printed.add("gang", said.printed.encode())
                        if said.seen is not None:
                            self._looks.answer(said.seen, said.data or b"")
                        elif (delivery := self._receive_files(self._nodes[key.data], said)) is not None:
                            self._take(key.data, delivery, on_checkpoint)
                        elif said.progress is not None:
                            on_progress(said.progress)
                        elif said.end is not None:
                            ends[key.data] = _end_of(said.end)
                        elif said.lost is not None:
                            lost = lost or f"of node {key.data}: {said.lost}"
                if lost is not None or any(map(_has_failed, ends.values())):
                    arriving = any(node.arriving is not None for node in self._nodes)
                    patience = min(until if arriving else patience, time.monotonic() + GRACE)
        if lost is not None:  # whatever that has done to the others
            raise ReplicaLost(lost)
        whole = _whole(ends)
        return whole.text() if len(ends) == len(self._nodes) or _has_failed(whole) else None

    def _hear(self, index: int) -> Sequence[Message]:
        """Return what a node says. Raise ReplicaLost if it is lost."""
        try:
            return self._nodes[index].connection.receive()
        except ReplicaLost as error:
            self.broken = True
            raise ReplicaLost(f"node {index}: {error}") from None

    def _receive_files(self, node: JoinedNode, said: NodeMessage) -> Delivery | None:
        """Take what a node sends of files; return a delivery that is complete by it. Raise ReplicaLost."""
        if said.delivered is not None:
            if node.arriving is not None:
                raise ReplicaLost("it sent files of two deliveries at once")
            node.arriving = ArrivingDelivery.of(said.delivered, said.files, said.problem, self._scratch, self._largest)
        arriving = node.arriving
        if arriving is None:
            return None
        if said.data is not None:
            arriving.add(said.data)
        if said.broken is not None:
            arriving.fail(said.broken)
        if not arriving.complete:
            return None
        node.arriving = None
        return arriving.delivery

    def _take(self, index: int, delivery: Delivery, on_checkpoint: Callable[[Delivery], None]) -> None:
        """Take the files that a node has sent."""
        if delivery.name == OUTPUT:
            names = {file.path for file in self.delivered.files}
            if twice := next((file.path for file in delivery.files if file.path in names), None):
                self.problem = (
                    f"two nodes left an output {twice}; put the rank into the names of files that each rank writes"
                )
            self.delivered.files = sorted([*self.delivered.files, *delivery.files], key=lambda file: file.path)
            self.delivered.problem = self.delivered.problem or delivery.problem
            return
        parts = self._checkpoints.setdefault(delivery.name, {})
        parts[index] = delivery
        if len(parts) == len(self._nodes):
            del self._checkpoints[delivery.name]
            files = [file for index in sorted(parts) for file in parts[index].files]
            problem = next((part.problem for part in parts.values() if part.problem), None)
            on_checkpoint(Delivery(delivery.name, files, problem))


def _message_of(message: Message) -> NodeMessage:
    try:
        return msgspec.convert(message, NodeMessage)
    except msgspec.ValidationError as error:
        raise ReplicaLost(f"it sent an invalid message: {error}") from None


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
    statuses = sorted(
        (end.status for end in parts if end.status), key=lambda status: (status > 0, not is_killed(status))
    )
    return GangEnd(
        status=statuses[0] if statuses else 0,  # a part that was killed made the others fail
        problem=next((end.problem for end in parts if end.problem is not None), None),
        result=next((end.result for index, end in ends.items() if index == 0), None),
        ranks=[rank for end in parts for rank in end.ranks],
        unread=next((end.unread for index, end in ends.items() if index == 0), None),
        going=bool(parts) and all(end.going for end in parts),
    )
