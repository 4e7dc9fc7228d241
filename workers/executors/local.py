"""Local executor: a client of the node agent on this machine, over a Unix socket that only this user can open."""

import json
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from common.errors import NotPrepared, OriginFailed, OriginRefused, PlatformError, StoreUnavailable, Unsafe, Unsupported
from core.domain.scheduling.allowed_options import OPTIONS
from core.domain.scheduling.executor_config import GangSupport
from core.domain.scheduling.launches import Launch, LaunchStatus
from core.domain.usage.granted_resources import WarmGrant
from workers.executors.base import ExecutorKind, LocalPaths

#: Seconds the agent may take to answer; staging a large model is the longest.
TIMEOUT = 60.0

REFUSALS: Mapping[str, type[PlatformError]] = {
    kind.slug: kind for kind in (NotPrepared, OriginFailed, OriginRefused, StoreUnavailable, Unsafe)
}


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """The local executor has no options."""


class LocalExecutor:
    """Client of the node agent."""

    def __init__(self, path: Path, *, name: str = "local") -> None:
        self.name = name
        self._path = path

    def submit(self, launch: Launch) -> None:
        """Hand the launch to the agent, which gives it to a warm runner."""
        self._ask("submit", launch=asdict(launch))

    def observe(self, ids: Iterable[str]) -> Mapping[str, LaunchStatus]:
        """Return statuses of the launches that the agent knows."""
        return msgspec.convert(self._ask("observe", ids=list(ids)), dict[str, LaunchStatus])

    def cancel(self, launch_id: str) -> None:
        """End the launch's processes and remove its folder."""
        self._ask("cancel", id=launch_id)

    def resize(self, launch_id: str, workers: int) -> None:
        """Raise Unsupported: a warm runner's number of workers is fixed at its start."""
        raise Unsupported(
            "On this machine the number of workers cannot change; cancel the simulation and submit it again."
        )

    def orphans(self, known: Collection[str]) -> Sequence[str]:
        """Return running launches that are not in ``known``."""
        running: list[str] = self._ask("running")
        return [id for id in running if id not in known]

    def warm_grants(self) -> Sequence[WarmGrant]:
        """Return what the warm runners have that wait: memory, as it was measured, and no cores."""
        return msgspec.convert(self._ask("warm_grants"), list[WarmGrant])

    def _ask(self, verb: str, **arguments: Any) -> Any:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT)
            connection.connect(str(self._path))
            connection.sendall(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer = lines.readline()
        if not answer.endswith(b"\n"):
            raise ConnectionError("the node agent closed the connection")
        reply = json.loads(answer)
        if "error" in reply:
            raise REFUSALS.get(reply["error"], PlatformError)(reply["detail"])
        return reply["answer"]


def open(name: str, options: LocalOptions, paths: LocalPaths) -> LocalExecutor:
    """Return the executor of this machine's node agent."""
    return LocalExecutor(paths.run_dir / "agent.sock", name=name)


#: Launches use the environments that are prepared on this machine, and of a placement nothing but the executor's name.
KIND = ExecutorKind(
    options=LocalOptions,
    open=open,
    gangs=lambda _: GangSupport(packaged=True, crowds=True),
    node_agent=True,
    lends=True,
    ignored=frozenset(OPTIONS),
)
