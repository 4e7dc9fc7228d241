"""Result lines that the platform writes for crashed tasks."""

import json

from core.services.scheduling.reports import crashed_line


def test_a_crashed_task_of_a_sweep_names_its_parameter_value() -> None:
    tasks = {"seed": 1, "dataset": "d", "select": {"range": [5, 7]}, "repeat": 1, "params": {"speed": 0, "wind": 3}}
    line = json.loads(crashed_line({"tasks": tasks | {"sweep": {"speed": [10, 20]}}}, 3, "it ended"))
    assert line["scenario"]["index"] == 6
    assert line["scenario"]["params"] == {"speed": 20}
    assert "params" not in json.loads(crashed_line({"tasks": tasks}, 1, "it ended"))["scenario"]
