"""Signatures of graphs: which input is the observation, which output the action, and what is fed back."""

import re
from collections.abc import Sequence

import numpy as np
import pytest

from runtimes.harness.models.base import Misfit
from runtimes.harness.models.recurrence import DeclaredState, RecurrentState, RecurrentValues, declared_states
from runtimes.harness.models.signature import LONGEST, described, signature_of
from runtimes.harness.models.tensors import Tensor, check_input, check_output, check_output_type
from runtimes.harness.simulators.base import Space


def tensors(*names: str) -> list[Tensor]:
    return [Tensor(name, "float32", ("n", 4)) for name in names]


def space(dtype: str, *shape: int, high: float = float("inf")) -> Space:
    count = int(np.prod(shape))
    return Space(
        dtype=dtype, shape=shape, names=("x",) * count, units=("",) * count, low=(0.0,) * count, high=(high,) * count
    )


@pytest.mark.parametrize(
    ("inputs", "outputs", "observation", "action", "states"),
    [
        (["x"], ["y"], "x", "y", {}),
        (["h_in"], ["h_out"], "h_in", "h_out", {}),
        (["x"], ["value", "action"], "x", "action", {}),
        (["x"], ["value", "actions", "logits"], "x", "actions", {}),
        (["x"], ["label", "probabilities"], "x", "label", {}),
        (["h_in", "obs"], ["h_out", "y"], "obs", "y", {"h_in": "h_out"}),
        (["h_in", "x", "c_in"], ["y", "c_out", "h_out"], "x", "y", {"h_in": "h_out", "c_in": "c_out"}),
        (["obs", "state_in_0", "state_in_1"], ["y", "state_out_1", "state_out_0"], "obs", "y",
         {"state_in_0": "state_out_0", "state_in_1": "state_out_1"}),
        (["obs", "state_ins"], ["output", "state_outs"], "obs", "output", {"state_ins": "state_outs"}),
        (["observation_in", "h_in"], ["y", "h_out"], "observation_in", "y", {"h_in": "h_out"}),
        (["in", "h_in"], ["out", "h_out"], "in", "out", {"h_in": "h_out"}),
    ],
)  # fmt: skip
def test_observation_action_and_state_are_found_by_their_names(
    inputs: Sequence[str], outputs: Sequence[str], observation: str, action: str, states: dict[str, str]
) -> None:
    found = signature_of(tensors(*inputs), tensors(*outputs))
    assert (found.observation.name, found.action.name) == (observation, action)
    assert {state.input.name: state.output.name for state in found.states} == states


def test_the_metadata_pairs_states_of_any_name_and_comes_before_names() -> None:
    declared = declared_states('{"memory": "next", "h_in": {"output": "c_out", "initial": -1.5}}')
    found = signature_of(tensors("x", "memory", "h_in"), tensors("y", "next", "h_out", "c_out"), declared)
    assert found.states == (
        RecurrentState(*tensors("memory", "next")),
        RecurrentState(*tensors("h_in", "c_out"), initial=-1.5),
    )
    assert found.action.name == "y"


@pytest.mark.parametrize(
    "text", ["", "h", "[]", "1", '{"h": 1}', '{"h": {"initial": 1}}', '{"h": {"output": "o", "begin": 1}}', '{"h": {}}']
)
def test_metadata_that_is_not_pairs_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Misfit, match=r"windtunnel\.state is .* it has to be a JSON object such as"):
        declared_states(text)


@pytest.mark.parametrize(
    ("inputs", "outputs", "declared", "reason"),
    [
        ([], ["y"], {}, "the model has no input"),
        (["x"], [], {}, "the model has no output"),
        (["a", "b"], ["y"], {}, r"2 inputs \(a, b\); name the input of the observation observation or obs or input"),
        (["obs", "h_in"], ["y"], {}, r"input h_in float32\[n,4\] is neither .* name the pair X_in and X_out, or name"),
        (["h_in", "c_in"], ["h_out", "c_out"], {}, r"no input besides its state \(h_in, c_in\)"),
        (["obs", "h_in"], ["h_out"], {}, r"all outputs of the model are states \(h_out\)"),
        (["x", "h"], ["y"], {"h": "o"}, "names the output o; the outputs are y"),
        (["x"], ["y"], {"h": "y"}, "names the input h; the inputs are x"),
    ],
)
def test_a_signature_that_is_not_clear_is_refused_with_the_next_step(
    inputs: Sequence[str], outputs: Sequence[str], declared: dict[str, str], reason: str
) -> None:
    pairs = {name: DeclaredState(output) for name, output in declared.items()}
    with pytest.raises(Misfit, match=reason):
        signature_of(tensors(*inputs), tensors(*outputs), pairs)


def test_a_state_is_fed_back_with_the_same_type_and_shape_only() -> None:
    for after in (Tensor("h_out", "float64", ("n", 4)), Tensor("h_out", "float32", ("n", 5)),
                  Tensor("h_out", "float32", (1, "n", 4))):  # fmt: skip
        with pytest.raises(Misfit, match=re.escape(f"h_in is float32[n,4], and its output h_out is {after.type}")):
            signature_of(tensors("x", "h_in"), [*tensors("y"), after])
    assert signature_of(tensors("x", "h_in"), [*tensors("y"), Tensor("h_out", "float32", ("n", "k"))]).states


@pytest.mark.parametrize(
    ("shape", "batch", "expected"),
    [
        (("n", 8), 16, (16, 8)),
        ((1, "n", 8), 16, (1, 16, 8)),
        ((1, -1, 8), 3, (1, 3, 8)),
        ((2, None, 8), 3, (2, 3, 8)),
        ((1, 8), 1, (1, 8)),
        ((1, 16, 8), 16, (1, 16, 8)),
        ((), 1, ()),
    ],
)
def test_the_unknown_size_of_a_state_is_the_batch(
    shape: tuple[object, ...], batch: int, expected: tuple[int, ...]
) -> None:
    state = RecurrentState(Tensor("h_in", "float32", shape), Tensor("h_out", "float32", shape), 0.5)
    value = RecurrentValues([state], *tensors("x"), batch).inputs["h_in"]
    assert (value.shape, str(value.dtype), set(value.reshape(-1).tolist())) == (expected, "float32", {0.5})


@pytest.mark.parametrize(
    ("shape", "batch", "reason"),
    [
        (("layers", "batch", 8), 1, "more than one unknown size"),
        (("n", "time", 8), 1, "more than one unknown size"),
        ((1, 8), 16, "without an axis for the batch of 16"),
        (None, 1, "unknown rank"),
    ],
)
def test_a_state_that_cannot_be_filled_for_each_row_of_a_batch_is_refused(
    shape: tuple[object, ...] | None, batch: int, reason: str
) -> None:
    state = RecurrentState(Tensor("h_in", "float32", shape), Tensor("h_out", "float32", shape))
    with pytest.raises(Misfit, match=reason):
        RecurrentValues([state], *tensors("x"), batch)


@pytest.mark.parametrize(
    ("dtype", "taken"),
    [
        ("float32", {"float16", "float32", "float64"}),
        ("uint8", {"uint8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64"}),
        ("int64", {"int64"}),
        ("int32", {"int32", "int64", "float64"}),
    ],
)
def test_an_input_takes_observations_that_its_type_has_exactly_and_floats_of_any_width(
    dtype: str, taken: set[str]
) -> None:
    types = ("float16", "float32", "float64", "bool", "int8", "uint8", "uint16", "int16", "int32", "int64", "string")
    for type in types:
        tensor = Tensor("x", type, ("n", 4))
        if type in taken:
            check_input(tensor, space(dtype, 4), 1)
        else:
            with pytest.raises(Misfit, match=rf"input is {type}\[n,4\]; the dataset observes {dtype}\[4\]"):
                check_input(tensor, space(dtype, 4), 1)


@pytest.mark.parametrize(
    ("action", "output", "fits"),
    [
        ((1,), ("n",), True),
        ((1,), ("n", 1), True),
        ((1,), (1,), True),
        ((1,), (), True),
        ((1,), ("n", 2), False),
        ((1,), (2,), False),
        ((), ("n",), True),
        ((), ("n", 1), True),
        ((4,), ("n",), False),
        ((4,), (4,), False),
        ((2, 2), ("n", 4), True),
        ((2, 2), ("n", 2, 2), True),
        ((2, 2), ("n", 2, 1), False),
    ],
)
def test_an_action_of_one_element_needs_no_axis_of_its_own(
    action: tuple[int, ...], output: tuple[object, ...], fits: bool
) -> None:
    for dtype in ("float32", "int64"):
        if fits:
            check_output(Tensor("y", dtype, output), space("float32", *action), 1)
            continue
        with pytest.raises(Misfit, match="so it has to be"):
            check_output(Tensor("y", dtype, output), space("float32", *action), 1)


def test_floats_for_a_space_of_integers_are_refused_with_what_to_export() -> None:
    for dtype in ("float16", "float32", "float64"):
        with pytest.raises(Misfit, match=rf"output is {dtype}; the dataset takes int64\[1\], .*add ArgMax"):
            check_output(Tensor("y", dtype, ("n", 1)), space("int64", 1), 1)
    for dtype in ("bool", "int32", "int64", "uint8"):
        check_output_type(dtype, space("int64", 1))


def test_scores_of_a_discrete_action_are_refused_with_what_to_export() -> None:
    with pytest.raises(Misfit, match=r"float32\[n,3\]; the dataset .* scores of the 3 actions, .*add ArgMax"):
        check_output(Tensor("y", "float32", ("n", 3)), space("float32", 1, high=2.0), 1)
    with pytest.raises(Misfit) as refusal:
        check_output(Tensor("y", "float32", ("n", 4)), space("float32", 1, high=2.0), 1)
    assert "scores" not in str(refusal.value)


def test_a_description_of_many_inputs_is_short() -> None:
    many = tensors(*(f"h{number}_in" for number in range(5000)))
    found = signature_of(tensors("x"), tensors("y"))
    for text in described(found, many, many).values():
        assert len(text) <= LONGEST + 3
