"""Never values: which numbers of shipped metrics say that something never happened."""

import pytest

from datasets.catalogue import datasets
from datasets.catalogue.never_values import described_metrics, never_values
from runtimes.harness.simulators.sumo.drive_metrics import Drive, Ending, metrics


def test_a_drive_in_which_nothing_happened_has_the_values_that_stand_for_never() -> None:
    never = never_values(datasets()["car_street"].definition)
    ending = Ending(outcome="arrived", route=100.0, limit=10.0)
    reported = metrics(Drive(), ending)
    assert never and {name: reported[name] for name in never} == never


def test_every_metric_whose_formula_names_a_number_for_never_has_it_in_the_table() -> None:
    for dataset in datasets().values():
        named = {metric["name"] for metric in dataset.definition.get("metrics", ()) if "never" in metric["formula"]}
        assert never_values(dataset.definition).keys() == named, dataset.name


@pytest.mark.parametrize(
    "definition", [{}, {"simulator": "sumo"}, {"simulator": "mujoco", "metrics": [{"name": "min_ttc"}]}]
)
def test_only_metrics_of_the_simulator_have_such_values(definition: dict[str, object]) -> None:
    assert never_values(definition) == {}


def test_a_dataset_of_a_user_with_metrics_of_the_simulator_has_them_too() -> None:
    own = {"name": "own", "simulator": "sumo", "metrics": [{"name": "min_ttc"}, {"name": "score"}]}
    assert never_values(own) == {"min_ttc": 100.0}


def test_clients_are_told_which_value_stands_for_never() -> None:
    metrics = {metric["name"]: metric for metric in described_metrics(datasets()["car_street"].definition)}
    assert metrics["min_ttc"]["never"] == 100.0 and "never" not in metrics["score"]
