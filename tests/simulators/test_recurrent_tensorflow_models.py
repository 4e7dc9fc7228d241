"""Recurrent state by pairs of inputs and outputs in Keras, SavedModel and TensorFlow Lite, as ONNX has it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtimes import catalogue
from runtimes.harness.runner.processes import WorkerSpec
from tests.contracts.harness_processes import evaluator_pair, play_of, refusal_of
from tests.contracts.task_orders import results_in_every_order
from tests.simulators.test_gymnasium import site, spec_of
from tests.simulators.test_tensorflow_models import tensorflow

#: A policy of cartpole that pushes by the sum of all angles and speeds of the scenario.
PYTHON = """
import numpy
class Model:
    def reset(self, seed):
        self.sum = numpy.zeros(4, numpy.float32)
    def act(self, observation):
        self.sum = self.sum + observation
        return [int(self.sum[2] + self.sum[3] > 0)]
"""
#: Program that saves the same policy by each of TensorFlow's ways to name inputs and outputs.
SAVE_MODELS = """
import os, shutil, sys
sys.path.insert(0, sys.argv[1])
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
out = sys.argv[2] + "/"
layers, ops = tf.keras.layers, tf.keras.ops
def summed(state):
    x, h = layers.Input((4,), name="observation"), layers.Input((4,), name=state)
    total = layers.Add(name="h_out")([x, h])
    return x, h, total, layers.Identity(name="action")(ops.cast(total[:, 2:3] + total[:, 3:4] > 0, "int32"))
x, h, total, push = summed("h_in")
tf.keras.Model([x, h], [total, push]).save(out + "layers.keras")
tf.keras.Model([x, h], push).save(out + "unpaired.keras")
x, h, total, push = summed("state_in_0")
keys = tf.keras.Model({"observation": x, "state_in_0": h}, {"action": push, "state_out_0": total})
keys.save(out + "keys.keras")
keys.export(out + "exported")
h = layers.Input((64,), name="h_in")
output, [state] = layers.GRUCell(64)(x, [h])
push = ops.argmax(layers.Dense(2)(output), axis=1)
gru = tf.keras.Model({"observation": x, "h_in": h}, {"action": push, "h_out": state})
gru.save(out + "gru.keras")
gru.export(out + "gru")
class Sum(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="obs"), tf.TensorSpec([None, 4], name="h_in")])
    def __call__(self, obs, h_in):
        total = obs + h_in
        return {"h_out": total, "action": tf.cast(total[:, 2:3] + total[:, 3:4] > 0, tf.int64)}
policy = Sum()
tf.saved_model.save(policy, out + "module", signatures={"serving_default": policy.__call__})
class Narrow(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="obs"), tf.TensorSpec([None, 4], name="h_in")])
    def __call__(self, obs, h_in):
        return {"h_out": h_in[:, :2], "action": tf.cast(obs[:, 2:3] > 0, tf.int64)}
policy = Narrow()
tf.saved_model.save(policy, out + "narrow", signatures={"serving_default": policy.__call__})
for name in ("exported", "gru", "module", "narrow"):
    shutil.make_archive(out + name, "zip", out + name)
for name in ("exported", "module"):
    converter = tf.lite.TFLiteConverter.from_saved_model(out + name, signature_keys=["serving_default"])
    with open(out + name + ".tflite", "wb") as file:
        file.write(converter.convert())
"""
#: `module.tflite` of the program above, of TensorFlow 2.21, so that LiteRT's states are in every run.
LITE = Path(__file__).parent / "lite_models" / "module.tflite"
FORMATS = {".keras": "keras", ".zip": "savedmodel", ".tflite": "tflite"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    saving = subprocess.run(
        [sys.executable, "-S", "-c", SAVE_MODELS, tensorflow(), str(folder)], capture_output=True, text=True
    )
    assert saving.returncode == 0, saving.stderr[-4000:]
    return folder


def spec_of_file(path: Path) -> WorkerSpec:
    format = FORMATS[path.suffix]
    environment = catalogue.runtime("tensorflow").formats[format].environment
    return spec_of("cartpole", model_server_site=site(environment), format=format, isolation="launch")


def results_in_python() -> list[dict[str, Any]]:
    with evaluator_pair(spec_of("cartpole"), PYTHON, play_of("cartpole", isolation="scenario")) as pair:
        return [result | {"timing": None} for result in pair.run(0, 8)]


def check_state(path: Path, batch: int) -> None:
    """Check that a state begins with zeros and is fed back, alone, in a batch, in any order and on any worker."""
    spec, model = spec_of_file(path), path.read_bytes()
    with evaluator_pair(spec, model, play_of("cartpole", params={"batch": batch})) as pair:
        assert [result | {"timing": None} for result in pair.run(0, 8)] == results_in_python()
    in_order, backwards, on_other_workers = results_in_every_order(
        spec, model, dataset="cartpole", batch=batch, workers=2
    )
    assert in_order == backwards == on_other_workers
    assert all(b'"status":"ok"' in line for line in in_order)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_state_of_a_lite_model_is_fed_back_until_the_scenario_ends(batch: int) -> None:
    check_state(LITE, batch)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "name", ["layers.keras", "keys.keras", "exported.zip", "module.zip", "exported.tflite", "module.tflite"]
)
def test_a_state_is_fed_back_until_the_scenario_ends(files: Path, name: str, batch: int) -> None:
    check_state(files / name, batch)


@pytest.mark.parametrize("name", ["gru.keras", "gru.zip"])
def test_a_recurrent_cell_gives_equal_results_in_any_order_and_on_any_worker(files: Path, name: str) -> None:
    model = (files / name).read_bytes()
    in_order, backwards, on_other_workers = results_in_every_order(
        spec_of_file(files / name), model, dataset="cartpole", workers=2
    )
    assert in_order == backwards == on_other_workers
    assert all(b'"status":"ok"' in line for line in in_order) and len(set(in_order)) == len(in_order)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("unpaired.keras", "the model's input h_in float32[n,4] is neither the observation (observation) nor a state"),
        ("narrow.zip", "the model's state h_in is float32[n,4], and its output h_out is float32[n,2]"),
    ],
)
def test_an_input_that_no_output_is_paired_with_is_refused(files: Path, name: str, reason: str) -> None:
    assert reason in refusal_of(spec_of_file(files / name), (files / name).read_bytes(), play_of("cartpole"))
