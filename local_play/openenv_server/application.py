"""Application: the process that serves a dataset with OpenEnv's own server, in an environment that has OpenEnv."""

import functools
import json
import socket
import sys
from typing import Any

import uvicorn
from fastapi import Request
from fastapi.responses import JSONResponse
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.types import ConcurrencyConfig

from local_play.openenv_server.actions import InvalidAction
from local_play.openenv_server.environment import DatasetEnvironment, NoFreeSession, NoScenario, SessionClosed, Sessions
from local_play.openenv_server.guard import Guard
from local_play.openenv_server.schemas import ScenarioState, schemas
from local_play.scenario_choice import InvalidReset
from local_play.served_world import ServedWorld
from local_play.session_process import ScenarioFailed, SessionEnded, StepRefused

#: HTTP statuses of errors; over a WebSocket they are OpenEnv's errors with the same sentences.
STATUSES: dict[type[Exception], int] = {
    InvalidAction: 422,
    InvalidReset: 422,
    StepRefused: 422,
    NoScenario: 409,
    SessionClosed: 409,
    NoFreeSession: 503,
    ScenarioFailed: 500,
    SessionEnded: 500,
}
#: The most bytes of a WebSocket message: an action is small.
LARGEST = 1 << 20
#: Seconds that open connections have when the server stops.
STOP_SECONDS = 5


def application(sessions: Sessions) -> Any:
    """Return OpenEnv's application for a dataset."""
    world = sessions.world
    action, observation = schemas(world.interface)
    app = create_app(
        functools.partial(DatasetEnvironment, sessions, observation),
        action,
        observation,
        env_name=world.name,
        concurrency_config=ConcurrencyConfig(max_concurrent_envs=world.sessions, session_timeout=world.idle),
        state_cls=ScenarioState,
    )
    for error in STATUSES:
        app.add_exception_handler(error, _answer)
    return app


async def _answer(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, STATUSES[type(error)])


class AnnouncedServer(uvicorn.Server):
    """Says on the terminal where it serves, once it does."""

    def __init__(self, config: uvicorn.Config, announcement: str) -> None:
        super().__init__(config)
        self._announcement = announcement

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        print(self._announcement, flush=True)


def main() -> int:
    """Serve until a signal; return the exit code. The options are on standard input."""
    options = json.load(sys.stdin)
    host, port, sessions = options["host"], options["port"], Sessions(ServedWorld.of(options["world"]))
    config = uvicorn.Config(
        Guard(application(sessions), options["token"]),
        log_level="warning",
        ws_max_size=LARGEST,
        timeout_graceful_shutdown=STOP_SECONDS,
        server_header=False,
    )
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        print(f"Cannot listen on {host}, port {port}: {error.strerror}. Choose another --port.", file=sys.stderr)
        return 1
    address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
    announcement = f"{sessions.world.name}: OpenEnv's clients connect to {address}; Ctrl-C ends it."
    try:
        AnnouncedServer(config, announcement).run([listener])
    except KeyboardInterrupt:
        pass  # uvicorn has ended in order, and repeats the signal
    finally:
        sessions.kill()
    return 0
