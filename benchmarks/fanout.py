"""No-op fan-out: from one POST until all results are durable, summarized and read back through the API."""

import json
import time
from typing import Any

from benchmarks import peer_systems
from benchmarks.figures import spread
from benchmarks.platform_process import PlatformProcess, running_platform
from benchmarks.processes import metered
from benchmarks.platform_client import PlatformClient

TASKS = 200_000
RUNS = 3
BATCHES = (1, 16)
#: Pause before each run in seconds, in which the next warm runner starts.
PAUSE = 4


def once(platform: PlatformProcess, batch: int, tasks: int) -> dict[str, float]:
    """Run one fan-out; rates cover the whole time, including submission and start."""
    wire = platform.wire()
    began = time.perf_counter()
    asked = {"dataset": "noop", "runtime": "python", "params": {"batch": batch}, "workers": 2}
    id = wire.submit(asked | {"scenarios": {"range": [0, tasks]}})["id"]
    wire.until(id, all_done=True)
    done = time.perf_counter()
    wire.until(id)
    ended = time.perf_counter()
    read = read_back(wire, id)
    finished = time.perf_counter()
    wire.close()
    if read != tasks:
        raise RuntimeError(f"{read} lines came back of {tasks}")
    return {
        "done": tasks / (done - began),
        "succeeded": tasks / (ended - began),
        "read": tasks / (finished - ended),
        "seconds": ended - began,
    }


def read_back(wire: PlatformClient, id: str) -> int:
    """Fetch all results and check that each task occurs once, in order."""
    answer = wire.open("GET", f"/v1/simulations/{id}/results")
    count, rest = 0, b""
    while piece := answer.read(1 << 20):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            # the first member is the task; decoding each line would measure this client's JSON
            if not line.startswith(b'{"task":%d,' % count):
                raise RuntimeError(f"task {count} is missing, there is {line[:80]!r}")
            count += 1
    return count


def measure(tasks: int = TASKS, runs: int = RUNS) -> dict[str, Any]:
    """Measure both framings and each peer several times in turn, so that a slow minute of the machine affects all."""
    found: dict[int, list[dict[str, float]]] = {batch: [] for batch in BATCHES}
    spent: dict[int, dict[str, float]] = {batch: {} for batch in BATCHES}
    peers: dict[str, dict[str, Any]] = {}
    with running_platform(workers="2") as platform:
        for batch in BATCHES:
            once(platform, batch, 1000)
        for _ in range(runs):
            for batch in BATCHES:
                time.sleep(PAUSE)
                with metered(platform.process.pid) as seconds:
                    found[batch].append(once(platform, batch, tasks))
                for name, value in seconds.items():
                    spent[batch][name] = spent[batch].get(name, 0.0) + value
                print(f"{batch:>2} tasks a frame: {json.dumps(rounded(found[batch][-1]))}", flush=True)
            for name, version, rate in peer_systems.rates():
                peers.setdefault(name, {"version": version, "rates": []})["rates"].append(rate)
                print(f"{name}: {rate:,.0f}", flush=True)
    batches = {
        str(batch): {name: spread(run[name] for run in each) for name in each[0]}
        | {"cpu": {name: value / runs / tasks for name, value in spent[batch].items() if value > 0}}
        for batch, each in found.items()
    }
    others = {
        name: {"version": peer["version"], "tasks": peer_systems.TASKS, **spread(peer["rates"])}
        for name, peer in peers.items()
    }
    return {"tasks": tasks, "workers": 2, "batches": batches, "peers": others}


def rounded(run: dict[str, float]) -> dict[str, float]:
    """Round figures for display."""
    return {name: round(value, 2) if value < 1000 else round(value) for name, value in run.items()}
