"""granian: serves an RSGI application in the process that calls it, HTTP/1.1 only."""

import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from granian.constants import HTTPModes, Interfaces, Loops
from granian.log import LogLevels
from granian.server import MPServer

from server.slow_readers import own_sockets

#: TCP keep-alive: seconds of idleness before the first probe, seconds between probes, unanswered probes until the
#: connection is closed.
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES = 60, 15, 4
#: Seconds between two searches for granian's listening socket, and the most searches.
SEARCH_INTERVAL, SEARCHES = 0.05, 1200


#: Most connections (a further one waits until one of them ends), and open files that the process keeps for itself.
CONNECTIONS, OWN_FILES = 8192, 512


class SingleProcessServer(MPServer):
    """granian's server, whose only worker runs in the process that calls `serve`, in its main thread.

    granian starts its worker as a process, and waits for it in a second process that does nothing else: 15 MiB. The
    parent of this process (supervisor, kubelet) does that already. The worker is the same.
    """

    def _serve(self, spawn_target: Any, target_loader: Any) -> None:
        self._init_shared_socket()  # type: ignore[no-untyped-call]
        self._spawn_worker(0, spawn_target, target_loader).inner.run()


def serve(factory: Callable[[], Any], *, address: str, port: int) -> None:
    """Serve the RSGI application that the factory returns, until SIGINT or SIGTERM."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    # Until the event loop handles them; the first process of a container has no default action for signals.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    SingleProcessServer(
        "",
        address=address,
        port=port,
        interface=Interfaces.RSGI,
        loop=Loops.uvloop,
        http=HTTPModes.http1,
        workers=1,
        backlog=2048,
        backpressure=CONNECTIONS if files < 0 else max(64, min(CONNECTIONS, files - OWN_FILES)),
        websockets=False,
        log_level=LogLevels.warning,
    ).serve(target_loader=factory, wrap_loader=False)


def on_shutdown(*callbacks: Callable[[], None]) -> None:
    """Call the callbacks from a thread when SIGINT or SIGTERM arrives. Call this from the main thread.

    Granian handles the signals on its event loop and waits for every request in progress before it ends, so the signals
    are observed on their way to the event loop: between the wake-up file descriptor and the loop's own.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    event_loop = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def wait_for_signal() -> None:
        ended = False
        while True:
            numbers = os.read(reader, 64)
            if event_loop >= 0:
                os.write(event_loop, numbers)
            if not ended and {signal.SIGINT, signal.SIGTERM}.intersection(numbers):
                ended = True
                for callback in callbacks:
                    callback()

    threading.Thread(target=wait_for_signal, name="on-shutdown", daemon=True).start()


def enable_keepalive() -> None:
    """Enable TCP keep-alive for this process's clients; called when the application is built.

    A client that lost its network sends nothing, and would hold a thread, and an upload's slot among active uploads,
    for ever. Granian opens its listening socket after the application is built and has no setting for keep-alive;
    accepted connections inherit the option from the listening socket.
    """

    def set_options() -> None:
        pause = threading.Event()
        for _ in range(SEARCHES):
            if listeners := list(_listening_sockets()):
                for listener in listeners:
                    with listener:
                        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE)
                        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL)
                        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
                return
            pause.wait(SEARCH_INTERVAL)

    threading.Thread(target=set_options, name="enable-keepalive", daemon=True).start()


def _listening_sockets() -> Iterator[socket.socket]:
    """Yield a duplicate of each listening TCP socket of this process; the caller closes it."""
    for candidate in own_sockets():
        if candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and candidate.family != socket.AF_UNIX:
            yield candidate
        else:
            candidate.close()
