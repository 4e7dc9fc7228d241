"""Rows: scenarios that one model plays side by side have the answers that each has from a model of its own, to the bit.

Scenarios of rows begin and end at different steps, and some rows rest in between, in memory that is shared.
"""

import functools
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runtimes import catalogue, environments
from runtimes.formats import formats
from tests.cached import ENVIRONMENTS
from tests.contracts import graphs
from tests.simulators import test_estimator_models as estimators
from tests.simulators import test_hdf5_and_frozen_graphs as frozen_graphs
from tests.simulators import test_jax_models as jax
from tests.simulators import test_recurrent_tensorflow_models as recurrent
from tests.simulators import test_tensorflow_models as tensorflow

ROOT = Path(__file__).parents[2]
ONNX_MODELS = Path(__file__).with_name("onnx_models")
FLOAT = TensorProto.FLOAT
ROWS = 7
PROGRAM = "import sys; sys.path[:0] = sys.argv[2:]; from tests.contracts.played_rows import main; main()"


def space(dtype: str, width: int, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    lists = {"names": [f"x{at}" for at in range(width)], "units": [""] * width}
    return {"dtype": dtype, "shape": [width], "low": [low] * width, "high": [high] * width, **lists}


#: The action spaces of CartPole's policies, and of models that answer with numbers.
PUSH, NUMBERS = space("int64", 1, 0, 1), space("float32", 4)


@dataclass(frozen=True)
class RowCase:
    """How to make a model in a folder, and how its rows are computed; None: as this machine's library rounds.

    ``answers``: least number of different answers of which it is seen that rows are mixed up. ``fails``: some of its
    observations are such that it fails.
    """

    make: Callable[[Path], bytes]
    kernel: str | None
    action: Mapping[str, Any]
    suffix: str = ""
    answers: int = 20
    fails: bool = False


@functools.cache
def site_of(format: str) -> str:
    environment = catalogue.runtime(formats()[format].runtime).formats[format].environment
    return str(environments.prepare(environment, ENVIRONMENTS, lambda message, part: None))


def onnx_file(name: str) -> Callable[[Path], bytes]:
    return lambda folder: (ONNX_MODELS / f"{name}.onnx").read_bytes()


def graph_of(
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]], constants: Mapping[str, np.ndarray], *, state: bool
) -> bytes:
    """Return an ONNX model from observation, and h_in, to action, and h_out, each of four numbers."""
    inputs, outputs = [["observation", "h_in"][: 1 + state], ["action", "h_out"][: 1 + state]]
    made = helper.make_graph(
        [helper.make_node(kind, given, found, **attributes) for kind, given, found, attributes in nodes],
        "rows",
        [helper.make_tensor_value_info(name, FLOAT, ["n", 4]) for name in inputs],
        [helper.make_tensor_value_info(name, FLOAT, ["n", 4 if name == "action" else None]) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def delayed(folder: Path) -> bytes:
    """Answer with the observation before, which is its state as it came."""
    nodes = [("Identity", ["h_in"], ["action"], {}), ("Identity", ["observation"], ["h_out"], {})]
    return graph_of(nodes, {}, state=True)


def passing_on(folder: Path) -> bytes:
    """The same, whose output is the input itself: what a session returns may be the array that it was given."""
    made = helper.make_graph(
        [helper.make_node("Identity", ["h_in"], ["action"])],
        "rows",
        [helper.make_tensor_value_info(name, FLOAT, ["n", 4]) for name in ("observation", "h_in")],
        [helper.make_tensor_value_info(name, FLOAT, ["n", 4]) for name in ("action", "observation")],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    helper.set_model_props(model, {"windtunnel.state": '{"h_in": "observation"}'})
    return bytes(model.SerializeToString())


def shortening(folder: Path) -> bytes:
    """Answer with the sum of observations, of which two are forgotten after an observation that is large."""
    nodes = [
        ("Add", ["observation", "h_in"], ["action"], {}),
        ("ReduceMax", ["observation"], ["greatest"], {"keepdims": 0}),
        ("Greater", ["greatest", "limit"], ["large"], {}),
        ("Where", ["large", "two", "four"], ["end"], {}),
        ("Slice", ["action", "zero", "end", "one"], ["h_out"], {}),
    ]
    numbers = {"zero": 0, "one": 1, "two": 2, "four": 4}
    constants = {name: np.array([value], np.int64) for name, value in numbers.items()}
    return graph_of(nodes, {"limit": np.array(900.0, np.float32), **constants}, state=True)


def network(widths: list[int], *, choice: bool) -> Callable[[Path], bytes]:
    """Return the builder of a network of these widths; its action is four numbers, or the index of the greatest."""

    def make(folder: Path) -> bytes:
        draw, nodes, name, constants = np.random.default_rng(5), [], "observation", {}
        for layer, (width, following) in enumerate(itertools.pairwise(widths)):
            weights = draw.standard_normal((width, following)) * (2.0 / width) ** 0.5
            constants[f"w{layer}"] = weights.astype(np.float32)
            constants[f"b{layer}"] = 0.1 * draw.standard_normal(following).astype(np.float32)
            nodes.append(helper.make_node("Gemm", [name, f"w{layer}", f"b{layer}"], [f"sum{layer}"]))
            name = f"sum{layer}"
            if layer < len(widths) - 2:
                nodes.append(helper.make_node("Tanh", [name], [f"out{layer}"]))
                name = f"out{layer}"
        last = helper.make_node("ArgMax", [name], ["action"], axis=1) if choice else None
        nodes.append(last or helper.make_node("Identity", [name], ["action"]))
        action = helper.make_tensor_value_info("action", TensorProto.INT64 if choice else FLOAT, ["n", None])
        made = helper.make_graph(
            nodes,
            "network",
            [helper.make_tensor_value_info("observation", FLOAT, ["n", 4])],
            [action],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        )
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return bytes(model.SerializeToString())

    return make


def tflite(kind: str) -> Callable[[Path], bytes]:
    return lambda folder: graphs.stateful_tflite(site_of("tflite"), kind)


def jax_export(code: str) -> Callable[[Path], bytes]:
    return lambda folder: jax.exported(code, folder)


@functools.cache
def files_of(program: str) -> Mapping[str, bytes]:
    """Return the models that a program saves with TensorFlow, by the names of their files."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-S", "-c", program, site_of("keras"), folder, "4"]
        subprocess.run(command, check=True, capture_output=True)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def saved_by_tensorflow(program: str, name: str) -> Callable[[Path], bytes]:
    return lambda folder: files_of(program)[name]


def trained(name: str) -> Callable[[Path], bytes]:
    return lambda folder: estimators.trained(estimators.FIT[name], estimators.FORMATS[name], folder)


STATEFUL, RECURRENT, FROZEN = tensorflow.SAVE_STATEFUL_MODELS, recurrent.SAVE_MODELS, frozen_graphs.SAVE_MODELS
#: Answers with the observation before, of JAX.
DELAYED = "def function(observation, state):\n    return state, observation\narguments = [observed, observed]"
#: Lets the compiler write the next state over the one that it was given.
GIVEN = """
def inner(observation, state):
    return observation + state, observation + 2 * state
function = inner
arguments = [observed, observed]
whole = jax.jit
jax.jit = lambda function: whole(function, donate_argnums=(1,))
"""
#: A boosted tree that answers with the class itself.
CLASSES = (
    "import xgboost; xgboost.train({'objective': 'multi:softmax', 'num_class': 2}, xgboost.DMatrix(X, y), 40)"
    ".save_model(path + '.ubj'); os.rename(path + '.ubj', path)"
)
#: By format and what is peculiar to the model.
CASES: Mapping[tuple[str, str], RowCase] = {
    ("onnx", "keeps nothing"): RowCase(lambda folder: graphs.onnx(), "rows", NUMBERS),
    ("onnx", "a batch of one"): RowCase(lambda folder: graphs.onnx(batch=1), "one", NUMBERS),
    ("onnx", "a network"): RowCase(network([4, 64, 64, 4], choice=False), None, NUMBERS),
    ("onnx", "a network that chooses"): RowCase(network([4, 64, 64, 2], choice=True), None, PUSH, answers=2),
    ("onnx", "a classifier"): RowCase(onnx_file("classifier"), None, PUSH, answers=2),
    ("onnx", "a regressor"): RowCase(onnx_file("regressor"), None, space("float64", 1)),
    ("onnx", "a GRU"): RowCase(onnx_file("gru"), None, NUMBERS),
    ("onnx", "an LSTM that chooses"): RowCase(onnx_file("lstm"), None, PUSH, answers=2),
    ("onnx", "the last observation"): RowCase(delayed, "rows", NUMBERS),
    ("onnx", "the array of the last observation"): RowCase(passing_on, "rows", NUMBERS),
    ("onnx", "a state that is shortened"): RowCase(shortening, "rows", NUMBERS, fails=True),
    ("onnx", "a generator"): RowCase(lambda folder: graphs.onnx_dropout(), "none", NUMBERS),
    ("tflite", "keeps nothing"): RowCase(lambda folder: graphs.tflite(site_of("tflite")), "one", NUMBERS),
    ("tflite", "a sum"): RowCase(lambda folder: recurrent.LITE.read_bytes(), "one", PUSH, answers=2),
    ("tflite", "a resource variable"): RowCase(tflite("counter"), "none", NUMBERS),
    ("tflite", "a generator"): RowCase(tflite("draws"), "none", NUMBERS),
    ("tflite", "a variable tensor"): RowCase(tflite("variable"), "none", NUMBERS),
    ("jax", "keeps nothing"): RowCase(jax_export(jax.POLICY), "one", PUSH, answers=2),
    ("jax", "a mean and a count"): RowCase(jax_export(jax.RECURRENT), "one", PUSH, answers=2),
    ("jax", "the last observation"): RowCase(jax_export(DELAYED), "one", NUMBERS),
    ("jax", "a state that is given away"): RowCase(jax_export(GIVEN), "one", NUMBERS),
    ("jax", "a key"): RowCase(jax_export(jax.GOOD["threefry"]), "one", PUSH, answers=2),
    ("savedmodel", "keeps nothing"): RowCase(
        saved_by_tensorflow(tensorflow.SAVE_MODELS, "line.zip"), "one", NUMBERS, ".zip"
    ),
    ("savedmodel", "a sum"): RowCase(saved_by_tensorflow(RECURRENT, "module.zip"), "one", PUSH, ".zip", answers=2),
    ("savedmodel", "a variable"): RowCase(saved_by_tensorflow(STATEFUL, "counter.zip"), "none", NUMBERS, ".zip"),
    ("savedmodel", "a generator"): RowCase(saved_by_tensorflow(STATEFUL, "generator.zip"), "none", NUMBERS, ".zip"),
    ("savedmodel", "random operations"): RowCase(saved_by_tensorflow(STATEFUL, "draws.zip"), "none", NUMBERS, ".zip"),
    ("savedmodel", "a table"): RowCase(saved_by_tensorflow(STATEFUL, "table.zip"), "none", NUMBERS, ".zip"),
    ("keras", "keeps nothing"): RowCase(saved_by_tensorflow(tensorflow.SAVE_MODELS, "line.keras"), "one", NUMBERS),
    ("keras", "a GRU that chooses"): RowCase(saved_by_tensorflow(RECURRENT, "gru.keras"), "one", PUSH, answers=2),
    ("keras", "a layer with a state"): RowCase(saved_by_tensorflow(STATEFUL, "lstm.keras"), "none", NUMBERS),
    ("frozen_graph", "keeps nothing"): RowCase(saved_by_tensorflow(FROZEN, "line.pb"), "one", NUMBERS),
    ("frozen_graph", "a recurrent layer"): RowCase(saved_by_tensorflow(FROZEN, "push.pb"), "one", PUSH, answers=2),
    ("frozen_graph", "random operations"): RowCase(saved_by_tensorflow(FROZEN, "draws.pb"), "none", NUMBERS),
    ("xgboost", "probabilities"): RowCase(trained("xgboost json"), "rows", space("float32", 1), answers=10),
    ("xgboost", "classes"): RowCase(
        lambda folder: estimators.trained(CLASSES, "xgboost", folder), "rows", PUSH, answers=2
    ),
    ("lightgbm", "probabilities"): RowCase(trained("lightgbm"), "rows", space("float64", 1), answers=10),
}
#: Formats that serve a launch and have no rows; docs/model-server.md has the reasons.
WITHOUT = {"wasm"}


@pytest.mark.parametrize(("format", "peculiarity"), CASES)
def test_scenarios_in_rows_have_the_answers_of_a_model_of_their_own(
    format: str, peculiarity: str, tmp_path: Path
) -> None:
    case = CASES[format, peculiarity]
    path = tmp_path / f"model{case.suffix}"
    path.write_bytes(case.make(tmp_path))
    options = {"format": format, "path": str(path), "rows": ROWS, "seed": 5, "fails": case.fails}
    options |= {"observation": space("float32", 4, -2.0, 2.0), "action": case.action}
    command = [sys.executable, "-S", "-c", PROGRAM, json.dumps(options), str(ROOT), site_of(format)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    print(found)
    assert found["wrong"] == []
    assert case.kernel in (None, found["kernel"])
    if found["kernel"] != "none":
        assert found["answers"] >= case.answers, "too few different answers to notice a mistake"
        assert bool(found["faults"]) == case.fails


def test_every_format_that_serves_a_launch_is_played_here() -> None:
    launch = {name for name, format in formats().items() if format.isolation == "launch"}
    assert {format for format, _ in CASES} == launch - WITHOUT


def test_the_documentation_says_of_every_format_whether_it_has_rows() -> None:
    text = (ROOT / "docs" / "model-server.md").read_text()
    section = text.partition("\n## Rows of each format\n")[2].partition("\n## ")[0]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line[:3] == "| `"]
    documented = {name.strip("`"): (cells[1], cells[2]) for cells in lines for name in cells[0].split(", ")}
    assert {name: isolation for name, (isolation, _) in documented.items()} == {
        name: format.isolation for name, format in formats().items() if not format.any_file and not format.manifest
    }
    without = {name for name, (_, rows) in documented.items() if rows.startswith("never")}
    assert without == documented.keys() - {format for format, _ in CASES}
