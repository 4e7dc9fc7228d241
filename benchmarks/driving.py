"""car_street on the platform, fully sandboxed, against loops over libsumo in one process, and SUMO alone."""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.figures import spread
from benchmarks.platform_process import ENVIRONMENTS, PlatformProcess, running_platform
from benchmarks.processes import metered
from runtimes.catalogue import simulators
from runtimes.environments import prepare

ROOT = Path.cwd()
DATASET = Path("datasets/catalogue/car_street").resolve()
MODEL = "idm"
IDM = ROOT / "runtimes/harness/simulators/sumo/baselines" / f"{MODEL}.py"
ECHO_MODEL = Path("benchmarks/echo_model.py").resolve()
SCENARIOS = 288
REPEAT = 2
RUNS = 5
WORKERS = (1, 2)
LOOP = (
    "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]; "
    "from scripts.car_street.standalone import main; main()"
)


#: Loops without the platform, from the least work to the most, each with its arguments.
LOOPS: dict[str, list[str]] = {
    "SUMO alone: the same traffic for as many steps": ["--loop", "sumo"],
    "leanest loop: one constant action, no observation": ["--loop", "lean"],
    "plain loop: the model as a function": [],
    "plain loop, with an echo by another process at each step": ["echo"],
    "plain loop, without the compiled step": ["--plain"],
}
SUMO_ALONE, LEAN, BARE, ECHOED, _ = LOOPS


def loop(name: str, repeat: int, steps: Path) -> dict[str, Any]:
    """Run without the platform, in the simulator's environment; the time to load libraries is excluded.

    ``steps``: file with the scenarios' lengths, which the plain loop writes and loops without a model read.
    With the niceness of sandboxed evaluators: otherwise a busy machine would favour the loop.
    """
    site = prepare(simulators()["sumo"], ENVIRONMENTS.resolve(), lambda *_: None)
    arguments = [argument for argument in LOOPS[name] if argument != "echo"]
    command = ["nice", "-n", "5", sys.executable, "-I", "-S", "-B", "-c", LOOP, str(ROOT), str(site)]
    command += [str(DATASET), str(ECHO_MODEL if name == ECHOED else IDM), "--scenarios", str(SCENARIOS * repeat)]
    command += arguments + (["--lines", str(steps)] if name == BARE else ["--steps", str(steps)])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    finished = subprocess.run(command, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = json.loads(finished.stdout.splitlines()[-1])
    return {
        "rate": output["episodes_per_second"],
        "simulated": output["steps"] / 10 / output["episodes"],
        "cpu": (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / output["episodes"],
    }


def through_platform(platform: PlatformProcess, workers: int, repeat: int, *, trusted: bool = False) -> dict[str, Any]:
    """Run with so many workers; the rate is from the POST to the last durable result."""
    client = platform.connect()
    began = time.perf_counter()
    submission = {"dataset": "car_street", "runtime": "python", "model": MODEL, "repeat": repeat, "workers": workers}
    submission["trusted"] = trusted
    id = client.submit(submission)["id"]
    with metered(platform.process.pid) as processor_seconds:
        all_done = client.until(id, all_done=True, every=0.25)
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
    """Measure loops and platform alternately, so that a slow minute of the machine affects all of them."""
    loops: dict[str, list[dict[str, Any]]] = {name: [] for name in LOOPS}
    platform_runs: dict[int, list[dict[str, Any]]] = {workers: [] for workers in WORKERS}
    trusted_runs: list[dict[str, Any]] = []
    with running_platform(workers=str(max(WORKERS))) as platform, tempfile.TemporaryDirectory() as folder:
        steps = Path(folder, "steps.ndjson")
        loop(BARE, repeat, steps)
        through_platform(platform, max(WORKERS), 1)
        through_platform(platform, 1, 1, trusted=True)
        for _ in range(runs):
            for name, runs_of_loop in loops.items():
                runs_of_loop.append(loop(name, repeat, steps))
                print(f"{name}: {runs_of_loop[-1]['rate']:.1f} episodes/s", flush=True)
            for workers in WORKERS:
                platform_runs[workers].append(through_platform(platform, workers, repeat))
                print(f"platform, workers {workers}: {platform_runs[workers][-1]['rate']:.1f} episodes/s", flush=True)
            trusted_runs.append(through_platform(platform, 1, repeat, trusted=True))
            print(f"platform, trusted: {trusted_runs[-1]['rate']:.1f} episodes/s", flush=True)
    return {
        "scenarios": SCENARIOS,
        "repeat": repeat,
        "model": MODEL,
        "simulated": {"bare": loops[BARE][-1]["simulated"], "platform": platform_runs[1][-1]["simulated"]},
        "loops": {
            name: {
                "rate": spread(run["rate"] for run in runs_of_loop),
                "cpu": statistics.median(run["cpu"] for run in runs_of_loop),
                # of the platform's run with one worker in the same round
                **{
                    name: spread(
                        of_platform["rate"] / run["rate"]
                        for run, of_platform in zip(runs_of_loop, runs_of_platform, strict=True)
                    )
                    for name, runs_of_platform in (("ratio", platform_runs[1]), ("trusted", trusted_runs))
                },
            }
            for name, runs_of_loop in loops.items()
        },
        "trusted": {"rate": spread(run["rate"] for run in trusted_runs), "cpu": trusted_runs[-1]["cpu"]},
        "platform": {
            str(workers): {
                "rate": spread(run["rate"] for run in runs_of_workers),
                "cpu": runs_of_workers[-1]["cpu"],
            }
            for workers, runs_of_workers in platform_runs.items()
        },
    }
