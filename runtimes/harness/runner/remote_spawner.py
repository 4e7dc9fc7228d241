"""Remote spawner: starts processes in sibling containers over a Unix socket, with a control socket per process.

Each container's init process (container_init.py) connects to the runner's socket; the kernel names its user
(SO_PEERCRED), and the user decides which module it may start. An order carries the descriptors that the process gets
and one end of its control socket: the container init writes there how the process ended, pins it to the core whose
number it reads there, writes the process's times to a pipe that it gets there, and kills the process when the other end
is closed. So no process ids cross containers, and when either side dies, the processes that depend on it end.
"""

import contextlib
import json
import os
import select
import selectors
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .framed_socket import receive_with_rights
from .process_spec import ProcessSpec
from .processes import Process, WorkerSpec

#: The runner's socket in the folder that all containers see.
SOCKET = "runner.sock"
#: Seconds a container init may take to accept an order, and to report the end of a process that it was told to kill.
ORDER_TIMEOUT, REPLY_TIMEOUT = 10.0, 1.0
#: Order on a control socket, with a pipe: write the process's times to it.
TIMES = b"times\n"
_CREDENTIALS = struct.Struct("3i")


class RemoteProcess(Process):
    """A process that a peer started: in another container, or a fork server. ``on_lost`` is called first if it ended
    because the peer did, which is then how it ended.
    """

    def __init__(self, name: str, output: int, control: socket.socket, peer: str, on_lost: Callable[[], None]) -> None:
        super().__init__(name, output, control.fileno())
        control.settimeout(REPLY_TIMEOUT)
        self._control = control
        self._peer, self._on_lost = peer, on_lost

    def pin(self, core: int) -> None:
        """Pin the process and its descendants to one core, through the container init."""
        with contextlib.suppress(OSError):  # it has ended
            self._control.send(f"{core}\n".encode())

    def times(self) -> dict[str, Any] | None:
        reading, writing = os.pipe()
        try:
            socket.send_fds(self._control, [TIMES], [writing])
        except OSError:  # it has ended
            os.close(reading)
            return None
        finally:
            os.close(writing)
        return _read_times(reading)

    def _kill(self) -> None:
        with contextlib.suppress(OSError):  # the process has ended, and the other end of the socket is closed
            self._control.shutdown(socket.SHUT_WR)

    def _await(self) -> str:
        try:
            status = self._control.recv(1 << 10).decode(errors="replace")
        except OSError:
            status = ""
        if not status:
            self._on_lost()
        return status or f"its {self._peer} ended"

    def _close(self) -> None:
        self._control.close()


def _read_times(reading: int) -> dict[str, Any] | None:
    """Read JSON from a pipe until it is closed, and close it; None if that takes too long, or if there is none."""
    data, until = b"", time.monotonic() + ORDER_TIMEOUT
    with open(reading, "rb", buffering=0) as pipe:
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while poll.poll(max(0.0, until - time.monotonic()) * 1000):
            if not (piece := pipe.read(1 << 16)):
                break
            data += piece
    try:
        times: dict[str, Any] | None = json.loads(data)
    except ValueError:
        return None
    return times


def order_process(
    connection: socket.socket,
    process_spec: ProcessSpec,
    descriptors: Mapping[str, int],
    peer: str,
    lost: Callable[[str], None],
) -> RemoteProcess:
    """Order a process from a peer (a noun); ``lost`` is told why if the peer takes no orders, or has ended."""
    whole_name = f"the {process_spec.module} {peer}"
    output, remote_output = os.pipe()
    control, remote_control = socket.socketpair()
    order = json.dumps({"birth": asdict(process_spec), "descriptors": list(descriptors)}).encode()
    try:
        socket.send_fds(connection, [order], [remote_output, remote_control.fileno(), *descriptors.values()])
    except OSError as error:
        lost(f"{whole_name} accepts no orders: {error}")
    finally:
        os.close(remote_output)
        remote_control.close()
    os.set_blocking(output, False)
    return RemoteProcess(process_spec.name, output, control, peer, lambda: lost(f"{whole_name} ended"))


class RemoteSpawner:
    """Starts processes through container inits: one for evaluators and one for model servers."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._modules: Mapping[int, str] = {}
        self._confined = True
        self._accepted: set[str] = set()
        self._connections: dict[str, socket.socket] = {}
        self._selector: selectors.BaseSelector
        self._lost: Callable[[str], None]

    @classmethod
    def open(cls, folder: Path) -> "RemoteSpawner":
        """Listen on the runner's socket; connections wait until the expected users are known."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        draft = folder / f".{SOCKET}"
        draft.unlink(missing_ok=True)
        listener.bind(str(draft))
        draft.chmod(0o666)  # the kernel tells who connects
        listener.listen(8)
        # Renamed only once it accepts: a container init whose connection is refused knows that the runner is gone.
        draft.rename(folder / SOCKET)
        return cls(listener)

    def expect(self, modules: Mapping[int, str], worker_spec: WorkerSpec) -> None:
        """Set which user starts processes of which module, and whether they must be confined."""
        self._modules = modules
        self._confined = worker_spec.sandbox is not None

    def register(self, selector: selectors.BaseSelector, lost: Callable[[str], None]) -> None:
        """Watch for container inits that connect and that disconnect."""
        self._selector, self._lost = selector, lost
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def ready(self, module: str) -> bool:
        """Tell whether this module's container init has connected."""
        return module in self._connections

    def spawn(self, process_spec: ProcessSpec, descriptors: Mapping[str, int]) -> Process:
        """Order a process; ``descriptors`` are passed over the socket."""
        connection = self._connections[process_spec.module]
        return order_process(connection, process_spec, descriptors, "container", self._lost)

    def close(self) -> None:
        """Close the listener and all connections."""
        for connection in (self._listener, *self._connections.values()):
            connection.close()

    def _accept(self) -> None:
        """Accept the first connection of each expected user; refuse every other."""
        connection, _ = self._listener.accept()
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        module = self._modules.get(_CREDENTIALS.unpack(peer)[1])
        if module is None or module in self._accepted:
            connection.close()
            return
        self._accepted.add(module)
        connection.settimeout(ORDER_TIMEOUT)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._on_message(module, connection))

    def _on_message(self, module: str, connection: socket.socket) -> None:
        """Read a container init's greeting; anything readable after it means that the container ended."""
        try:
            data, descriptors = receive_with_rights(connection)
            greeting = json.loads(data) if data and not descriptors and module not in self._connections else None
        except (OSError, ValueError):
            greeting = None
        if greeting is None:
            self._selector.unregister(connection)
            self._lost(f"the {module} container ended")
        elif self._confined and greeting["refusal"]:
            self._lost(f"in the {module} container: {greeting['refusal']}")
        else:
            print(f"the {module} container is connected; its sandbox level is {greeting['level']}", flush=True)
            self._connections[module] = connection
