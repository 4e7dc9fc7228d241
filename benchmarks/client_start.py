"""Start of the command line: time of `windtunnel --help`, of a list and of a completion, beside kubectl and Python."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import spread
from benchmarks.platform_client import PlatformClient
from benchmarks.platform_process import running_platform
from benchmarks.results import aim, milliseconds, spanned, table

RUNS = 20
#: Seconds that the start of the command line may take.
GOAL = 0.150
#: What bash runs when TAB is pressed after `windtunnel run idm car_`; the shell has loaded the script before.
COMPLETED = ("run", "idm", "car_")


def commands() -> dict[str, Sequence[str]]:
    """Return what is measured, by its name; kubectl only where it is installed."""
    program = str(Path(sys.executable).with_name("windtunnel"))
    measured: dict[str, Sequence[str]] = {
        "`python -c pass`": (sys.executable, "-c", "pass"),
        "`windtunnel --version`": (program, "--version"),
        "`windtunnel --help`": (program, "--help"),
        "`windtunnel simulations list`": (program, "simulations", "list"),
        "completion of a dataset's name in bash": (program,),
    }
    if kubectl := shutil.which("kubectl"):
        measured["`kubectl version --client`"] = (kubectl, "version", "--client")
    return measured


def seconds_of(command: Sequence[str], environ: Mapping[str, str]) -> float:
    """Run a command to its end and return how long it took."""
    began = time.perf_counter()
    subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def measure() -> dict[str, Any]:
    """Measure each command in turns, so that a busy moment of the machine meets all of them."""
    measured = commands()
    times: dict[str, list[float]] = {name: [] for name in measured}
    with running_platform() as platform:
        environ = os.environ | {"WINDTUNNEL_URL": f"http://127.0.0.1:{platform.port}"}
        completing = {
            "_WINDTUNNEL_COMPLETE": "bash_complete",
            "COMP_WORDS": "\n".join(["windtunnel", *COMPLETED]),
            "COMP_CWORD": str(len(COMPLETED)),
        }
        fill(platform.connect())
        for run in range(RUNS + 1):
            for name, command in measured.items():
                seconds = seconds_of(command, environ | (completing if name.startswith("completion") else {}))
                if run:  # the first one fills the caches of the disk and of bytecode
                    times[name].append(seconds)
    for name, values in times.items():
        print(f"{name}: {spread(values)}", flush=True)
    return {"commands": {name: spread(values) for name, values in times.items()}}


def fill(client: PlatformClient) -> None:
    """Submit as many simulations as a list shows."""
    submission = {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, 1]}}
    for _ in range(20):
        client.submit(submission)
    client.close()


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    measured = figures["commands"]
    rows = [[name, spanned(values, milliseconds)] for name, values in measured.items()]
    return "\n\n".join(
        [
            f"Time of a process from its start to its end, {measured['`windtunnel --help`']['runs']} runs of each in "
            "turns after one that is not counted. The list shows the 20 simulations of a platform on the same machine; "
            "the completion, of `windtunnel run idm car_`, asks it for its datasets.",
            table(["command", "median (minimum to maximum)"], rows),
            aim(
                f"`windtunnel --help` in less than {GOAL * 1000:.0f} ms",
                measured["`windtunnel --help`"]["median"] < GOAL,
            ),
        ]
    )
