"""First sweep: time from `git clone` until a program with MPI is swept on a laptop, by the commands of the README."""

import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from benchmarks.figures import spread
from benchmarks.first_look import LIMIT, bytes_of, environ_with
from benchmarks.results import number, spanned, table
from benchmarks.terminal import on_terminal

#: Runs whose caches are full.
WARM = 2
SWEEP = ("--ranks", "2", "--sweep", "points=25,50,100")
#: Seconds between two questions for the first result.
LOOK_INTERVAL = 0.05
#: Moments, in order, as the section names them.
MOMENTS: Mapping[str, str] = {
    "cloned": "cloned",
    "serves": "`make run` serves: packages are installed, the platform has started",
    "submitted": "`windtunnel run` has begun",
    "first": "**the first point of the sweep has its result**",
    "swept": "`windtunnel run` has printed the table of the sweep",
}


def first_sweep(caches: Path) -> dict[str, float]:
    """Clone the commit of this checkout into a new folder and sweep; return the seconds until each moment."""
    repository = Path(__file__).resolve().parents[1]
    environ = environ_with(caches)
    address = f"http://localhost:{environ['WINDTUNNEL_PORT']}"
    environ["WINDTUNNEL_URL"] = address
    with tempfile.TemporaryDirectory(prefix="windtunnel-first-sweep-") as folder:
        clone = Path(folder) / "windtunnel"
        command = str(clone / ".venv/bin/windtunnel")
        began = time.perf_counter()
        seconds: dict[str, float] = {}

        def reached(moment: str) -> None:
            seconds[moment] = time.perf_counter() - began

        subprocess.run(["git", "clone", "--quiet", f"file://{repository}", str(clone)], check=True)
        reached("cloned")
        with on_terminal(["make", "run"], clone, environ), httpx.Client(base_url=address) as client:
            _until(lambda: _serves(client))
            reached("serves")
            subprocess.run([command, "new", "mpi", "rod"], cwd=folder, env=environ, check=True, capture_output=True)
            with on_terminal([command, "run", "rod/heat.py", *SWEEP], Path(folder), environ) as run:
                reached("submitted")
                _until(lambda: _results(client) > 0)
                reached("first")
                if run.process.wait(LIMIT) != 0:
                    raise RuntimeError(f"the sweep did not succeed: {run.text[-3000:]}")
                reached("swept")
                run.until("100 ", LIMIT)
    print({moment: round(value, 1) for moment, value in seconds.items()}, flush=True)
    return seconds


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("it took too long")
        time.sleep(LOOK_INTERVAL)


def _serves(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").is_success
    except httpx.TransportError:
        return False


def _results(client: httpx.Client) -> int:
    """Return the number of tasks that have a result."""
    return sum(item["tasks"]["done"] for item in client.get("/v1/simulations").json()["items"])


def measure() -> dict[str, Any]:
    """Measure with empty caches once, then with what that run has left in them."""
    with tempfile.TemporaryDirectory(prefix="windtunnel-caches-") as folder:
        caches = Path(folder)
        cold = first_sweep(caches)
        size = bytes_of(caches)
        warm = [first_sweep(caches) for _ in range(WARM)]
    return {
        "cold": cold,
        "cache_bytes": size,
        "warm": {moment: spread(run[moment] for run in warm) for moment in MOMENTS},
    }


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    cold, warm = figures["cold"], figures["warm"]
    rows = [[words, number(cold[moment]), spanned(warm[moment])] for moment, words in MOMENTS.items()]
    return "\n\n".join(
        [
            "`git clone` from this disk into a new folder, `make run` in it, `windtunnel new mpi rod`, and "
            f"`windtunnel run rod/heat.py {' '.join(SWEEP)}`: three computations of a rod on two ranks of MPI. "
            "Seconds since the start of `git clone`; nothing is configured between the commands. *Empty caches*: one "
            "run that downloads all packages from the package index that the machine uses, with MPICH and mpi4py. "
            f"Unpacked they fill {figures['cache_bytes'] / 1e6:,.0f} MB of caches. *Full caches*: later clones with "
            "the caches of that run.",
            table(["seconds", "empty caches, 1 run", f"full caches, {warm['first']['runs']} runs"], rows),
        ]
    )
