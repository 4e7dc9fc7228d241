"""Signals of a replay: which numbers of an observation it keeps, with which names, and how exactly."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from datasets.catalogue import datasets
from runtimes.harness.simulators.base import KEPT, Interface, Space, signals_frame, signals_scene

WORLDS = {name: Interface.of(record.definition["interface"]) for name, record in datasets().items()}


def space(size: int) -> Space:
    each = (0.0,) * size
    return Space(
        dtype="float32",
        shape=(size,),
        names=tuple(f"n{number}" for number in range(size)),
        units=("m",) * size,
        low=each,
        high=each,
    )


@pytest.mark.parametrize("name", WORLDS)
def test_a_replay_has_every_number_of_a_shipped_world_with_its_name_and_unit(name: str) -> None:
    interface = WORLDS[name]
    scene = signals_scene(interface)
    frame = signals_frame(np.zeros(interface.observation.shape), np.zeros(interface.action.shape))
    for member in ("observation", "action"):
        declared = getattr(interface, member)
        described = [(signal["name"], signal["unit"]) for signal in scene[member]]
        assert described == list(zip(declared.names, declared.units, strict=True))
        assert len(frame[member]) == len(declared.names)


def test_of_an_image_a_replay_has_the_first_entries() -> None:
    interface = Interface(observation=space(KEPT + 1), action=space(1))
    frame = signals_frame(np.arange(KEPT + 1, dtype=np.uint8), None)
    assert len(signals_scene(interface)["observation"]) == len(frame["observation"]) == KEPT
    assert frame["action"] is None


@given(arrays.arrays(np.float32, 8, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_numbers_are_those_of_the_observation_to_seven_digits(observation: np.ndarray) -> None:
    kept = signals_frame(observation, None)["observation"]
    assert kept == pytest.approx(observation.tolist(), rel=5e-7, abs=1e-44)


def test_a_number_takes_no_more_digits_than_single_precision_has() -> None:
    observation = np.array([13.34, -0.1, 1e-5, 100.0], np.float32)
    assert json.dumps(signals_frame(observation, observation[:1])) == json.dumps(
        {"observation": [13.34, -0.1, 1e-05, 100.0], "action": [13.34], "reward": None}
    )


@given(arrays.arrays(np.int64, 4))
def test_integers_are_kept_as_they_are(observation: np.ndarray) -> None:
    assert signals_frame(observation, None)["observation"] == observation.tolist()
