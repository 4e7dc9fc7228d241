"""Datasets that are written from tables: their files are what the tables say, and users may extend them."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from common.errors import BadScenario
from datasets.catalogue import datasets
from datasets.versions.scenarios import validated
from scripts.dataset_tables import mujoco, pettingzoo


@pytest.mark.parametrize("table", [mujoco, pettingzoo], ids=["mujoco", "pettingzoo"])
def test_the_files_are_those_that_the_table_gives(table: ModuleType, tmp_path: Path) -> None:
    table.generate(tmp_path)
    written = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.json")}
    files = ("dataset.json", "scenario_fields.json")
    assert written.keys() == {Path(name) / file for name in table.ALL for file in files}
    assert set(table.ALL) <= set(datasets())
    for path, text in written.items():
        assert (table.HERE / path).read_text() == text, f"run `python -m {table.__name__}`"


@pytest.mark.parametrize(
    ("dataset", "scenario", "message"),
    [
        ("mujoco_hopper", {"kwargs": {"xml_file": "/etc/passwd"}}, "kwargs.xml_file"),
        ("mujoco_hopper", {"kwargs": {"reset_noise_scale": 2}}, "lies in 0..1"),
        ("mujoco_hopper", {"options": {}}, "options"),
        ("pettingzoo_connect_four", {"agent": "dealer"}, "agent"),
        ("pettingzoo_simple_tag", {"agent": "agent_0"}, "agent"),
        ("pettingzoo_simple_tag", {"others": "os.system"}, "others"),
        ("mujoco_pusher", {"kwargs": {"reset_noise_scale": 0.1}}, "kwargs"),
    ],
)
def test_scenarios_of_users_set_parameters_and_nothing_else(
    dataset: str, scenario: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadScenario, match=message):
        list(validated([json.dumps(scenario).encode()], dataset))


def test_scenarios_of_users_may_start_anywhere_near_the_tasks_own_start() -> None:
    line = json.dumps({"name": "still", "kwargs": {"reset_noise_scale": 0}}).encode()
    assert list(validated([line], "mujoco_hopper")) == [
        {"name": "still", "kwargs": {"reset_noise_scale": 0}, "index": 0}
    ]
