"""Datasets of MuJoCo tasks: their files are what the table says, and users may extend them."""

import json
from pathlib import Path
from typing import Any

import pytest

from datasets.catalogue import datasets, mujoco
from datasets.versions.scenarios import validated
from errors import BadScenario


def test_the_files_are_those_that_the_table_gives(tmp_path: Path) -> None:
    mujoco.generate(tmp_path)
    written = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("dataset.json")}
    shipped = {path.relative_to(mujoco.HERE): path.read_bytes() for path in mujoco.HERE.glob("mujoco_*/dataset.json")}
    assert written == shipped, "run `python -m datasets.catalogue.mujoco`"
    assert written.keys() == {Path(name) / "dataset.json" for name in mujoco.ALL}
    assert set(mujoco.ALL) <= set(datasets())


@pytest.mark.parametrize(
    ("dataset", "scenario", "message"),
    [
        ("mujoco_hopper", {"kwargs": {"xml_file": "/etc/passwd"}}, "kwargs.xml_file"),
        ("mujoco_hopper", {"kwargs": {"reset_noise_scale": 2}}, "lies in 0..1"),
        ("mujoco_hopper", {"options": {}}, "options"),
        ("mujoco_pusher", {"kwargs": {"reset_noise_scale": 0.1}}, "kwargs"),
    ],
)
def test_scenarios_of_users_set_the_start_and_nothing_else(
    dataset: str, scenario: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadScenario, match=message):
        list(validated([json.dumps(scenario).encode()], dataset))


def test_scenarios_of_users_may_start_anywhere_near_the_tasks_own_start() -> None:
    line = json.dumps({"name": "still", "kwargs": {"reset_noise_scale": 0}}).encode()
    assert list(validated([line], "mujoco_hopper")) == [
        {"name": "still", "kwargs": {"reset_noise_scale": 0}, "index": 0}
    ]
