"""Estimators of scikit-learn and boosters of XGBoost and LightGBM, saved by their libraries and run in the sandbox."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtimes import catalogue
from runtimes.formats import detect
from tests.contracts.harness_processes import evaluator_pair, play_of, refusal_of
from tests.simulators.test_gymnasium import site, spec_of

#: Trains a model: `X` are observations of cartpole, `y` is the baseline's push.
TRAIN = """
import os, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
rng = np.random.default_rng(1)
X = rng.normal(0, 0.1, (500, 4)).astype(np.float32)
y = (X @ np.array([0.02, 0.05, 1, 0.5]) > 0).astype(int)
path = sys.argv[2]
"""
FIT = {
    "joblib": "from sklearn.linear_model import LogisticRegression; import joblib;"
    " joblib.dump(LogisticRegression(C=1e4).fit(X, y), path)",
    "compressed joblib": "from sklearn.linear_model import LogisticRegression; import joblib;"
    " joblib.dump(LogisticRegression(C=1e4).fit(X, y), path, compress=3)",
    "pickle": "from sklearn.pipeline import make_pipeline; from sklearn.preprocessing import StandardScaler;"
    " from sklearn.neural_network import MLPClassifier; import pickle;"
    " model = make_pipeline(StandardScaler(), MLPClassifier((16,), random_state=0, max_iter=3000, tol=1e-3));"
    " pickle.dump(model.fit(X, y), open(path, 'wb'))",
    "skops": "from sklearn.ensemble import RandomForestClassifier; import skops.io;"
    " skops.io.dump(RandomForestClassifier(20, random_state=0, n_jobs=2).fit(X, y), path)",
    "xgboost json": "import xgboost; xgboost.train({'max_depth': 4, 'objective': 'binary:logistic'},"
    " xgboost.DMatrix(X, y), 40).save_model(path + '.json'); os.rename(path + '.json', path)",
    "xgboost ubj": "import xgboost; xgboost.train({'max_depth': 4, 'num_parallel_tree': 3},"
    " xgboost.DMatrix(X, y), 40).save_model(path + '.ubj'); os.rename(path + '.ubj', path)",
    "lightgbm": "import lightgbm; lightgbm.train({'num_leaves': 15, 'verbose': -1, 'objective': 'binary'},"
    " lightgbm.Dataset(X, y), 40).save_model(path)",
}
FORMATS = {name: next((f for f in ("xgboost", "lightgbm") if f in name), "scikit_learn") for name in FIT}


def site_of(format: str) -> str:
    runtime = next(runtime for runtime in catalogue.runtimes().values() if format in runtime.formats)
    return site(runtime.formats[format].environment)


def trained(code: str, format: str, folder: Path) -> bytes:
    """Run the training with the format's own environment, and return the file that it saved."""
    path = folder / "saved"
    command = [sys.executable, "-S", "-c", TRAIN + code, site_of(format), str(path)]
    subprocess.run(command, check=True)
    return path.read_bytes()


def spec(format: str) -> Any:
    isolation = catalogue.formats.formats()[format].isolation
    return spec_of("cartpole", format=format, isolation=isolation, model_server_site=site_of(format))


def run(format: str, model: bytes, *parts: tuple[int, int]) -> dict[int, Any]:
    play = play_of("cartpole", isolation=catalogue.formats.formats()[format].isolation)
    with evaluator_pair(spec(format), model, play) as pair:
        return {result["task"]: result | {"timing": None} for part in parts for result in pair.run(*part)}


def refusal(format: str, model: bytes) -> str:
    play = play_of("cartpole", isolation=catalogue.formats.formats()[format].isolation)
    return refusal_of(spec(format), model, play)


@pytest.mark.parametrize("name", FIT)
def test_a_saved_model_is_recognised_plays_and_has_equal_results_in_any_order(name: str, tmp_path: Path) -> None:
    format = FORMATS[name]
    model = trained(FIT[name], format, tmp_path)
    assert detect(tmp_path / "saved") == format
    results = run(format, model, (0, 6))
    assert {result["status"] for result in results.values()} == {"ok"}
    assert min(result["metrics"]["length"] for result in results.values()) > 100, "it has learnt to balance the pole"
    assert results == run(format, model, (4, 6), (2, 4), (0, 2))


SKLEARN_REFUSALS = {
    "joblib.dump({'weights': X}, path)": "the file has a dict, which has no `predict`; save a fitted estimator",
    "joblib.dump(LinearRegression().fit(X[:, :3], y), path)": (
        "the estimator was fitted with 3 features; the dataset observes 4 numbers (float32[4])"
    ),
    "open(path, 'wb').write(b'\\x80\\x04nonsense')": "does not load the estimator: ",
    "import skops.io; from sklearn.pipeline import make_pipeline;"
    " from sklearn.preprocessing import FunctionTransformer;"
    " skops.io.dump(make_pipeline(FunctionTransformer(np.loadtxt), LinearRegression()), path)": (
        "the skops file has types that are not trusted: numpy"
    ),
}


@pytest.mark.parametrize("code", SKLEARN_REFUSALS)
def test_an_estimator_that_cannot_be_used_is_refused_with_the_reason(code: str, tmp_path: Path) -> None:
    imports = "import joblib; from sklearn.linear_model import LinearRegression\n"
    assert SKLEARN_REFUSALS[code] in refusal("scikit_learn", trained(imports + code, "scikit_learn", tmp_path))


def test_the_version_that_saved_an_estimator_is_in_the_log_if_it_is_another_one(tmp_path: Path) -> None:
    code = (
        "import sklearn, joblib; from sklearn.linear_model import LogisticRegression;"
        "model = LogisticRegression().fit(X, y);"
        "import sklearn.base; sklearn.base.__version__ = '1.4.2'; joblib.dump(model, path)"
    )
    model = trained(code, "scikit_learn", tmp_path)
    with evaluator_pair(spec("scikit_learn"), model, play_of("cartpole", isolation="scenario")) as pair:
        assert [result["status"] for result in pair.run(0, 2)] == ["ok"] * 2
        pair.output_with("The estimator was saved by scikit-learn 1.4.2 and runs in")


BOOSTER_REFUSALS = {
    "xgboost": (
        "import xgboost; xgboost.train({}, xgboost.DMatrix(X[:, :3], y), 2).save_model(path + '.json');"
        " os.rename(path + '.json', path)"
    ),
    "lightgbm": "import lightgbm; lightgbm.train({'verbose': -1}, lightgbm.Dataset(X[:, :3], y), 2).save_model(path)",
}


@pytest.mark.parametrize("format", BOOSTER_REFUSALS)
def test_a_booster_for_other_features_and_a_truncated_one_are_refused(format: str, tmp_path: Path) -> None:
    model = trained(BOOSTER_REFUSALS[format], format, tmp_path)
    expected = "the model was trained with 3 features; the dataset observes 4 numbers (float32[4])"
    assert expected in refusal(format, model)
    broken = refusal(format, model[: len(model) // 2])
    assert "does not load the model: " in broken or "the file is truncated: it has no line `end of trees`" in broken
