"""Models of a real MLflow server: registry, aliases, runs, logged models and artifacts, by flavour."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.domain.access.scopes import LOCAL_CALLER
from core.services.platform import Platform
from datasets.model_origins.config import MlflowServer, OriginConfig
from datasets.model_origins.mlflow_client import MlflowClient
from tests.contracts.harness_processes import evaluator_pair, play_of
from tests.imported_models import imported, importing_platform
from tests.mlflow_server import MlflowTestServer
from tests.mlflow_server import mlflow as mlflow  # pytest looks fixtures up by name in this module
from tests.simulators.test_onnx_models import onnx_spec

PYTHON = "class Model:\n    def act(self, observation):\n        return [0]\n"
SAVED = "flavors:\n  tensorflow: {saved_model_dir: tf2model}\n"
#: Artifacts of the run, beside its models.
FILES = {
    "files/policy.py": PYTHON,
    "files/note.txt": "x",
    "saved/MLmodel": SAVED,
    "saved/tf2model/saved_model.pb": "graph",
    "saved/tf2model/variables/variables.index": "index",
    "torch/MLmodel": "flavors:\n  pytorch: {model_data: data}\n",
    "torch/data/model.pth": "not a model",
    "torch/data/pickle_module_info.txt": "pickle",
    "external/MLmodel": "flavors:\n  onnx: {data: model.onnx}\n",
    "external/model.onnx": "x",
    "external/weights.bin": "x",
    "external/deep/more.bin": "x",
    "external/metadata/environment_variables.txt": "x",
    "escaping/MLmodel": "flavors:\n  onnx: {data: ../../files/policy.py}\n",
    "missing/MLmodel": "flavors:\n  onnx: {data: model.onnx}\n",
}


@pytest.fixture(scope="module")
def ids(mlflow: MlflowTestServer) -> dict[str, str]:
    return mlflow.log(FILES)


@pytest.fixture
def platform(mlflow: MlflowTestServer, tmp_path: Path) -> Iterator[Platform]:
    servers = {"lab": MlflowServer(name="lab", uri=mlflow.uri)}
    with importing_platform(tmp_path, model_origins=OriginConfig(mlflow=servers)) as built:
        yield built


@pytest.mark.parametrize(
    ("reference", "name", "format", "file"),
    [
        ("models:/pole/1", "pole", "onnx", "model.onnx"),
        ("models:/pole@champion", "pole", "onnx", "model.onnx"),
        ("models:/{model}", "{model}", "onnx", "model.onnx"),
        ("runs:/{run}/policy", "policy", "onnx", "model.onnx"),
        ("models:/estimator/1", "estimator", "scikit_learn", "model.skops"),
        ("runs:/{run}/files/policy.py", "policy", "python", None),
    ],
)
def test_a_logged_model_is_imported_with_what_its_reference_resolved_to(
    platform: Platform, ids: dict[str, str], reference: str, name: str, format: str, file: str | None
) -> None:
    record = imported(platform, reference.format(**ids))
    assert record["state"] == "ready", record
    model = platform.files.models.get(LOCAL_CALLER, record["model"])
    assert (model.name, model.format) == (name.format(**ids), format)
    assert record["source"]["run_id"] == ids["run"] and record["source"].get("file") == file, record
    assert record["source"]["uri"].startswith("mlflow-artifacts:/")


def test_a_version_is_recorded_by_its_number_also_if_an_alias_named_it(platform: Platform, ids: dict[str, str]) -> None:
    source = imported(platform, "models:/pole@champion")["source"]
    assert (source["registered_model"], source["version"], source["model_id"]) == ("pole", "1", ids["model"])


def test_a_saved_model_becomes_a_zip_that_is_equal_each_time(platform: Platform, ids: dict[str, str]) -> None:
    first, second = (imported(platform, f"runs:/{ids['run']}/saved") for _ in range(2))
    assert first["state"] == "ready" and first["digest"] == second["digest"], first
    model = platform.files.models.get(LOCAL_CALLER, first["model"])
    assert (model.name, model.format) == ("saved", "savedmodel")
    with zipfile.ZipFile(io.BytesIO(b"".join(platform.files.models.content(model)))) as archive:
        assert archive.namelist() == ["saved_model.pb", "variables/variables.index"]


def contents(platform: Platform, record: dict[str, Any]) -> zipfile.ZipFile:
    models = platform.files.models
    return zipfile.ZipFile(io.BytesIO(b"".join(models.content(models.get(LOCAL_CALLER, record["model"])))))


def test_an_onnx_model_and_the_files_of_its_weights_become_a_zip(platform: Platform, ids: dict[str, str]) -> None:
    first, second = (imported(platform, f"runs:/{ids['run']}/external") for _ in range(2))
    assert first["state"] == "ready" and first["digest"] == second["digest"], first
    assert contents(platform, first).namelist() == ["deep/more.bin", "model.onnx", "weights.bin"]


def test_an_onnx_model_that_mlflow_has_logged_with_external_data_runs(platform: Platform, ids: dict[str, str]) -> None:
    record = imported(platform, f"runs:/{ids['run']}/large")
    assert record["state"] == "ready" and record["source"]["file"] == "model.onnx", record
    model = platform.files.models.get(LOCAL_CALLER, record["model"])
    assert (model.name, model.format) == ("large", "onnx")
    assert "model.onnx" in (names := contents(platform, record).namelist()) and len(names) == 2, names
    with evaluator_pair(onnx_spec("noop"), b"".join(platform.files.models.content(model)), play_of()) as pair:
        for result in pair.run(0, 4):
            assert result["status"] == "ok" and result["metrics"]["value"] == pytest.approx(result["metrics"]["echo"])


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("models:/none/1", "not found"),
        ("models:/pole/7", "not found"),
        ("models:/pole@none", "not found"),
        ("models:/m-00000000000000000000000000000000", "not found"),
        ("runs:/0123/policy", "not found"),
        ("runs:/{run}/none", "has neither a model nor an artifact 'none'"),
        ("runs:/{run}/files", "not the folder of an MLflow model"),
        ("models:/echo/1", "flavours python_function"),
        ("runs:/{run}/torch", "save a module with `torch.jit.save`"),
        ("runs:/{run}/escaping", "The MLmodel is not valid"),
        ("runs:/{run}/missing", "names model.onnx, which is not there"),
    ],
)
def test_a_model_that_cannot_be_taken_fails_with_the_reason(
    platform: Platform, ids: dict[str, str], reference: str, words: str
) -> None:
    record = imported(platform, reference.format(**ids))
    assert record["state"] == "failed" and words in record["reason"], record
    assert list(platform.store.list("models/")) == []


def test_results_that_are_logged_twice_are_in_the_run_once(mlflow: MlflowTestServer, ids: dict[str, str]) -> None:
    client = MlflowClient(MlflowServer(name="lab", uri=mlflow.uri))
    for _ in range(2):
        client.log_batch(ids["run"], {"windtunnel/d/return_mean": 1.5}, {"windtunnel.simulation.x": "succeeded"}, 1.25)
    [value] = mlflow.history(ids["run"], "windtunnel/d/return_mean")
    assert (value["value"], value["timestamp"]) == (1.5, 1250)
    assert mlflow.run(ids["run"])["tags"]["windtunnel.simulation.x"] == "succeeded"
