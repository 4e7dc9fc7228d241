"""MLflow models: which file of a logged model is taken, and hostile `MLmodel` files."""

import pytest

from common.errors import OriginRefused
from datasets.model_origins.mlflow_model import LARGEST, choose, weights_beside


def mlmodel(flavours: str) -> bytes:
    return f"run_id: abc\nflavors:\n{flavours}".encode()


@pytest.mark.parametrize(
    ("flavours", "flavour", "path"),
    [
        ("  onnx: {data: model.onnx, onnx_version: 1.2}\n  python_function: {data: model.onnx}", "onnx", "model.onnx"),
        ("  sklearn: {pickled_model: model.skops, sklearn_version: 1.9.1}", "sklearn", "model.skops"),
        ("  sklearn: {}", "sklearn", "model.pkl"),
        ("  xgboost: {data: model.ubj}", "xgboost", "model.ubj"),
        ("  lightgbm: {data: model.lgb}", "lightgbm", "model.lgb"),
        ("  keras: {data: data}", "keras", "data"),
        ("  tensorflow: {saved_model_dir: tfmodel}", "tensorflow", "tfmodel"),
        ("  pytorch: {model_data: data}", "pytorch", "data"),
    ],
)
def test_the_file_of_the_preferred_flavour_is_taken(flavours: str, flavour: str, path: str) -> None:
    choice = choose(mlmodel(flavours))
    assert (choice.flavour, choice.path) == (flavour, path)


def test_a_model_of_python_functions_only_is_refused_with_what_to_log_instead() -> None:
    with pytest.raises(OriginRefused, match=r"flavours python_function; taken are onnx.*mlflow\.onnx\.log_model"):
        choose(mlmodel("  python_function: {loader_module: mlflow.pyfunc.model}"))


@pytest.mark.parametrize(
    "path",
    ["../../etc/passwd", "/etc/../x", "a/../b", "..", "a\\\\b", "a%2f..", "a?x", "a#x", "a//b", "'a\tb'"],
)
def test_a_path_that_leaves_the_folder_of_the_model_is_refused(path: str) -> None:
    with pytest.raises(OriginRefused, match="not valid"):
        choose(mlmodel(f'  onnx: {{data: "{path}"}}'))


@pytest.mark.parametrize(
    "text",
    [
        b"flavors: !!python/object/apply:os.system ['touch /tmp/x']",
        b"flavors: !!python/name:os.system",
        b"a: &a [x, x]\nb: &b [*a, *a]\nflavors: {onnx: {data: [*b, *b]}}",
        b"flavors: {onnx: {data: [1]}}",
        b"flavors: {onnx: {data: {x: y}}}",
        b"flavors: [onnx]",
        b"[" * 100_000,
        b"{" * 50_000,
        b"? " * 50_000,
        b"flavors: {? [a, b] : c}",
        b"\x00\x01",
        b"\xff\xfe\x00",
        b"---\nflavors: {}\n---\nflavors: {onnx: {}}",
        b"",
        b"just text",
        b" " * (LARGEST + 1),
    ],
)
def test_a_hostile_or_broken_mlmodel_is_refused(text: bytes) -> None:
    with pytest.raises(OriginRefused):
        choose(text)


def test_files_beside_an_onnx_model_that_mlflow_does_not_write_are_its_weights() -> None:
    names = {"MLmodel", "conda.yaml", "model.onnx", "requirements.txt"}
    choice = choose(mlmodel("  onnx: {data: model.onnx}"))
    assert weights_beside(choice, names) == []
    assert weights_beside(choice, names | {"model.onnx.data", "deep"}) == ["deep", "model.onnx.data"]
    assert weights_beside(choose(mlmodel("  xgboost: {data: model.ubj}")), names | {"model.onnx.data"}) == []
