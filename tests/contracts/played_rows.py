"""Program of test_rows.py: plays drawn scenarios in rows of a model, and by a model of each scenario's own.

It runs with the libraries of a format's environment alone: ``{"format": ..., "path": ..., "observation": space,
"action": space, "rows": ...}`` is its argument, and it prints the kernel that was chosen, or "none", and what differs.
"""

import json
import os
import random
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runtimes.harness.model_server.row_kernels import kernel_of
from runtimes.harness.model_server.row_memory import ACT, IDLE, RESET, RING, RowMemory
from runtimes.harness.model_server.row_server import RowServer
from runtimes.harness.models.base import Assignment, format_named
from runtimes.harness.simulators.base import Interface, Space

#: The most steps of a scenario, the fewest and most scenarios of a row, and the share of exchanges in which it rests.
STEPS, SCENARIOS, RESTS = 6, (2, 3), 0.2
#: The first entry of an observation that a model of the tests fails for, and the share of such observations.
FAILS, FAILING = 1000.0, 0.05


@dataclass
class Scenario:
    """What a row is asked, and the answers: None for an exception, which is the last."""

    seed: int
    observations: np.ndarray
    expected: list[bytes | None]


class Models:
    """Loads models of a file, each from the beginning."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.interface = Interface(observation=Space.of(options["observation"]), action=Space.of(options["action"]))
        self._format, self._path = format_named(options["format"]), Path(options["path"])
        self._format.preload()
        self._folder: Path | None = None
        if self._path.suffix == ".zip":
            self._folder = Path(tempfile.mkdtemp())
            with zipfile.ZipFile(self._path) as archive:
                archive.extractall(self._folder)

    def load(self) -> Any:
        source = b"" if self._folder is not None else self._path.read_bytes()
        scratch = Path(tempfile.mkdtemp())
        return self._format.load(
            Assignment(source=source, files=self._folder, interface=self.interface, scratch=scratch)
        )

    def scenario(self, random: np.random.Generator, fails: bool) -> Scenario:
        space = self.interface.observation
        steps, seed = int(random.integers(1, STEPS + 1)), int(random.integers(1 << 32))
        observations = random.standard_normal((steps, *space.shape)).astype(space.dtype)
        if fails:
            observations[random.random(steps) < FAILING, 0] = FAILS
        model, expected = self.load(), []
        model.reset(seed)
        for step in range(steps):
            try:
                expected.append(model.act(observations[step : step + 1]))
            except Exception:
                expected.append(None)
                break
        return Scenario(seed, observations, expected)


def played(
    interface: Interface, models: Sequence[Any], kernel: str, scenarios: Sequence[Sequence[Scenario]]
) -> list[str]:
    """Play the scenarios of each row one after the other, beside those of the others; return what differs."""
    memory, descriptor = RowMemory.make(interface, len(models))
    (is_asked, ask), (answered, answer) = os.pipe(), os.pipe()
    mapped = RowMemory.map_descriptor(interface, len(models), descriptor)
    server = RowServer(mapped, models, kernel)
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=server.serve, args=[theirs, is_asked, answer])
    thread.start()
    draw, size, wrong = random.Random(kernel), interface.action.size, []
    places = [(0, 0)] * len(models)
    number = 0
    while any(at < len(scenarios[row]) for row, (at, _) in enumerate(places)):
        asks: list[tuple[int, bytes | None]] = []
        number += 1
        for row, (at, step) in enumerate(places):
            memory.kinds[row] = IDLE
            if at == len(scenarios[row]) or draw.random() < RESTS:
                continue
            scenario = scenarios[row][at]
            memory.kinds[row] = ACT if step else RESET
            memory.seeds[row] = scenario.seed
            memory.observations[row] = scenario.observations[step]
            asks.append((row, scenario.expected[step]))
            places[row] = (at, step + 1) if step + 1 < len(scenario.expected) else (at + 1, 0)
        memory.numbers[:] = number.to_bytes(4, "little") * len(models)
        os.write(ask, RING)
        os.read(answered, len(RING))
        memory.observations[...] = 77.0  # a model that has kept it, and not its values, would answer otherwise
        for row, expected in asks:
            actual = bytes(memory.actions[row * size : (row + 1) * size])
            if memory.faults[row] != (expected is None) or expected not in (None, actual):
                wrong.append(f"{kernel}: exchange {number}, row {row}: {memory.faults[row]} {actual!r} {expected!r}")
    ours.send(b"x")
    thread.join()
    return wrong


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder  # where models get their folders
        _compare(json.loads(sys.argv[1]))


def _compare(options: Mapping[str, Any]) -> None:
    models = Models(options)
    model = models.load()
    random = np.random.default_rng(options["seed"])
    model.reset(3)
    model.act(
        random.standard_normal((1, *models.interface.observation.shape)).astype(models.interface.observation.dtype)
    )
    rows = [model.row() for _ in range(options["rows"])]
    if None in rows:
        assert not any(rows)
        print(json.dumps({"kernel": "none", "wrong": []}))
        return
    observation = random.standard_normal((1, *models.interface.observation.shape))
    observation = observation.astype(models.interface.observation.dtype)
    (model := models.load()).reset(0)
    begins = rows[0].act(observation) == model.act(observation)
    counts = random.integers(*SCENARIOS, size=len(rows), endpoint=True)
    scenarios = [[models.scenario(random, options["fails"]) for _ in range(count)] for count in counts]
    kernel = kernel_of(rows, models.interface, 120.0)
    wrong = [text for used in {kernel, "one"} for text in played(models.interface, rows, used, scenarios)]
    wrong += [] if begins else ["a new row has the state of the model that it is a row of"]
    answers = {answer for part in scenarios for scenario in part for answer in scenario.expected}
    faults = sum(scenario.expected[-1] is None for part in scenarios for scenario in part)
    print(json.dumps({"kernel": kernel, "wrong": wrong[:3], "answers": len(answers), "faults": faults}))
