"""A model of each format that would answer otherwise if anything were left of another scenario, made by its library."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.contracts import test_native_models as native
from tests.simulators import test_estimator_models as estimators
from tests.simulators import test_fmu_models as fmus
from tests.simulators import test_hdf5_and_frozen_graphs as frozen_graphs
from tests.simulators import test_jax_models as jax
from tests.simulators import test_pytorch_models as pytorch
from tests.simulators import test_tensorflow_models as tensorflow
from tests.simulators import test_wasm_components as wasm_components
from tests.simulators import test_wasm_models as wasm

ONNX_MODELS = Path(__file__).parents[1] / "contracts" / "onnx_models"
PYTHON = """
import random
import numpy
calls = 0
class Model:
    def act(self, observation):
        global calls
        calls += 1
        noise = 0.2 * (random.random() + float(numpy.random.random()) - 1)
        return [float(observation[2] + 0.5 * observation[3] + noise > 0) if calls % 6 else 0.0]
"""
#: A policy of cartpole with a counter, as a library and as a program.
COUNTS = "static int calls; static double push(double angle, double speed) {"
COUNTS += "calls++; return calls % 6 && angle + 0.5 * speed > 0; }\n"
LIBRARY = COUNTS + native.SOURCE.replace("static int calls;", "")
PROGRAM = (
    COUNTS
    + r"""
#include <stdio.h>
int main(void) {
    static char line[1 << 16];
    double position, velocity, angle, speed;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "{\"act\":[%lf,%lf,%lf,%lf]}", &position, &velocity, &angle, &speed) == 4)
            printf("{\"action\":[%g]}\n", push(angle, speed));
        else
            puts("{}");
        fflush(stdout);
    }
}
"""
)


@dataclass(frozen=True)
class FormatModel:
    """How to make a model of a format in an empty folder; ``dataset`` is what it was made for."""

    make: Callable[[Path], bytes]
    dataset: str = "cartpole"
    filename: str = "model"


def library(folder: Path) -> bytes:
    return native.library(folder, source=LIBRARY, ACT="action[0] = push(observation[2], observation[3]); return 0;")


def program(folder: Path) -> bytes:
    (folder / "source.c").write_text(PROGRAM)
    subprocess.run(["cc", "-O1", "-static", "-o", str(folder / "policy"), str(folder / "source.c")], check=True)
    return (folder / "policy").read_bytes()


def module(folder: Path) -> bytes:
    counted = "(global.set $calls (f64.add (global.get $calls) (f64.const 1))) (global.get $calls)"
    return wasm.module(offset=counted)


def component(folder: Path) -> bytes:
    return wasm_components.component(
        offset=wasm_components.DRAWS,
        imports=wasm_components.RANDOM,
        lowered=wasm_components.LOWERED,
        more=wasm_components.HOST,
    )


def saved_by_tensorflow(code: str, name: str) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        command = [sys.executable, "-S", "-c", code, tensorflow.tensorflow(), str(folder)]
        subprocess.run(command, check=True, capture_output=True)
        return (folder / name).read_bytes()

    return make


def estimator(name: str) -> Callable[[Path], bytes]:
    return lambda folder: estimators.trained(estimators.FIT[name], estimators.FORMATS[name], folder)


def torch(name: str) -> Callable[[Path], bytes]:
    return lambda folder: pytorch.saved(name, folder).read_bytes()


STATEFUL, FROZEN = tensorflow.SAVE_STATEFUL_MODELS, frozen_graphs.SAVE_MODELS
#: By the name of the format, and a word besides for its second model.
MODELS: Mapping[str, FormatModel] = {
    "fmu": FormatModel(fmus.of_pythonfmu),
    "frozen_graph": FormatModel(saved_by_tensorflow(FROZEN, "push.pb")),
    "jax": FormatModel(lambda folder: jax.exported(jax.RECURRENT, folder)),
    "keras": FormatModel(saved_by_tensorflow(STATEFUL, "lstm.keras"), "noop"),
    "lightgbm": FormatModel(estimator("lightgbm")),
    "native": FormatModel(library),
    "onnx": FormatModel(lambda folder: (ONNX_MODELS / "lstm.onnx").read_bytes()),
    "program": FormatModel(program),
    "python": FormatModel(lambda folder: PYTHON.encode(), filename="model.py"),
    "savedmodel": FormatModel(saved_by_tensorflow(STATEFUL, "generator.zip"), "noop"),
    "scikit_learn": FormatModel(estimator("joblib")),
    "stable_baselines3": FormatModel(torch("agent RecurrentPPO")),
    "tflite": FormatModel(saved_by_tensorflow(STATEFUL, "draws.tflite"), "noop"),
    "torch_export": FormatModel(torch("export FedBack")),
    "torchscript": FormatModel(torch("script Noisy")),
    "wasm": FormatModel(module, "noop"),
    "wasm component": FormatModel(component, "noop"),
    "xgboost": FormatModel(estimator("xgboost ubj")),
}
