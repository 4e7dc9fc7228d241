"""car_street on the platform, fully sandboxed, against a plain loop over libsumo that calls the same model."""

import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.figures import spread
from benchmarks.platform_process import ENVIRONMENTS, PlatformProcess, running_platform
from benchmarks.processes import metered
from runtimes.catalogue import simulators
from runtimes.environments import prepare

HARNESS = Path("runtimes").resolve()
DATASET = Path("datasets/catalogue/car_street").resolve()
MODEL = "idm"
IDM = HARNESS / "baselines" / "car_street" / f"{MODEL}.py"
ECHOED = Path("benchmarks/echo_model.py").resolve()
SCENARIOS = 288
REPEAT = 2
RUNS = 3
WORKERS = (1, 2)
LOOP = (
    "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]; "
    "from harness.simulators.sumo.standalone import main; main()"
)


def bare(repeat: int, model: Path = IDM) -> dict[str, Any]:
    """Run without the platform, in the simulator's environment; the time to load libraries is excluded.

    With the niceness of sandboxed evaluators: otherwise a busy machine would favour the loop.
    """
    site = prepare(simulators()["sumo"], ENVIRONMENTS.resolve(), lambda *_: None)
    command = ["nice", "-n", "5", sys.executable, "-I", "-S", "-B", "-c", LOOP, str(HARNESS), str(site)]
    command += [str(DATASET), str(model), "--scenarios", str(SCENARIOS * repeat)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = json.loads(done.stdout.splitlines()[-1])
    return {
        "rate": found["episodes_per_second"],
        "simulated": found["steps"] / 10 / found["episodes"],
        "cpu": (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / found["episodes"],
    }


def through(platform: PlatformProcess, workers: int, repeat: int) -> dict[str, Any]:
    """Run with so many workers; the rate is from the POST to the last durable result."""
    wire = platform.wire()
    began = time.perf_counter()
    asked = {"dataset": "car_street", "runtime": "python", "model": MODEL, "repeat": repeat, "workers": workers}
    id = wire.submit(asked)["id"]
    with metered(platform.process.pid) as spent:
        found = wire.until(id, all_done=True, every=0.1)
        seconds = time.perf_counter() - began
        wire.until(id)
    ended = wire.get(f"/v1/simulations/{id}")
    wire.close()
    if ended["tasks"]["failed"]:
        raise RuntimeError(f"{ended['tasks']['failed']} scenarios failed; the rate would be meaningless")
    episodes = found["tasks"]["total"]
    return {
        "rate": episodes / seconds,
        "simulated": ended["metrics"]["seconds"]["mean"],
        "cpu": {name: value / episodes for name, value in spent.items() if value > 0},
    }


def measure(repeat: int = REPEAT, runs: int = RUNS) -> dict[str, Any]:
    """Measure loop and platform alternately, so that a slow minute of the machine affects both."""
    alone: list[dict[str, Any]] = []
    echoed: list[float] = []
    owned: dict[int, list[dict[str, Any]]] = {workers: [] for workers in WORKERS}
    with running_platform(workers=str(max(WORKERS))) as platform:
        through(platform, max(WORKERS), 1)
        for _ in range(runs):
            for workers in WORKERS:
                peer, own = bare(repeat), through(platform, workers, repeat)
                alone.append(peer)
                owned[workers].append(own | {"ratio": own["rate"] / peer["rate"]})
                if workers == min(WORKERS):
                    echoed.append(bare(repeat, ECHOED)["rate"] / peer["rate"])
                print(f"workers {workers}: {own['rate']:.1f} against {peer['rate']:.1f} episodes/s", flush=True)
    return {
        "scenarios": SCENARIOS,
        "repeat": repeat,
        "model": MODEL,
        "simulated": {"bare": alone[-1]["simulated"], "platform": owned[1][-1]["simulated"]},
        "bare": spread(run["rate"] for run in alone),
        "echoed": spread(echoed),
        "bare_cpu": {"all in one process": statistics.median(run["cpu"] for run in alone)},
        "platform": {
            str(workers): {
                "rate": spread(run["rate"] for run in each),
                "ratio": spread(run["ratio"] for run in each),
                "cpu": each[-1]["cpu"],
            }
            for workers, each in owned.items()
        },
    }
