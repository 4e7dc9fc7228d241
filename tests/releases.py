"""Homes and databases of earlier releases, as tests/release_recording.py has recorded them, ready to be upgraded."""

import json
import os
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import httpx
import msgspec
import psycopg

from core.store.clock_steps import TIMES
from tests.databases import postgres_url
from tests.ports import free_ports
from tests.release_recording import RECORDED, TOKEN
from tests.system.platform_process import die_with
from tests.waiting import until

#: Columns of TIMES that hold no moment.
_DURATIONS = frozenset({"ranges.ttl", "ranges.rate"})
_START_TIMEOUT = 60.0


class RecordedWork(msgspec.Struct, frozen=True):
    """What a recorded platform had. ``recorded_at``: when it was killed, in seconds; ``ids``: by the name of each."""

    recorded_at: float
    ids: Mapping[str, str]


class RecordedHome:
    """A home that was unpacked, with its database, whose times are moved as if it had been killed a moment ago."""

    def __init__(self, version: str, engine: str, folder: Path, new_database: Callable[[], str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(RECORDED / version / f"{engine}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        self.home = folder / "home"
        self.ids = (work := msgspec.json.decode((folder / "work.json").read_bytes(), type=RecordedWork)).ids
        self.settings = {"TOKEN": TOKEN, "WORKERS": "4", "WARM_RUNNERS": "0", "SCS_PORT": "0"}
        later = time.time() - work.recorded_at
        if engine == "sqlite":
            self.url = f"sqlite:///{self.home / 'windtunnel.db'}"
            with closing(sqlite3.connect(self.home / "windtunnel.db")) as connection:
                names = "SELECT m.name || '.' || c.name FROM sqlite_master m, pragma_table_info(m.name) c"
                for statement in _shifts([row[0] for row in connection.execute(names)], later):
                    connection.execute(statement)
                connection.commit()
            return
        self.url = new_database()
        self.settings["DATABASE_URL"] = self.url
        with psycopg.connect(self.url.replace("+psycopg", "")) as postgres:
            postgres.execute((folder / "database.sql").read_bytes())
            postgres.execute("SET search_path TO public")
            names = "SELECT table_name || '.' || column_name FROM information_schema.columns"
            for statement in _shifts([row[0] for row in postgres.execute(names)], later):
                postgres.execute(statement.encode())


def _shifts(names: list[str], later: float) -> list[str]:
    """Return statements that move every stored moment; ``names``: the columns that there are."""
    columns = [name.split(".") for name in names if name in TIMES and name not in _DURATIONS]
    return [f"UPDATE {table} SET {column}={column}+{later} WHERE {column}>0" for table, column in columns]


def recorded_home(version: str, engine: str, folder: Path, server: str | None, name: str) -> RecordedHome:
    """Unpack a home; ``server``: the PostgreSQL for its database; ``name``: any text that is unique to the caller."""
    return RecordedHome(version, engine, folder, lambda: postgres_url(server or "", name, migrated=False))


class EarlierApi:
    """API process of an earlier release, with the packages that are installed now."""

    def __init__(self, version: str, recorded: RecordedHome, folder: Path) -> None:
        folder.mkdir()
        with tarfile.open(RECORDED / version / "api.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        [port] = free_ports(1)
        self._log = folder / "api.log"
        values = {"HOME": str(recorded.home), "PORT": str(port), **recorded.settings}
        environ = {key: value for key, value in os.environ.items() if not key.startswith("WINDTUNNEL_")}
        environ |= {f"WINDTUNNEL_{key}": value for key, value in values.items()} | {"PYTHONPATH": str(folder)}
        parent = os.getpid()
        with open(self._log, "wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "server", "api"],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: die_with(parent),
            )
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0, trust_env=False, headers=headers)

    def wait(self) -> "EarlierApi":
        """Wait until it answers."""

        def answers() -> bool:
            assert self._process.poll() is None, self.output()[-3000:]
            try:
                return self.http.get("/healthz", timeout=5.0).status_code == 200
            except httpx.TransportError:
                return False

        until(answers, _START_TIMEOUT, lambda: self.output()[-3000:])
        return self

    def output(self) -> str:
        """Return what the process has printed."""
        return self._log.read_text(errors="replace")

    def errors(self) -> list[str]:
        """Return the lines of its log that are errors."""
        lines = [json.loads(line) for line in self.output().splitlines() if line.startswith("{")]
        return [json.dumps(line)[:2000] for line in lines if line["level"] in ("ERROR", "CRITICAL")]

    def stop(self) -> None:
        """End the process and the client."""
        self.http.close()
        self._process.kill()
        self._process.wait()
