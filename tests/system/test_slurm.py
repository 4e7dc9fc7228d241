"""A platform that runs simulations on a real Slurm."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.slurm import Slurm
from tests.slurm import own_slurm as own_slurm  # pytest finds a fixture by its name in this module
from tests.system.conftest import StartPlatform
from tests.system.platform_process import PlatformProcess
from tests.waiting import until

STREETS: dict[str, Any] = {"dataset": "car_street", "model": "idm", "runtime": "python"}


@pytest.fixture
def platform(start_platform: StartPlatform, own_slurm: Slurm, tmp_path: Path) -> PlatformProcess:
    executor = {"name": "hpc", "kind": "slurm", "workers": 2, "options": {"conf": str(own_slurm.conf), "patience": 5}}
    (tmp_path / "executors.json").write_text(json.dumps({"executors": [executor]}))
    return start_platform(executors=tmp_path / "executors.json")


@pytest.mark.parametrize(("number", "attempts"), [(signal.SIGTERM, {1}), (signal.SIGKILL, {1, 2})])
def test_a_simulation_runs_on_slurm_while_its_controller_is_restarted(
    platform: PlatformProcess, own_slurm: Slurm, number: int, attempts: set[int]
) -> None:
    def hpc() -> dict[str, Any]:
        (executor,) = platform.get_until_answered("/v1/executors").json()["items"]
        return dict(executor)

    id = platform.submit(**STREETS, scenarios={"sample": 40, "seed": 4})["id"]
    until(lambda: platform.get(id)["state"] == "running", 120)
    own_slurm.stop("slurmctld", sign=number)
    until(lambda: hpc()["healthy"] is False, 120, "the dispatcher does not detect that the controller is down")
    own_slurm.start("slurmctld")
    ended = platform.wait_for_end(id, 240)
    assert ended["state"] == "succeeded", platform.output()
    assert len(platform.results(id)) == 40
    until(lambda: own_slurm.ask("squeue", "--noheader", "--states=RUNNING,PENDING,COMPLETING") == "")
    # slurmctld saves its state with a delay of a few seconds: after SIGKILL it may not know the job.
    assert ended["attempt"] in attempts, platform.output()
