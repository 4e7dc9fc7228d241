"""Node looks: looks into the tasks of gangs on several machines, as messages between the gang's runner and its nodes.

A path begins with the node where there are several: `node-1/logs/3`.
"""

import itertools
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from ..runner.runner_api_messages import LookedEntry
from .looked_files import ANSWER_TIMEOUT, NotShown, Seen
from .sandboxed_task import SandboxedTask

#: The name of a node in a path.
NODE = "node-{}"
_NODE = re.compile(r"node-(\d{1,6})(?:/(.*))?", re.DOTALL | re.ASCII)
#: Seconds that a node has for an answer, with its sandbox's and what is on its way before it.
NODE_TIMEOUT = 2 * ANSWER_TIMEOUT


class NodeLook(msgspec.Struct):
    """A look into the sandbox of a node."""

    id: str
    kind: str
    path: str
    offset: int
    length: int


class NodeSeen(msgspec.Struct):
    """The sight of a node; bytes of a file follow. ``problem``: why nothing, ``ended``: its sandbox has ended."""

    id: str
    problem: str | None = None
    ended: bool = False
    entries: list[LookedEntry] = []
    more: bool = False
    start: int = 0
    size: int = 0


def seen_of(sandboxed: SandboxedTask, look: NodeLook) -> tuple[NodeSeen, bytes]:
    """Return what a look into a sandbox sees, on its node."""
    try:
        seen = sandboxed.look(look.kind, look.path, look.offset, look.length)
    except NotShown as error:
        return NodeSeen(look.id, problem=str(error)), b""
    except OSError:
        return NodeSeen(look.id, ended=True), b""
    entries = msgspec.convert(seen.entries, list[LookedEntry])
    return NodeSeen(look.id, entries=entries, more=seen.more, start=seen.start, size=seen.size), seen.data


class NodeLooks:
    """Looks into the nodes of a task, from any thread of its runner, which passes on what nodes say.

    ``task``: the number of the task on these nodes; ``nodes``: how many; ``send``: sends a look to one.
    """

    def __init__(self, task: int, nodes: int, send: Callable[[int, Mapping[str, object]], None]) -> None:
        self._task, self._nodes, self._send = task, nodes, send
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[str, queue.SimpleQueue[tuple[NodeSeen, bytes]]] = {}

    def look(self, kind: str, path: str, offset: int, length: int) -> Seen:
        """Look into the sandbox of the node that a path begins with. Raise NotShown, or OSError without an answer."""
        node = 0
        if self._nodes > 1:
            if not path and kind == "list":
                names = [NODE.format(number) for number in range(self._nodes)]
                return Seen(entries=[_folder(name) for name in names])
            match = _NODE.fullmatch(path)
            if match is None or int(match[1]) >= self._nodes:
                raise NotShown(f"a path begins with a node, {NODE.format(0)} to {NODE.format(self._nodes - 1)}")
            node, path = int(match[1]), match[2] or ""
        id = f"{self._task}-{next(self._numbers)}"
        answers: queue.SimpleQueue[tuple[NodeSeen, bytes]] = queue.SimpleQueue()
        with self._lock:
            self._waiting[id] = answers
        try:
            self._send(node, msgspec.to_builtins(NodeLook(id, kind, path, offset, length)))
            seen, data = answers.get(timeout=NODE_TIMEOUT)
        except queue.Empty:
            raise TimeoutError("the node does not answer") from None
        finally:
            with self._lock:
                del self._waiting[id]
        if seen.ended:
            raise ConnectionResetError("the task has ended")
        if seen.problem is not None:
            raise NotShown(seen.problem)
        entries = [msgspec.structs.asdict(entry) for entry in seen.entries]
        return Seen(entries=entries, more=seen.more, start=seen.start, size=seen.size, data=data)

    def answer(self, seen: NodeSeen, data: bytes) -> None:
        """Pass on what a node has seen; nobody may wait for it any longer."""
        with self._lock:
            answers = self._waiting.get(seen.id)
        if answers is not None:
            answers.put((seen, data))

    def end(self) -> None:
        """Answer all that wait: the task has ended."""
        with self._lock:
            for id, answers in self._waiting.items():
                answers.put((NodeSeen(id, ended=True), b""))


def _folder(name: str) -> Mapping[str, object]:
    return {"name": name, "kind": "folder", "bytes": 0, "changed_at": time.time()}
