"""First processes of containers: SIGTERM ends them at once, also while they import their libraries."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until

ROOT = Path(__file__).parents[2]
#: The module of a container's first process, and its arguments.
FIRST_PROCESSES = {
    "runtimes.harness.runner.container_init": ["evaluator"],
    "workers.standalone_runner": ["--launch", "launch.json"],
    "workers.gang_runner": ["--launch", "launch.json"],
    "runtimes.harness.gang.replica": [],
}
#: A module of the standard library that never finishes to be imported.
NEVER_IMPORTED = "import os, signal\nos.write(1, b'importing')\nwhile True: signal.pause()\n"


@pytest.mark.parametrize("module", FIRST_PROCESSES)
def test_the_first_process_of_a_container_stops_while_it_imports(module: str, tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text(NEVER_IMPORTED)
    namespace = ["unshare", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        namespace += ["--user", "--map-root-user"]
    command = [*namespace, sys.executable, "-m", module, *FIRST_PROCESSES[module]]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tmp_path)}, stdout=subprocess.PIPE
    ) as outer:
        assert outer.stdout is not None
        assert outer.stdout.read(9) == b"importing"
        first = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text())
        os.kill(first, signal.SIGTERM)
        until(lambda: outer.poll() is not None, message="the first process does not stop")
        assert outer.returncode == 128 + signal.SIGTERM
