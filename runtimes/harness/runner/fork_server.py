"""Fork server: has imported what the processes of one module need, and forks one for each order of a runner.

It runs no code of users, holds no token, and imports only packages of the platform's own locks. The node agent starts
one for each module and set of packages, and sends it a connection for each client: a runner that orders evaluators or
model servers, or the agent itself, which orders runners. A forked process is a child of the fork server, confines
itself exactly as one that was started, and ends when its client closes its control socket, with the client, or with
the fork server. Its name (`/proc/PID/comm`) is the client's, so that its memory can be counted for it.
"""

import ctypes
import gc
import importlib
import json
import mmap
import os
import re
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ..python_process import ending
from .memory_kills import memory_kills
from .ordered_processes import OrderedProcesses, receive_order
from .process_spec import ENTRIES, Installation, ProcessSpec, process_options

#: What the fork server sends the agent once its imports are done; its exit code if what it imported cannot be forked.
READY, UNFORKABLE = b"ready", 78
#: Niceness of what is forked, the fork server's own: that which confinement adds to a process that is started.
NICE = 5
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


@dataclass(frozen=True, kw_only=True, slots=True)
class ForkServerOptions:
    """What a fork server forks; strings and numbers only, to travel as JSON.

    ``imports``: the name of the simulator or of the model format.
    """

    module: str
    python: str
    harness: str
    site: str
    level: int | None
    imports: str


class ForkServer:
    """Serves its clients in one thread. Clients are sockets; a process belongs to the one that ordered it."""

    def __init__(self, options: ForkServerOptions, agent: socket.socket) -> None:
        self._module = options.module
        self._installation = Installation(
            python=options.python, harness=options.harness, site=options.site, level=options.level
        )
        self._agent = agent
        self._selector = selectors.DefaultSelector()
        self._processes = OrderedProcesses(self._selector)

    def serve(self) -> None:
        """Serve until the agent closes its socket."""
        self._selector.register(self._agent, selectors.EVENT_READ, self._accept)
        self._agent.send(READY)
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _accept(self) -> None:
        """Take a client's connection from the agent; its name comes with it."""
        name, descriptors, _, _ = socket.recv_fds(self._agent, 64, 1)
        if not name:
            os._exit(0)  # every process ends with this one
        client = socket.socket(fileno=descriptors[0])
        self._selector.register(client, selectors.EVENT_READ, lambda: self._execute_order(client, name.decode()))

    def _execute_order(self, client: socket.socket, name: str) -> None:
        received = receive_order(client)
        if received is None:
            self._selector.unregister(client)
            self._processes.kill_all(client)
            client.close()
            return
        order, (output, control, *rest) = received
        spec = ProcessSpec(**order["birth"])
        if spec.module != self._module:
            raise PermissionError(f"{spec.module} processes are not forked here")
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            code = 1
            try:
                self._become(spec, dict(zip(order["descriptors"], rest, strict=True)), output, name, parent)
                code = 0
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
                print(error, file=sys.stderr)
            except BaseException:
                traceback.print_exc()
            os._exit(code)  # nothing of this process's own may run
        control_socket = socket.socket(fileno=control)
        self._processes.add(pid, control_socket, self._describe_exit, client)
        control_socket.close()
        for descriptor in (output, *rest):
            os.close(descriptor)

    def _describe_exit(self, code: int, kills_before: int | None) -> str:
        """Return what the client reads: a runner's exit code, or how another process ended."""
        if self._module == "runner":
            return str(code)
        return ending(code, kills_before=kills_before, kills_after=memory_kills())

    def _become(self, spec: ProcessSpec, descriptors: Mapping[str, int], output: int, name: str, parent: int) -> None:
        """In the child: have nothing of the fork server but its memory, then run the module's entry."""
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15])
        os.setsid()
        self._processes.forget()
        os.dup2(output, 1)
        os.dup2(output, 2)
        first = 3
        for descriptor in sorted(descriptors.values()):
            os.closerange(first, descriptor)
            os.set_inheritable(descriptor, True)
            first = descriptor + 1
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))
        options = process_options(spec, self._installation, descriptors)
        if options["confinement"] is not None and self._module != "runner":
            options["confinement"]["nice"] = 0  # the fork server's is inherited
        sys.argv = ["-c", json.dumps(options)]
        gc.enable()
        importlib.import_module(f"..{ENTRIES[self._module]}", __package__).main()


def import_libraries(module: str, name: str, site: str) -> None:
    """Import what a module's processes import before they know what they work on."""
    importlib.import_module(f"..{ENTRIES[module]}", __package__)
    if module == "evaluator":
        simulator = importlib.import_module(f"..simulators.{name}", __package__)
        if hasattr(simulator, "preload"):
            from ..dataset_definition import Definition  # of its packages only the evaluator's server has msgspec

            simulator.preload(Definition())
    elif module == "model_server":
        sys.path.append(site)  # as in model_server/confined_start.py, which does it again
        importlib.import_module("..model_server.model_server", __package__)
        importlib.import_module(f"..models.{name}", __package__).FORMAT.preload()
        sys.path.remove(site)
    if module != "runner":
        importlib.import_module("..sandbox", __package__)


def unmap_file_pages() -> None:
    """Give back the pages of libraries that only the imports read: tens of megabytes, which no child would inherit.

    Pages of which this process has a copy of its own are kept. The kernel has the others in its cache, so that what is
    needed again costs a minor fault.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
    with open("/proc/self/smaps") as file:
        mappings = re.split(r"\n(?=[0-9a-f]+-)", file.read())
    for header, *counts in map(str.splitlines, mappings):
        addresses, permissions, _, _, inode, *_ = header.split()
        own = next(int(count.split()[1]) for count in counts if count.startswith("Anonymous:"))
        if inode != "0" and "w" not in permissions and not own:
            start, end = (int(address, 16) for address in addresses.split("-"))
            madvise(start, end - start, mmap.MADV_DONTNEED)


def main() -> NoReturn:
    """Import, and serve; exit with UNFORKABLE if a library has started a thread, which no child would have, or opened
    something, which children would share.
    """
    given: dict[str, Any] = json.loads(sys.argv[1])
    agent = socket.socket(fileno=given.pop("agent"))
    options = ForkServerOptions(**given)
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"fork_server")
    if options.module != "runner":
        os.nice(NICE)
    opened = set(os.listdir("/proc/self/fd"))
    import_libraries(options.module, options.imports, options.site)
    if len(os.listdir("/proc/self/task")) > 1 or not opened.issuperset(os.listdir("/proc/self/fd")):
        os._exit(UNFORKABLE)
    gc.collect()
    gc.freeze()  # a collection in a child would write to every page of the parent's objects
    gc.disable()
    unmap_file_pages()
    ForkServer(options, agent).serve()
    os._exit(0)
