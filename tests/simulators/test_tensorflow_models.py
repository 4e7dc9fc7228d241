"""SavedModel and .keras files: saved by TensorFlow, run by a model server in its environment and sandbox."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from runtimes import catalogue
from runtimes.harness.runner import framed_socket
from runtimes.harness.runner.processes import WorkerSpec
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of
from tests.contracts.task_orders import results_in_every_order
from tests.simulators.test_gymnasium import site, spec_of

#: Program that saves action = 2 * observation + 1 of a given width, as a .keras file and as a zipped SavedModel.
SAVE_MODELS = """
import os, shutil, sys
sys.path.insert(0, sys.argv[1])
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
out, width = sys.argv[2], int(sys.argv[3])
layers = [tf.keras.layers.Input((width,)), tf.keras.layers.Rescaling(2.0, 1.0)]
tf.keras.Sequential(layers).save(out + "/line.keras")
class Line(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, width], tf.float32, name="observation")])
    def __call__(self, observation):
        return {"other": observation, "action": 2 * observation + 1}
line = Line()
tf.saved_model.save(line, out + "/saved", signatures={"serving_default": line.__call__})
shutil.make_archive(out + "/line", "zip", out + "/saved")
"""


@cache
def tensorflow() -> str:
    return site(catalogue.runtime("tensorflow").formats["keras"].environment)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for width in (3, 4):
        (folder / str(width)).mkdir()
        command = [sys.executable, "-S", "-c", SAVE_MODELS, tensorflow(), str(folder / str(width)), str(width)]
        subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(("format", "name"), [("keras", "line.keras"), ("savedmodel", "line.zip")])
def test_a_tensorflow_model_runs_and_a_model_that_does_not_fit_is_refused(files: Path, format: str, name: str) -> None:
    spec = spec_of("noop", model_server_site=tensorflow(), format=format, isolation="launch")
    with evaluator_pair(spec, (files / "4" / name).read_bytes(), play_of(deadline=5.0)) as pair:
        results = pair.run(0, 10)
    for result in results:
        assert result["metrics"]["value"] == pytest.approx(2 * result["metrics"]["echo"] + 4, rel=1e-5)
    pair = EvaluatorPair(spec, (files / "3" / name).read_bytes())
    try:
        pair.set_up(play_of())
        refusal = pair.give_model_server()
    finally:
        pair.end()
    assert isinstance(refusal, framed_socket.ModelRefused)
    assert "the model's input is float32[n,3]; the dataset observes float32[4]" in refusal.reason


#: Programs that save a model which remembers or draws, as SavedModels `saved/NAME`, as `NAME.keras` and `NAME.tflite`.
SAVE_STATEFUL_MODELS = """
import os, shutil, sys
sys.path.insert(0, sys.argv[1])
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
out = sys.argv[2]
OBSERVATION = tf.TensorSpec([None, 4], tf.float32, name="observation")
def saved(answer, name, **members):
    module = tf.Module()
    for member, value in members.items():
        setattr(module, member, value)
    def call(observation):
        return {"action": answer(module, observation)}
    function = tf.function(call, input_signature=[OBSERVATION])
    tf.saved_model.save(module, out + "/" + name, signatures={"serving_default": function})
    shutil.make_archive(out + "/" + name, "zip", out + "/" + name)
    return function, module
def count(module, observation):
    return observation + module.count.assign_add(1.0)
counter = saved(count, "counter", count=tf.Variable(0.0))
saved(lambda module, x: x + module.generator.normal([4]), "generator", generator=tf.random.Generator.from_seed(3))
saved(lambda module, x: x + tf.random.normal([4]) + tf.random.uniform([4]), "draws")
def remember(module, observation):
    key = tf.constant([1], tf.int64)
    value = module.table.lookup(key) + 1.0
    with tf.control_dependencies([module.table.insert(key, value)]):
        return observation + value
saved(remember, "table", table=tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0))
saved(lambda module, x: x + tf.cast(tf.timestamp(), tf.float32), "clock")
v1 = tf.compat.v1
def old(name, answer):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4], name="observation")
        y = answer(x)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, out + "/" + name, {"observation": x}, {"action": y})
    shutil.make_archive(out + "/" + name, "zip", out + "/" + name)
old("old_variable", lambda x: x + v1.get_variable("n", initializer=0.0, use_resource=True).assign_add(1.0))
old("old_reference", lambda x: x + v1.get_variable("r", initializer=0.0, use_resource=False).assign_add(1.0))
old("old_draws", lambda x: x + v1.random_normal([4]))
def kept_count():
    # What a function that is run at each load has written to /tmp before, and one more.
    path = "/tmp/note"
    read = tf.cond(tf.shape(tf.io.matching_files(path))[0] > 0, lambda: tf.io.read_file(path), lambda: tf.constant("0"))
    count = tf.strings.to_number(read) + 1.0
    with tf.control_dependencies([tf.io.write_file(path, tf.strings.as_string(count))]):
        return tf.identity(count)
class Notebook(tf.saved_model.experimental.TrackableResource):
    def __init__(self, variable, create):
        super().__init__()
        self.variable, self._creates = variable, create
    def _create_resource(self):
        if self._creates:
            kept_count()
        return tf.raw_ops.AnonymousHashTable(key_dtype=tf.int64, value_dtype=tf.float32)
    def _initialize(self):
        if not self._creates:
            self.variable.assign(kept_count())
def noted(module, observation):
    return observation + module.note + 0.0 * tf.random.normal([4])
for name, create in (("notebook", False), ("creating_notebook", True)):
    note = tf.Variable(0.0)
    saved(noted, name, note=note, notebook=Notebook(note, create))
keys, values = tf.constant([1], tf.int64), tf.constant([2.0])
static = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0.0)
saved(lambda module, x: x + module.table.lookup(keys), "static_table", table=static)
open(out + "/words.txt", "w").write("1" + os.linesep + "2")
whole, line = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
words = tf.lookup.TextFileInitializer(out + "/words.txt", tf.string, whole, tf.int64, line)
lookup = tf.lookup.StaticHashTable(words, 0)
saved(lambda m, x: x + tf.cast(m.table.lookup(tf.constant(["2"])), tf.float32), "text_table", table=lookup)
with tf.Graph().as_default(), v1.Session() as session:
    x = v1.placeholder(tf.float32, [None, 4], name="observation")
    note = v1.get_variable("note", initializer=0.0, use_resource=True)
    y = x + note
    v1.add_to_collection("table_initializer", note.assign(kept_count()).op)
    session.run(v1.global_variables_initializer())
    v1.saved_model.simple_save(session, out + "/old_notebook", {"observation": x}, {"action": y})
shutil.make_archive(out + "/old_notebook", "zip", out + "/old_notebook")
inputs = tf.keras.layers.Input(batch_shape=(1, 4))
memory = tf.keras.layers.LSTM(4, stateful=True)(tf.keras.layers.Reshape((1, 4))(inputs))
tf.keras.Model(inputs, memory).save(out + "/lstm.keras")
def lite(function, module, name):
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], module)
    converter.experimental_enable_resource_variables = True
    open(out + "/" + name + ".tflite", "wb").write(converter.convert())
class Draws(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([1, 4], tf.float32, name="observation")])
    def __call__(self, observation):
        return {"action": observation + tf.random.uniform([1, 4]) + tf.random.normal([1, 4])}
class Counts(tf.Module):
    def __init__(self):
        self.count = tf.Variable(0.0)
    @tf.function(input_signature=[tf.TensorSpec([1, 4], tf.float32, name="observation")])
    def __call__(self, observation):
        self.count.assign_add(1.0)
        return {"action": observation + self.count}
for module, name in ((Draws(), "draws"), (Counts(), "counter")):
    lite(module.__call__, module, name)
"""


@pytest.fixture(scope="module")
def stateful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stateful")
    command = [sys.executable, "-S", "-c", SAVE_STATEFUL_MODELS, tensorflow(), str(folder)]
    saving = subprocess.run(command, capture_output=True, text=True)
    assert saving.returncode == 0, saving.stderr[-4000:]
    return folder


def spec_of_format(format: str) -> WorkerSpec:
    environment = catalogue.runtime("tensorflow").formats[format].environment
    return spec_of("noop", model_server_site=site(environment), format=format, isolation="launch")


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("savedmodel", "counter.zip"),
        ("savedmodel", "generator.zip"),
        ("savedmodel", "draws.zip"),
        ("savedmodel", "table.zip"),
        ("savedmodel", "old_variable.zip"),
        ("savedmodel", "old_draws.zip"),
        ("savedmodel", "static_table.zip"),
        ("savedmodel", "text_table.zip"),
        ("keras", "lstm.keras"),
        ("tflite", "counter.tflite"),
        ("tflite", "draws.tflite"),
    ],
)
def test_a_model_that_remembers_or_draws_gives_equal_results_in_any_order_and_on_any_worker(
    stateful: Path, format: str, name: str
) -> None:
    in_order, backwards, on_four_workers = results_in_every_order(
        spec_of_format(format), (stateful / name).read_bytes(), workers=4 if name == "draws.zip" else 1
    )
    assert backwards == in_order
    assert on_four_workers == in_order
    assert all(b'"status":"ok"' in line for line in in_order)


@pytest.mark.parametrize(
    ("format", "name"),
    [("savedmodel", "draws.zip"), ("tflite", "draws.tflite")],
)
def test_random_numbers_without_a_seed_of_the_author_follow_the_simulations_seed(
    stateful: Path, format: str, name: str
) -> None:
    spec, model = spec_of_format(format), (stateful / name).read_bytes()
    offsets = []
    for seed in (0, 1):
        with evaluator_pair(spec, model, play_of(deadline=60.0, seed=seed)) as pair:
            metrics = [result["metrics"] for result in pair.run(0, 4)]
            offsets += [round(values["value"] - values["echo"], 3) for values in metrics]
    assert len(set(offsets)) == len(offsets), "scenarios drew the same numbers"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("clock.zip", "because of its operations Timestamp"),
        ("old_reference.zip", "because of its operations AssignAdd"),
        ("notebook.zip", "because of its operations MatchingFiles, ReadFile, WriteFile"),
        ("creating_notebook.zip", "because of its operations MatchingFiles, ReadFile, WriteFile"),
        ("old_notebook.zip", "because of its operations MatchingFiles, ReadFile, WriteFile"),
    ],
)
def test_a_model_that_cannot_be_reset_is_refused_with_the_operation(stateful: Path, name: str, reason: str) -> None:
    pair = EvaluatorPair(spec_of_format("savedmodel"), (stateful / name).read_bytes())
    try:
        pair.set_up(play_of())
        refusal = pair.give_model_server()
    finally:
        pair.end()
    assert isinstance(refusal, framed_socket.ModelRefused)
    assert reason in refusal.reason
