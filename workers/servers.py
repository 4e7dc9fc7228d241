"""Serving an application with granian: one worker process, and a thread for every request that may block."""

import os
import signal
import threading
from collections.abc import Callable

from granian import Granian
from granian.constants import Interfaces
from granian.log import LogLevels


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
