"""Result lines that the platform writes for crashed tasks."""

import json

from core.domain.results.result_columns import TaskResult
from core.domain.results.result_tally import ResultTally
from core.services.scheduling.reports import crashed_line
from runtimes.harness.evaluator.tasks import TaskPlan

PLAN = {"seed": 1, "dataset": "d", "select": {"range": [5, 7]}, "repeat": 1, "params": {"speed": 0, "wind": 3}}


def test_a_crashed_task_of_a_sweep_names_its_parameter_value() -> None:
    swept = TaskPlan(PLAN | {"sweep": {"speed": [10, 20]}}).locate(3)
    line = json.loads(crashed_line(swept, 3, "it ended", {}))
    assert line["scenario"]["index"] == 6
    assert line["scenario"]["params"] == {"speed": 20}
    assert "params" not in json.loads(crashed_line(TaskPlan(PLAN).locate(1), 1, "it ended", {}))["scenario"]


def test_a_crashed_task_is_in_the_groups_of_its_scenario() -> None:
    line = json.loads(crashed_line(TaskPlan(PLAN).locate(0), 0, "it ended", {"street": "ring", "name": "a"}))
    tally = ResultTally([], ("street", "density"))
    succeeded = TaskResult(task=0, status="ok", scenario={"street": "ring", "density": "low"}, metrics={})
    crashed = TaskResult(task=1, status=line["status"], scenario=line["scenario"], metrics=line["metrics"])
    tally.add([succeeded, crashed])
    groups = tally.summary()["groups"]
    assert groups["street"]["ring"]["tasks"] == {"total": 2, "done": 2, "failed": 1}
    assert list(groups["density"]) == ["low"]  # the scenario has no density that is known
