"""The platform to be measured: its own process tree in a new home folder on free ports, started like `make run`."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.platform_client import PlatformClient
from scripts.run_s3 import die_with_parent

#: Environments are built once and shared by all home folders: no benchmark includes their preparation.
ENVIRONMENTS = Path("var/environments")


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PlatformProcess:
    """A started platform."""

    def __init__(self, home: Path, **settings: str) -> None:
        self.home, self.port = home, free_port()
        ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
        if not (home / "environments").exists():
            (home / "environments").symlink_to(ENVIRONMENTS.resolve())
        environ = {name: value for name, value in os.environ.items() if not name.startswith("WINDTUNNEL_")}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as in the Makefile
        environ |= {f"WINDTUNNEL_{name.upper()}": value for name, value in settings.items()}
        environ |= {"WINDTUNNEL_HOME": str(home), "WINDTUNNEL_PORT": str(self.port)}
        environ |= {"WINDTUNNEL_RUNNER_API_PORT": str(free_port()), "WINDTUNNEL_SCS_PORT": str(free_port())}
        began = time.perf_counter()
        with open(home / "bench.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "server", "run"],
                env=environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGINT),  # a benchmark that is killed leaves no platform running
            )
        self._await_readiness()
        #: Seconds from the start of the first process to the first answer of `/readyz` with 200.
        self.start_seconds = time.perf_counter() - began

    def _await_readiness(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass  # not listening yet
            finally:
                connection.close()
            time.sleep(0.01)
        self.stop()
        raise RuntimeError(f"The platform did not start: {(self.home / 'bench.log').read_text()[-2000:]}")

    def connect(self) -> PlatformClient:
        """Open a connection."""
        return PlatformClient(self.port)

    def stop(self) -> None:
        """Stop the platform like Ctrl-C."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def fresh_home() -> Iterator[Path]:
    """Yield a new home folder, and delete it afterwards."""
    home = Path(tempfile.mkdtemp(prefix="windtunnel-bench-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def running_platform(**settings: str) -> Iterator[PlatformProcess]:
    """Run the platform in a new home folder."""
    with fresh_home() as home:
        started = PlatformProcess(home, **settings)
        try:
            yield started
        finally:
            started.stop()
