"""SavedModel and .keras files: saved by TensorFlow, run by a model server in its environment and sandbox."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from runtimes import catalogue
from runtimes.harness.runner import framed_socket
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of
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
