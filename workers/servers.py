"""Serving an application with granian: one worker process, and a thread for every request that may block."""

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
