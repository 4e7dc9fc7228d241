"""Selection: the parameters, sweeps and scenarios that a submission requests of a dataset."""

import pytest

from common.errors import Invalid, PlatformError, ScenarioOutOfRange
from core.domain.submissions.selection import checked_params, checked_selection, checked_sweep

DECLARED = {
    "guard": {"type": "bool", "default": False},
    "delay": {"type": "int", "default": 0, "low": 0, "high": 10},
    "kind": {"type": "string", "default": "a", "choices": ["a", "b"]},
}


def test_omitted_parameters_have_their_defaults() -> None:
    assert checked_params(DECLARED, {"delay": 3}, "d") == {"guard": False, "delay": 3, "kind": "a"}


@pytest.mark.parametrize(
    "params", [{"delay": 11}, {"delay": True}, {"delay": "3"}, {"kind": "c"}, {"guard": 1}, {"unheard_of": 1}]
)
def test_a_value_of_the_wrong_type_or_range_is_refused_by_name(params: dict[str, object]) -> None:
    with pytest.raises(Invalid, match=next(iter(params))):
        checked_params(DECLARED, params, "d")


@pytest.mark.parametrize("sweep", [{"delay": []}, {"delay": 3}, {"delay": [1, 99]}, {"nothing": [1]}])
def test_a_sweep_accepts_known_parameters_with_valid_values(sweep: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        checked_sweep(DECLARED, sweep, "d")


def test_a_submission_without_a_selection_has_all_scenarios() -> None:
    assert checked_selection(None, 288, 288, "d") == {"range": [0, 288]}


@pytest.mark.parametrize(
    "scenarios",
    [
        {"range": [0, 289]},
        {"range": [-1, 2]},
        {"range": [5, 5]},
        {"tasks": [288]},
        {"sample": 0},
        {"sample": 289},
        {"range": [0, 1], "tasks": [1]},
        {"range": "0-10"},
        {"range": [True, 2]},
        {"tasks": []},
        {"everything": 1},
        {"sample": 2**70},
    ],
)
def test_a_selection_outside_the_dataset_is_refused(scenarios: dict[str, object]) -> None:
    with pytest.raises(PlatformError) as error:
        checked_selection(scenarios, 288, 288, "d")
    assert isinstance(error.value, Invalid | ScenarioOutOfRange)
