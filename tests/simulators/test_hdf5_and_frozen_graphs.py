"""HDF5 files of Keras and frozen graphs: saved by TensorFlow, run by a model server in its environment and sandbox."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from runtimes import formats
from runtimes.harness.models import frozen_graph
from runtimes.harness.models.base import Sample
from runtimes.harness.runner import framed_socket
from runtimes.harness.runner.processes import WorkerSpec
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of
from tests.contracts.task_orders import results_in_every_order
from tests.contracts.test_model_server import ModelServerKind, loaded, observations, shipped_model_server
from tests.simulators.test_gymnasium import spec_of
from tests.simulators.test_tensorflow_models import tensorflow

KERAS_MODELS = Path(__file__).with_name("keras_models")

#: Program that saves models for the noop dataset, and for CartPole those whose names begin with "push".
SAVE_MODELS = """
import os, sys
sys.path.insert(0, sys.argv[1])
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
out = sys.argv[2] + "/"
layers = tf.keras.layers
line = tf.keras.Sequential([layers.Input((4,)), layers.Rescaling(2.0, 1.0)])
line.save(out + "line.h5")
line.save_weights(out + "line.weights.h5")
inputs = layers.Input((4,))
tf.keras.Model(inputs, layers.Lambda(lambda x: 2 * x)(inputs)).save(out + "code.h5")
inputs = layers.Input(batch_shape=(1, 4))
tf.keras.Model(inputs, layers.LSTM(4, stateful=True)(layers.Reshape((1, 4))(inputs))).save(out + "lstm.h5")
observation = tf.TensorSpec([None, 4], tf.float32, name="observation")
traced = tf.function(lambda x: line(x, training=False)).get_concrete_function(observation)
tf.io.write_graph(convert_variables_to_constants_v2(traced).graph.as_graph_def(), out, "line_v2.pb", as_text=False)
v1 = tf.compat.v1
def weights(name, *shape):
    return v1.get_variable(name, initializer=tf.random.stateless_normal(shape, seed=[1, 2]) * 2)
def frozen(name, build, outputs, freeze=True):
    with tf.Graph().as_default() as graph, v1.Session() as session:
        build(v1.placeholder(tf.float32, [None, 4], name="observation"))
        session.run(v1.global_variables_initializer())
        definition = graph.as_graph_def()
        if freeze:
            definition = v1.graph_util.convert_variables_to_constants(session, definition, outputs)
    with open(out + name + ".pb", "wb") as file:
        file.write(definition.SerializeToString())
def affine(x):
    scale = v1.get_variable("scale", initializer=2.0)
    tf.identity(x * scale + 1, name="result")
frozen("line", affine, ["result"])
frozen("checkpoint", affine, ["result"], freeze=False)
frozen("draws", lambda x: tf.identity(x + v1.random_normal([4]), name="action"), ["action"])
frozen("clock", lambda x: tf.identity(x + tf.cast(tf.timestamp(), tf.float32), name="action"), ["action"])
def recurrent(x):
    h = v1.placeholder(tf.float32, [None, 4], name="h_in")
    h = tf.tanh(tf.matmul(x, weights("w", 4, 4)) + tf.matmul(h, weights("r", 4, 4)), name="h_out")
    scores = tf.matmul(h, weights("head", 4, 2), name="scores")
    tf.identity(scores, name="extra")
    tf.argmax(scores, axis=1, name="action")
frozen("push", recurrent, ["action", "h_out", "extra"])
def unpaired(x):
    tf.add(x, v1.placeholder(tf.float32, [None, 4], name="h_in"), name="action")
frozen("unpaired", unpaired, ["action"])
frozen("push_scores", lambda x: tf.matmul(x, weights("w", 4, 2), name="scores"), ["scores"])
tf.saved_model.save(line, out + "saved")
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    command = [sys.executable, "-S", "-c", SAVE_MODELS, tensorflow(), str(folder)]
    saving = subprocess.run(command, capture_output=True, text=True)
    assert saving.returncode == 0, saving.stderr[-4000:]
    return folder


def tensorflow_spec(file: str) -> WorkerSpec:
    format = "frozen_graph" if file.endswith(".pb") else "keras"
    dataset = "cartpole" if file.startswith("push") else "noop"
    return spec_of(dataset, model_server_site=tensorflow(), format=format, isolation="launch")


@pytest.mark.parametrize("file", ["line.h5", "line.pb", "line_v2.pb"])
def test_a_model_of_an_earlier_format_runs(files: Path, file: str) -> None:
    assert formats.detect(files / file, "model.bin") == tensorflow_spec(file).format
    with evaluator_pair(tensorflow_spec(file), (files / file).read_bytes(), play_of(deadline=5.0)) as pair:
        for result in pair.run(0, 10):
            assert result["metrics"]["value"] == pytest.approx(2 * result["metrics"]["echo"] + 4, rel=1e-5)


@pytest.mark.parametrize("file", ["lstm.h5", "draws.pb"])
def test_a_model_that_remembers_or_draws_gives_equal_results_in_any_order_and_on_any_worker(
    files: Path, file: str
) -> None:
    in_order, backwards, on_other_workers = results_in_every_order(
        tensorflow_spec(file), (files / file).read_bytes(), workers=2
    )
    assert backwards == in_order
    assert on_other_workers == in_order
    assert all(b'"status":"ok"' in line for line in in_order)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_recurrent_frozen_graph_gives_equal_results_in_any_order_and_on_any_worker(files: Path, batch: int) -> None:
    """Its action is a whole number, and its state an output that another operation takes a value from."""
    in_order, backwards, on_other_workers = results_in_every_order(
        tensorflow_spec("push.pb"), (files / "push.pb").read_bytes(), workers=2, dataset="cartpole", batch=batch
    )
    assert backwards == in_order
    assert on_other_workers == in_order
    assert all(b'"status":"ok"' in line for line in in_order)
    assert len(set(in_order)) == len(in_order)


def test_random_numbers_of_a_frozen_graph_follow_the_simulations_seed(files: Path) -> None:
    offsets = []
    for seed in (0, 1):
        play = play_of(deadline=60.0, seed=seed)
        with evaluator_pair(tensorflow_spec("draws.pb"), (files / "draws.pb").read_bytes(), play) as pair:
            metrics = [result["metrics"] for result in pair.run(0, 4)]
            offsets += [round(values["value"] - values["echo"], 3) for values in metrics]
    assert len(set(offsets)) == len(offsets), "scenarios drew the same numbers"


def test_an_lstm_that_keras_2_saved_computes_what_it_did_there() -> None:
    source = (KERAS_MODELS / "keras2_lstm.h5").read_bytes()
    expected = json.loads((KERAS_MODELS / "keras2_lstm.json").read_text())
    kind = ModelServerKind("keras", shipped_model_server("keras", tensorflow(), "launch"), lambda: source)
    with loaded(kind, deadline=60.0) as (model_server, _):
        for seed in (1, 2):
            model_server.ready(seed)
            answers = [model_server.act(observations())[0][0].tolist() for _ in expected]
            assert np.allclose(answers, expected, rtol=1e-5, atol=1e-6)
            model_server.end(None)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("line.weights.h5", "the HDF5 file has no model, at most its weights: save the whole model with"),
        ("code.h5", "it has a Lambda layer, whose code is not loaded"),
        ("checkpoint.pb", "the graph is not frozen: it has variables (VarHandleOp)"),
        ("clock.pb", "because of its operations Timestamp"),
        ("unpaired.pb", "input h_in float32[n,4] is neither the observation (observation) nor a state"),
        ("push_scores.pb", "if these are the scores of the 2 actions, export the index of the best one (add ArgMax"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused_with_what_to_export(files: Path, file: str, reason: str) -> None:
    spec = tensorflow_spec(file)
    pair = EvaluatorPair(spec, (files / file).read_bytes())
    try:
        pair.set_up(play_of(Path(spec.dataset).name))
        refusal = pair.give_model_server()
    finally:
        pair.end()
    assert isinstance(refusal, framed_socket.ModelRefused)
    assert reason in refusal.reason


def test_a_saved_models_graph_without_its_folder_is_refused_before_it_is_loaded(files: Path) -> None:
    with pytest.raises(formats.UnknownFormat, match="zip the whole folder"):
        formats.detect(files / "saved" / "saved_model.pb")


def test_a_graph_is_recognised_by_its_first_node_only(files: Path) -> None:
    for name in ("line.pb", "draws.pb", "line_v2.pb"):
        head = (files / name).read_bytes()[:1024]
        sample = Sample(head=head, size=len(head))
        assert frozen_graph.recognise(sample)
        for damaged in (head[1:], b"\x12" + head[1:], head[:5], b"\n\x05hello", b"\n\n\n\n\n\n\n"):
            assert frozen_graph.recognise(replace(sample, head=damaged)) is None
