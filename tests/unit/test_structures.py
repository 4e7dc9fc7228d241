"""Structures of spaces: their elements as flat arrays and back, what is refused, and Gymnasium's own spaces."""

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from datasets.catalogue import datasets
from runtimes.harness.dataset_definition import definition_of
from runtimes.harness.simulators import structures
from runtimes.harness.simulators.base import Interface
from runtimes.harness.simulators.declared_interface import declared_interface, described_interface
from runtimes.harness.simulators.gymnasium_spaces import ActionApplier, observed_array, space_of, structure_of_space
from runtimes.harness.simulators.structures import DoesNotFit, element_of, equal, flattened, structure_of
from windtunnel.gym_spaces import codec_of
from windtunnel.sessions import Space as DescribedSpace

LEAVES = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 9), start=st.integers(-3, 3)),
    st.lists(st.integers(1, 5), min_size=1, max_size=3).map(spaces.MultiDiscrete),
    st.integers(1, 4).map(spaces.MultiBinary),
    st.lists(st.integers(1, 3), max_size=2).map(lambda shape: spaces.Box(-2.0, 3.0, tuple(shape))),
    st.just(spaces.Box(0, 1, (2, 2), np.int8)),
)
#: Spaces of Gymnasium, also in each other.
SPACES = st.recursive(
    LEAVES,
    lambda parts: (
        st.dictionaries(st.sampled_from("abcd"), parts, min_size=1, max_size=3).map(spaces.Dict)
        | st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple)
    ),
    max_leaves=5,
)


def same(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(value, second[key]) for key, value in first.items())
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(np.array_equal(first, second))


@given(SPACES, st.integers(0, 99))
def test_an_element_of_any_space_is_an_array_and_back(space: Any, seed: int) -> None:
    space.seed(seed)
    element, structure = space.sample(), structure_of_space(space)
    described = space_of(space, "observation")
    array = observed_array(element, described)
    assert array.shape == described.shape and array.size == structure.size == len(described.names)
    again = element_of(structure, array.reshape(-1))
    assert same(again, element) and space.contains(again)
    assert structure_of(json.loads(json.dumps(structure.describe()))) == structure


@given(SPACES, st.integers(0, 99))
def test_an_action_of_any_space_reaches_the_environment_as_its_agent_gave_it(space: Any, seed: int) -> None:
    space.seed(seed)
    element, described = space.sample(), space_of(space, "action")
    array = observed_array(element, described)
    applied, clipped, was_clipped = ActionApplier(Interface(observation=described, action=described), space)(array)
    assert space.contains(applied) and same(applied, element) and not was_clipped
    assert np.array_equal(clipped.reshape(-1), array.reshape(-1))


@given(SPACES, st.integers(0, 99))
def test_a_client_makes_the_space_of_gymnasium_from_its_description(space: Any, seed: int) -> None:
    described = space_of(space, "action")
    bounds = {"low": described.low, "high": described.high}
    codec = codec_of(
        DescribedSpace(
            dtype=described.dtype,
            shape=described.shape,
            names=described.names,
            gymnasium=structure_of_space(space).describe(),
            **bounds,
        )
    )
    if not isinstance(space, spaces.Box):
        assert codec.space == space
    codec.space.seed(seed)
    element = codec.space.sample()
    assert same(codec.element(codec.flat(element)), element)


NESTED = structures.dictionary(
    {"gear": structures.discrete(5, -1), "wheels": structures.multi_discrete([2, 3]), "push": structures.box((2,))}
)


@pytest.mark.parametrize(
    ("structure", "element", "text"),
    [
        (structures.discrete(2), 2, "2 is not an element of Discrete(2): a whole number from 0 to 1"),
        (structures.discrete(2), 0.7, "0.7 is not an element of Discrete(2): a whole number from 0 to 1"),
        (structures.discrete(2), float("nan"), "nan is not an element of Discrete(2)"),
        (structures.discrete(2), [0, 1], "list is not an element of Discrete(2): a whole number from 0 to 1"),
        (structures.discrete(2), None, "None is not"),
        (structures.discrete(2), "left", "'left' is not numbers; the space is Discrete(2)"),
        (structures.multi_discrete([2, 3]), [1, 3], "3 is not an element of MultiDiscrete([2, 3]): 2 whole numbers"),
        (structures.multi_binary((3,)), [0, 1, 2], "2 is not an element of MultiBinary(3)"),
        (NESTED, {"gear": 0, "wheels": [0, 0]}, "a dict of 'gear', 'wheels' is not a dict of 'gear', 'wheels', 'push'"),
        (NESTED, [1, 2], "list is not a dict of 'gear', 'wheels', 'push'"),
        (NESTED, {"gear": 4, "wheels": [0, 0], "push": [1, 1]}, "4 at ['gear'] is not an element of Discrete(5, start"),
        (structures.sequence([structures.discrete(2)]), (0, 1), "tuple is not a tuple of 1 parts"),
    ],
)
def test_what_is_not_an_element_is_refused_with_what_was_expected(
    structure: structures.Structure, element: Any, text: str
) -> None:
    with pytest.raises(DoesNotFit) as refused:
        flattened(structure, element)
    assert text in str(refused.value)


def test_the_numbers_of_a_box_are_not_compared_with_its_bounds() -> None:
    assert flattened(NESTED, {"push": [9.5, -9], "wheels": (1, 2), "gear": True}).tolist() == [1, 1, 2, 9.5, -9]


def test_the_order_of_keys_does_not_make_a_dict_another_space() -> None:
    one, other = structures.discrete(2), structures.box((3,))
    assert equal(structures.dictionary({"a": one, "b": other}), structures.dictionary({"b": other, "a": one}))
    assert not equal(structures.dictionary({"a": one, "b": other}), structures.dictionary({"a": other, "b": one}))
    assert not equal(structures.dictionary({"a": one}), one)


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Sequence(spaces.Discrete(2)), spaces.Dict(a=spaces.Text(3))])
def test_a_space_without_a_fixed_number_of_entries_is_refused(space: Any) -> None:
    with pytest.raises(
        ValueError, match=r"cannot be observed or set: it has a (Text|Sequence); supported are Box, Dis"
    ):
        space_of(space, "observation")


def test_every_built_in_space_has_as_many_entries_as_its_array() -> None:
    for dataset in datasets().values():
        interface = declared_interface(definition_of(dataset.definition))
        for space in (interface.observation, interface.action):
            assert space.gymnasium is not None and space.gymnasium.size == space.items == len(space.names)


def entries(*names: str, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    count = len(names)
    bounds = {"low": [low] * count, "high": [high] * count}
    return {"dtype": "float32", "shape": [count], "names": list(names), "units": [""] * count, **bounds}


def spaces_of(definition: dict[str, Any]) -> list[str]:
    interface = declared_interface(definition_of(definition))
    return [str(interface.observation.gymnasium), str(interface.action.gymnasium)]


def test_the_fields_of_an_openenv_environment_are_what_they_declare() -> None:
    mapping = {
        "observation": [{"path": "state", "values": ["idle", "busy"]}, {"path": "legal", "shape": [3], "mask": True}],
        "action": [{"path": "move", "kind": "choice", "values": ["up", "down"]}, {"path": "x", "kind": "constant"}],
    }
    interface = {
        "observation": entries("state", "legal_0", "legal_1", "legal_2", low=0, high=1),
        "action": entries("move", low=0, high=1),
    }
    assert spaces_of({"openenv": mapping, "interface": interface}) == [
        "Dict('state': Discrete(2), 'legal': MultiBinary(3))",
        "Discrete(2)",
    ]
    mapping["action"] = [{"path": "count", "kind": "integer", "shape": [2]}, {"path": "force", "kind": "number"}]
    interface["action"] = entries("count_0", "count_1", "force", low=-1, high=3)
    assert spaces_of({"openenv": mapping, "interface": interface})[1] == (
        "Dict('count': MultiDiscrete([5, 5], start=[-1, -1]), 'force': Box(float32[]))"
    )
    interface["action"] = entries("count_0", "count_1", "force")
    assert spaces_of({"openenv": mapping, "interface": interface})[1] == (
        "Dict('count': Box(int64[2]), 'force': Box(float32[]))"
    )
    mapping["action"] = [{"path": "force", "kind": "number"}, {"path": "brake", "kind": "number"}]
    interface["action"] = entries("force", "brake")
    assert spaces_of({"openenv": mapping, "interface": interface})[1] == "Box(float32[2])"


def test_the_variables_of_a_plant_are_what_its_fmu_declares() -> None:
    def port(name: str, type: str, shape: list[int] | None = None) -> dict[str, Any]:
        return {"name": name, "type": type, "valueReference": 0, "shape": shape}

    plant = {
        "inputs": [port("heating", "Real"), port("mode", "Integer"), port("window", "Boolean")],
        "read": [port("trend", "Float64", [2]), port("others", "Boolean")],
    }
    interface = {"observation": entries("trend[1]", "trend[2]"), "action": entries("heating", "mode", "window")}
    interface["action"] |= {"low": [0.0, 0, 0], "high": [1.0, 3, 1]}
    assert spaces_of({"plant": plant, "interface": interface}) == [
        "Box(float32[2])",
        "Dict('heating': Box(float32[]), 'mode': Discrete(4), 'window': Discrete(2))",
    ]


def test_a_definition_may_say_its_spaces_itself() -> None:
    action = entries("a", "b", low=0, high=2) | {"gymnasium": structures.multi_discrete([3, 3]).describe()}
    interface = {"observation": entries("o"), "action": action}
    assert spaces_of({"interface": interface})[1] == "MultiDiscrete([3, 3])"
    assert described_interface(definition_of({"interface": None})) is None
