"""Shipped data is consistent: datasets and their definitions, runtimes and their baselines, locks and their hashes."""

import hashlib
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.services.datasets.catalogue import baselines
from core.services.uploads.shipped_models import shipped
from datasets.catalogue import SIMULATORS, Dataset, datasets, versions
from datasets.versions import scenario_fields
from runtimes import catalogue, formats
from runtimes.harness.simulators.base import Interface
from runtimes.images import image_names
from scripts.lock import BOOTSTRAP, bootstrap, name_of, requirements

DATASETS = [dataset for by_version in versions().values() for dataset in by_version]
LOCKS = sorted(Path("runtimes").rglob("*.lock"))
METRIC = {"name", "title", "unit", "formula", "source", "better", "worst", "low", "high"}
PARAMETER = {"type", "default", "description"}


@pytest.fixture(params=DATASETS, ids=lambda dataset: f"{dataset.name}@{dataset.version}")
def dataset(request: pytest.FixtureRequest) -> Dataset:
    dataset: Dataset = request.param
    return dataset


def test_every_entry_of_an_interface_has_a_name_a_unit_and_a_range(dataset: Dataset) -> None:
    interface = Interface.of(dataset.definition["interface"])
    for space in (interface.observation, interface.action):
        count = math.prod(space.shape)
        assert {len(space.names), len(space.units), len(space.low), len(space.high)} == {count}
        assert len(set(space.names)) == count
        for low, high in zip(space.low, space.high, strict=True):
            assert low is None or high is None or low < high


def test_every_metric_has_a_formula_a_source_and_a_valid_range(dataset: Dataset) -> None:
    for metric in dataset.definition["metrics"]:
        assert METRIC <= set(metric)
        assert metric["formula"] and metric["source"] and metric["title"]
        assert metric["better"] in {"higher", "lower", None}
        if metric["better"] == "higher" and None not in (metric["worst"], metric["low"]):
            assert metric["worst"] == metric["low"], (
                "the worst value is the lowest, so that a failed task is not rewarded"
            )
    names = [metric["name"] for metric in dataset.definition["metrics"]]
    assert len(set(names)) == len(names)
    if score := dataset.definition["score"]:
        assert score["metric"] in names


def test_every_parameter_has_a_type_and_a_default_in_its_range(dataset: Dataset) -> None:
    kinds: dict[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "bool": bool, "string": str}
    for parameter in dataset.definition["params"].values():
        assert PARAMETER <= set(parameter)
        default: Any = parameter["default"]
        if default is not None:
            assert isinstance(default, kinds[parameter["type"]])
            assert parameter.get("low") is None or parameter["low"] <= default <= parameter["high"]


def test_scenarios_are_numbered_and_have_the_members_that_they_are_grouped_by(dataset: Dataset) -> None:
    if dataset.definition["scenarios"] is None:
        return
    lines = (dataset.folder / dataset.definition["scenarios"]).read_text().splitlines()
    scenarios = [json.loads(line) for line in lines]
    assert [scenario["index"] for scenario in scenarios] == list(range(dataset.tasks or 0))
    assert len({scenario["name"] for scenario in scenarios}) == len(scenarios)
    for name in dataset.definition["group_by"]:
        assert all(name in scenario for scenario in scenarios)


def test_files_match_the_published_sizes_and_digests(dataset: Dataset) -> None:
    dataset.verify()
    listed_paths = {entry["path"] for entry in dataset.definition["files"]}
    assert dataset.definition["scenarios"] is None or dataset.definition["scenarios"] in listed_paths
    for entry in dataset.definition["files"]:
        content = (dataset.folder / entry["path"]).read_bytes()
        assert entry["size"] == len(content)
        assert entry["digest"] == "sha256:" + hashlib.sha256(content).hexdigest()


def test_every_dataset_has_a_simulator_and_a_yardstick(dataset: Dataset) -> None:
    assert dataset.simulator in catalogue.simulators()
    # The program of a gang has no score, so no model is compared with it.
    assert dataset.definition["yardstick"] in shipped() or dataset.definition.get("gang")


def test_datasets_that_model_servers_see_have_no_scenarios_in_files(dataset: Dataset) -> None:
    if SIMULATORS not in dataset.folder.parents:
        return
    assert dataset.definition["scenarios"] is None and not dataset.definition["files"], "put it in datasets/catalogue"
    assert dataset.simulator == dataset.folder.parents[1].name
    assert {path.name for path in dataset.folder.iterdir()} <= {"dataset.json", scenario_fields.FILE}


def test_every_simulator_has_a_module_and_facts_that_servers_can_read() -> None:
    for name, environment in catalogue.simulators().items():
        assert environment.name == name and (SIMULATORS / name / "__init__.py").is_file()
        catalogue.simulator_facts(name)  # raises for a member that is not known


def test_every_runtime_with_baselines_has_one_for_car_street_in_a_format_that_it_accepts() -> None:
    with_baselines = {name: runtime for name, runtime in catalogue.runtimes().items() if baselines(runtime)}
    assert {"onnx", "python", "tensorflow"} <= set(with_baselines), "what the 1.0 request may name"
    for runtime in with_baselines.values():
        played = {name for name in baselines(runtime) if not datasets()[name].declared.gang}
        assert not played or "car_street" in played
        for name, model in baselines(runtime).items():
            assert name in datasets()
            path = shipped()[model]
            assert formats.detect(path, path.name) in runtime.formats


def test_every_shipped_model_is_of_the_format_of_its_suffix() -> None:
    for path in shipped().values():
        assert path.suffix in formats.formats()[formats.detect(path, path.name)].suffixes


def test_every_environment_has_a_lock_and_every_lock_an_environment() -> None:
    assert set(requirements()) == {lock.absolute() for lock in LOCKS}


@pytest.mark.parametrize("lock", LOCKS, ids=name_of)
def test_a_lock_pins_everything_by_hash_and_names_no_server(lock: Path) -> None:
    text = lock.read_text()
    required = requirements()[lock.absolute()]
    pinned = re.findall(r"^([a-z0-9-]+)==\S+", text, re.MULTILINE)
    blocks = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(pinned)
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text and "--index" not in text and "://" not in required
    for line in required.split():
        assert re.split(r"[=<>~]", line)[0] in pinned
    # Packages that the harness itself imports. Converters and the programs of gangs are programs of their own.
    assert {"msgspec", "numpy"} <= set(pinned) or lock.parent.name in {"converters", "communications"}


def test_uv_is_installed_in_the_locked_version_with_its_hashes() -> None:
    assert BOOTSTRAP.read_text() == bootstrap(), "run `python -m scripts.lock`"
    assert bootstrap().count("--hash=sha256:") > 10
    assert "--require-hashes" in Path("scripts/uv").read_text()


def test_the_base_image_is_named_by_its_digest() -> None:
    sources = re.findall(r"^(?:ARG BASE=|FROM )(\S+)", Path("Dockerfile").read_text(), re.MULTILINE)
    local = {"${BASE}", "tools", "python", "scratch", "environment"}
    assert [
        source for source in sources if source not in local and not re.search(r"@sha256:[0-9a-f]{64}$", source)
    ] == []


def test_every_package_of_the_project_names_its_licence() -> None:
    assert tomllib.loads(Path("pyproject.toml").read_text())["project"]["license"] == image_names.LICENCE
    assert (
        yaml.safe_load(Path("helm/Chart.yaml").read_text())["annotations"]["artifacthub.io/license"]
        == image_names.LICENCE
    )
    assert "Apache License" in Path("LICENSE").read_text()
    for image in image_names.images().values():
        assert "LICENSE" in image_names.files(image.sources), image.name


#: Digests that are part of the seeds of all results so far.
PUBLISHED = {
    "car_street": "7b136e1feadf2fa44f6ad46396d791cf9bff8045efe2476e5b9c1761f294aec3",
    "cartpole": "88c9e7f55615d1a6c6ee59a179fa94ddd102b29a08f4db087ef236efd8a96f27",
    "highway": "80c28623eb91574fee1414cf5e3c5ea3668d4d02e425e01ef304522b45978e14",
    "pettingzoo_connect_four": "36d93e46bde4b2dca0726e9bf988cf0b0be968ead6ccab59c9ef77a09d6f7e1d",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_bare_name_means_the_version_that_it_always_meant(name: str) -> None:
    meant = datasets()[name]
    assert (meant.version, meant.digest) == ("1", f"sha256:{PUBLISHED[name]}") and meant.seeds == meant.digest
    assert meant is versions()[name][0]


def test_a_version_with_the_tasks_of_another_names_the_first_version_that_has_them() -> None:
    for published in versions().values():
        first = {dataset.digest for dataset in published if dataset.declared.seeds is None}
        assert {dataset.seeds for dataset in published} <= first


def test_the_second_version_of_car_street_is_the_first_with_a_metric_more() -> None:
    first, second = versions()["car_street"]
    files = {entry["path"]: entry["digest"] for entry in second.definition["files"]}
    found = [path for path in second.folder.rglob("*") if path.is_file() and path.name != "dataset.json"]
    assert files == {
        str(path.relative_to(second.folder)): f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in found
    }
    metrics = [metric for metric in second.definition["metrics"] if metric["name"] != "min_ttc_any"]
    assert len(metrics) == len(second.definition["metrics"]) - 1
    changed = {"version": "1", "metrics": metrics}
    assert {**second.definition, **changed} == {**first.definition, "seeds": first.digest}
