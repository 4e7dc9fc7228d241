"""The flow simulator: its lattice against known flows, its bits on any number of ranks, its score and its baseline."""

import importlib.util
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.catalogue import datasets
from runtimes.harness.dataset_definition import read_definition
from runtimes.harness.simulators import flow
from runtimes.harness.simulators.base import Scenario
from runtimes.harness.simulators.flow.channel import Channel
from runtimes.harness.simulators.flow.flow import FlowOrder, FlowPart, merge, slab
from runtimes.harness.simulators.flow.lattice import LEFT, RIGHT, Array, Lattice
from runtimes.harness.simulators.rank_connection import RanksFailed

DATASET = datasets()["flow_control"]
DEFINITION = read_definition((DATASET.folder / "dataset.json").read_bytes())
BASELINE = DATASET.folder.parents[1] / "baselines" / "flow_control.py"


class Empty(Channel):
    """A channel without a cylinder."""

    solids = ()
    links = ()


def test_the_flow_of_an_empty_channel_keeps_the_parabola_of_poiseuille() -> None:
    channel = Empty(cells=5, reynolds=20.0)
    lattice = Lattice(channel, 0, channel.columns)
    for _ in range(5000):
        lattice.step(0.0)
    along, across = lattice.velocity()
    profile = np.array([channel.inflow(row) for row in range(channel.rows)])
    assert np.abs(along[20:-20] - profile).max() < 0.02 * profile.max()
    assert np.abs(across[20:-20]).max() < 0.005 * profile.max()
    # The pressure falls by 8 nu u / h^2 per cell, of the largest velocity u.
    density = [lattice.density(column, channel.rows // 2) for column in (30, 80)]
    fall = (density[0] - density[1]) / 3.0 / 50
    assert fall == pytest.approx(8 * channel.viscosity * profile.max() / channel.rows**2, rel=0.03)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_slabs_have_the_bits_of_the_whole_channel(ranks: int) -> None:
    channel = Channel(cells=10, reynolds=100.0)
    whole = Lattice(channel, 0, channel.columns)
    slabs = [slab(channel.columns, rank, ranks) for rank in range(ranks)]
    # Each slab's step stops at its exchange, so the exchange of all is done before the first goes on.
    parts = [Lattice(channel, first, last) for first, last in slabs]
    for step in range(200):
        spin = 0.002 * math.sin(step / 20)
        whole.step(spin)
        for part in parts:
            part.collide()
        for left, right in pairwise(parts):
            exchange(left.collided, right.collided)
        for part in parts:
            part.stream(spin)
    joined = np.concatenate([part.populations[:, 1:-1] for part in parts], axis=1)
    assert joined.tobytes() == whole.populations[:, 1:-1].tobytes()
    sums = np.concatenate([part.surface.sums for part in parts], axis=1)
    assert sums.tobytes() == whole.surface.sums.tobytes()


def exchange(left: Array, right: Array) -> None:
    right[list(RIGHT), 0] = left[list(RIGHT), -2]
    left[list(LEFT), -1] = right[list(LEFT), 1]


def test_a_resting_cylinder_in_a_symmetric_place_of_a_slow_flow_has_drag_and_little_moment() -> None:
    channel = Channel(cells=10, reynolds=20.0)
    lattice = Lattice(channel, 0, channel.columns)
    for _ in range(6000):
        lattice.step(0.0)
    lattice.surface.clear()
    lattice.step(0.0)
    drag, lift, _ = lattice.surface.clear().sum(axis=1) / (0.5 * channel.mean**2 * channel.cells)
    # Schäfer and Turek, case 2D-1: 5.57 to 5.59, and 0.0104 to 0.0110.
    assert drag == pytest.approx(5.58, rel=0.04)
    assert abs(lift) < 0.1


def measured(cells: int) -> tuple[list[float], list[float]]:
    """Return drag and lift coefficients of 1.5 s of a developed flow, every 0.01 s."""
    part = FlowPart(0, 1)
    part.execute(FlowOrder(do="reset", world=0, cells=cells, reynolds=100.0))
    step = FlowOrder(do="step", world=0, cells=cells, reynolds=100.0, seconds=0.01)
    answers = [merge(step, [part.execute(step)]) for _ in range(150)]
    return [answer.drag for answer in answers], [answer.lift for answer in answers]


def strouhal(lift: list[float]) -> float:
    middle = math.fsum(lift) / len(lift)
    values = [value - middle for value in lift]
    rises = [at - a / (b - a) for at, (a, b) in enumerate(pairwise(values)) if a < 0 <= b]
    return 0.1 / ((rises[-1] - rises[0]) / (len(rises) - 1) * 0.01)


def test_forces_and_frequency_are_those_that_are_published() -> None:
    # Schäfer and Turek, case 2D-2: largest drag 3.22 to 3.24, largest lift 0.99 to 1.01, Strouhal 0.295 to 0.305.
    # With 20 cells per diameter; with 10, the default, the mean drag is 3.38, the largest lift 0.82.
    drag, lift = measured(cells=20)
    assert math.fsum(drag) / len(drag) == pytest.approx(3.2, rel=0.03)
    assert max(lift) == pytest.approx(1.0, rel=0.1)
    assert strouhal(lift) == pytest.approx(0.3, rel=0.02)


def simulator() -> Any:
    return flow.create(DATASET.folder, DEFINITION, None)


def played(world: Any, act: Any, **params: Any) -> tuple[dict[str, Any], list[bytes]]:
    observations, over = [world.reset(Scenario(index=0, seed=7, params=params))], False
    while not over:
        observation, over = world.step(np.array(act(observations[-1]), np.float32))
        observations.append(observation)
    return world.outcome(None), [observation.tobytes() for observation in observations]


def test_the_baseline_has_less_drag_and_less_lift_than_a_cylinder_at_rest() -> None:
    module = importlib.util.module_from_spec(spec := importlib.util.spec_from_file_location("baseline", BASELINE))  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    world = simulator()
    model = module.Model()
    controlled, seen = played(world, model.act)
    resting, _ = played(world, lambda observation: [0.0])
    assert controlled["drag"] < 0.99 * resting["drag"], (controlled, resting)
    assert controlled["lift_rms"] < 0.8 * resting["lift_rms"], (controlled, resting)
    assert controlled["return"] > resting["return"] and resting["effort"] == 0.0 < controlled["effort"]
    assert resting["drag_reduction"] == pytest.approx(0.0, abs=0.02)
    model.reset(0)
    again, seen_again = played(world, model.act)
    assert (again, seen_again) == (controlled, seen)  # the scenario before leaves nothing in the process


def test_a_frame_has_the_vortices_and_actions_are_clipped() -> None:
    world = simulator()
    world.reset(Scenario(index=0, seed=1, params={"steps": 1}))
    world.step(np.array([5.0], np.float32))
    declared = {shape["id"] for shape in world.scene()["drawing"]["objects"]}
    drawn = world.frame()["drawing"]["at"]
    assert set(drawn) <= declared and {name[0] for name in drawn} == {"+", "-", "m"}
    assert world.outcome(None)["clipped_actions"] == 1


def test_a_flow_that_is_not_stable_is_the_simulators_failure() -> None:
    class Unstable:
        def ask(self, message: object, seconds: float) -> dict[str, object]:
            return {"drag": math.nan, "pressures": [0.0] * 10}

    world: Any = flow.create(Path(), DEFINITION, Unstable())  # type: ignore[arg-type]
    world.reset(Scenario(index=0, seed=1))
    with pytest.raises(RanksFailed, match="drag is nan"):
        world.step(np.zeros(1, np.float32))
