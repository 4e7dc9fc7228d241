"""The executor of this machine: it asks the agent, over a socket that only this user can reach."""

import json
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.domain.launches import Launch, LaunchStatus, Phase
from errors import OriginFailed, PlatformError, StoreUnavailable, Unsafe, Unsupported

if TYPE_CHECKING:
    from workers.executors.registry import Here

#: A launch runs in what lies prepared on this machine.
OWN_ENVIRONMENTS = False
#: Seconds the agent may take to answer; staging a large model is the longest.
TIMEOUT = 60.0
#: Seconds between two looks at a log that is still being written.
LOOK = 0.2

REFUSALS: Mapping[str, type[PlatformError]] = {kind.slug: kind for kind in (OriginFailed, StoreUnavailable, Unsafe)}


def open(name: str, options: Mapping[str, Any], here: "Here") -> "LocalExecutor":
    """Open this machine's agent; there is nothing to be said about it."""
    if options:
        raise ValueError(f"executor {name}: this machine's takes no options")
    return LocalExecutor(here.run_dir / "agent.sock", name=name)


class LocalExecutor:
    """A client of the agent."""

    def __init__(self, path: Path, *, name: str = "local") -> None:
        self.name = name
        self._path = path

    def submit(self, launch: Launch) -> None:
        """Hand the launch to the agent, which gives it to a warm runner."""
        self._ask("submit", launch=asdict(launch))

    def observe(self, ids: Iterable[str]) -> Mapping[str, LaunchStatus]:
        """Ask which of these the agent knows."""
        seen = self._ask("observe", ids=list(ids))
        return {id: LaunchStatus(**{**one, "phase": Phase(one["phase"])}) for id, one in seen.items()}

    def cancel(self, launch_id: str) -> None:
        """Have its processes ended and its folder removed."""
        self._ask("cancel", id=launch_id)

    def logs(self, launch_id: str, replica: int) -> Iterator[bytes]:
        """Yield the runner's own output; a launch of this machine has one replica."""
        offset = 0
        while True:
            piece = self._ask("logs", id=launch_id, offset=offset)
            if piece["text"]:
                offset = piece["offset"]
                yield piece["text"].encode()
            elif piece["ended"]:
                return
            else:
                time.sleep(LOOK)

    def capacity(self) -> Mapping[str, int]:
        """Return free cores and memory of this machine."""
        free: Mapping[str, int] = self._ask("capacity")
        return free

    def resize(self, launch_id: str, workers: int) -> None:
        """Raise Unsupported: a warm runner is as wide as it was mustered."""
        raise Unsupported("On this machine a launch keeps its width; cancel the simulation and submit it anew.")

    def strays(self, known: Collection[str]) -> Sequence[str]:
        """Ask which others are at work."""
        running: list[str] = self._ask("running")
        return [id for id in running if id not in known]

    def warm(self, runtime: str, format: str, dataset: str, version: str) -> None:
        """Have a warm runner of this kind ready from now on, if its environments are."""
        self._ask("warm", key=[runtime, format, dataset, version])

    def _ask(self, verb: str, **arguments: Any) -> Any:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT)
            connection.connect(str(self._path))
            connection.sendall(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer = lines.readline()
        if not answer.endswith(b"\n"):
            raise ConnectionError("the agent hung up")
        said = json.loads(answer)
        if "error" in said:
            raise REFUSALS.get(said["error"], PlatformError)(said["detail"])
        return said["answer"]
