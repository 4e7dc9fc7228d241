"""Serving an application with granian: one worker process, and a thread for every request that may block."""

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

#: Seconds of silence after which the kernel asks a client whether it is there, between two such questions, and how many
#: go unanswered until it is gone.
SILENCE, AGAIN, UNANSWERED = 60, 15, 4
#: Seconds between two looks for the socket that granian listens on, and how many there are.
LOOK, LOOKS = 0.05, 1200


def serve(factory: str, *, address: str, port: int, threads: int) -> None:
    """Serve what the factory (``module:function``) makes until told to stop."""
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


def at_end(work: Callable[[], None]) -> None:
    """Have this done once a signal tells this process to end, though granian is who handles it: from the main thread.

    Granian waits for every answer that is under way before it ends.
    """
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)

    def listen() -> None:
        while not {signal.SIGINT, signal.SIGTERM}.intersection(os.read(ours, 64)):
            continue
        work()

    threading.Thread(target=listen, name="at end", daemon=True).start()


def ask_the_silent() -> None:
    """Have the kernel ask this process's clients whether they live; to be called where the application is made.

    A phone that lost its net says no word, and would hold a thread, and an upload's place among those that bring bytes,
    for ever. Granian opens its socket later than this, has no setting for it, and what is accepted inherits it.
    """

    def find() -> None:
        pause = threading.Event()
        for _ in range(LOOKS):
            if found := list(_listening()):
                for listener in found:
                    with listener:
                        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE)
                        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, AGAIN)
                        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, UNANSWERED)
                return
            pause.wait(LOOK)

    threading.Thread(target=find, name="ask the silent", daemon=True).start()


def _listening() -> Iterator[socket.socket]:
    """Yield this process's listening TCP sockets, each as one of its own."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed by now
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found = socket.socket(fileno=os.dup(int(name)))
                if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and found.family != socket.AF_UNIX:
                    yield found
                else:
                    found.close()
