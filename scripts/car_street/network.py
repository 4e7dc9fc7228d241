"""Policy network of the trained baseline: architecture, forward pass in numpy, export to Keras, ONNX and TFLite."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

#: Divisors of the observation's entries, so that inputs are of order one.
SCALES = np.array(
    [15, 5, 15, 2, 2, 3, 1, 100, 300, 1, 50, 8, 5, 50, 8, 50, 8, 50, 8, 50, 8, 50, 8, 1, 1, 50, 1, 1, 1, 30, 30, 8],
    dtype=np.float32,
)
#: Entries that are distances d: exp(-d / 4) and exp(-d / 16) are features too, because small distances matter most.
DISTANCES = (7, 8, 10, 13, 15, 17, 19, 21, 25, 29, 30)
DECAYS = (4.0, 16.0)
HIDDEN = (96, 96, 48)
INPUTS, FEATURES = 32, 32 + len(DISTANCES) * len(DECAYS)

#: Accelerations are MIDDLE + SPREAD * tanh(x): from -9 to 3 m/s2.
MIDDLE, SPREAD = -3.0, 6.0


def input_maps() -> tuple[Array, Array]:
    """Return the two fixed linear input maps: scaling, and distances to negative exponents."""
    scaling = np.diag(1.0 / SCALES).astype(np.float32)
    decays = np.zeros((INPUTS, len(DISTANCES) * len(DECAYS)), dtype=np.float32)
    for column, (entry, decay) in enumerate((entry, decay) for decay in DECAYS for entry in DISTANCES):
        decays[entry, column] = -1.0 / decay
    return scaling, decays


class PolicyNetwork:
    """Layers as ``(kernel, bias)`` pairs; the last two are the heads for acceleration and lane."""

    def __init__(self, layers: Sequence[tuple[Array, Array]]) -> None:
        self.layers = [(kernel.astype(np.float32), bias.astype(np.float32)) for kernel, bias in layers]
        self.scaling, self.decays = input_maps()

    def __call__(self, observation: Array) -> Array:
        """Return actions [n, 2] for observations [n, 32]."""
        x = np.concatenate([observation @ self.scaling, np.exp(observation @ self.decays)], axis=1)
        *trunk, (accel_kernel, accel_bias), (lane_kernel, lane_bias) = self.layers
        for kernel, bias in trunk:
            x = np.maximum(x @ kernel + bias, 0.0)
        accel = MIDDLE + SPREAD * np.tanh(x @ accel_kernel + accel_bias)
        logits = x @ lane_kernel + lane_bias
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        return np.concatenate([accel, odds[:, 2:3] - odds[:, 0:1]], axis=1)


def keras_model() -> tuple[Any, Any]:
    """Return the model to train, with outputs for acceleration and lane odds, and the model to publish."""
    import keras

    scaling, decays = input_maps()
    observation = keras.Input((INPUTS,), name="observation")
    scaled = keras.layers.Dense(INPUTS, use_bias=False, trainable=False, name="scaling")
    nearness = keras.layers.Dense(
        decays.shape[1], use_bias=False, activation="exponential", trainable=False, name="nearness"
    )
    x = keras.layers.Concatenate()([scaled(observation), nearness(observation)])
    for number, width in enumerate(HIDDEN):
        x = keras.layers.Dense(width, activation="relu", name=f"hidden_{number}")(x)
    bend = keras.layers.Dense(1, activation="tanh", name="accel_head")(x)
    stretch = keras.layers.Dense(1, trainable=False, name="accel")
    odds = keras.layers.Dense(3, activation="softmax", name="lane_odds")(x)
    lean = keras.layers.Dense(1, use_bias=False, trainable=False, name="lane")
    accel = stretch(bend)
    action = keras.layers.Concatenate(name="action")([accel, lean(odds)])
    scaled.set_weights([scaling])
    nearness.set_weights([decays])
    stretch.set_weights([np.array([[SPREAD]]), np.array([MIDDLE])])
    lean.set_weights([np.array([[-1.0], [0.0], [1.0]])])
    return keras.Model(observation, {"accel": accel, "lane_odds": odds}), keras.Model(
        observation, action, name="car_street"
    )


def weights_of(model: Any) -> PolicyNetwork:
    """Return a network with a Keras model's weights."""
    names = [*(f"hidden_{number}" for number in range(len(HIDDEN))), "accel_head", "lane_odds"]
    return PolicyNetwork([tuple(model.get_layer(name).get_weights()) for name in names])


def write_onnx(network: PolicyNetwork, path: Path) -> None:
    """Write the network as ONNX: `observation` [n, 32] to `action` [n, 2]."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights, nodes = [], []

    def constant(name: str, value: Array) -> str:
        weights.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    scaled = node("MatMul", ["observation", constant("scaling", network.scaling)], "scaled")
    near = node("Exp", [node("MatMul", ["observation", constant("decays", network.decays)], "decayed")], "near")
    x = node("Concat", [scaled, near], "features", axis=1)
    *trunk, (accel_kernel, accel_bias), (lane_kernel, lane_bias) = network.layers
    for number, (kernel, bias) in enumerate(trunk):
        inputs = [x, constant(f"kernel_{number}", kernel), constant(f"bias_{number}", bias)]
        dense = node("Gemm", inputs, f"dense_{number}")
        x = node("Relu", [dense], f"hidden_{number}")
    bend = node("Gemm", [x, constant("accel_kernel", accel_kernel), constant("accel_bias", accel_bias)], "accel_dense")
    bent = node("Tanh", [bend], "accel_bent")
    stretched = node("Mul", [bent, constant("spread", np.array([SPREAD]))], "accel_spread")
    accel = node("Add", [stretched, constant("middle", np.array([MIDDLE]))], "accel")
    logits = node("Gemm", [x, constant("lane_kernel", lane_kernel), constant("lane_bias", lane_bias)], "lane_logits")
    odds = node("Softmax", [logits], "lane_odds", axis=1)
    lane = node("MatMul", [odds, constant("lean", np.array([[-1.0], [0.0], [1.0]]))], "lane")
    node("Concat", [accel, lane], "action", axis=1)
    graph = helper.make_graph(
        nodes,
        "car_street",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["n", INPUTS])],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT, ["n", 2])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="windtunnel")
    model.ir_version = 8
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def write_tflite(network: PolicyNetwork, path: Path) -> None:
    """Write the network as TensorFlow Lite, with the signature `observation` to `action` and a batch size of 1.

    The weights are constants: variables of a Keras model would not be part of the file.
    """
    import tensorflow as tf

    *trunk, (accel_kernel, accel_bias), (lane_kernel, lane_bias) = network.layers

    @tf.function(input_signature=[tf.TensorSpec([1, INPUTS], tf.float32, name="observation")])
    def act(observation: Any) -> dict[str, Any]:
        x = tf.concat([observation @ network.scaling, tf.exp(observation @ network.decays)], 1)
        for kernel, bias in trunk:
            x = tf.nn.relu(x @ kernel + bias)
        accel = MIDDLE + SPREAD * tf.tanh(x @ accel_kernel + accel_bias)
        odds = tf.nn.softmax(x @ lane_kernel + lane_bias)
        return {"action": tf.concat([accel, odds[:, 2:3] - odds[:, 0:1]], 1)}

    owner = tf.Module()
    owner.act = act
    converter = tf.lite.TFLiteConverter.from_concrete_functions([act.get_concrete_function()], owner)
    path.write_bytes(converter.convert())
