"""Many worlds: what a step costs beside 1, 4, 16 and 64 others, and an ONNX policy beside what people would use."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from benchmarks.figures import spread
from benchmarks.results import aim, spanned, table
from datasets.catalogue import datasets
from runtimes.catalogue import simulators
from runtimes.harness.runner.processes import WorkerSpec
from runtimes.harness.simulators.base import Interface
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of, worker_spec
from tests.simulators.test_gymnasium import best_level, site
from tests.simulators.test_onnx_models import onnx_site, onnx_spec
from tests.simulators.test_worlds import graph_of, policy

RUNS = 5
WORLDS = (1, 4, 16, 64)
#: Trivial steps of a scenario, and scenarios, of which the cost of a step is measured.
STEPS, SCENARIOS = 500, 256
#: Layers of a policy of about 5 ms a call, by their width; steps and scenarios that it plays.
WIDE: Mapping[int, int] = {1024: 12, 256: 120}
SLOW_STEPS, SLOW_SCENARIOS = 8, 64
#: Episodes of Hopper.
HOPPERS = 64


def trivial(steps: int, worlds: int, scenarios: int) -> dict[str, Any]:
    """Return the set-up of scenarios of so many trivial steps."""
    definition = dict(play_of()["definition"]) | {"steps": steps}
    return play_of(definition=definition, select={"range": [0, scenarios]}, worlds=worlds, deadline=10.0)


def trivial_spec() -> WorkerSpec:
    """Return the spec of a worker for them, with an ONNX model."""
    return worker_spec(model_server_site=onnx_site(), format="onnx", sandbox=best_level())


def processor_seconds(pair: EvaluatorPair) -> float:
    """Return the processor time of evaluator and model server."""
    times = [part.process.times() for part in (pair.evaluator, pair.model_servers[-1])]
    return sum(cpu for item in times for cpu, _ in (item or {})["threads"].values())


def of_a_step(worlds: int, source: bytes, core: int) -> dict[str, float]:
    """Return processor and wall seconds of a trivial step."""
    with evaluator_pair(trivial_spec(), source, trivial(STEPS, worlds, SCENARIOS)) as pair:
        for part in (pair.evaluator, pair.model_servers[-1]):
            part.process.pin(core)
        pair.run_lines(0, 2 * worlds)
        before, began = processor_seconds(pair), time.perf_counter()
        pair.run_lines(0, SCENARIOS)
        wall, used = time.perf_counter() - began, processor_seconds(pair) - before
    return {"wall": wall / (STEPS * SCENARIOS), "processor": used / (STEPS * SCENARIOS)}


ALONE = """
import sys, time
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options)
for rows in map(int, sys.argv[2:]):
    observations = np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32)
    for count in (200, 5000):
        began = time.process_time()
        for _ in range(count):
            session.run(["action"], {"observation": observations})
    print((time.process_time() - began) / count / rows)
"""


def of_the_model(source: bytes) -> dict[int, float]:
    """Return the processor seconds of the library for a row, by the rows of a call."""
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(source)
        file.flush()
        command = [sys.executable, "-c", ALONE, file.name, *map(str, WORLDS)]
        printed = subprocess.run(command, env={"PYTHONPATH": onnx_site()}, capture_output=True, text=True, check=True)
    return dict(zip(WORLDS, map(float, printed.stdout.split()), strict=True))


def slow_policy(width: int) -> bytes:
    """Return a policy of layers of this width."""
    random, interface = np.random.default_rng(0), Interface.of(trivial(1, 1, 1)["definition"]["interface"])
    weights: dict[str, Any] = {"into": random.standard_normal((4, width)), "out": random.standard_normal((width, 4))}
    nodes: list[NodeProto] = [helper.make_node("MatMul", ["observation", "into"], ["x0"])]
    for layer in range(WIDE[width]):
        weights[f"w{layer}"] = random.standard_normal((width, width)) / width**0.5
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"]))
    nodes.append(helper.make_node("MatMul", [f"x{WIDE[width]}", "out"], ["action"]))
    return graph_of(interface, nodes, weights)


def of_a_slow_policy(width: int, core: int) -> dict[str, float]:
    """Return the seconds of an action alone, and how many times as fast 16 worlds are."""
    source, seconds = slow_policy(width), {}
    for worlds in (1, 16):
        with evaluator_pair(trivial_spec(), source, trivial(SLOW_STEPS, worlds, SLOW_SCENARIOS)) as pair:
            for part in (pair.evaluator, pair.model_servers[-1]):
                part.process.pin(core)
            pair.run_lines(0, 2 * worlds)  # also compares the kernels
            began = time.perf_counter()
            pair.run_lines(0, SLOW_SCENARIOS)
            seconds[worlds] = (time.perf_counter() - began) / (SLOW_STEPS * SLOW_SCENARIOS)
    return {"alone": seconds[1], "gain": seconds[1] / seconds[16]}


def hopper(core: int) -> dict[str, Any]:
    """Return steps a second of 16 hoppers, ours and the peers', and how far the peers' returns are from ours."""
    source = policy(Interface.of(datasets()["mujoco_hopper"].definition["interface"]))
    play = play_of("mujoco_hopper", worlds=16, select={"range": [0, HOPPERS]})
    with evaluator_pair(onnx_spec("mujoco_hopper"), source, play) as pair:
        for part in (pair.evaluator, pair.model_servers[-1]):
            part.process.pin(core)
        pair.run_lines(0, 16)
        began = time.perf_counter()
        results = pair.run(0, HOPPERS)
        seconds = time.perf_counter() - began
    metrics = [result["metrics"] for result in results]
    figures: dict[str, Any] = {"ours": sum(metric["length"] for metric in metrics) / seconds}
    with tempfile.TemporaryDirectory() as folder:
        model, task = Path(folder, "policy.onnx"), Path(folder, "task.json")
        model.write_bytes(source)
        task.write_text(json.dumps({"model": str(model), "seeds": [item["scenario"]["seed"] for item in results]}))
        paths = [str(Path.cwd()), site(simulators()["mujoco"]), onnx_site()]
        for kind in ("async", "rollout"):
            command = [sys.executable, "-m", "benchmarks.peers.hopper", str(task), kind]
            environ = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "PATH": os.defpath}
            printed = subprocess.run(
                ["taskset", "-c", str(core), *command], env=environ, capture_output=True, text=True, check=True
            )
            document = json.loads(printed.stdout.splitlines()[-1])
            figures[kind] = document["steps"] / document["seconds"]
            differences = [abs(a["return"] - b) for a, b in zip(metrics, document["returns"], strict=True)]
            figures[f"{kind} differs"] = max(differences)
    return figures


def measure(runs: int = RUNS) -> dict[str, Any]:
    """Measure all in turns, so that a slow minute of the machine affects all."""
    core = max(os.sched_getaffinity(0))
    source = policy(Interface.of(trivial(1, 1, 1)["definition"]["interface"]), 16)
    steps: dict[int, list[dict[str, float]]] = {worlds: [] for worlds in WORLDS}
    slow: dict[int, list[dict[str, float]]] = {width: [] for width in WIDE}
    hoppers = []
    for _ in range(runs):
        model = of_the_model(source)
        for worlds in WORLDS:
            measured = of_a_step(worlds, source, core)
            steps[worlds].append(measured | {"own": measured["processor"] - model[worlds]})
        for width in WIDE:
            slow[width].append(of_a_slow_policy(width, core))
        hoppers.append(hopper(core))
        print({worlds: round(values[-1]["own"] * 1e6, 1) for worlds, values in steps.items()}, hoppers[-1], flush=True)
    return {
        "steps": {
            str(worlds): {key: spread(item[key] for item in values) for key in values[0]}
            for worlds, values in steps.items()
        },
        "slow": {
            str(width): {key: spread(item[key] for item in values) for key in values[0]}
            for width, values in slow.items()
        },
        "hopper": {key: spread(item[key] for item in hoppers) for key in ("ours", "async", "rollout")}
        | {f"beside {kind}": spread(item["ours"] / item[kind] for item in hoppers) for kind in ("async", "rollout")},
        "differs": {kind: max(item[f"{kind} differs"] for item in hoppers) for kind in ("async", "rollout")},
    }


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    rows = [
        [worlds, *(spanned(values[key], lambda x: f"{x * 1e6:.1f}") for key in ("own", "processor", "wall"))]
        for worlds, values in figures["steps"].items()
    ]
    slow = [
        [width, spanned(values["alone"], lambda x: f"{x * 1e3:.1f} ms"), spanned(values["gain"], lambda x: f"{x:.1f}")]
        for width, values in figures["slow"].items()
    ]
    hoppers = [
        [name, spanned(figures["hopper"][key], lambda x: f"{x:,.0f}"), *ratio]
        for name, key, ratio in (
            ("Windtunnel, 16 worlds, sandboxed, with results", "ours", [""]),
            ("`AsyncVectorEnv` of 16", "async", [spanned(figures["hopper"]["beside async"], lambda x: f"{x:.2f}")]),
            ("MuJoCo's rollout of 16", "rollout", [spanned(figures["hopper"]["beside rollout"], lambda x: f"{x:.2f}")]),
        )
    ]
    own = figures["steps"]["16"]["own"]["median"]
    slowest = min(values["gain"]["median"] for values in figures["slow"].values())
    return "\n\n".join(
        [
            f"Scenarios of {STEPS} trivial steps, evaluator and model server sandboxed on one core, with an ONNX policy"
            " of 16 hidden units. *Own*: processor time of both, less the library's for as many rows; it includes the"
            " world's step.",
            table(["worlds", "own, us a step", "processor", "wall"], rows),
            "An ONNX policy of layers of one width, 16 worlds beside one at a time:",
            table(["width", "an action alone", "times as fast with 16 worlds"], slow),
            f"{HOPPERS} episodes of Hopper with an ONNX policy of 64 hidden units, all on one core, with equal seeds. A"
            f" return differs by at most {figures['differs']['async']:.1e} beside `AsyncVectorEnv`, and by"
            f" {figures['differs']['rollout']:.1e} beside the rollout, whose solver begins without the last forces.",
            table(["", "steps/s", "Windtunnel beside it"], hoppers),
            aim("under 5 us of our own a step with 16 worlds", own < 5e-6),
            aim("a policy of 5 ms at 6 times with 16 worlds", slowest >= 6),
            aim("Hopper at 2 times `AsyncVectorEnv`", figures["hopper"]["beside async"]["median"] >= 2),
            aim("Hopper at half of MuJoCo's rollout", figures["hopper"]["beside rollout"]["median"] >= 0.5),
        ]
    )
