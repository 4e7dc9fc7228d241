"""Datasets with an environment: what their `dataset.json` may say, and the definition that follows from it."""

import json
from typing import Any

import msgspec
import pytest

from common.errors import BadRequirements, BadScenario
from core.services.datasets import environment_files
from datasets.versions import openenv_environment
from datasets.versions.openenv_environment import OpenEnv, ProbedEnvironment
from datasets.versions.scenarios import GENERATED, parse_description, validated
from runtimes.harness.simulators.aggregations import AGGREGATIONS
from runtimes.harness.simulators.base import Interface
from tests.openenv_folders import KEPT, definition_of


def described(**members: Any) -> bytes:
    return json.dumps({"extends": "openenv", **members}).encode()


def test_a_description_without_scenarios_has_a_hundred_seeds() -> None:
    description = parse_description(described())
    assert description.scenarios == GENERATED and description.openenv == OpenEnv()
    assert description.generate is not None and description.generate.count == 100
    own = parse_description(described(scenarios="lines.ndjson", openenv={"steps": 5}))
    assert own.scenarios == "lines.ndjson" and own.generate is None


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"scenarios": "a.ndjson", "generate": {"count": 3}}, "not both"),
        ({"generate": {"count": 0}}, "`generate.count`"),
        ({"generate": {"count": 3, "seed": 1}}, "`generate.seed` is left out"),
        ({"maps": [{"file": "a", "name": "a"}]}, "`maps`"),
        ({"openenv": {"app": "os.system('x')"}}, "`openenv.app`"),
        ({"openenv": {"steps": 0}}, "`openenv.steps`"),
        ({"openenv": {"timeout": 1e9}}, "`openenv.timeout`"),
        ({"openenv": {"transport": "tcp"}}, "`openenv.transport`"),
        ({"openenv": {"environ": {"a b": "c"}}}, "`openenv.environ`"),
        ({"openenv": {"observation": [{"path": "../x"}]}}, "is not a path"),
        ({"openenv": {"observation": [{"path": "x", "low": 1, "high": 1}]}}, "`low` of `x` is below its `high`"),
        ({"openenv": {"observation": [{"path": "x", "mask": True}]}}, "a mask has a `shape`"),
        ({"openenv": {"observation": [{"path": "x", "shape": [0]}]}}, "the shape of `x`"),
        ({"openenv": {"action": [{"path": "x", "kind": "text"}]}}, "the kind of `x`"),
        ({"openenv": {"action": [{"path": "x", "kind": "choice"}]}}, "a choice has `values`"),
        ({"openenv": {"action": [{"path": "x", "kind": "constant"}]}}, "a constant has a `value`"),
        ({"openenv": {"action": [{"path": "x[0]"}]}}, "without positions in its path"),
        ({"openenv": {"metrics": [{"name": "return", "path": "x"}]}}, "`openenv.metrics`"),
        ({"openenv": {"metrics": [{"name": "a", "path": "x", "aggregation": "sum"}]}}, "the aggregation of a"),
        ({"openenv": {"score": "speed"}}, "`openenv.score`"),
        ({"openenv": {"metrics": [{"name": "a", "path": "x", "unit": "\u202e"}]}}, "the title of a has up to 100"),
        ({"openenv": {"observation": [{"path": "x", "unit": "\0"}]}}, "all with glyphs"),
        ({"openenv": {"failures": ["x" * 41]}}, "`openenv.failures`"),
        ({"openenv": {"outcomes": {"won": "a\x1b[2J"}}}, "`openenv.outcomes`"),
        ({"openenv": {"reproducible": True}}, "unknown field"),
    ],
)
def test_a_description_that_is_not_valid_is_refused_by_its_member(members: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadScenario) as caught:
        parse_description(described(**members))
    assert reason in str(caught.value)


def test_only_the_template_takes_an_environment() -> None:
    with pytest.raises(BadScenario, match="`openenv` is for datasets that extend openenv"):
        parse_description(json.dumps({"extends": "cartpole", "scenarios": "a", "openenv": {}}).encode())


def test_parameters_of_a_reset_are_free_and_other_members_are_not() -> None:
    line = {"name": "one", "reset": {"seed": 3, "level": {"rows": [1, 2]}, "file": "anything"}}
    assert list(validated([json.dumps(line).encode()], "openenv")) == [{**line, "index": 0}]
    with pytest.raises(BadScenario, match="`options` is not allowed"):
        list(validated([b'{"options": {}}'], "openenv"))


def test_the_definition_has_the_interface_metrics_and_score_of_the_environment() -> None:
    definition = definition_of()
    interface = Interface.of(definition["interface"])
    assert interface.observation.names == (
        *("position", "door_position", "door_open", "walls_0", "walls_1", "episodes", "left"),
    )
    assert interface.observation.units[0] == "m" and interface.action.high == (2.0, 2.0)
    names = [metric["name"] for metric in definition["metrics"]]
    assert {"return", "length", "last_reward", "outcome", "farthest"} <= set(names) and len(set(names)) == len(names)
    assert definition["score"]["metric"] == "return" and definition["failure"]["in"] == ["lost"]
    assert definition["starts_processes"]


def test_the_aggregations_are_those_of_the_simulator() -> None:
    assert set(openenv_environment.AGGREGATIONS) == set(AGGREGATIONS)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"action": [{"path": "x", "kind": "constant", "value": 1}]}, "no field of an action depends on the model"),
        ({"observation": []}, "an observation has 0 numbers"),
        ({"observation": [{"path": "a", "shape": [200, 200]}]}, "an observation has 40,000 numbers"),
        ({"observation": [{"path": "a.b"}, {"path": "a[0].b", "name": "a_b"}]}, "two entries have the name a_b"),
        ({"transport": "tcp"}, "not complete"),
    ],
)
def test_what_a_first_episode_reports_is_checked(changes: dict[str, Any], reason: str) -> None:
    names = ("observation", "action", "transport", "reproducible")
    probed = msgspec.convert({name: KEPT[name] for name in names} | changes, ProbedEnvironment)
    with pytest.raises(BadScenario) as caught:
        openenv_environment.completed(OpenEnv(), probed, package="p", app="server.app:app", target="")
    assert reason in str(caught.value)


PROJECT = '[project]\nname = "a"\ndependencies = ["openenv>=0.2"]\n'


@pytest.mark.parametrize(
    ("texts", "file"),
    [
        ({"pyproject.toml": PROJECT, "requirements.txt": "x"}, "pyproject.toml"),
        ({"pyproject.toml": '[project]\nname = "a"\n', "requirements.txt": "openenv\n"}, "requirements.txt"),
        ({"server/requirements.txt": "openenv[core]>=0.2.0\nfastapi\n"}, "server/requirements.txt"),
    ],
)
def test_the_packages_are_those_of_the_first_file_that_declares_some(texts: dict[str, str], file: str) -> None:
    assert environment_files.declaration(texts).file == file


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({}, "declares no packages"),
        ({"pyproject.toml": PROJECT.replace("openenv>=0.2", "openenv @ git+https://host/x")}, "git"),
        ({"requirements.txt": "-e ../..\n"}, "line 1"),
    ],
)
def test_packages_that_do_not_come_from_an_index_are_refused(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(BadRequirements) as caught:
        environment_files.declaration(texts)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("path", "belongs"),
    [
        ("server/app.py", True),
        ("dataset.json", False),
        ("converted/requirements.lock", False),
        (".venv/lib/x.py", False),
        ("server/__pycache__/app.pyc", False),
    ],
)
def test_an_environment_has_the_files_of_its_version_but_what_tools_and_the_platform_made(
    path: str, belongs: bool
) -> None:
    assert environment_files.belongs(path) is belongs


def test_the_name_of_the_package_is_that_of_the_folder_in_pyproject() -> None:
    text = '[tool.setuptools]\npackage-dir = { "corridor.server" = "server", "corridor" = "." }\n'
    assert environment_files.package_of({"pyproject.toml": text}) == "corridor"
    assert environment_files.package_of({"pyproject.toml": "tool = 3"}) is None
    assert environment_files.package_of({}) is None
