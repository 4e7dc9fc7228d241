"""Two revisions of the platform, in turn on one machine: what the changes between them cost.

`BASELINE=<revision> python -m benchmarks revisions`
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.figures import spread
from benchmarks.platform_process import ENVIRONMENTS
from benchmarks.results import spanned, table

RUNS = 3
PROGRAM = Path("benchmarks/peers/revision.py").resolve()


def measure(runs: int = RUNS) -> dict[str, Any]:
    """Measure both revisions in turn; that of the baseline lies in a temporary worktree."""
    baseline = _git("rev-parse", "--short", os.environ["BASELINE"])
    current = _git("rev-parse", "--short", "HEAD")
    values: dict[str, dict[str, list[float]]] = {baseline: {}, current: {}}
    with tempfile.TemporaryDirectory(prefix="windtunnel-bench-") as parent:
        folder = Path(parent) / baseline
        _git("worktree", "add", "--detach", str(folder), baseline)
        try:
            ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
            (folder / "var").mkdir()
            (folder / ENVIRONMENTS).symlink_to(ENVIRONMENTS.resolve())
            for _ in range(runs):
                for revision, place in ((baseline, folder), (current, Path.cwd())):
                    for name, value in _measured(place).items():
                        values[revision].setdefault(name, []).append(value)
                        print(f"{revision}, {name}: {value:,.1f}", flush=True)
        finally:
            _git("worktree", "remove", "--force", str(folder))
    return {
        "baseline": baseline,
        "current": current,
        "figures": {
            name: {
                "baseline": spread(values[baseline][name]),
                "current": spread(values[current][name]),
                "ratio": spread(
                    later / earlier
                    for earlier, later in zip(values[baseline][name], values[current][name], strict=True)
                ),
            }
            for name in values[current]
            if name in values[baseline]
        },
    }


def section(figures: dict[str, Any]) -> str:
    """Return the section."""
    rows = [
        [name, *(spanned(row[column]) for column in ("baseline", "current", "ratio"))]
        for name, row in figures["figures"].items()
    ]
    head = ["", figures["baseline"], figures["current"], "ratio of pairs"]
    return (
        f"The revisions {figures['baseline']} and {figures['current']} in turn, the same short runs, each with a new"
        " platform. A ratio above 1 is better for rates, worse for times (ms).\n\n" + table(head, rows) + "\n"
    )


def _measured(folder: Path) -> dict[str, float]:
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    output = subprocess.run([sys.executable, str(PROGRAM)], cwd=folder, env=environ, stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(output.stdout.splitlines()[-1])
    return figures


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()
