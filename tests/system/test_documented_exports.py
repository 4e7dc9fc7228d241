"""Blocks of docs/exporting.md that need a library: each is run with that library, and the platform takes its files."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uv

from tests.cached import tool
from tests.document_commands import ROOT, Block, Treatment, blocks
from tests.simulators import test_pytorch_models as pytorch
from tests.simulators.test_estimator_models import site_of
from tests.system.platform_process import PlatformProcess
from tests.system.test_equal_results import FIRST, prepared

PAGE = ROOT / "docs/exporting.md"
#: Command and environment variables that run a Python file, or a shell script.
Interpreter = tuple[list[str], Mapping[str, str]]


def of_format(format: str) -> Callable[[], Interpreter]:
    """Python with the packages of a format's own environment."""
    return lambda: ([sys.executable, "-S"], {"PYTHONPATH": site_of(format)})


def with_packages(*packages: str) -> Callable[[], Interpreter]:
    """Python with these packages, each with its version."""
    options = [option for package in packages for option in ("--with", package)]
    command = [uv.find_uv_bin(), "run", "--quiet", "--no-project", "--python", sys.executable, *options, "python"]
    return lambda: (command, {})


def here() -> Interpreter:
    return [sys.executable], {}


def with_pytorch() -> Interpreter:
    return [str(pytorch.python())], {}


def shell(*programs: Callable[[], str]) -> Callable[[], Interpreter]:
    """A shell that finds these programs."""
    return lambda: (["bash", "-eu"], {"PATH": ":".join([*(str(Path(found()).parent) for found in programs), PATH])})


PATH = os.environ["PATH"]

#: `torch.onnx` needs the package onnx, which the tests' own environment has.
ONNX = f"""
import sys
import torch
sys.path.append({sysconfig.get_path("purelib")!r})
"""
NETWORK = """
import torch
network = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
"""
KERAS_NETWORK = """
import tensorflow as tf
network = tf.keras.Sequential([tf.keras.layers.Dense(2)])
network(tf.zeros((1, 4)))
"""
DATA = """
import numpy
observations = numpy.random.default_rng(1).normal(0, 0.1, (500, 4)).astype("float32")
actions = (observations @ numpy.array([0.02, 0.05, 1, 0.5]) > 0).astype("int64")
"""
#: An LSTM whose state has names that the platform does not pair by itself.
OTHER_NAMES = f"""
import onnx
graph = onnx.load({str(ROOT / "tests/contracts/onnx_models/lstm.onnx")!r})
names = {{"state_in_0": "h0", "state_in_1": "c0", "state_out_0": "hn", "state_out_1": "cn"}}
for value in (*graph.graph.input, *graph.graph.output):
    value.name = names.get(value.name, value.name)
for node in graph.graph.node:
    for list_of_names in (node.input, node.output):
        list_of_names[:] = [names.get(name, name) for name in list_of_names]
onnx.save(graph, "exported.onnx")
"""
CHECKPOINT = """
import tensorflow.compat.v1 as tf
def build_network(observation):
    weights = tf.get_variable("weights", initializer=[[0.0, 0.1], [0.0, 0.1], [0.0, 1.0], [0.0, 0.5]])
    return tf.matmul(observation, weights)
checkpoint = "checkpoint/model"
with tf.Graph().as_default(), tf.Session() as session:
    build_network(tf.placeholder(tf.float32, [None, 4]))
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, checkpoint)
"""


@dataclass(frozen=True)
class Export:
    """A block of the page, by a text that it alone has, and the files that it makes.

    ``given``: what the reader has already, as Python; ``after``: the block that the reader has run before;
    ``replaced``: words that are replaced so that the block ends soon; ``formats``: those of its files, in their order.
    """

    text: str
    interpreter: Callable[[], Interpreter]
    files: tuple[str, ...]
    formats: tuple[str, ...]
    given: str = ""
    after: str = ""
    replaced: Mapping[str, str] = field(default_factory=dict)


SAVED_MODEL = "input_signature="
KERAS = "keras.Model(inputs, action)"
FMU, COMPONENT = "Fmi2Slave", "class WitWorld"
EXPORTS = (
    Export("Policy(network).eval(),", with_pytorch, ("policy.onnx",), ("onnx",), ONNX + NETWORK),
    Export("class Recurrent", with_pytorch, ("policy.onnx",), ("onnx",), ONNX),
    Export("torch.jit.save", with_pytorch, ("policy.pt", "policy.pt2"), ("torchscript", "torch_export"), NETWORK),
    Export(
        "from stable_baselines3",
        with_pytorch,
        ("policy.zip",),
        ("stable_baselines3",),
        replaced={"learn(100_000)": "learn(2_048)"},
    ),
    Export(
        "skl2onnx import",
        with_packages("skl2onnx==1.20.0", "scikit-learn==1.9.1"),
        ("policy.onnx",),
        ("onnx",),
        DATA + "from sklearn.linear_model import LogisticRegression\n"
        "classifier = LogisticRegression(C=1e4).fit(observations, actions)\n",
    ),
    Export('"windtunnel.state"', here, ("policy.onnx",), ("onnx",), OTHER_NAMES),
    Export(
        "export.symbolic_shape",
        of_format("jax"),
        ("policy.jax",),
        ("jax",),
        "import types\nimport jax.numpy\nparameters = jax.numpy.ones((4, 2))\n"
        "network = types.SimpleNamespace(apply=lambda parameters, observation: observation @ parameters)\n",
    ),
    Export(KERAS, of_format("keras"), ("policy.keras",), ("keras",)),
    Export("GRUCell", of_format("keras"), ("policy.keras",), ("keras",), after=KERAS),
    Export(
        SAVED_MODEL,
        of_format("savedmodel"),
        ("policy.zip",),
        ("savedmodel",),
        KERAS_NETWORK,
    ),
    Export("convert_variables_to_constants", of_format("frozen_graph"), ("policy.pb",), ("frozen_graph",), CHECKPOINT),
    Export(
        "TFLiteConverter",
        of_format("savedmodel"),
        ("policy.tflite",),
        ("tflite",),
        KERAS_NETWORK,
        after=SAVED_MODEL,
    ),
    Export("skops.io.dump", of_format("scikit_learn"), ("policy.skops",), ("scikit_learn",), DATA),
    Export("xgboost.train", of_format("xgboost"), ("policy.json",), ("xgboost",), DATA),
    Export("lightgbm.train", of_format("lightgbm"), ("policy.txt",), ("lightgbm",), DATA),
)


@dataclass(frozen=True)
class Build:
    """A block of shell commands that build a model from a file and send it, by a text that it alone has.

    ``source``: the name of that file, and a text of the block that has it.
    """

    text: str
    interpreter: Callable[[], Interpreter]
    source: tuple[str, str]


PYTHONFMU = ["--from", "pythonfmu==0.7.0", "--python", sys.executable]


def pythonfmu() -> str:
    """Path of the program pythonfmu, which uv keeps in its cache."""
    command = [uv.find_uv_bin(), "tool", "run", *PYTHONFMU, "python", "-c", "import sys; print(sys.prefix)"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() + "/bin/pythonfmu"


BUILDS = (
    Build("clang --target=wasm32-wasi ", shell(lambda: tool("wasm")), ("policy.c", "windtunnel_create(const char")),
    Build("--no-entry", shell(lambda: tool("wasm")), ("", "")),
    Build("componentize policy", shell(lambda: tool("componentize-py")), ("policy.py", COMPONENT)),
    Build("pythonfmu build", shell(pythonfmu), ("policy.py", FMU)),
)
#: Blocks that are files of the builds.
SOURCES = {source for _, source in (build.source for build in BUILDS) if source}


def block_with(text: str) -> Block:
    [found] = [block for block in blocks(PAGE.read_text()) if text in block.text]
    return found


def test_every_block_that_is_left_to_this_test_is_run_by_it() -> None:
    left = [block for block in blocks(PAGE.read_text()) if block.treatment is Treatment.NOT_RUN]
    run = [entry.text for entry in (*EXPORTS, *BUILDS)] + sorted(SOURCES)
    for block in left:
        assert Path(__file__).name in block.note, f"line {block.line} of the page is run by nothing: {block.note}"
        assert any(text in block.text for text in run), f"line {block.line} of the page is not run here"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder in which a reader works, with the folders of a clone that commands name."""
    for name in ("runtimes", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    yield tmp_path
    shutil.rmtree(tmp_path / "saved", ignore_errors=True)


def run(interpreter: Callable[[], Interpreter], script: str, folder: Path) -> None:
    command, variables = interpreter()
    (folder / "block").write_text(script)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WINDTUNNEL_"))}
    environ = {**own, "OMP_NUM_THREADS": "1", **variables}
    ended = subprocess.run([*command, "block"], cwd=folder, env=environ, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]


@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export.text)
def test_a_file_that_a_block_exports_fits_cartpole(export: Export, platform: PlatformProcess, folder: Path) -> None:
    script = block_with(export.text).text
    for word, other in export.replaced.items():
        assert word in script
        script = script.replace(word, other)
    before = block_with(export.after).text if export.after else ""
    run(export.interpreter, "\n".join([export.given, before, script]), folder)
    for name, format in zip(export.files, export.formats, strict=True):
        prepared(format)
        with (folder / name).open("rb") as model:
            form = {"model": (name, model)}
            answer = platform.http.post("/v1/forms/checks", files=form, data={"dataset": "cartpole"}, timeout=FIRST)
        check = answer.json()
        assert answer.status_code == 200 and check["fits"], check
        assert check["format"] == format


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.text)
def test_a_model_that_a_block_builds_is_taken(build: Build, platform: PlatformProcess, folder: Path) -> None:
    name, text = build.source
    if name:
        (folder / name).write_text(block_with(text).text)
    script = block_with(build.text).text.replace("curl ", "curl --fail-with-body -sS ")
    run(build.interpreter, script.replace("localhost:5000", f"127.0.0.1:{platform.port}"), folder)
    [model] = [path for path in (folder / "policy.wasm", folder / "Policy.fmu") if path.exists()]
    with model.open("rb") as content:
        form = {"model": (model.name, content)}
        check = platform.http.post("/v1/forms/checks", files=form, data={"dataset": "cartpole"}, timeout=FIRST).json()
    assert check["fits"], check
