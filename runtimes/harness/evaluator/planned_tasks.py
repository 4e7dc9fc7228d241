"""Planned tasks: the tasks of a simulation, each with its scenario, the labels of its result, and its model's seed."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..simulators.base import Scenario
from .runner_connection import EvaluationSetup
from .tasks import Located, TaskPlan


class PlannedTask(msgspec.Struct, frozen=True):
    """A task by its number. ``labels``: members of the scenario's description in the result."""

    number: int
    located: Located
    scenario: Scenario
    labels: Mapping[str, Any]

    @property
    def latency_steps(self) -> int:
        """By how many steps its actions are delayed."""
        return delay_of(self.scenario)


def delay_of(scenario: Scenario) -> int:
    """Return by how many steps the actions of a scenario are delayed."""
    params = scenario.params
    return int(params.get("latency_steps", 0)) if params else 0


class PlannedTasks:
    """The tasks of a set-up. ``specs``: the dataset's scenarios; empty if they differ in their seeds alone."""

    def __init__(self, setup: EvaluationSetup, specs: Sequence[Mapping[str, Any]]) -> None:
        self._plan = TaskPlan(setup.tasks)
        self._specs = specs
        keys = ("name", *setup.definition.group_by)
        self._labels = [{key: spec[key] for key in keys if key in spec} for spec in specs]
        self._cached_seed = (-1, 0)  # a task and its model's seed

    @property
    def count(self) -> int:
        """How many tasks the simulation has."""
        return self._plan.count

    def task(self, number: int) -> PlannedTask:
        """Return the task with this number; raise IndexError if there is none."""
        located = self._plan.locate(number)
        index = located.index
        spec, labels = (self._specs[index], self._labels[index]) if self._specs else ({}, {})
        scenario = Scenario(index=index, seed=located.seed, repeat=located.repeat, spec=spec, params=located.params)
        return PlannedTask(number, located, scenario, labels)

    def model_seed(self, number: int) -> int:
        """Return the seed of a task's model. The last one is cached: each is used for two tasks in a row."""
        if self._cached_seed[0] != number:
            self._cached_seed = (number, self._plan.model_server_seed(number))
        return self._cached_seed[1]
