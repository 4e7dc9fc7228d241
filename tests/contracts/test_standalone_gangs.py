"""Gangs without a runner: nobody leases for them, and how their program ended is their one result."""

from typing import Any

import pytest

from core.domain.launches import LaunchStatus, Phase
from core.domain.states import State
from errors import Invalid
from tests.contracts.test_dispatcher import House
from tests.contracts.test_dispatcher import house as house  # a fixture is found by its name in here

TRAINED = {"size": 2, "command": ["torchrun", "train.py"], "operator": "trainer", "runtime_ref": "torch-distributed"}


def submit(house: House, **changes: Any) -> str:
    asked = {"dataset": "program", "scenarios": {"range": [0, 1]}, "workers": None, "gang": TRAINED}
    return house.submit(**asked | changes)


def result(house: House, id: str) -> dict[str, Any]:
    [found] = house.results(id)
    return found


def test_a_successful_program_is_one_result(house: House) -> None:
    id = submit(house)
    place, launch = house.launch(id)
    house.until(lambda: house.state(id) is State.RUNNING)  # nobody leases, and it runs all the same
    place.end(launch.id)
    house.end(id)
    assert result(house, id)["status"] == "ok"
    assert house.platform.simulations.get(id).attempt == 1
    house.until(lambda: not place.launches)


def test_a_failed_program_is_a_crashed_task_with_its_reason(house: House) -> None:
    id = submit(house)
    place, launch = house.launch(id)
    place.end(launch.id, exit=3, reason="the program ended with exit code 3")
    house.end(id)
    assert (result(house, id)["status"], result(house, id)["error"]) == (
        "crashed",
        "the program ended with exit code 3",
    )


def test_a_lost_program_starts_again(house: House) -> None:
    id = submit(house)
    place, launch = house.launch(id)
    place.see(LaunchStatus(id=launch.id, phase=Phase.ENDED, reason="its node is gone"))
    house.until(lambda: launch.id not in house.living)
    place, again = house.launch(id)
    place.end(again.id)
    house.end(id)
    assert (result(house, id)["status"], house.platform.simulations.get(id).attempt) == ("ok", 2)


def test_a_dispatcher_that_dies_between_lease_and_report_costs_one_lease_ttl(house: House) -> None:
    id = submit(house)
    place, launch = house.launch(id)
    leases = house.platform.leases
    known = leases.unattended(launch.id)
    assert known is not None
    leases.lease(known, "dispatch", None)
    place.end(launch.id)
    house.end(id)
    assert result(house, id)["status"] == "ok"


@pytest.mark.parametrize("alone", [TRAINED, {"size": 2, "command": ["train"], "image": "site/train:1"}])
def test_more_than_one_task_is_refused_because_the_command_runs_once(house: House, alone: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="runs its command once"):
        submit(house, gang=alone, scenarios={"range": [0, 2]})
