"""API processes without the other roles, on one database and one store; a test kills and restarts them."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import httpx

from tests.ports import free_ports
from tests.system.platform_process import ROOT, census, die_with
from tests.waiting import until

#: Seconds until a process that was just started must answer, on a busy machine.
START_TIMEOUT = 60.0


class Api:
    """One API process, on a port that stays the same over restarts."""

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self.home = home
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        values = {"HOME": str(home), "PORT": str(self.port), **settings}
        environ = {key: value for key, value in os.environ.items() if not key.startswith("WINDTUNNEL_")}
        self._environ = environ | {f"WINDTUNNEL_{key}": value for key, value in values.items()}
        self._process: subprocess.Popen[bytes] | None = None
        self.http = httpx.Client(base_url=self.url, timeout=60.0, trust_env=False)

    def migrate(self) -> "Api":
        """Create the schema of the database that the API processes share."""
        self.home.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "server", "migrate"], cwd=ROOT, env=self._environ, check=True, timeout=60)
        return self

    def start(self) -> "Api":
        """Start or restart the server and wait until it answers."""
        parent = os.getpid()
        with open(self.home / f"api-{self.port}.log", "ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "server", "api"],
                cwd=ROOT,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: die_with(parent),
            )
        process = self._process

        def answers() -> bool:
            assert process.poll() is None, self.output()[-3000:]
            return self._answers()

        until(answers, START_TIMEOUT, lambda: self.output()[-3000:])
        return self

    def output(self) -> str:
        """Return the output of the process."""
        return (self.home / f"api-{self.port}.log").read_text(errors="replace")

    def _answers(self) -> bool:
        try:
            return self.http.get("/healthz", timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """Kill the process group; idempotent."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def resident(self) -> int:
        """Return the resident memory of the serving process, in bytes."""
        assert self._process is not None
        pids = [pid for pid, (parent, _) in census() if self._process.pid in {pid, parent}]
        return max(_resident(pid) for pid in pids)

    def stop(self) -> None:
        """Kill the process and close the client."""
        self.kill()
        self.http.close()


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
