"""The graph of a pipeline's steps: which wait for which, and which follow from the ends of others. Pure decisions."""

from collections.abc import Collection, Sequence
from graphlib import CycleError, TopologicalSorter

from common.errors import Invalid
from common.near_names import name_list, near_names, suggestion
from core.domain.pipelines.pipeline_states import COMPLETE, UNENDED_STEPS, StepState

#: For each step, by its number, the numbers of the steps that it waits for.
Graph = Sequence[Collection[int]]


def graph_of(names: Sequence[str], waits_for: Sequence[Collection[str]]) -> list[list[int]]:
    """Return for each step the numbers of those that it waits for.

    Raise Invalid for a name that two steps have, for one that no step has, and for a cycle.
    """
    numbers: dict[str, int] = {}
    for number, name in enumerate(names):
        if name in numbers:
            raise Invalid(f"Two steps have the name {name!r}: give each its own.")
        numbers[name] = number
    graph: list[list[int]] = []
    for name, others in zip(names, waits_for, strict=True):
        for other in others:
            if other not in numbers:
                hint = suggestion(near_names(other, names), f"There are: {name_list(names)}.")
                raise Invalid(f"Step {name!r} waits for a step {other[:100]!r}, which there is not. {hint}")
        graph.append(sorted({numbers[other] for other in others}))
    try:
        order_of(graph)
    except CycleError as error:
        path = " -> ".join(names[number] for number in reversed(error.args[1][-20:]))
        raise Invalid(
            f"The steps wait for each other in a circle: {path}. Remove one from `after`, or a reference to it."
        ) from None
    return graph


def order_of(graph: Graph) -> list[int]:
    """Return the steps, each after the steps that it waits for. Raise CycleError for a circle."""
    return list(TopologicalSorter(dict(enumerate(graph))).static_order())


def following_states(graph: Graph, states: Sequence[StepState]) -> dict[int, StepState]:
    """Return the changes of waiting steps that follow from the states of others.

    A step is ready once all that it waits for are complete, and is not run if one of them ends otherwise.
    """
    present, changes = list(states), dict[int, StepState]()
    for step in order_of(graph):
        if present[step] is not StepState.WAITING:
            continue
        before = [present[other] for other in graph[step]]
        if all(state in COMPLETE for state in before):
            changes[step] = present[step] = StepState.READY
        elif any(state not in COMPLETE | UNENDED_STEPS for state in before):
            changes[step] = present[step] = StepState.NOT_RUN
    return changes


def steps_after(graph: Graph, first: int) -> set[int]:
    """Return a step and all that wait for it, also through others."""
    after = {first}
    for step in order_of(graph):
        if not after.isdisjoint(graph[step]):
            after.add(step)
    return after
