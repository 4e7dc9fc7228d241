"""Figures of several sizes, each measured in a process of its own and a new home folder."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.platform_process import fresh_home


def measure_sizes(module: str, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the figures of each size: the last line that ``module`` prints, run with a home folder and the size."""
    figures = {}
    for tasks in sizes:
        with fresh_home() as home:
            home.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", module, str(home), str(tasks)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        figures[str(tasks)] = json.loads(output.splitlines()[-1])
        print(f"{tasks}: {figures[str(tasks)]}", flush=True)
    return figures
