"""Actions of a model: numbers of one type as the bytes of another, or the value that has none."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.harness.models.base import NoAction, action_bytes
from runtimes.harness.models.python import float_packer
from runtimes.harness.simulators import structures
from runtimes.harness.simulators.base import Space
from runtimes.harness.simulators.structures import Structure

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")


def space(dtype: str, *shape: int) -> Space:
    return Space(dtype=dtype, shape=shape, names=(), units=(), low=(), high=())


@given(st.sampled_from(INTEGERS), st.sampled_from((*INTEGERS, *FLOATS, "bool")), st.data())
def test_an_integer_is_taken_exactly_or_refused_with_its_value(source: str, target: str, data: st.DataObject) -> None:
    limits = np.iinfo(source)
    value = data.draw(st.integers(limits.min, limits.max) | st.sampled_from([limits.min, limits.max, 0, 1]))
    answer = np.array([value], source)
    if target in FLOATS:
        exact = abs(value) <= 2 ** (np.finfo(target).nmant + 1)
    else:
        low, high = (0, 1) if target == "bool" else (np.iinfo(target).min, np.iinfo(target).max)
        exact = low <= value <= high
    if exact:
        taken = np.frombuffer(action_bytes(answer, 1, space(target, 1)), target)
        assert int(taken[0]) == value
        return
    with pytest.raises(NoAction, match=rf"answered {value} \({source}\), which is not a value of the space's {target}"):
        action_bytes(answer, 1, space(target, 1))


@given(st.sampled_from(FLOATS), st.sampled_from(INTEGERS), st.floats(allow_nan=True) | st.integers(-300, 300))
def test_a_float_is_taken_for_an_integer_if_it_is_a_whole_number_of_the_type(
    source: str, target: str, value: float
) -> None:
    with np.errstate(over="ignore"):
        answer = np.array([value]).astype(source)
    number = float(answer[0])
    whole = number.is_integer() and np.iinfo(target).min <= int(number) <= np.iinfo(target).max
    if whole:
        assert np.frombuffer(action_bytes(answer, 1, space(target, 1)), target)[0] == int(number)
        return
    with pytest.raises(NoAction, match="which is not a value of the space's"):
        action_bytes(answer, 1, space(target, 1))


@pytest.mark.parametrize("source", FLOATS)
def test_floats_of_any_width_are_taken_for_a_float_space(source: str) -> None:
    answer = np.array([[0.5, -2.25]], source)
    assert action_bytes(answer, 1, space("float32", 2)) == np.array([0.5, -2.25], np.float32).tobytes()


@pytest.mark.parametrize("answer", [1, 1.0, True, [1], [[1]], np.int64(1), np.array([1], np.uint8), np.array([[1.0]])])
def test_one_number_is_an_action_of_one_element_in_any_shape(answer: Any) -> None:
    for shape in ((), (1,)):
        assert action_bytes(answer, 1, space("float32", *shape)) == np.float32(1).tobytes()
        assert action_bytes(answer, 1, space("int64", *shape)) == np.int64(1).tobytes()


def test_the_first_of_several_values_that_do_not_fit_is_named() -> None:
    with pytest.raises(NoAction, match=r"answered 300 \(int64\), which is not a value of the space's uint8"):
        action_bytes([[3, 300], [-1, 4]], 2, space("uint8", 2))


def choosing(structure: Structure) -> Space:
    return replace(space("float32", structure.size), gymnasium=structure)


@pytest.mark.parametrize("answer", [[0.7], [-3.5], np.array([9.0], np.float32), 0.5, 2, -1, [2], np.uint8(7)])
def test_what_is_no_value_of_a_choice_is_left_to_the_simulator(answer: Any) -> None:
    assert action_bytes(answer, 1, choosing(structures.discrete(2))) == np.float32(np.asarray(answer)).tobytes()


@pytest.mark.parametrize("answer", ["left", [1.0, "left"], [[1, 2], [3]], {"action": 1}, object()])
def test_what_is_not_numbers_is_refused(answer: Any) -> None:
    with pytest.raises(NoAction, match="is not an array of numbers"):
        action_bytes(answer, 1, space("float32", 1))


@pytest.mark.parametrize("dtype", ["int64", "float32"])
@pytest.mark.parametrize("count", [1, 3])
def test_the_scores_of_a_discrete_action_are_refused_with_the_advice(dtype: str, count: int) -> None:
    choice = Space(dtype=dtype, shape=(1,), names=("push",), units=("",), low=(0.0,), high=(1.0,))
    with pytest.raises(NoAction, match=r"shape \(\d, 2\), not .* if these are the scores of the 2 actions, export"):
        action_bytes(np.full((count, 2), 0.25, np.float32), count, choice)
    with pytest.raises(NoAction, match=r"shape \(\d, 3\), not \S+ ?1?,?\)$"):
        action_bytes(np.full((count, 3), 0.25, np.float32), count, choice)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(answer=st.lists(st.floats() | st.integers(-3, 3) | st.booleans(), min_size=1, max_size=3))
def test_floats_are_packed_to_the_bytes_of_an_array(dtype: str, answer: list[float]) -> None:
    pack = float_packer(dtype, len(answer))
    assert pack is not None
    packed = pack(answer)
    assert pack(tuple(answer)) == packed
    largest = float(np.finfo(dtype).max)
    if any(type(number) is not float for number in answer):
        assert packed is None
    elif all(not math.isfinite(number) or abs(number) <= largest for number in answer):
        assert packed is not None
        expected = np.frombuffer(action_bytes(answer, 1, space(dtype, len(answer))), dtype)
        assert np.array_equal(np.frombuffer(packed, dtype), expected, equal_nan=True)
        assert np.array_equal(np.signbit(np.frombuffer(packed, dtype)), np.signbit(expected))
    assert pack([*answer, 0.5]) is None


def test_only_small_actions_of_floats_are_packed() -> None:
    assert float_packer("int64", 2) is None
    assert float_packer("float16", 2) is None
    assert float_packer("float32", 100) is None
