"""Models of each format that try to remember: what they answer does not depend on which scenarios ran before."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from runtimes import catalogue, environments
from runtimes.formats import formats
from runtimes.harness.sandbox import level
from tests.cached import ENVIRONMENTS
from tests.contracts import graphs
from tests.contracts.harness_processes import evaluator_pair, play_of, refusal_of, worker_spec
from tests.contracts.test_native_models import library
from tests.contracts.test_program_models import script

#: Writes a file in /tmp, and answers with how often it was there.
FILE = "path = '/tmp/note'; kept = len(open(path).read()) if os.path.exists(path) else 0; open(path, 'a').write('x')"
PYTHON = f"""
import os, random
import numpy as np
calls = 0
class Model:
    def act(self, observation):
        global calls
        calls += 1
        {FILE}
        return observation + calls + kept + random.random() + np.random.random()
"""
PROGRAM = script(act=f"{FILE}; answer = {{'action': [calls + kept] * 4}}")
NATIVE = "for (size_t i = 0; i < m; i++) action[i] = observation[i] + calls + rand() % 7; return 0;"
#: Answers with random classes, from numpy's generator of the process.
ESTIMATOR = """
import sys
sys.path.insert(0, sys.argv[1])
import joblib, numpy as np
from sklearn.dummy import DummyClassifier
model = DummyClassifier(strategy="uniform").fit(np.zeros((8, 4)), np.arange(32).reshape(8, 4) % 8)
joblib.dump(model, sys.argv[2])
"""


@cache
def site_of(format: str) -> str:
    environment = catalogue.runtime(formats()[format].runtime).formats[format].environment
    return str(environments.prepare(environment, ENVIRONMENTS, lambda message, part: None))


def estimator(folder: Path) -> bytes:
    path = folder / "saved.joblib"
    subprocess.run([sys.executable, "-S", "-c", ESTIMATOR, site_of("scikit_learn"), path], check=True)
    return path.read_bytes()


def tflite(kind: str) -> Callable[[Path], bytes]:
    return lambda folder: graphs.stateful_tflite(site_of("tflite"), kind)


#: What tries to remember, by format and means: it plays, and its results are the same in any order.
FORGOTTEN: Mapping[tuple[str, str], Callable[[Path], bytes]] = {
    ("python", "globals, files and generators"): lambda folder: PYTHON.encode(),
    ("program", "variables and files"): lambda folder: PROGRAM,
    ("native", "static variables and generators"): lambda folder: library(folder, ACT=NATIVE),
    ("scikit_learn", "numpy's generator"): estimator,
    ("onnx", "a generator of the session"): lambda folder: graphs.onnx_of("RandomUniformLike", ["observation"]),
    ("onnx", "a generator of the process"): lambda folder: graphs.onnx_dropout(),
    ("tflite", "a resource variable"): tflite("counter"),
    ("tflite", "a generator"): tflite("draws"),
}
#: What cannot be made to forget is refused, with these words.
REFUSED: Mapping[tuple[str, str], tuple[Callable[[Path], bytes], str]] = {
    ("tflite", "memory that is read before it is written"): (tflite("cycle"), "its operators read kept before another"),
    ("tflite", "a constant that is written"): (tflite("constant"), "its operators read kept before another"),
}
#: Formats with the test that does the same there, or that have nothing to remember with.
ELSEWHERE: Mapping[str, str] = {
    "fmu": "tests/simulators/test_fmu_models.py::test_nothing_is_left_of_a_scenario_in_any_order",
    "frozen_graph": "tests/simulators/test_hdf5_and_frozen_graphs.py",
    "jax": "tests/simulators/test_jax_models.py::test_a_function_that_cannot_be_used_is_refused_with_the_reason",
    "keras": "tests/simulators/test_tensorflow_models.py",
    "savedmodel": "tests/simulators/test_tensorflow_models.py",
    "wasm": "tests/simulators/test_wasm_models.py::test_nothing_is_left_of_a_scenario_in_any_order",
    "stable_baselines3": "a process per scenario, as of scikit_learn",
    "torch_export": "a process per scenario, as of scikit_learn",
    "torchscript": "a process per scenario, as of scikit_learn",
    "lightgbm": "trees, which have no operation that writes",
    "xgboost": "trees, which have no operation that writes",
}


def spec_of(format: str) -> Any:
    isolation = formats()[format].isolation
    return worker_spec(format=format, model_server_site=site_of(format), isolation=isolation, sandbox=level().number)


def played(format: str, model: bytes, *parts: tuple[int, int]) -> dict[int, Any]:
    play = play_of(isolation=formats()[format].isolation, deadline=30.0)
    with evaluator_pair(spec_of(format), model, play) as pair:
        return {result["task"]: result | {"timing": None} for part in parts for result in pair.run(*part)}


@pytest.mark.parametrize(("format", "means"), FORGOTTEN)
def test_a_model_that_tries_to_remember_answers_alike_in_any_order(format: str, means: str, tmp_path: Path) -> None:
    model = FORGOTTEN[format, means](tmp_path)
    in_order = played(format, model, (0, 4))
    assert {result["status"] for result in in_order.values()} == {"ok"}, in_order
    assert played(format, model, (3, 4), (2, 3), (1, 2), (0, 1)) == in_order


def test_files_are_gone_at_the_next_reset_also_in_a_process_that_serves_all_scenarios() -> None:
    source = f"import os\nclass Model:\n def act(self, observation):\n  {FILE}\n  return [kept] * 4"
    spec = worker_spec(sandbox=level().number)
    with evaluator_pair(spec, source, play_of(worlds=16)) as pair:
        results = pair.run(0, 40)
    assert max(result["timing"]["worlds"] for result in results) > 1
    assert {result["metrics"]["value"] for result in results} == {0.0}


@pytest.mark.parametrize(("format", "means"), REFUSED)
def test_a_model_that_cannot_be_made_to_forget_is_refused_with_the_reason(
    format: str, means: str, tmp_path: Path
) -> None:
    make, reason = REFUSED[format, means]
    assert reason in refusal_of(spec_of(format), make(tmp_path), play_of(isolation=formats()[format].isolation))


def test_every_format_has_a_model_that_tries_to_remember() -> None:
    tried = {format for format, _ in (*FORGOTTEN, *REFUSED)}
    # The programs of a gang are not models.
    loaded = {name for name, format in formats().items() if not format.any_file and not format.manifest}
    assert tried | set(ELSEWHERE) == loaded and not tried & set(ELSEWHERE)
    for format, where in ELSEWHERE.items():
        if where.startswith("tests/"):
            path, _, name = where.partition("::")
            assert f"def {name}" in Path(path).read_text(), where
        elif where.startswith("a process"):
            assert formats()[format].isolation == "scenario"
