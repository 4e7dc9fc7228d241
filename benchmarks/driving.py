"""car_street through the platform, every protection on, against a bare loop over libsumo calling the same model."""

import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.figures import keep, spread
from benchmarks.house import House, house

SCENARIOS = 288
REPEAT = 4
RUNS = 3
MODEL = "idm"


def platform_rate(platform: House, workers: int, repeat: int) -> float:
    """Drive all scenarios with so many pairs; return episodes a second from the POST to the last result."""
    wire = platform.wire()
    began = time.perf_counter()
    asked = {"dataset": "car_street", "runtime": "python", "model": MODEL, "repeat": repeat, "workers": workers}
    id = wire.submit(asked)["id"]
    found = wire.until(id, all_done=True)
    rate: float = found["tasks"]["total"] / (time.perf_counter() - began)
    wire.until(id)
    wire.close()
    return rate
