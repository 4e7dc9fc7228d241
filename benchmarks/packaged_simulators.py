"""Packaged simulators: LAMMPS through the platform against the same unpacked packages by hand, in alternating pairs."""

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from benchmarks.figures import spread
from benchmarks.platform_process import PlatformProcess
from benchmarks.results import aim, milliseconds, spanned, table
from core.domain.scheduling.communications.packaged import OPENMPI
from runtimes.catalogue import SIMULATORS
from runtimes.harness.gang.task_folder import fill_template
from runtimes.packages.package_case import parse_case
from runtimes.packages.package_installer import ROOT, library_folders

RANKS, PAIRS = 2, 9
#: The most that the steady state may take beside that by hand.
AIM = 1.01
PARAMS: Mapping[str, Any] = {"cells": 16, "steps": 1000, "temperature": 3.0, "density": 0.8442, "velocities": 87287}
#: What a person would write who has the packages in a folder: its folders as a root, the machine's devices, a chroot.
BY_HAND = """
set -e
mount -t tmpfs none "$2"
for path in "$1"/*; do
    name=$(basename "$path")
    if [ -L "$path" ]; then cp -P "$path" "$2"; else mkdir "$2/$name"; mount --rbind "$path" "$2/$name"; fi
done
mkdir "$2/dev" "$2/proc" "$2/tmp" "$2/case"
mount --rbind /dev "$2/dev"
mount -t proc none "$2/proc"
mount --bind "$3" "$2/case"
root=$2
shift 3
exec chroot "$root" /usr/bin/env --chdir=/case "$@"
"""


class ByHand:
    """Starts the case of lammps_melt by mpirun alone, in the packages that the platform has unpacked."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._case, self._empty = root, folder / "case", folder / "root"
        self._case.mkdir()
        self._empty.mkdir()
        case = parse_case((SIMULATORS / "noop/baselines/lammps_melt.case").read_text())
        for name, text in case.files.items():
            (self._case / name).write_text(fill_template(text, PARAMS, name))
        self._command = ["mpirun", "-n", str(RANKS), *case.command]

    def run(self) -> tuple[float, float]:
        """Run the case; return its wall time and LAMMPS's own loop time, in seconds."""
        # With the platform's settings of Open MPI: another transport is no peer.
        environ = {**OPENMPI, "LD_LIBRARY_PATH": ":".join(library_folders(self._root)), "PATH": "/usr/bin"}
        environ |= {"WINDTUNNEL_OUTPUT": "/case", "OMP_NUM_THREADS": "1"}
        variables = [f"{name}={value}" for name, value in environ.items()]
        spaces = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork"]
        places = map(str, (self._root, self._empty, self._case))
        command = [*spaces, "sh", "-c", BY_HAND, "sh", *places, *variables, *self._command]
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        loops = re.findall(r"^Loop time of (\S+) on", done.stdout, re.MULTILINE)
        return time.perf_counter() - began, float(loops[-1])


def _run(process: PlatformProcess) -> tuple[float, float]:
    """Run the dataset; return the task's seconds, and LAMMPS's own loop time."""
    fields = {"dataset": "lammps_melt", "params": json.dumps(PARAMS), "gang": json.dumps({"size": RANKS})}
    url = f"http://127.0.0.1:{process.port}/v1/simulations"
    accepted = httpx.post(url, files={name: (None, text) for name, text in fields.items()}).raise_for_status().json()
    client = process.connect()
    client.until(accepted["id"], every=1.0)
    (line,) = client.open("GET", f"/v1/simulations/{accepted['id']}/results").read().splitlines()
    client.close()
    result = json.loads(line)
    if result["status"] != "ok":
        raise RuntimeError(f"a task failed: {result}")
    return float(result["timing"]["seconds"]), float(result["metrics"]["loop_seconds"])


def measure() -> dict[str, Any]:
    """Run the case by both in pairs that alternate; the first pair warms caches, and unpacks the packages."""
    times: dict[str, dict[str, list[float]]] = {who: {"wall": [], "loop": []} for who in ("hand", "platform")}
    with tempfile.TemporaryDirectory(prefix="windtunnel-bench-") as name:
        folder = Path(name)
        (folder / "home").mkdir()
        process = PlatformProcess(folder / "home")
        try:
            _run(process)
            hand = ByHand(next((folder / "home").rglob(f"{ROOT}/usr/bin/lmp")).parents[2], folder)
            for pair in range(-1, PAIRS):
                for who, run in (("hand", hand.run), ("platform", lambda: _run(process))):
                    wall, loop = run()
                    if pair >= 0:
                        times[who]["wall"].append(wall)
                        times[who]["loop"].append(loop)
        finally:
            process.stop()
    ratios = {
        kind: [own / bare for own, bare in zip(times["platform"][kind], times["hand"][kind], strict=True)]
        for kind in ("wall", "loop")
    }
    return {
        "times": {who: {kind: spread(values) for kind, values in of.items()} for who, of in times.items()},
        "ratios": {kind: spread(values) for kind, values in ratios.items()},
    }


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    rows = [
        [title, *(spanned(figures["times"][who][kind], milliseconds) for who in ("hand", "platform"))]
        for kind, title in (("loop", "LAMMPS's own loop time"), ("wall", "the whole run, with its start"))
    ]
    atoms = 4 * PARAMS["cells"] ** 3
    ratio, whole = (spanned(figures["ratios"][kind], lambda value: f"{value:.3f}") for kind in ("loop", "wall"))
    return "\n\n".join(
        [
            f"`lammps_melt` with {atoms:,} atoms and {PARAMS['steps']:,} steps on {RANKS} ranks: through the platform,"
            " and by `mpirun` in a chroot of the same unpacked packages with the same settings of Open MPI. The runs"
            " alternate.",
            table(["", "by hand", "Windtunnel"], rows),
            f"Loop time: {ratio} times that by hand; the whole run: {whole} times.",
            aim("a packaged simulator within 1 % of itself by hand", figures["ratios"]["loop"]["median"] <= AIM),
        ]
    )


if __name__ == "__main__":
    print(section(measure()))
