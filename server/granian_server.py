"""granian: serves a WSGI application with one worker process and one thread for each concurrent request."""

import os
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from granian import Granian
from granian.constants import Interfaces
from granian.log import LogLevels

#: TCP keep-alive: seconds of idleness before the first probe, seconds between probes, unanswered probes until the
#: connection is closed.
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES = 60, 15, 4
#: Seconds between two searches for granian's listening socket, and the most searches.
SEARCH_INTERVAL, SEARCHES = 0.05, 1200


def serve(factory: str, *, address: str, port: int, threads: int) -> None:
    """Serve the application that the factory (``module:function``) returns, until SIGINT or SIGTERM."""
    Granian(
        factory,
        address=address,
        port=port,
        interface=Interfaces.WSGI,
        factory=True,
        workers=1,
        blocking_threads=threads,
        blocking_threads_idle_timeout=60,
        backlog=2048,
        websockets=False,
        log_level=LogLevels.warning,
    ).serve()


def on_shutdown(callback: Callable[[], None]) -> None:
    """Call ``callback`` from a thread when SIGINT or SIGTERM arrives. Call this from the main thread.

    Granian handles the signals itself and waits for every request in progress before it ends, so the signal is
    observed through its wake-up file descriptor.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def wait_for_signal() -> None:
        while not {signal.SIGINT, signal.SIGTERM}.intersection(os.read(reader, 64)):
            continue
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
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed by now
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                candidate = socket.socket(fileno=os.dup(int(name)))
                if candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and candidate.family != socket.AF_UNIX:
                    yield candidate
                else:
                    candidate.close()
