"""Plan units: the scenarios that the tasks of a simulation belong to, from its task plan."""

from collections.abc import Mapping

from core.domain.results.scenario_units import ScenarioUnits, units_of
from runtimes.harness.evaluator.tasks import TaskPlan


def units_of_plan(plan: Mapping[str, object]) -> ScenarioUnits | None:
    """Return the scenarios of a plan's tasks; None if each task is of a scenario of its own, or without a plan."""
    if not isinstance(select := plan.get("select"), Mapping):
        return None
    tasks = TaskPlan(plan)
    return units_of(select, tasks.scenarios, tasks.count)
