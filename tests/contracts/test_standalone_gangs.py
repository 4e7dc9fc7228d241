"""Gangs without a runner: the dispatcher reports the exit of the program as the only result."""

from typing import Any

import pytest

from common.errors import Invalid
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.launches import LaunchStatus, Phase
from core.domain.scheduling.states import State
from tests.contracts.test_dispatcher import DispatcherRig
from tests.contracts.test_dispatcher import rig as rig  # a fixture

TRAINER_GANG = {
    "size": 2,
    "command": ["torchrun", "train.py"],
    "operator": "trainer",
    "runtime_ref": "torch-distributed",
}


def submit(rig: DispatcherRig, **changes: Any) -> str:
    fields = {"dataset": "program", "scenarios": {"range": [0, 1]}, "workers": None, "gang": TRAINER_GANG}
    return rig.submit(**fields | changes)


def result(rig: DispatcherRig, id: str) -> dict[str, Any]:
    [line] = rig.results(id)
    return line


def test_a_successful_program_is_one_result(rig: DispatcherRig) -> None:
    id = submit(rig)
    executor, launch = rig.launch(id)
    rig.until(lambda: rig.state(id) is State.RUNNING)  # the program runs without a lease
    executor.end(launch.id)
    rig.end(id)
    assert result(rig, id)["status"] == "ok"
    assert rig.platform.submissions.simulations.get(LOCAL_CALLER, id).attempt == 1
    rig.until(lambda: not executor.launches)


def test_a_failed_program_is_a_crashed_task_with_its_reason(rig: DispatcherRig) -> None:
    id = submit(rig)
    executor, launch = rig.launch(id)
    executor.end(launch.id, exit=3, reason="the program ended with exit code 3")
    rig.end(id, State.FAILED)
    assert (result(rig, id)["status"], result(rig, id)["error"]) == (
        "crashed",
        "the program ended with exit code 3",
    )


def test_a_lost_program_starts_again(rig: DispatcherRig) -> None:
    id = submit(rig)
    executor, launch = rig.launch(id)
    executor.see(LaunchStatus(id=launch.id, phase=Phase.ENDED, reason="its node failed"))
    rig.until(lambda: launch.id not in rig.active_launches)
    executor, second = rig.launch(id)
    executor.end(second.id)
    rig.end(id)
    assert (result(rig, id)["status"], rig.platform.submissions.simulations.get(LOCAL_CALLER, id).attempt) == ("ok", 2)


def test_a_dispatcher_that_dies_between_lease_and_report_costs_one_lease_ttl(rig: DispatcherRig) -> None:
    id = submit(rig)
    executor, launch = rig.launch(id)
    leases = rig.platform.scheduling.leases
    identity = leases.unattended(launch.id)
    assert identity is not None
    leases.lease(identity, "dispatch", None)
    executor.end(launch.id)
    rig.end(id)
    assert result(rig, id)["status"] == "ok"


@pytest.mark.parametrize("gang", [TRAINER_GANG, {"size": 2, "command": ["train"], "image": "site/train:1"}])
def test_more_than_one_task_is_refused_because_the_command_runs_once(rig: DispatcherRig, gang: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="runs its command once"):
        submit(rig, gang=gang, scenarios={"range": [0, 2]})
