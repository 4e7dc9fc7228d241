"""Valkey server for a single test, which may kill and restart it."""

import subprocess
from pathlib import Path

from core.notifications import embedded_valkey
from tests.waiting import until


class Valkey:
    """A server with a socket in the folder ``home``."""

    def __init__(self, home: Path) -> None:
        self.home, self.run = home, home / "run"
        self.run.mkdir(mode=0o700)
        self.start()
        self.url = embedded_valkey.embedded(self.run)

    def start(self) -> None:
        self.process = subprocess.Popen(embedded_valkey.command(self.home, self.run), stdout=subprocess.DEVNULL)
        until(lambda: (self.run / "valkey.sock").exists())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        (self.run / "valkey.sock").unlink(missing_ok=True)
