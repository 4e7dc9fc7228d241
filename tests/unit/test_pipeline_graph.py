"""The graph of a pipeline: order, circles, what follows from ends, and which steps run again."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import Invalid
from core.domain.pipelines.pipeline_requests import PipelineRequest, StepRequest, request_graph
from core.domain.pipelines.pipeline_states import (
    COMPLETE,
    UNENDED_STEPS,
    PipelineState,
    StepState,
    end_of_steps,
)
from core.domain.pipelines.references import OutputReference, Placeholders, references_of, replace_references
from core.domain.pipelines.step_graph import following_states, graph_of, order_of, steps_after


@st.composite
def graphs(draw: st.DrawFn, *, circles: bool = False) -> list[list[int]]:
    """A graph of up to 12 steps; without circles each waits for steps before it in a random order."""
    size = draw(st.integers(1, 12))
    places = draw(st.permutations(range(size)))
    graph = []
    for step in range(size):
        others = [other for other in range(size) if circles or places[other] < places[step]]
        graph.append(draw(st.lists(st.sampled_from(others), unique=True, max_size=4)) if others else [])
    return graph


@given(graph=graphs(circles=True))
def test_a_circle_is_refused_by_its_steps_and_all_else_is_a_graph(graph: list[list[int]]) -> None:
    names = [f"s{number}" for number in range(len(graph))]
    waits_for = [[names[other] for other in before] for before in graph]
    try:
        assert graph_of(names, waits_for) == [sorted(before) for before in graph]
        assert sorted(order_of(graph)) == list(range(len(graph)))
    except Invalid as error:
        circle = (error.detail or "").split(": ")[1].split(".")[0].split(" -> ")
        assert circle[0] == circle[-1]
        for name, other in pairwise(circle):
            assert other in waits_for[names.index(name)]


@given(graph=graphs(), data=st.data())
def test_every_pipeline_ends_whatever_its_steps_do(graph: list[list[int]], data: st.DataObject) -> None:
    """Steps that are ready end in some way in any order: each runs at most once, after those that it waits for."""
    states = [StepState.WAITING] * len(graph)
    ran: list[int] = []
    while True:
        for step, state in following_states(graph, states).items():
            assert states[step] is StepState.WAITING
            states[step] = state
        assert following_states(graph, states) == {}
        ready = [step for step, state in enumerate(states) if state is StepState.READY]
        if not ready:
            break
        assert end_of_steps(states) is None
        step = data.draw(st.sampled_from(ready))
        assert step not in ran and all(states[other] in COMPLETE for other in graph[step])
        ran.append(step)
        states[step] = data.draw(st.sampled_from([StepState.SUCCEEDED, StepState.SKIPPED, StepState.FAILED]))
    assert not UNENDED_STEPS & set(states)
    failed = StepState.FAILED in states
    assert end_of_steps(states) is (PipelineState.FAILED if failed else PipelineState.SUCCEEDED)
    for step, state in enumerate(states):
        assert (state is StepState.NOT_RUN) == any(states[other] not in COMPLETE for other in graph[step])


@given(graph=graphs(), data=st.data())
def test_a_step_runs_again_with_exactly_those_that_wait_for_it(graph: list[list[int]], data: st.DataObject) -> None:
    first = data.draw(st.sampled_from(range(len(graph))))
    again = steps_after(graph, first)
    assert first in again
    for step, before in enumerate(graph):
        if step != first:
            assert (step in again) == (not again.isdisjoint(before))


def test_a_cancelled_step_alone_makes_a_pipeline_cancelled() -> None:
    assert end_of_steps([StepState.SUCCEEDED, StepState.CANCELLED]) is PipelineState.CANCELLED
    assert end_of_steps([StepState.RUNNING, StepState.FAILED]) is None


@pytest.mark.parametrize(
    ("names", "after", "fragment"),
    [
        (["a", "a"], [[], []], "Two steps have the name 'a'"),
        (["train", "test"], [[], ["trian"]], r"'test' waits for a step 'trian'.*Did you mean train\?"),
        (["a", "b", "c"], [["c"], ["a"], ["b"]], "in a circle: a -> c -> b -> a"),
        (["a"], [["a"]], "in a circle: a -> a"),
    ],
)
def test_steps_that_cannot_be_ordered_are_refused_with_the_next_step(
    names: list[str], after: list[list[str]], fragment: str
) -> None:
    with pytest.raises(Invalid, match=fragment):
        graph_of(names, after)


TRAIN = {"from": "train", "output": "model"}


def test_references_stand_where_models_and_datasets_are_named_and_nowhere_else() -> None:
    document = {"models": ["idm", TRAIN], "dataset": {"from": "make", "output": "x"}, "params": {"p": TRAIN}}
    found = references_of(document)
    assert found == [OutputReference("make", "x", "dataset"), OutputReference("train", "model", "models")]
    assert [reference.kind for reference in found] == ["dataset", "model"]
    replaced = replace_references(document, lambda reference: reference.step)
    assert replaced == {"models": ["idm", "train"], "dataset": "make", "params": {"p": TRAIN}}


def test_placeholders_are_one_name_for_each_output_and_are_restored() -> None:
    placeholders = Placeholders()
    document = {"models": [TRAIN, "idm"], "reference": TRAIN, "dataset": "car_street"}
    inserted = placeholders.insert(document)
    assert inserted["reference"] == inserted["models"][0] != "idm"  # type: ignore[index]
    assert placeholders.restore(inserted) == document


def step(name: str, **document: object) -> StepRequest:
    return StepRequest(name=name, kind="submission", document={"dataset": "program", **document})


def leaves_files(step: StepRequest) -> bool:
    return "gang" in step.document


GANG = {"size": 1, "command": ["x"]}
MODEL = {"file": "policy.py", "as": "model"}


@pytest.mark.parametrize(
    ("source", "reference", "fragment"),
    [
        (step("train"), {"model": TRAIN}, "makes 0 models"),
        (step("train"), {"dataset": TRAIN}, "leaves no files"),
        (step("train", gang=GANG, outputs={"a": MODEL, "b": MODEL}), {"model": TRAIN}, "makes 2 models: .* a, b"),
        (step("train", gang=GANG, outputs={"model": MODEL}), {"dataset": TRAIN}, "is a model, and `dataset` names a"),
        (step("train"), {"model": {"from": "train", "output": "weights.py"}}, "leaves no files"),
        (StepRequest(name="train", kind="comparison", document={}), {"model": TRAIN}, "a comparison and has none"),
    ],
)
def test_a_reference_that_can_mean_nothing_is_refused(
    source: StepRequest, reference: dict[str, object], fragment: str
) -> None:
    with pytest.raises(Invalid, match=f"'next'.*{fragment}"):
        request_graph(PipelineRequest(steps=[source, step("next", **reference)]), leaves_files)


def test_a_step_waits_for_those_that_it_refers_to_and_those_after_which_it_comes() -> None:
    train = step("train", gang=GANG, outputs={"policy": MODEL})
    other = step("other")
    final = StepRequest(name="final", kind="comparison", document={"models": [TRAIN, "idm"]}, after=["other"])
    assert request_graph(PipelineRequest(steps=[final, train, other]), leaves_files) == [[1, 2], [], []]
