"""No-op fan-out: from one POST until every result is durable, summed up, and read back through the API."""

import json
import time
from typing import Any

from benchmarks.figures import spread
from benchmarks.house import house
from benchmarks.wire import Wire

TASKS = 200_000
RUNS = 3
BATCHES = (1, 16)


def once(wire: Wire, batch: int, tasks: int) -> dict[str, float]:
    """Play one fan-out; rates are of the whole way, the submission and the start of it included."""
    began = time.perf_counter()
    asked = {"dataset": "noop", "runtime": "python", "params": {"batch": batch}, "workers": 2}
    id = wire.submit(asked | {"scenarios": {"range": [0, tasks]}})["id"]
    wire.until(id, all_done=True)
    done = time.perf_counter()
    wire.until(id)
    ended = time.perf_counter()
    read = read_back(wire, id)
    finished = time.perf_counter()
    if read != tasks:
        raise RuntimeError(f"{read} lines came back of {tasks}")
    return {
        "done": tasks / (done - began),
        "succeeded": tasks / (ended - began),
        "read": tasks / (finished - ended),
        "seconds": ended - began,
    }


def read_back(wire: Wire, id: str) -> int:
    """Fetch all results and check that they are the tasks' own, each once and in order."""
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
    """Measure both ways of framing, several times in turn."""
    found: dict[int, list[dict[str, float]]] = {batch: [] for batch in BATCHES}
    with house(workers="2") as platform:
        wire = platform.wire()
        for batch in BATCHES:
            once(wire, batch, 1000)
        for _ in range(runs):
            for batch in BATCHES:
                time.sleep(2)  # the next crew is being made
                found[batch].append(once(wire, batch, tasks))
                print(f"fan-out, batch {batch:>2}: {json.dumps(rounded(found[batch][-1]))}", flush=True)
    rates: dict[str, Any] = {
        str(batch): {name: spread(run[name] for run in each) for name in each[0]} for batch, each in found.items()
    }
    return {"tasks": tasks, "workers": 2, "batches": rates}


def rounded(run: dict[str, float]) -> dict[str, float]:
    """Shorten figures for the eye."""
    return {name: round(value, 2) if value < 1000 else round(value) for name, value in run.items()}
