"""Write the ONNX files of this folder with the libraries that people export with, for tests that need none of them.

    uv run --no-project --with onnx==1.23.2 --with skl2onnx==1.20.0 --with scikit-learn==1.9.1 \\
        python tests/contracts/onnx_models/generate.py

All models observe the four numbers of CartPole. The weights of recurrent models are large, so that actions depend on
what the model remembers.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import to_onnx
from skl2onnx.common.data_types import DoubleTensorType
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPRegressor
from threadpoolctl import threadpool_limits

FOLDER = Path(__file__).parent
HIDDEN = 8
#: What onnxruntime 1.31 runs at most; onnx 1.23 itself would write IR version 14.
IR_VERSION, OPSET = 13, 21
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def weights(seed: int, **shapes: tuple[int, ...]) -> list[onnx.TensorProto]:
    """Return random tensors by name."""
    random = np.random.default_rng(seed)
    return [
        numpy_helper.from_array(random.normal(scale=2.0, size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]


def value(name: str, type: int, *shape: str | int) -> onnx.ValueInfoProto:
    """Return a declared input or output."""
    return helper.make_tensor_value_info(name, type, shape)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    tensors: list[onnx.TensorProto],
    **metadata: str,
) -> onnx.ModelProto:
    """Return a checked model."""
    graph = helper.make_graph(nodes, "policy", inputs, outputs, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    helper.set_model_props(made, {name.replace("_", "."): text for name, text in metadata.items()})
    onnx.checker.check_model(made, full_check=True)
    return made


def lstm() -> onnx.ModelProto:
    """An LSTM named as RLlib names its inputs and outputs; the action is the index of the best of two."""
    one = numpy_helper.from_array(np.array([0], np.int64), "axis")
    shapes = {"w": (1, 4 * HIDDEN, 4), "r": (1, 4 * HIDDEN, HIDDEN), "head": (HIDDEN, 2)}
    nodes = [
        helper.make_node("Unsqueeze", ["obs", "axis"], ["sequence"]),
        helper.make_node(
            "LSTM",
            ["sequence", "w", "r", "", "", "state_in_0", "state_in_1"],
            ["", "state_out_0", "state_out_1"],
            hidden_size=HIDDEN,
        ),
        helper.make_node("Squeeze", ["state_out_0", "axis"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "head"], ["action_dist_inputs"]),
        helper.make_node("ArgMax", ["action_dist_inputs"], ["actions"], axis=1, keepdims=0),
    ]
    state = (1, "batch", HIDDEN)
    inputs = [
        value("state_in_0", FLOAT, *state),
        value("obs", FLOAT, "batch", 4),
        value("state_in_1", FLOAT, *state),
    ]
    outputs = [
        value("action_dist_inputs", FLOAT, "batch", 2),
        value("state_out_0", FLOAT, *state),
        value("state_out_1", FLOAT, *state),
        value("actions", INT64, "batch"),
    ]
    return model(nodes, inputs, outputs, [one, *weights(1, **shapes)])


def gru() -> onnx.ModelProto:
    """A GRU whose state is paired by metadata, with an initial value; its action is four numbers."""
    axis = numpy_helper.from_array(np.array([0], np.int64), "axis")
    nodes = [
        helper.make_node("Unsqueeze", ["observation", "axis"], ["sequence"]),
        helper.make_node("GRU", ["sequence", "w", "r", "", "", "memory"], ["", "remembered"], hidden_size=4),
        helper.make_node("Squeeze", ["remembered", "axis"], ["action"]),
    ]
    state = (1, "n", 4)
    return model(
        nodes,
        [value("observation", FLOAT, "n", 4), value("memory", FLOAT, *state)],
        [value("action", FLOAT, "n", 4), value("remembered", FLOAT, *state)],
        [axis, *weights(2, w=(1, 12, 4), r=(1, 12, 4))],
        windtunnel_state='{"memory": {"output": "remembered", "initial": 0.5}}',
    )


def balancing_observations() -> tuple[np.ndarray, np.ndarray]:
    """Return observations of CartPole and the pushes of a controller that balances the pole."""
    observations = np.random.default_rng(3).uniform(-0.5, 0.5, size=(2000, 4))
    return observations, (observations @ [0.1, 0.3, 5.0, 1.5] > 0).astype(np.int64)


def classifier() -> onnx.ModelProto:
    """A logistic regression of scikit-learn: its first output is a label, its second a sequence of maps."""
    observations, pushes = balancing_observations()
    fitted = LogisticRegression(C=1000.0).fit(observations.astype(np.float32), pushes)
    return to_onnx(fitted, observations[:1].astype(np.float32), target_opset=OPSET)


def regressor() -> onnx.ModelProto:
    """A small network of scikit-learn in double precision, from float64 to float64."""
    observations, pushes = balancing_observations()
    fitted = MLPRegressor(hidden_layer_sizes=(8,), max_iter=800, random_state=0).fit(
        observations, pushes.astype(np.float64)
    )
    return to_onnx(fitted, initial_types=[("X", DoubleTensorType([None, 4]))], target_opset=OPSET)


def whole_numbers() -> onnx.ModelProto:
    """The observation's four numbers as int64."""
    nodes = [helper.make_node("Cast", ["observation"], ["action"], to=INT64)]
    inputs, outputs = [value("observation", FLOAT, "n", 4)], [value("action", INT64, "n", 4)]
    return model(nodes, inputs, outputs, [])


def scores() -> onnx.ModelProto:
    """Scores of two actions, which are not an action."""
    nodes = [helper.make_node("MatMul", ["observation", "head"], ["logits"])]
    inputs, outputs = [value("observation", FLOAT, "n", 4)], [value("logits", FLOAT, "n", 2)]
    return model(nodes, inputs, outputs, weights(4, head=(4, 2)))


def unpaired() -> onnx.ModelProto:
    """The LSTM without the output of its cell."""
    made = lstm()
    del made.graph.output[2]
    return made


def written_by_default() -> onnx.ModelProto:
    """The versions that onnx 1.23 writes if none are given."""
    made = scores()
    return helper.make_model(made.graph)


def main() -> None:
    """Write all files."""
    threadpool_limits(1)  # sums over several threads differ from run to run
    for make in (lstm, gru, classifier, regressor, whole_numbers, scores, unpaired, written_by_default):
        made = make()
        made.graph.name = "policy"  # skl2onnx draws a name, and the order of opsets
        made.opset_import.sort(key=lambda opset: str(opset.domain))
        (FOLDER / f"{make.__name__}.onnx").write_bytes(made.SerializeToString(deterministic=True))
    options = {"save_as_external_data": True, "location": "elsewhere.data", "size_threshold": 64}
    onnx.save_model(onnx.load(FOLDER / "lstm.onnx"), FOLDER / "weights_elsewhere.onnx", **options)


if __name__ == "__main__":
    main()
