"""A whole platform whose simulations run on a real Slurm."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.slurm import Slurm
from tests.slurm import own_slurm as own_slurm  # a fixture is found by its name in here
from tests.system.conftest import StartPlatform
from tests.system.platform_process import PlatformProcess
from tests.waiting import until

STREETS: dict[str, Any] = {"dataset": "car_street", "model": "idm", "runtime": "python"}


@pytest.fixture
def platform(start_platform: StartPlatform, own_slurm: Slurm, tmp_path: Path) -> PlatformProcess:
    context = {"name": "hpc", "kind": "slurm", "workers": 2, "options": {"conf": str(own_slurm.conf), "patience": 5}}
    (tmp_path / "executors.json").write_text(json.dumps({"executors": [context]}))
    return start_platform(executors=tmp_path / "executors.json")


@pytest.mark.parametrize(("sign", "attempts"), [(signal.SIGTERM, {1}), (signal.SIGKILL, {1, 2})])
def test_a_simulation_runs_on_slurm_while_its_controller_is_restarted(
    platform: PlatformProcess, own_slurm: Slurm, sign: int, attempts: set[int]
) -> None:
    def hpc() -> dict[str, Any]:
        (executor,) = platform.get_until_answered("/v1/executors").json()["items"]
        return dict(executor)

    id = platform.submit(**STREETS, scenarios={"sample": 40, "seed": 4})["id"]
    until(lambda: platform.get(id)["state"] == "running", 120)
    own_slurm.stop("slurmctld", sign=sign)
    until(lambda: hpc()["healthy"] is False, 120, "the dispatcher does not notice that the controller is away")
    own_slurm.start("slurmctld")
    ended = platform.wait_for_end(id, 240)
    assert ended["state"] == "succeeded", platform.output()
    assert len(platform.results(id)) == 40
    until(lambda: own_slurm.ask("squeue", "--noheader", "--states=RUNNING,PENDING,COMPLETING") == "")
    # slurmctld writes its state down a few seconds late: one that is killed may have forgotten the job.
    assert ended["attempt"] in attempts, platform.output()
