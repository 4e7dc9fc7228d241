"""Whole installations for chaos: supervisors that share a database, a store and a Redis, each of which may go away."""

import os
import random
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
import redis

from tests.postgres import PostgresServer, own_postgres
from tests.s3_servers import S3Server, fresh_bucket, minio_server
from tests.severed_connections import SeveredConnections
from tests.system.platform_process import PlatformProcess, lives, name_of, role_of
from tests.valkey import Valkey
from tests.waiting import until

#: Short leases, so that the tasks of a killed runner are leased again soon; room for every simulation at once; and no
#: spare runners, each of which would have as many workers as there is room for.
SETTINGS = {"LEASE_TTL": "3", "WORKERS": "16", "WARM_RUNNERS": "0"}
#: Seconds in which a request must be answered; it is repeated then, at another supervisor's API if there is one.
ANSWER = 15.0
LIVE_LAUNCHES = "SELECT id FROM launches WHERE simulation_id = {} AND state = 'live'"


class Installation:
    """One or more supervisors on one database; ``servers`` are what they reach over a network, by name."""

    def __init__(self, homes: list[PlatformProcess], servers: "Servers | None" = None) -> None:
        self.homes = homes
        self.servers = servers
        self._seen: dict[int, tuple[int, str | None]] = {}
        self._turn = 0
        self._http = httpx.Client(timeout=ANSWER, trust_env=False)

    def start(self) -> "Installation":
        """Start every supervisor and wait until each answers that it is ready."""
        for home in self.homes:
            home.start()
        return self

    def stop(self) -> None:
        """Stop every supervisor, and check that no process of any of them is left."""
        self.note_processes()
        for home in self.homes:
            home.stop()
        self._http.close()
        until(lambda: not self.left_behind(), message=lambda: f"processes are left behind: {self.left_behind()}")

    def note_processes(self) -> None:
        """Remember the processes that exist now, for the check at the end."""
        for home in self.homes:
            if home.began:
                new = {pid: started for pid, started in home.processes().items() if pid not in self._seen}
                self._seen |= {pid: (started, role_of(pid)) for pid, started in new.items()}

    def left_behind(self) -> list[str]:
        """Return the processes that were seen at any time and still live."""
        return [f"{role} ({pid})" for pid, (started, role) in self._seen.items() if lives(pid, started)]

    # -- requests

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        """Send a request to one of the APIs; return None if it is not answered, or if it has to be repeated."""
        self._turn += 1
        home = self.homes[self._turn % len(self.homes)]
        try:
            response = self._http.request(method, home.url + path, **options)
        except httpx.TransportError:
            return None
        to_be_repeated = response.status_code >= 500 or response.status_code in (408, 429)
        return None if to_be_repeated or "Retry-After" in response.headers else response

    def answer(self, method: str, path: str, timeout: float = 120.0, **options: Any) -> httpx.Response:
        """Repeat a request until it is answered, at each API in turn."""
        response = until(
            lambda: self.ask(method, path, **options), timeout, lambda: f"{method} {path} is not answered", every=0.1
        )
        assert response is not None
        return response

    def lines(self, id: str) -> list[bytes]:
        """Return the result lines of a simulation, in task order."""
        response = self.answer("GET", f"/v1/simulations/{id}/results")
        assert response.status_code == 200, response.text
        return response.content.splitlines()

    def unready(self) -> list[str]:
        """Return what /readyz says of each supervisor that is not entirely well."""
        problems = []
        for home in self.homes:
            try:
                answer = home.http.get("/readyz", timeout=ANSWER).json()
            except httpx.TransportError as error:
                problems.append(f"{home.home.name}: {error!r}")
                continue
            wrong = {name: check for name, check in answer["checks"].items() if name in CHECKS and check != "ok"}
            if wrong or not answer["ready"]:
                problems.append(f"{home.home.name}: {answer}")
        return problems

    # -- processes of one simulation

    def processes_of(self, simulation: str, role: str) -> list[tuple[PlatformProcess, int]]:
        """Return the processes of a role that play a simulation: its runners, or what these have started."""
        found = []
        for home in self.homes:
            if not home.began:
                continue
            logs = {str(home.home / "launches" / launch / "runner.log") for launch in self._launches(simulation)}
            table = home.processes_with_parents()
            runners = {pid for pid in table if role_of(pid) == "runner" and _output_of(pid) in logs}
            names = {name_of(runner) for runner in runners}  # what is forked for a runner has the runner's name
            for pid in table:
                if role_of(pid) == role and (
                    name_of(pid) in names or any(ancestor in runners for ancestor in _ancestors(pid, table))
                ):
                    found.append((home, pid))
        return found

    def _launches(self, simulation: str) -> list[str]:
        """Return the live launches of a simulation, from its database; none while that does not answer."""
        if self.servers is None:
            with closing(sqlite3.connect(f"file:{self.homes[0].home}/windtunnel.db?mode=ro", uri=True)) as connection:
                return [row[0] for row in connection.execute(LIVE_LAUNCHES.format("?"), (simulation,))]
        with suppress(psycopg.OperationalError), psycopg.connect(self.servers.database.url, connect_timeout=3) as c:
            return [row[0] for row in c.execute(LIVE_LAUNCHES.format("%s"), (simulation,))]
        return []

    # -- Redis

    def flush_redis(self) -> bool:
        """Empty the notifier's Redis, as an operator might; return whether it answered."""
        run = self.homes[0].home / "run" if self.servers is None else self.servers.redis.run
        try:
            password = (run / "valkey.password").read_text()
            with redis.Redis(unix_socket_path=str(run / "valkey.sock"), password=password) as connection:
                connection.flushall()
        except (redis.ConnectionError, OSError):
            return False
        return True


#: The checks of /readyz that must be well after every disturbance; the sandbox is as the machine has it.
CHECKS = ("database", "notifier", "store")


class Servers:
    """The PostgreSQL, MinIO and Valkey of an installation, each behind a proxy that can be severed."""

    def __init__(self, database: PostgresServer, store: S3Server, redis: Valkey) -> None:
        self.database, self.store, self.redis = database, store, redis
        self.proxies = {
            "database": SeveredConnections(database.socket),
            "store": SeveredConnections(("127.0.0.1", store.port)),
            "redis": SeveredConnections(redis.run / "valkey.sock"),
        }
        self._bucket = fresh_bucket()

    def settings(self) -> Mapping[str, str]:
        """Return the settings of a platform that reaches the servers through the proxies."""
        port = {name: proxy.port for name, proxy in self.proxies.items()}
        password = (self.redis.run / "valkey.password").read_text()
        return {
            "DATABASE_URL": f"postgresql+psycopg://postgres@127.0.0.1:{port['database']}/postgres",
            "OBJECT_STORE_URL": f"s3://{self._bucket}/platform?endpoint=http://127.0.0.1:{port['store']}&region=us-east-1",
            "OBJECT_STORE_ACCESS_KEY": self.store.access_key,
            "OBJECT_STORE_SECRET_KEY": self.store.secret_key,
            "REDIS_URL": f"redis://:{password}@127.0.0.1:{port['redis']}",
        }

    def kill(self, name: str) -> None:
        """Kill a server by name."""
        getattr(self, name).kill()

    def start(self, name: str) -> None:
        """Start a killed server again."""
        getattr(self, name).start()


@contextmanager
def sqlite_installation(folder: Path) -> Iterator[Installation]:
    """One supervisor with SQLite, its own Valkey, and files."""
    installation = Installation([PlatformProcess(folder / "home", settings=SETTINGS)])
    try:
        yield installation.start()
    finally:
        installation.stop()


@contextmanager
def postgresql_installation(folder: Path) -> Iterator[Installation]:
    """Two supervisors that share a PostgreSQL, a MinIO and a Valkey; the dispatcher of one leads."""
    with ExitStack() as stack:
        database = stack.enter_context(own_postgres())
        store = minio_server(folder / "minio").start()
        stack.callback(store.kill)
        (folder / "redis").mkdir()
        valkey = Valkey(folder / "redis")
        stack.callback(valkey.kill)
        servers = Servers(database, store, valkey)
        for proxy in servers.proxies.values():
            stack.callback(proxy.close)
        settings = {**SETTINGS, **servers.settings()}
        homes = [PlatformProcess(folder / name, settings=settings) for name in ("first", "second")]
        installation = Installation(homes, servers)
        try:
            yield installation.start()
        finally:
            installation.stop()


INSTALLATIONS = {"sqlite": sqlite_installation, "postgresql": postgresql_installation}


def any_home(installation: Installation, rng: random.Random, role: str) -> PlatformProcess | None:
    """Return a random supervisor that has a process of a role; None if none has."""
    homes = [home for home in installation.homes if home.began and home.pids(role)]
    return rng.choice(homes) if homes else None


def _ancestors(pid: int, table: Mapping[int, int]) -> Iterator[int]:
    """Yield a process and its ancestors within the table of parents."""
    while pid in table:
        yield pid
        pid = table[pid]


def _output_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/1")
    except OSError:
        return ""
