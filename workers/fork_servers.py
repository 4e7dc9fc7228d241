"""Fork servers of this machine: processes with imported libraries, from which parts of warm runners are forked.

A model format and a simulator say of themselves whether their libraries may be forked. Those of a model's own
environment never are: they are as untrusted as the model, and are imported by confined processes only. Spawn from
the main thread only (see warm_runners.py).
"""

import contextlib
import logging
import socket
import sysconfig
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from datasets.catalogue import datasets
from runtimes import catalogue
from runtimes.formats import formats
from runtimes.harness import python_process
from runtimes.harness.runner.fork_server import READY, ForkServerOptions
from runtimes.harness.runner.process_spec import ENTRIES
from workers.warm_runners import HARNESS, WarmKind, base_interpreter

logger = logging.getLogger(__name__)

#: Fork servers that may end by themselves, one after the other, before none of their libraries is started again.
MAX_DEATHS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Libraries:
    """What a fork server has imported: a simulator's, a format's or a runner's, from the folder ``site``."""

    module: str
    name: str
    site: str


RUNNER = Libraries(module="runner", name="", site=sysconfig.get_path("purelib"))


def forkable(kind: WarmKind, evaluator_site: str, model_server_site: str) -> frozenset[Libraries]:
    """Return the libraries from which the processes of a kind may be forked; others are started."""
    found = {RUNNER}
    dataset = datasets()[kind.dataset]
    if catalogue.simulator_facts(dataset.simulator).forkable and not dataset.declared.starts_processes:
        found.add(Libraries(module="evaluator", name=dataset.simulator, site=evaluator_site))
    if formats()[kind.format].forkable and not kind.environment:
        found.add(Libraries(module="model_server", name=kind.format, site=model_server_site))
    return frozenset(found)


class ForkServer:
    """A fork server's process and the agent's socket to it."""

    def __init__(self, libraries: Libraries, level: int | None, log: Path) -> None:
        self.libraries = libraries
        self.ready = False
        self.socket, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        options = ForkServerOptions(
            module=libraries.module,
            python=base_interpreter(),
            harness=str(HARNESS),
            site=libraries.site,
            level=level,
            imports=libraries.name,
        )
        paths = [str(HARNESS.parent)]
        if libraries.module != "model_server":  # which puts its packages on the path itself, once it is confined
            paths.append(libraries.site)
        with open(log, "ab") as output, remote:
            self._popen = python_process.start(
                options.python,
                ENTRIES["fork_server"],
                paths,
                asdict(options),
                {"agent": remote.fileno()},
                output.fileno(),
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    def read(self) -> bool:
        """Read what it sent; return False once it has ended."""
        with contextlib.suppress(ConnectionError):
            if self.socket.recv(64) == READY:
                self.ready = True
                return True
        return False

    def connect(self, client: str) -> socket.socket:
        """Return a client's connection; its processes get the client's name."""
        local, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with remote:
            socket.send_fds(self.socket, [client.encode()], [remote.fileno()])
        return local

    def end(self) -> None:
        """End it, and with it every process that it has forked."""
        self.socket.close()
        self._popen.kill()
        self._popen.wait()


class ForkServers:
    """The fork servers. ``watch`` and ``unwatch`` register a socket with the agent's loop; ``changed`` is called when
    one is ready or has ended.
    """

    def __init__(
        self,
        level: int | None,
        logs: Path,
        *,
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], object],
        changed: Callable[[], None],
    ) -> None:
        self._level = level
        self._logs = logs
        self._watch, self._unwatch, self._changed = watch, unwatch, changed
        self._servers: dict[Libraries, ForkServer] = {}
        self._deaths: dict[Libraries, int] = {}

    def keep(self, wanted: Collection[Libraries], in_use: Collection[Libraries]) -> None:
        """Start the wanted ones that are missing; end those that are neither wanted nor have processes in use."""
        for libraries in [kept for kept in self._servers if kept not in wanted and kept not in in_use]:
            self._remove(libraries).end()
        for libraries in wanted:
            if libraries not in self._servers and self._deaths.get(libraries, 0) < MAX_DEATHS:
                server = ForkServer(libraries, self._level, self._logs / f"fork-{libraries.module}.log")
                self._servers[libraries] = server
                self._watch(server.socket.fileno(), partial(self._on_message, server))

    def settled(self, wanted: Collection[Libraries]) -> bool:
        """Whether each of these is ready, or will never be."""
        return all(self.ready(libraries) or self._deaths.get(libraries, 0) >= MAX_DEATHS for libraries in wanted)

    def ready(self, libraries: Libraries) -> bool:
        """Whether processes with these libraries can be forked now."""
        return libraries in self._servers and self._servers[libraries].ready

    def connect(self, libraries: Libraries, client: str) -> socket.socket | None:
        """Return a connection to a fork server; None if it is not ready, or has just ended."""
        server = self._servers.get(libraries)
        if server is None or not server.ready:
            return None
        try:
            return server.connect(client)
        except OSError:
            return None

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [server.pid for server in self._servers.values()]

    def close(self) -> None:
        """End all."""
        for libraries in list(self._servers):
            self._remove(libraries).end()

    def _remove(self, libraries: Libraries) -> ForkServer:
        server = self._servers.pop(libraries)
        self._unwatch(server.socket.fileno())
        return server

    def _on_message(self, server: ForkServer) -> None:
        libraries = server.libraries
        if server.read():
            self._deaths.pop(libraries, None)
        elif self._servers.get(libraries) is server:
            self._deaths[libraries] = self._deaths.get(libraries, 0) + 1
            logger.warning("the fork server of %s %s ended", libraries.module, libraries.name)
            self._remove(libraries).end()
        self._changed()
