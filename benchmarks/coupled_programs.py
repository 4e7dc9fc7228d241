"""Coupled programs: MPI through the platform against a bare mpiexec of the same program, in pairs that alternate."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmarks.figures import spread
from benchmarks.platform_process import ENVIRONMENTS, PlatformProcess
from benchmarks.results import aim, milliseconds, spanned, table
from runtimes import catalogue, environments

RANKS, PAIRS, POINTS, STARTS = 2, 9, 1000, 40
#: The most that the steady state may take beside that of the bare program.
AIM = 1.01
#: A stencil on each rank, its halo of 8 KiB, and a sum over all ranks in each step, for some seconds: the platform has
#: work to do when a gang has begun. Its arrays stay: faults of new pages take half longer in one run than in another.
PROGRAM = """
import json, os, sys, time
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
steps = int(os.environ.get("STEPS", "5000"))
field, work, halo = np.linspace(0.0, 1.0, 200_000), np.empty(199_998), np.empty(1024)
peer = world.size - 1 - world.rank
world.barrier()
began = time.perf_counter()
for _ in range(steps):
    world.Sendrecv(field[:1024], peer, recvbuf=halo, source=peer)
    np.multiply(field[1:-1], -2.0, out=work)
    work += field[2:]
    work += field[:-2]
    work *= 0.1
    field[1:-1] += work
    total = world.allreduce(float(field[0] + halo[0]))
seconds = time.perf_counter() - began
if world.rank == 0:
    print(json.dumps({"seconds": seconds, "total": total}))
"""
TRIVIAL = """
import json
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
if world.rank == 0:
    print(json.dumps({"total": total}))
"""
RESIDENT = """
from mpi4py import MPI
from windtunnel_program import tasks
world = MPI.COMM_WORLD
for task in tasks():
    task.finish(total=world.allreduce(world.rank))
"""
#: Settings with which the platform starts MPICH on one machine, for the bare program too: another transport is no peer.
TRANSPORT = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "UCX_LOG_LEVEL": "fatal"}


class BareLauncher:
    """Starts a program by mpiexec alone, with the packages that the platform has."""

    def __init__(self, site: Path, folder: Path) -> None:
        self._folder = folder
        self._environ = {
            **TRANSPORT,
            "PATH": f"{site}/bin:{os.path.dirname(sys.executable)}:/usr/bin:/bin",
            "LD_LIBRARY_PATH": f"{site}/lib",
            "PYTHONPATH": str(site),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def run(self, program: str) -> tuple[float, dict[str, Any]]:
        """Run a program; return its wall time in seconds, and what its first rank printed."""
        path = self._folder / "model.py"
        path.write_text(program)
        command = ["mpiexec", "-n", str(RANKS), sys.executable, "-m", "mpi4py", str(path)]
        began = time.perf_counter()
        done = subprocess.run(command, env=self._environ, capture_output=True, text=True, check=True)
        printed: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return time.perf_counter() - began, printed


class GangPlatform:
    """Runs a program as a gang of the platform."""

    def __init__(self, platform: PlatformProcess) -> None:
        self._platform = platform
        self._url = f"http://127.0.0.1:{platform.port}/v1/simulations"

    def run(
        self, program: str, tasks: int = 1, every: float = 0.02, **gang: Any
    ) -> tuple[float, Sequence[Mapping[str, Any]]]:
        """Run a program, asking ``every`` so many seconds; return those from the POST to the end, and the results."""
        command = ["python", "-m", "mpi4py", "model.py"]
        gang = {"size": RANKS, "communication": "mpi", "command": command, **gang}
        fields = {"dataset": "program", "scenarios": json.dumps({"range": [0, tasks]}), "gang": json.dumps(gang)}
        began = time.perf_counter()
        accepted = httpx.post(self._url, data=fields, files={"model": ("model.py", program)}).raise_for_status().json()
        client = self._platform.connect()
        client.until(accepted["id"], every=every)
        seconds = time.perf_counter() - began
        lines = client.open("GET", f"/v1/simulations/{accepted['id']}/results").read().splitlines()
        client.close()
        results = [json.loads(line) for line in lines if line]
        if any(result["status"] != "ok" for result in results):
            raise RuntimeError(f"a task failed: {results[0]}")
        return seconds, results


def measure() -> dict[str, Any]:
    """Measure starts and steady states in pairs, then many points."""
    site = environments.prepare(catalogue.communications()["mpi"], ENVIRONMENTS.resolve(), lambda text, part: None)
    starts: dict[str, list[float]] = {"bare": [], "platform": []}
    steady: dict[str, list[float]] = {"bare": [], "platform": []}
    with tempfile.TemporaryDirectory(prefix="windtunnel-bench-") as name:
        folder = Path(name)
        (folder / "home").mkdir()
        bare, process = BareLauncher(site, folder), PlatformProcess(folder / "home")
        try:
            gangs = GangPlatform(process)
            for pair in range(-1, PAIRS):
                wall, _ = bare.run(TRIVIAL)
                _, printed = bare.run(PROGRAM)
                _, [started] = gangs.run(TRIVIAL)
                _, [result] = gangs.run(PROGRAM, every=1.0)  # what asks takes processor time from the ranks
                if pair < 0:
                    continue  # the first pair warms caches
                starts["bare"].append(wall)
                starts["platform"].append(started["timing"]["seconds"])
                steady["bare"].append(printed["seconds"])
                steady["platform"].append(result["metrics"]["seconds"])
                print(f"{result['metrics']['seconds'] / printed['seconds']:.3f}", flush=True)
            points, _ = gangs.run(RESIDENT, POINTS, start="launch")
            each, _ = gangs.run(TRIVIAL, STARTS)
            alone = [bare.run(TRIVIAL)[0] for _ in range(STARTS)]
        finally:
            process.stop()
    ratios = [platform / own for platform, own in zip(steady["platform"], steady["bare"], strict=True)]
    return {
        "starts": {name: spread(values) for name, values in starts.items()},
        "steady": {name: spread(values) for name, values in steady.items()},
        "ratio": spread(ratios),
        "points": points,
        "each": each / STARTS,
        "alone": spread(alone),
    }


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    rows = [
        [title, *(spanned(figures[key][who], milliseconds) for who in ("bare", "platform"))]
        for key, title in (("starts", "start, sum over the ranks, end"), ("steady", "steps of a stencil"))
    ]
    scaled = figures["alone"]["median"] * POINTS
    return "\n\n".join(
        [
            f"{RANKS} ranks of a program with mpi4py and MPICH over shared memory: a bare `mpiexec`, and the platform's"
            " in a sandbox and with the library that measures its ranks. The runs alternate. A stencil of 1.6 MB a rank"
            " has a halo of 8 KiB and a sum over all ranks in each of 5,000 steps.",
            table(["", "bare mpiexec", "Windtunnel"], rows),
            f"Steady state: {spanned(figures['ratio'], lambda x: f'{x:.3f}')} times the bare program.",
            aim("a steady state within 1 % of the bare program", figures["ratio"]["median"] <= AIM),
            "The ranks compute on both processors of this machine, which the platform's processes share: they take"
            " 1.5 % of them while a gang runs, and each rank waits for the other.",
            f"{POINTS:,} points from the POST to their end: {figures['points']:.1f} s on one gang that is started once"
            f" (`start` of `launch`), {figures['each'] * POINTS:.0f} s with a start for each ({STARTS} measured), and"
            f" {scaled:.0f} s as {POINTS:,} starts of a bare `mpiexec` ({STARTS} measured).",
        ]
    )


if __name__ == "__main__":
    print(section(measure()))
