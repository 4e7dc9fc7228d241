"""How a TensorFlow model is reset follows from its operations alone; an unknown state is never ignored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.harness.models import tensorflow_graph
from runtimes.harness.models.base import Misfit
from runtimes.harness.models.tensorflow_graph import Operation, Remedy, derived_seeds, remedy

PURE = st.builds(Operation, st.sampled_from(["MatMul", "AddV2", "StatelessRandomNormalV2"]))
HARMLESS = st.builds(Operation, st.sampled_from(sorted(tensorflow_graph.HARMLESS)), st.just(True))
RANDOM = st.builds(Operation, st.sampled_from(sorted(tensorflow_graph.RANDOM)), st.booleans())
WRITERS = st.builds(
    Operation, st.sampled_from([*sorted(tensorflow_graph.VARIABLE_WRITERS), "ResourceApplyAdam"]), st.just(True)
)
UNKNOWN = st.one_of(
    st.builds(Operation, st.sampled_from(["Timestamp", "WriteFile", "QueueDequeueV2", "Fresh"]), st.just(True)),
    st.builds(Operation, st.sampled_from(["AssignAdd", "ScatterUpdate"]), st.just(False), st.just(True)),
    st.builds(Operation, st.sampled_from(sorted(tensorflow_graph.SIDE_EFFECTS)), st.booleans()),
)


@given(st.lists(st.one_of(PURE, HARMLESS)))
def test_a_graph_that_only_reads_is_never_reset(graph: list[Operation]) -> None:
    assert remedy(graph) == Remedy.NOTHING


@given(st.lists(st.one_of(PURE, WRITERS)), WRITERS)
def test_a_graph_that_writes_variables_gets_them_restored(graph: list[Operation], writer: Operation) -> None:
    assert remedy([*graph, writer]) == Remedy.RESTORE


@given(st.lists(st.one_of(PURE, WRITERS, RANDOM)), RANDOM)
def test_a_graph_that_draws_is_loaded_again(graph: list[Operation], draw: Operation) -> None:
    assert remedy([*graph, draw]) == Remedy.RELOAD


@given(st.lists(st.one_of(PURE, HARMLESS, WRITERS, RANDOM)), UNKNOWN)
def test_a_graph_with_an_operation_of_unknown_state_is_refused_by_name(
    graph: list[Operation], unknown: Operation
) -> None:
    with pytest.raises(Misfit, match=unknown.type):
        remedy([*graph, unknown])


def test_a_function_that_creates_what_it_changes_is_refused() -> None:
    with pytest.raises(Misfit, match="VarHandleOp"):
        remedy([Operation("VarHandleOp", True), Operation("AssignVariableOp", True)])


@given(st.integers(0, 2**63 - 1), st.text(max_size=20))
def test_derived_seeds_are_never_zero_which_would_mean_the_systems(seed: int, name: str) -> None:
    assert all(0 < value < 2**31 for value in derived_seeds(seed, name))
    assert derived_seeds(seed, name) == derived_seeds(seed, name) != derived_seeds(seed + 1, name)
