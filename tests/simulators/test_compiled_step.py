"""The compiled step of car_street against its plain Python: equal to the bit in every observation and metric."""

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.compiled_code import find_compiler
from runtimes.harness.dataset_definition import read_definition
from runtimes.harness.simulators.base import Scenario, SimulatorBroken
from tests.simulators.car_street import DATASET, SPECS, second_version, simulator, spec, sumo

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="the compiled step needs a C++ compiler")


@cache
def reference(folder: Path = DATASET) -> Any:
    """Return a simulator that steps in plain Python. It shares SUMO, which exists once in a process, with the other."""
    simulator()
    from runtimes.harness.simulators.sumo.simulator import SumoSimulator

    return SumoSimulator(folder, read_definition((DATASET / "dataset.json").read_bytes()), compiled=False)


def drive(world: Any, scenario: Scenario, actions: Random) -> list[bytes]:
    """Drive until the scenario's end, holding actions for some steps as drivers do. Return all that is observed."""
    seen = [world.reset(scenario).tobytes()]
    over, action = False, np.zeros(2, dtype=np.float32)
    while not over:
        if actions.random() < 0.15:
            lane = actions.choice([0.0, 0.0, 0.0, -1.0, 1.0, 1.5])
            action = np.array([actions.uniform(-10.0, 4.0), lane], np.float32)
        elif actions.random() < 0.3:
            action = np.array([actions.uniform(0.0, 2.5), 0.0], np.float32)
        observation, over = world.step(action)
        seen.append(observation.tobytes())
    return [*seen, json.dumps([world.outcome(None), world.frame()], sort_keys=True).encode()]


def assert_equal(scenario: Scenario, actions: int) -> None:
    expected = drive(reference(), scenario, Random(actions))
    compiled = drive(simulator(), scenario, Random(actions))
    assert len(compiled) == len(expected)
    differing = [step for step, (one, other) in enumerate(zip(expected, compiled, strict=True)) if one != other]
    assert not differing, f"scenario {scenario.index}, first at step {differing[0]}"


@cache
def second_reference() -> Any:
    """Return a simulator of version 2 that steps in plain Python."""
    simulator()
    from runtimes.harness.simulators.sumo.simulator import SumoSimulator

    folder = DATASET.with_name("car_street_2")
    return SumoSimulator(folder, read_definition((folder / "dataset.json").read_bytes()), compiled=False)


scenarios = st.builds(
    lambda index, seed, guard: Scenario(index=index, seed=seed, spec=SPECS[index], params={"lane_guard": guard}),
    st.integers(0, len(SPECS) - 1),
    st.integers(0, 2**63 - 1),
    st.booleans(),
)


def test_the_simulator_of_the_tests_uses_the_compiled_step() -> None:
    simulator().reset(Scenario(index=0, seed=1, spec=SPECS[0]))
    reference().reset(Scenario(index=0, seed=1, spec=SPECS[0]))
    assert [type(world._step).__name__ for world in (simulator(), reference())] == ["CompiledStep", "PythonStep"]


@settings(max_examples=24, deadline=None)
@given(scenario=scenarios, actions=st.integers(0, 2**32))
def test_any_drive_is_equal_with_the_compiled_step_and_with_plain_python(scenario: Scenario, actions: int) -> None:
    assert_equal(scenario, actions)


def test_times_to_pedestrians_are_equal_with_the_compiled_step_and_with_plain_python() -> None:
    crossings = [line for line in SPECS if line["street"] == "crosswalk"]
    random, met = Random(7), 0
    for _ in range(24):
        line = crossings[random.randrange(len(crossings))]
        scenario = Scenario(index=line["index"], seed=random.getrandbits(63), spec=line, params={})
        actions = random.getrandbits(32)
        expected = drive(second_reference(), scenario, Random(actions))
        assert drive(second_version(), scenario, Random(actions)) == expected
        first = json.loads(drive(simulator(), scenario, Random(actions))[-1])[0]
        second = json.loads(expected[-1])[0]
        met += second.pop("min_ttc_any") < first["min_ttc"]
        assert second == first, "the other metrics of version 2 are those of version 1"
    assert met > 3


def test_a_thousand_drives_are_equal_with_the_compiled_step_and_with_plain_python() -> None:
    random = Random(5)
    for _ in range(1000):
        index = random.randrange(len(SPECS))
        scenario = Scenario(index=index, seed=random.getrandbits(63), spec=SPECS[index], params={})
        assert_equal(scenario, random.getrandbits(32))


def test_events_see_the_same_ego_with_both() -> None:
    for name in ("lead_brake", "cut_in", "red_runner", "stalled", "slow_truck", "late_pedestrian", "hurried_major"):
        line = next(line for line in SPECS if line["event"] == name)
        scenario = Scenario(index=line["index"], seed=11, spec=line)
        worlds = (reference(), simulator())
        for world in worlds:
            world.reset(scenario)
        views = []
        for world in worlds:
            world.reset(scenario)
            view = []
            for _ in range(120):
                _, over = world.step(np.array([0.4, 0.0], np.float32))
                ego = world._step
                members = (ego.lane, ego.position, ego.speed, ego.driven, ego.now, ego.light, ego.limit, ego.steps)
                view.append((*members, ego.entered_on, ego.changing, ego.outcome, ego.actor_arrived, ego.path))
                if over:
                    break
                if name != "late_pedestrian" and not ego.actor_arrived:
                    view.append(ego.gap())
            views.append(view)
        assert views[0] == views[1], name


@pytest.mark.parametrize("compiled", [True, False])
def test_an_error_of_sumo_is_the_same_with_both(compiled: bool) -> None:
    world = simulator() if compiled else reference()
    world.reset(Scenario(index=0, seed=1, spec=spec("signal_grid-sparse-none-mixed-0")))
    sumo().vehicle.remove("ego")
    sumo().simulationStep()
    with pytest.raises(sumo().TraCIException, match="Vehicle 'ego' is not known"):
        world.step(np.zeros(2, np.float32))


def test_a_fatal_error_of_sumo_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    world = simulator()  # SUMO can be imported from here on, whichever test came first
    from runtimes.harness.simulators.sumo import compiled_library

    library = compiled_library.library()
    assert library is not None
    with pytest.raises(sumo().FatalTraCIError):
        compiled_library.check(compiled_library.SUMO_FAILED, library)
    world.reset(Scenario(index=0, seed=1, spec=SPECS[0]))
    monkeypatch.setattr(world._step, "_call", lambda *_: compiled_library.SUMO_FAILED)
    with pytest.raises(SimulatorBroken, match="SUMO failed"):
        world.step(np.zeros(2, np.float32))
