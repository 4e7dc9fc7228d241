"""Fork spawner: starts processes through fork servers, and those of modules without one as children of the runner."""

import selectors
import socket
from collections.abc import Callable, Mapping

from .process_spec import ProcessSpec
from .processes import LocalSpawner, Process, WorkerSpec
from .remote_spawner import order_process


class ForkSpawner:
    """Spawner with a connection to a fork server per module. If one ends, its processes have ended with it."""

    def __init__(self, spec: WorkerSpec, connections: Mapping[str, socket.socket]) -> None:
        self._local = LocalSpawner(spec)
        self._connections = connections
        self._lost: Callable[[str], None]

    def register(self, selector: selectors.BaseSelector, lost: Callable[[str], None]) -> None:
        """Watch the fork servers: they send nothing, so that what can be read is their end."""
        self._lost = lost
        for module, connection in self._connections.items():
            selector.register(connection, selectors.EVENT_READ, lambda name=module: self._on_end(selector, name))

    def ready(self, module: str) -> bool:
        """Return True: orders wait in the connection."""
        return True

    def spawn(self, process_spec: ProcessSpec, descriptors: Mapping[str, int]) -> Process:
        """Order the process from its fork server, or start it as a child."""
        if (connection := self._connections.get(process_spec.module)) is None:
            return self._local.spawn(process_spec, descriptors)
        return order_process(connection, process_spec, descriptors, "fork server", self._lost)

    def _on_end(self, selector: selectors.BaseSelector, module: str) -> None:
        selector.unregister(self._connections[module])
        self._lost(f"the {module} fork server ended")
