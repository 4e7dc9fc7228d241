"""No-op fan-out: from one POST until all results are durable, summarized and read back through the API."""

import json
import time
from typing import Any

from benchmarks import peer_systems
from benchmarks.figures import spread
from benchmarks.platform_client import PlatformClient
from benchmarks.platform_process import PlatformProcess, running_platform
from benchmarks.processes import metered

TASKS = 200_000
RUNS = 3
#: `params.batch`: with 1, the default, tasks are worlds side by side, each with a reset of its own.
BATCHES = (1, 16)
#: Tasks of the long runs, which count to `succeeded`, and their number.
MANY, LONG_RUNS = 1_000_000, 2
#: Pause before each run in seconds, in which the next warm runner starts.
PAUSE = 4


def run_once(platform: PlatformProcess, batch: int, tasks: int) -> dict[str, float]:
    """Run one fan-out; rates cover the whole time, including submission and start."""
    client = platform.connect()
    began = time.perf_counter()
    submission = {"dataset": "noop", "runtime": "python", "params": {"batch": batch}, "workers": 2}
    id = client.submit(submission | {"scenarios": {"range": [0, tasks]}})["id"]
    client.until(id, all_done=True)
    done = time.perf_counter()
    client.until(id)
    ended = time.perf_counter()
    read = read_back(client, id)
    finished = time.perf_counter()
    client.close()
    if read != tasks:
        raise RuntimeError(f"read back {read} of {tasks} lines")
    return {
        "done": tasks / (done - began),
        "succeeded": tasks / (ended - began),
        "read": tasks / (finished - ended),
        "seconds": ended - began,
    }


def read_back(client: PlatformClient, id: str) -> int:
    """Fetch all results and check that each task occurs once, in order."""
    response = client.open("GET", f"/v1/simulations/{id}/results")
    count, rest = 0, b""
    while chunk := response.read(1 << 20):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            # the first member is the task; decoding each line would measure this client's JSON
            if not line.startswith(b'{"task":%d,' % count):
                raise RuntimeError(f"task {count} is missing; the line is {line[:80]!r}")
            count += 1
    return count


def measure(tasks: int = TASKS, runs: int = RUNS) -> dict[str, Any]:
    """Measure both framings and each peer several times in turn, so that a slow minute of the machine affects all.

    Then a million tasks, at the defaults.
    """
    runs_by_batch: dict[int, list[dict[str, float]]] = {batch: [] for batch in BATCHES}
    processor_seconds: dict[int, dict[str, float]] = {batch: {} for batch in BATCHES}
    peers: dict[str, dict[str, Any]] = {}
    with running_platform(workers="2") as platform:
        for batch in BATCHES:
            run_once(platform, batch, 1000)
        for _ in range(runs):
            for batch in BATCHES:
                time.sleep(PAUSE)
                with metered(platform.process.pid) as spent:
                    runs_by_batch[batch].append(run_once(platform, batch, tasks))
                for name, value in spent.items():
                    processor_seconds[batch][name] = processor_seconds[batch].get(name, 0.0) + value
                print(f"{batch:>2} tasks a frame: {json.dumps(rounded(runs_by_batch[batch][-1]))}", flush=True)
            for name, version, rate in peer_systems.rates():
                peers.setdefault(name, {"version": version, "rates": []})["rates"].append(rate)
                print(f"{name}: {rate:,.0f}", flush=True)
        long_runs = []
        for _ in range(LONG_RUNS):
            time.sleep(PAUSE)
            long_runs.append(run_once(platform, 1, MANY))
            print(f"{MANY:,} tasks: {json.dumps(rounded(long_runs[-1]))}", flush=True)
    batches = {
        str(batch): {name: spread(run[name] for run in batch_runs) for name in batch_runs[0]}
        | {"cpu": {name: value / runs / tasks for name, value in processor_seconds[batch].items() if value > 0}}
        for batch, batch_runs in runs_by_batch.items()
    }
    peer_figures = {
        name: {"version": peer["version"], "tasks": peer_systems.TASKS, **spread(peer["rates"])}
        for name, peer in peers.items()
    }
    many = {"tasks": MANY, "seconds": spread(run["seconds"] for run in long_runs)}
    return {"tasks": tasks, "workers": 2, "batches": batches, "peers": peer_figures, "many": many}


def rounded(run: dict[str, float]) -> dict[str, float]:
    """Round figures for display."""
    return {name: round(value, 2) if value < 1000 else round(value) for name, value in run.items()}
