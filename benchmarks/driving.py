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
ECHO_MODEL = Path("benchmarks/echo_model.py").resolve()
SCENARIOS = 288
REPEAT = 2
RUNS = 3
WORKERS = (1, 2)
LOOP = (
    "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]; "
    "from harness.simulators.sumo.standalone import main; main()"
)


def plain_loop(repeat: int, model: Path = IDM) -> dict[str, Any]:
    """Run without the platform, in the simulator's environment; the time to load libraries is excluded.

    With the niceness of sandboxed evaluators: otherwise a busy machine would favour the loop.
    """
    site = prepare(simulators()["sumo"], ENVIRONMENTS.resolve(), lambda *_: None)
    command = ["nice", "-n", "5", sys.executable, "-I", "-S", "-B", "-c", LOOP, str(HARNESS), str(site)]
    command += [str(DATASET), str(model), "--scenarios", str(SCENARIOS * repeat)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    finished = subprocess.run(command, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = json.loads(finished.stdout.splitlines()[-1])
    return {
        "rate": output["episodes_per_second"],
        "simulated": output["steps"] / 10 / output["episodes"],
        "cpu": (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / output["episodes"],
    }


def through_platform(platform: PlatformProcess, workers: int, repeat: int) -> dict[str, Any]:
    """Run with so many workers; the rate is from the POST to the last durable result."""
    client = platform.connect()
    began = time.perf_counter()
    submission = {"dataset": "car_street", "runtime": "python", "model": MODEL, "repeat": repeat, "workers": workers}
    id = client.submit(submission)["id"]
    with metered(platform.process.pid) as processor_seconds:
        all_done = client.until(id, all_done=True, every=0.1)
        seconds = time.perf_counter() - began
        client.until(id)
    simulation = client.get(f"/v1/simulations/{id}")
    client.close()
    if simulation["tasks"]["failed"]:
        raise RuntimeError(f"{simulation['tasks']['failed']} scenarios failed; the rate would be meaningless")
    episodes = all_done["tasks"]["total"]
    return {
        "rate": episodes / seconds,
        "simulated": simulation["metrics"]["seconds"]["mean"],
        "cpu": {name: value / episodes for name, value in processor_seconds.items() if value > 0},
    }


def measure(repeat: int = REPEAT, runs: int = RUNS) -> dict[str, Any]:
    """Measure loop and platform alternately, so that a slow minute of the machine affects both."""
    loop_runs: list[dict[str, Any]] = []
    echo_ratios: list[float] = []
    platform_runs: dict[int, list[dict[str, Any]]] = {workers: [] for workers in WORKERS}
    with running_platform(workers=str(max(WORKERS))) as platform:
        through_platform(platform, max(WORKERS), 1)
        for _ in range(runs):
            for workers in WORKERS:
                loop_run, platform_run = plain_loop(repeat), through_platform(platform, workers, repeat)
                loop_runs.append(loop_run)
                platform_runs[workers].append(platform_run | {"ratio": platform_run["rate"] / loop_run["rate"]})
                if workers == min(WORKERS):
                    echo_ratios.append(plain_loop(repeat, ECHO_MODEL)["rate"] / loop_run["rate"])
                rates = f"{platform_run['rate']:.1f} against {loop_run['rate']:.1f} episodes/s"
                print(f"workers {workers}: {rates}", flush=True)
    return {
        "scenarios": SCENARIOS,
        "repeat": repeat,
        "model": MODEL,
        "simulated": {"bare": loop_runs[-1]["simulated"], "platform": platform_runs[1][-1]["simulated"]},
        "bare": spread(run["rate"] for run in loop_runs),
        "echoed": spread(echo_ratios),
        "bare_cpu": {"all in one process": statistics.median(run["cpu"] for run in loop_runs)},
        "platform": {
            str(workers): {
                "rate": spread(run["rate"] for run in runs_of_workers),
                "ratio": spread(run["ratio"] for run in runs_of_workers),
                "cpu": runs_of_workers[-1]["cpu"],
            }
            for workers, runs_of_workers in platform_runs.items()
        },
    }
