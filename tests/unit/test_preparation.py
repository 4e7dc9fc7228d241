"""What a simulation says it is doing before it runs."""

import msgspec
import pytest

from core.domain.scheduling.preparation import PreparationStep, doing, following


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            {"what": "environment", "name": "torch", "message": "downloading 31 packages", "fraction": 0.0},
            "torch: downloading 31 packages",
        ),
        ({"launch": "x", "key": "cold", "message": "processes are started"}, "processes are started"),
        ({"what": "dataset", "bytes": 5, "fraction": 0.25}, "downloading the dataset: 25%"),
        ({"what": "dataset"}, None),
    ],
)
def test_the_last_event_says_what_is_going_on(body: dict[str, object], sentence: str | None) -> None:
    assert doing(msgspec.convert(body, PreparationStep)) == sentence


def test_after_a_step_of_an_installation_it_says_the_next_step_too() -> None:
    assert following("Installed 9 packages in 511ms") == "Installed 9 packages in 511ms; compiling them to bytecode"
    assert following("downloading 9 packages") == "downloading 9 packages"
