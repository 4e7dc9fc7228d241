"""Table of the disturbances of a chaos run: what each does to an installation, for how long, and how it is undone."""

import os
import random
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tests.system.installations import Installation, any_home
from tests.system.platform_process import PlatformProcess

#: Ends a disturbance.
Undo = Callable[[], None]
#: Begins a disturbance; returns how it is undone, or None if there is nothing to disturb at this moment.
Begin = Callable[[Installation, random.Random], Undo | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Disturbance:
    """``target``: what only one disturbance at a time is aimed at; ``seconds``: the shortest and longest it lasts.

    ``may_last`` for minutes: it is also the long outage of a run.
    """

    begin: Begin
    does: str
    target: str
    seconds: tuple[float, float] = (0.0, 0.0)
    may_last: bool = False


def nothing() -> None:
    """Undo what the platform itself undoes: a supervisor starts what was killed again."""


def kill_role(role: str) -> Begin:
    """Kill a process of a role, of any supervisor."""

    def begin(installation: Installation, rng: random.Random) -> Undo | None:
        home = any_home(installation, rng, role)
        pids = home.pids(role) if home is not None else []
        return nothing if home is not None and pids and home.kill_process(rng.choice(pids)) else None

    return begin


def freeze_role(role: str) -> Begin:
    """Stop every process of a role of one supervisor, which keep their connections and locks, and continue them."""

    def begin(installation: Installation, rng: random.Random) -> Undo | None:
        home = any_home(installation, rng, role)
        pids = home.pids(role) if home is not None else []
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return partial(thaw, pids) if pids else None

    return begin


def thaw(pids: list[int]) -> None:
    """Continue stopped processes; a supervisor may have killed them meanwhile."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def kill_supervisor(number: int) -> Begin:
    """Kill a supervisor, and with it everything that it has started; start it again in the same home."""

    def begin(installation: Installation, rng: random.Random) -> Undo | None:
        home = installation.homes[number]
        if not home.began:
            return None
        installation.note_processes()
        home.crash()
        return partial(_begin_again, home)

    return begin


def _begin_again(home: PlatformProcess) -> None:
    home.begin()


def remove_socket(installation: Installation, rng: random.Random) -> Undo | None:
    """Remove the socket of the embedded Valkey, which lives on and cannot be reached."""
    with suppress(FileNotFoundError):
        (installation.homes[0].home / "run" / "valkey.sock").unlink()
        return nothing
    return None


def keep_valkey_away(installation: Installation, rng: random.Random) -> Undo | None:
    """Remove the socket of each Valkey that the supervisor starts, for as long as this lasts."""
    socket, over = installation.homes[0].home / "run" / "valkey.sock", threading.Event()

    def remove() -> None:
        while not over.wait(0.1):
            socket.unlink(missing_ok=True)

    remover = threading.Thread(target=remove, name="keeps Valkey away", daemon=True)
    remover.start()

    def undo() -> None:
        over.set()
        remover.join()

    return undo


def flush_redis(installation: Installation, rng: random.Random) -> Undo | None:
    """Delete every job and wake-up in Redis."""
    return nothing if installation.flush_redis() else None


def sever(name: str) -> Begin:
    """Drop all packets to and from a server: connections stay open, and no byte is answered."""

    def begin(installation: Installation, rng: random.Random) -> Undo | None:
        assert installation.servers is not None
        proxy = installation.servers.proxies[name]
        proxy.sever()
        return proxy.restore

    return begin


def kill_server(name: str) -> Begin:
    """Kill a server, so that its connections end and new ones are refused; start it again."""

    def begin(installation: Installation, rng: random.Random) -> Undo | None:
        assert installation.servers is not None
        installation.servers.kill(name)
        return partial(installation.servers.start, name)

    return begin


def _role(role: str) -> Disturbance:
    return Disturbance(begin=kill_role(role), does=f"kill -9 of a {role}", target=role)


#: One supervisor with SQLite, its own Valkey and files.
SQLITE: Mapping[str, Disturbance] = {
    **{f"kill {role}": _role(role) for role in ("valkey", "api", "runner-api", "dispatch", "jobs", "agent", "scs")},
    "kill supervisor": Disturbance(
        begin=kill_supervisor(0), does="kill -9 of the supervisor", target="home", seconds=(0.0, 5.0), may_last=True
    ),
    "freeze api": Disturbance(begin=freeze_role("api"), does="SIGSTOP of the API", target="api", seconds=(1.0, 8.0)),
    "freeze dispatch": Disturbance(
        begin=freeze_role("dispatch"), does="SIGSTOP of the dispatcher", target="dispatch", seconds=(2.0, 12.0)
    ),
    "remove socket": Disturbance(begin=remove_socket, does="unlink of Valkey's socket", target="valkey"),
    "freeze valkey": Disturbance(
        begin=freeze_role("valkey"), does="SIGSTOP of Valkey", target="valkey", seconds=(5.0, 12.0)
    ),
    "no valkey": Disturbance(
        begin=keep_valkey_away,
        does="unlink of the socket of each Valkey that is started",
        target="valkey",
        seconds=(3.0, 12.0),
        may_last=True,
    ),
    "flush redis": Disturbance(begin=flush_redis, does="FLUSHALL", target="flush"),
}
#: Two supervisors that share a PostgreSQL, a MinIO and a Valkey.
POSTGRESQL: Mapping[str, Disturbance] = {
    **{f"kill {role}": _role(role) for role in ("api", "runner-api", "dispatch", "jobs", "agent", "scs")},
    **{
        f"kill {name} supervisor": Disturbance(
            begin=kill_supervisor(number),
            does="kill -9 of a supervisor",
            target=name,
            seconds=(0.0, 8.0),
            may_last=True,
        )
        for number, name in enumerate(("first", "second"))
    },
    "freeze api": Disturbance(begin=freeze_role("api"), does="SIGSTOP of an API", target="api", seconds=(1.0, 8.0)),
    "freeze dispatch": Disturbance(
        begin=freeze_role("dispatch"), does="SIGSTOP of a dispatcher", target="dispatch", seconds=(2.0, 14.0)
    ),
    "flush redis": Disturbance(begin=flush_redis, does="FLUSHALL", target="flush"),
    **{
        f"sever {name}": Disturbance(
            begin=sever(name), does="no packet passes", target=name, seconds=(2.0, 8.0), may_last=True
        )
        for name in ("database", "store", "redis")
    },
    **{
        f"kill {name}": Disturbance(
            begin=kill_server(name), does="kill -9 of the server", target=name, seconds=(0.5, 6.0), may_last=True
        )
        for name in ("database", "store", "redis")
    },
}
DISTURBANCES: Mapping[str, Mapping[str, Disturbance]] = {"sqlite": SQLITE, "postgresql": POSTGRESQL}
#: Roles of the processes that play a simulation; a kill of each is aimed at a simulation while it is played.
PLAYING_ROLES = ("runner", "evaluator", "model_server")
