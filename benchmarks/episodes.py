"""Episodes beside what people would use instead: same policy, processors and seeds, in one run.

cartpole and highway: Gymnasium's vector environments, stable-baselines3's evaluate_policy, Ray tasks. car_street: a
script of a hundred lines over libsumo with multiprocessing. None of them sandboxes the policy or stores results. The
platform runs the policy in a process of its own, and trusted.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import peer_systems
from benchmarks.figures import spread
from benchmarks.platform_process import ENVIRONMENTS, PlatformProcess, running_platform
from benchmarks.results import aim, spanned, table
from core.services.uploads.shipped_models import shipped
from datasets.catalogue import datasets
from runtimes.catalogue import simulators
from runtimes.environments import Environment, prepare

WORKERS = len(os.sched_getaffinity(0))
RUNS = 5
#: Datasets of Gymnasium: scenarios and repeats of the submission. The scenarios of one have equal options.
GYMNASIUM: dict[str, dict[str, Any]] = {
    "cartpole": {"scenarios": {"range": [0, 100]}, "repeat": 10},
    "highway": {"scenarios": {"range": [0, 4]}, "repeat": 8},
}
#: Name, script, further arguments, and the list of the script's packages.
PEERS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("Gymnasium SyncVectorEnv, one process", "vector_env", ("sync",), peer_systems.SYSTEMS),
    ("Gymnasium AsyncVectorEnv", "vector_env", ("async",), peer_systems.SYSTEMS),
    ("Stable-Baselines3 evaluate_policy, SubprocVecEnv", "evaluate_policy", (), peer_systems.TRAINING),
    ("Ray tasks", "ray_episodes", (), peer_systems.SYSTEMS),
)
SCRIPT = "libsumo and multiprocessing, a script of 100 lines"
#: Least ratios to a peer that are aimed at, isolated and trusted.
AIMS: tuple[tuple[str, str, float, float], ...] = (
    ("cartpole", PEERS[0][0], 0.7, 1.5),
    ("cartpole", PEERS[3][0], 0.4, 0.8),
    ("highway", PEERS[1][0], 0.97, 0.97),
    ("car_street", SCRIPT, 0.65, 0.85),
)
#: Scenarios of car_street, each once.
STREETS = 288
Figures = dict[str, Any]


def site(environment: Environment) -> str:
    """Return the folder of an environment's packages."""
    return str(prepare(environment, ENVIRONMENTS.resolve(), lambda *_: None))


def simulate(platform: PlatformProcess, submission: dict[str, Any]) -> tuple[float, list[dict[str, Any]]]:
    """Run a simulation; return the seconds from the POST to the last durable result, and the results by task."""
    client = platform.connect()  # the server closes a connection that was idle while peers ran
    client.get("/v1/simulations")
    began = time.perf_counter()
    id = client.submit({"runtime": "python", "workers": WORKERS, **submission})["id"]
    client.until(id, all_done=True, every=0.05)
    seconds = time.perf_counter() - began
    client.until(id)
    lines = client.open("GET", f"/v1/simulations/{id}/results").read().splitlines()
    client.close()
    return seconds, [json.loads(line) for line in lines]


def peer(script: str, arguments: tuple[str, ...], task: Path, packages: str) -> dict[str, Any]:
    """Run a peer's script with the packages of a list, and those of the Gymnasium simulator."""
    environ = {"PATH": os.defpath, "HOME": os.environ.get("HOME", "/"), "PYTHONWARNINGS": "ignore"}
    environ |= {
        "PYTHONPATH": os.pathsep.join([str(Path.cwd()), site(simulators()["gymnasium"])]),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    python = str(peer_systems.install(packages))
    command = ["nice", "-n", peer_systems.NICE, python, "-m", f"benchmarks.peers.{script}", str(task), *arguments]
    finished = subprocess.run(command, env=environ, capture_output=True, timeout=900)
    if finished.returncode:
        raise RuntimeError(f"{script}: {finished.stderr.decode(errors='replace')[-2000:]}")
    output: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return output


def compare(started: PlatformProcess, dataset: str, folder: Path, runs: int) -> Figures:
    """Measure a dataset of Gymnasium; raise RuntimeError if a peer's returns are not those of the platform."""
    folder_of_files, definition = datasets()[dataset].folder, datasets()[dataset].definition
    submission = {"dataset": dataset, **GYMNASIUM[dataset]}
    specs = (folder_of_files / "scenarios.ndjson") if definition["scenarios"] else None
    options = json.loads(specs.read_text().splitlines()[0])["options"] if specs else None
    platform = Rates()
    platform.run(started, submission)
    rates: dict[str, list[float]] = {name: [] for name, *_ in PEERS}
    versions: dict[str, str] = {}
    for _ in range(runs):
        results = platform.measure(started, submission, len)
        task = folder / f"{dataset}.json"
        model = str(shipped()[definition["yardstick"]])
        seeds = [result["scenario"]["seed"] for result in results]
        document = {name: definition.get(name) for name in ("env", "kwargs", "package")}
        task.write_text(json.dumps(document | {"model": model, "seeds": seeds, "options": options}))
        for name, script, arguments, packages in PEERS:
            output = peer(script, arguments, task, packages)
            versions[name] = output["version"]
            for result, of_peer in zip(results, output["returns"], strict=True):
                if abs(result["metrics"]["return"] - of_peer) > 1e-3:
                    raise RuntimeError(f"{name}: task {result['task']} has another return: {of_peer}")
            rates[name].append(output["rate"])
        print(dataset, platform.last(), {name: round(of_peer[-1], 1) for name, of_peer in rates.items()}, flush=True)
    steps = statistics.mean(result["metrics"]["length"] for result in results)
    return {
        **platform.figures(rates, versions),
        "unit": "episodes/s",
        "steps": steps,
    }


class Rates:
    """Rates of the platform, of each round one with an isolated and one with a trusted model."""

    def __init__(self) -> None:
        self._isolated: list[float] = []
        self._trusted: list[float] = []

    def run(self, started: PlatformProcess, submission: dict[str, Any]) -> None:
        """Run both once, unmeasured."""
        for trusted in (False, True):
            simulate(started, submission | {"trusted": trusted})

    def measure(
        self,
        started: PlatformProcess,
        submission: dict[str, Any],
        amount: Callable[[list[dict[str, Any]]], float],
    ) -> list[dict[str, Any]]:
        """Measure both; return the results, which are equal. ``amount``: what a rate counts in results."""
        both = []
        for trusted, rates in ((False, self._isolated), (True, self._trusted)):
            time.sleep(3)  # the next warm runner starts
            seconds, results = simulate(started, submission | {"trusted": trusted})
            rates.append(amount(results) / seconds)
            both.append([result["metrics"] for result in results])
        if both[0] != both[1]:
            raise RuntimeError("a trusted model has other results")
        return results

    def last(self) -> str:
        """Return the rates of the last round."""
        return f"{self._isolated[-1]:.1f}, trusted {self._trusted[-1]:.1f}"

    def figures(self, rates: dict[str, list[float]], versions: dict[str, str]) -> Figures:
        """Return the rates of all rounds, and the ratios to those of peers."""

        def beside(ours: list[float], theirs: list[float]) -> Figures:
            return spread(mine / other for mine, other in zip(ours, theirs, strict=True))

        peers = {
            name: {
                "version": versions[name],
                "rate": spread(of_peer),
                "ratio": beside(self._isolated, of_peer),
                "trusted": beside(self._trusted, of_peer),
            }
            for name, of_peer in rates.items()
        }
        return {"platform": spread(self._isolated), "trusted": spread(self._trusted), "peers": peers}


def compare_streets(started: PlatformProcess, runs: int) -> Figures:
    """Measure car_street against the script; drives are not of equal length, so in simulated time."""
    submission = {"dataset": "car_street", "model": "idm", "scenarios": {"range": [0, STREETS]}}
    platform = Rates()
    platform.run(started, submission)
    rates: dict[str, list[float]] = {SCRIPT: []}
    for _ in range(runs):
        platform.measure(
            started, submission, lambda results: float(sum(result["metrics"]["seconds"] for result in results))
        )
        environ = {"PATH": os.defpath, "PYTHONPATH": site(simulators()["sumo"])}
        command = ["nice", "-n", peer_systems.NICE, sys.executable, "benchmarks/peers/libsumo_script.py"]
        command += [str(datasets()["car_street"].folder), str(WORKERS)]
        finished = subprocess.run(command, env=environ, capture_output=True, check=True, timeout=600)
        rates[SCRIPT].append(json.loads(finished.stdout.splitlines()[-1])["rate"])
        print(f"car_street {platform.last()}; {rates[SCRIPT][-1]:.0f} simulated seconds per second", flush=True)
    unit = "simulated seconds per second"
    return {**platform.figures(rates, {SCRIPT: "libsumo 1.28.0"}), "unit": unit}


def measure(runs: int = RUNS) -> Figures:
    """Measure each dataset; the platform and its peers alternate."""
    with running_platform(workers=str(WORKERS)) as started, tempfile.TemporaryDirectory() as folder:
        datasets = {dataset: compare(started, dataset, Path(folder), runs) for dataset in GYMNASIUM}
        return {"workers": WORKERS, "datasets": datasets | {"car_street": compare_streets(started, runs)}}


def section(figures: Figures) -> str:
    """Return the section of RESULTS.md."""
    rows = []
    for dataset, of_dataset in figures["datasets"].items():
        rows.append([dataset, "**Windtunnel**", spanned(of_dataset["platform"]), "1", "", of_dataset["unit"]])
        rows.append(["", "**Windtunnel**, trusted", spanned(of_dataset["trusted"]), "", "1", ""])
        for name, of_peer in of_dataset["peers"].items():
            ratios = [spanned(of_peer[mode], lambda x: f"{x:.2f}") for mode in ("ratio", "trusted")]
            rows.append(["", f"{name} ({of_peer['version']})", spanned(of_peer["rate"]), *ratios, ""])
    return "\n\n".join(
        [
            f"The same baseline policy on {figures['workers']} processors, with the seeds of the platform's tasks; the "
            "returns of `cartpole` and `highway` are compared and equal. Platform: from the POST to the last durable "
            "result, each episode with a process of its own for the model, sandboxed, with a deadline per action; "
            "*trusted*: the model in the evaluator's process, with spot checks. "
            "Peers: after a warm-up, in memory, nothing isolated. *Ratio*: the platform's rate to the peer's, of the "
            "same round.",
            table(["dataset", "", "rate", "ratio", "ratio, trusted", "in"], rows),
            *_aims(figures["datasets"]),
        ]
    )


def _aims(datasets: Figures) -> Iterator[str]:
    for dataset, name, *least in AIMS:
        for mode, ratio, kind in zip(("ratio", "trusted"), least, ("isolated", "trusted"), strict=True):
            met = round(datasets[dataset]["peers"][name][mode]["median"], 2) >= ratio
            yield aim(f"{ratio:g} of {name} on {dataset}, {kind}", met)
