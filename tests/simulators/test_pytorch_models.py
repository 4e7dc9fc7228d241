"""TorchScript, torch.export and Stable-Baselines3: saved by the whole wheels of the index, and run in the sandbox."""

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from runtimes.formats import detect, formats
from runtimes.harness.sandbox.allowances import LIBRARIES
from tests.cached import tool
from tests.contracts.harness_processes import evaluator_pair, play_of, refusal_of
from tests.simulators.test_gymnasium import spec_of

MODELS = Path(__file__).with_name("torch_models.py")
FORMATS = {"script": "torchscript", "trace": "torchscript", "export": "torch_export", "agent": "stable_baselines3"}


@cache
def python() -> Path:
    """The interpreter of an environment with PyTorch, Stable-Baselines3 and what model servers need."""
    return Path(tool("environment", "pytorch"))


def site() -> str:
    return str(next((python().parents[1] / "lib").glob("python3*/site-packages")))


def saved(name: str, folder: Path) -> Path:
    path = folder / "saved"
    environ = {"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    subprocess.run([python(), "-W", "ignore", MODELS, name, path], check=True, env=environ)
    return path


def spec(format: str, dataset: str = "cartpole") -> Any:
    isolation = formats()[format].isolation
    return spec_of(
        dataset, format=format, isolation=isolation, model_server_site=site(), model_server_libraries=LIBRARIES
    )


def run(
    format: str, model: bytes, *parts: tuple[int, int], dataset: str = "cartpole", **options: Any
) -> dict[int, Any]:
    play = play_of(dataset, isolation=formats()[format].isolation, **options)
    with evaluator_pair(spec(format, dataset), model, play) as pair:
        return {result["task"]: result | {"timing": None} for part in parts for result in pair.run(*part)}


def refusal(format: str, model: bytes) -> str:
    return refusal_of(spec(format), model, play_of("cartpole", isolation=formats()[format].isolation))


def balances(length: int) -> bool:
    return length == 500


def falls_after_its_hundredth_step(length: int) -> bool:
    return 100 < length < 200


def plays(length: int) -> bool:
    return length > 5


RUNS: dict[str, Callable[[int], bool]] = {
    "script Linear": balances,
    "trace Linear": balances,
    "script Counting": falls_after_its_hundredth_step,
    "script Noisy": plays,
    "script Recurrent": plays,
    "export Linear": balances,
    "export FedBack": falls_after_its_hundredth_step,
    "agent PPO": plays,
    "agent A2C": plays,
    "agent DQN": plays,
    "agent ARS": plays,
    "agent RecurrentPPO": plays,
    "agent GymPPO": plays,
}


@pytest.mark.parametrize("name", RUNS)
def test_a_model_of_pytorch_is_recognised_plays_and_has_equal_results_in_any_order(name: str, tmp_path: Path) -> None:
    path = saved(name, tmp_path)
    format = FORMATS[name.partition(" ")[0]]
    assert detect(path) == format
    results = run(format, path.read_bytes(), (0, 4))
    assert {result["status"] for result in results.values()} == {"ok"}
    assert all(RUNS[name](result["metrics"]["length"]) for result in results.values()), results
    assert results == run(format, path.read_bytes(), (3, 4), (1, 3), (0, 1))


REFUSALS = {
    "script Scores": "if these are the scores of the 2 actions, export the index of the best one",
    "export Scores": "if these are the scores of the 2 actions, export the index of the best one",
    "script TwoInputs": "the module's second input `goal` is Tensor; it has to be `forward(observation)` or",
    "export TwoInputs": "the program has 2 inputs and 1 outputs; export `forward(observation, *state)`",
    "script ThreeFeatures": "the model does not take observations of float32[1, 4]: ",
    "export ThreeFeatures": "the model's input is float32[1,3]; the dataset observes float32[4]",
    "agent SAC": "the agent was trained with Box([-1. -1. -8.], [1. 1. 8.], (3,), float32); the dataset observes",
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_model_of_pytorch_that_does_not_fit_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path).read_bytes()
    assert REFUSALS[name] in refusal(FORMATS[name.partition(" ")[0]], model)


@pytest.mark.parametrize("name", ["script Linear", "export Linear", "agent PPO"])
def test_a_damaged_file_of_pytorch_is_refused_and_says_which_library_does_not_load_it(
    name: str, tmp_path: Path
) -> None:
    model = saved(name, tmp_path).read_bytes()
    reason = refusal(FORMATS[name.partition(" ")[0]], model[: len(model) // 2])
    assert reason.startswith(("PyTorch 2", "Stable-Baselines3 2")) and "does not load" in reason, reason
