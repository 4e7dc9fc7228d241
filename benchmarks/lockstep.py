"""Lock-step: processor time of a step in evaluator and model server, beside an echo of equal frames on one core."""

import json
import os
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figures import spread
from benchmarks.lockstep_protections import echo, protections
from benchmarks.results import aim, number, spanned, table
from datasets.catalogue import datasets
from runtimes import harness
from runtimes.harness.dataset_definition import definition_of
from runtimes.harness.models.base import Assignment
from runtimes.harness.models.python import load
from runtimes.harness.runner import framed_socket, processes
from runtimes.harness.runner.processes import EvaluatorProcess, ModelServerProcess, WorkerSpec
from runtimes.harness.sandbox import level
from runtimes.harness.simulators.base import Interface, Scenario
from runtimes.harness.simulators.noop import NoopSimulator

ZERO = Path("runtimes/harness/simulators/noop/baselines/zero.py")
STEPS, RUNS = 50_000, 7
#: Aim in microseconds on a machine where an echo takes ECHO.
AIM, ECHO = 15.0, 10.0
#: Each variant is compared with the first: what it lacks or has besides.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "sandboxed": {},
    "without the sandbox": {"sandbox": None},
    "with a recorded trace": {"record": "all"},
}


class LockstepPair:
    """An evaluator and a model server on one core, that run scenarios of many trivial steps."""

    def __init__(self, folder: Path, core: int, *, sandbox: int | None, record: str) -> None:
        spec = WorkerSpec(
            python=os.path.realpath(sys.executable),
            harness=str(Path(harness.__file__).parent),
            dataset=str(folder),
            evaluator_site=sysconfig.get_paths()["purelib"],
            model_server_site=sysconfig.get_paths()["purelib"],
            format="python",
            isolation="launch",
            sandbox=sandbox,
        )
        self._evaluator: EvaluatorProcess = processes.spawn_evaluator(spec, "evaluator")
        self._model_server: ModelServerProcess = processes.spawn_model_server(spec, "model server")
        self._channel = self._evaluator.channel
        definition = json.loads((folder / "dataset.json").read_text())
        plan = {"seed": 0, "dataset": "lockstep", "select": {"range": [0, 1 << 20]}, "params": {}}
        play = {"definition": definition, "tasks": plan, "deadline": definition["deadline"], "record": record}
        self._channel.send({"type": "setup", "play": play | {"format": "python"}})
        self._expect(framed_socket.Ready)
        with open(ZERO, "rb") as model:
            self._channel.send({"type": "model_server"}, [self._model_server.socket.fileno(), model.fileno()])
        self._expect(framed_socket.ModelLoaded)
        self._model_server.socket.close()
        self._evaluator.process.pin(core)
        self._model_server.process.pin(core)
        self._task = 0

    def _expect(self, kind: type[framed_socket.Message]) -> None:
        while not isinstance(message := self._channel.receive(120), kind):
            if not isinstance(message, framed_socket.Batch):
                raise RuntimeError(f"the evaluator sent {message}")

    def run(self, steps: int) -> dict[str, float]:
        """Run one scenario; return the seconds of processor and wall time per step."""
        before, began = self._processor_seconds(), time.perf_counter()
        self._evaluator.page.stop = self._task + 1
        order = {"start": self._task, "stop": self._task + 1, "flush": 1.0, "careful_until": -1}
        self._channel.send({"type": "play", **order})
        self._expect(framed_socket.Idle)
        wall, after = time.perf_counter() - began, self._processor_seconds()
        self._task += 1
        return {"wall": wall / steps} | {name: (after[name] - before[name]) / steps for name in after}

    def _processor_seconds(self) -> dict[str, float]:
        parts = {"evaluator": self._evaluator.process, "model server": self._model_server.process}
        times = {name: process.times() for name, process in parts.items()}
        return {name: sum(cpu for cpu, _ in (item or {})["threads"].values()) for name, item in times.items()}

    def end(self) -> None:
        """End both processes."""
        for part in (self._evaluator, self._model_server):
            part.dismiss()
            part.process.reap()


@contextmanager
def dataset_folder(steps: int) -> Iterator[Path]:
    """Yield the folder of a dataset like `noop` whose scenarios have so many steps."""
    with tempfile.TemporaryDirectory(prefix="windtunnel-lockstep-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        definition = dict(datasets()["noop"].definition) | {"steps": steps, "record": True}
        (folder / "dataset.json").write_text(json.dumps(definition))
        yield folder


def world_and_model(steps: int) -> float:
    """Return the processor seconds of a step of the world and the model as functions of one process."""
    definition = dict(datasets()["noop"].definition) | {"steps": steps}
    interface = Interface.of(definition["interface"])
    simulator = NoopSimulator(definition_of(definition))
    model = load(Assignment(source=ZERO.read_bytes(), interface=interface))
    answer: Callable[[Any], Any] = model._act  # type: ignore[attr-defined]
    model.reset(0)
    observation, over = simulator.reset(Scenario(index=0, seed=0)), False
    began = time.process_time()
    while not over:
        observation, over = simulator.step(answer(observation))
    return (time.process_time() - began) / steps


def measure(steps: int = STEPS, runs: int = RUNS) -> dict[str, Any]:
    """Measure echo, world and model, and each variant in turn, so that a slow minute of the machine affects all."""
    core = max(os.sched_getaffinity(0))
    own, echoes, ratios = [], [], []
    parts: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    with dataset_folder(steps) as folder:
        options = {"sandbox": level().number, "record": "none"}
        pairs = {name: LockstepPair(folder, core, **(options | changes)) for name, changes in VARIANTS.items()}
        try:
            for run in range(-1, runs):
                echoed, trivial = echo(steps, core), world_and_model(steps)
                measured = {name: pair.run(steps) for name, pair in pairs.items()}
                if run < 0:
                    continue  # the first run warms caches
                for name, values in measured.items():
                    values["own"] = values["evaluator"] + values["model server"] - trivial
                    parts[name].append(values)
                own.append(trivial)
                echoes.append(echoed)
                ratios.append(measured["sandboxed"]["own"] / echoed)
                print(f"{measured['sandboxed']['own'] * 1e6:.2f} us, echo {echoed * 1e6:.2f} us", flush=True)
        finally:
            for pair in pairs.values():
                pair.end()
    return {
        "steps": steps,
        "trivial": statistics.median(own),
        "echo": spread(echoes),
        "ratio": spread(ratios),
        "variants": {
            name: {key: spread(item[key] for item in values) for key in values[0]} for name, values in parts.items()
        },
        "protections": protections(core),
    }


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    standard = figures["variants"]["sandboxed"]
    columns = ("own", "evaluator", "model server", "wall")
    rows = [["an echo between two processes", spanned(figures["echo"], microseconds), "", "", ""]]
    for name, values in figures["variants"].items():
        rows.append([name, *(spanned(values[key], microseconds) for key in columns)])
    shares = [[name, number(seconds * 1e6)] for name, seconds in figures["protections"].items()]
    difference = figures["variants"]["with a recorded trace"]["own"]["median"] - standard["own"]["median"]
    shares.append(["trace recording, if the simulation records (with compression)", number(difference * 1e6)])
    bare = figures["variants"]["without the sandbox"]["own"]["median"]
    shares.append(["the sandbox, of all system calls", number((standard["own"]["median"] - bare) * 1e6)])
    met = figures["ratio"]["median"] <= AIM / ECHO  # of runs in pairs, so that a slow machine excuses nothing
    return "\n\n".join(
        [
            f"Scenarios of {figures['steps']:,} trivial steps: the real evaluator and the real model server on one "
            "core, and two processes there that exchange frames of the same size and do nothing else. *Own*: processor "
            f"time of both, less that of world and model, which need {number(figures['trivial'] * 1e6)} us as "
            "functions of one process. The runs alternate.",
            table(["microseconds per step", "own", "evaluator", "model server", "wall"], rows),
            f"Own time is {spanned(figures['ratio'], lambda x: f'{x:.2f}')} times an echo.",
            "Shares of the protections, each measured alone (the last two: between two rows above):",
            table(["protection", "microseconds per step"], shares),
            aim(f"under {AIM:g} microseconds where an echo takes {ECHO:g}", met),
        ]
    )


def microseconds(seconds: float) -> str:
    """Format seconds as microseconds."""
    return number(seconds * 1e6)


def main() -> None:
    """Measure a little, for work on the loop."""
    print(section(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, 5)))


if __name__ == "__main__":
    main()
