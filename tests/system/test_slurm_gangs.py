"""Gangs on a real Slurm of two nodes: what differs from other places (test_gang_contract.py)."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm import Slurm, slurm_alone
from tests.system.gang_programs import HALVES, MPI, SUM
from tests.system.platform_process import PlatformProcess
from tests.waiting import until

PACKAGED_SUM = (
    b"""
# /// script
# dependencies = ["mpich", "mpi4py"]
# ///
"""
    + SUM
)

NETWORK = b"""
import json, os, socket
addresses = sorted({line.split()[0] for line in open("/etc/hosts")})
def reaches(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False
print(json.dumps({"addresses": " ".join(addresses), "reaches": reaches(%d)}))
"""


@pytest.fixture(scope="module")
def slurm_of_two() -> Iterator[Slurm]:
    with slurm_alone(nodes=2) as slurm:
        yield slurm


def _platform(slurm: Slurm, folder: Path, **options: Any) -> PlatformProcess:
    executor = {"name": "hpc", "kind": "slurm", "workers": 4, "options": {"conf": str(slurm.conf), **options}}
    (folder / "executors.json").write_text(json.dumps({"executors": [executor]}))
    return PlatformProcess(folder / "home", settings={"EXECUTORS": str(folder / "executors.json")}).start()


@pytest.fixture(scope="module")
def platform(slurm_of_two: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    """A platform whose executor lets gangs have several nodes."""
    platform = _platform(slurm_of_two, tmp_path_factory.mktemp("slurm"), gang_network=True)
    yield platform
    platform.stop()


def _submit(platform: PlatformProcess, program: bytes, gang: dict[str, Any], **fields: Any) -> str:
    fields = {"scenarios": {"range": [0, 1]}, **fields}
    sent = platform.submit(model=program, filename="model.py", dataset="program", gang=gang, **fields)
    return str(sent["id"])


def _run(platform: PlatformProcess, program: bytes, gang: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """Return the results of a program's simulation."""
    id = _submit(platform, program, gang, **fields)
    platform.wait_for_end(id, 240)
    return platform.results(id)


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


def _processes(text: str) -> list[int]:
    """Return the processes in whose command line a text occurs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in path.read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_the_ranks_of_a_program_are_on_all_nodes_and_leave_their_files(platform: PlatformProcess) -> None:
    gang = {"size": 2, "slots": 2, "communication": "mpi", "command": MPI}
    results = _run(platform, PACKAGED_SUM, gang, scenarios={"range": [0, 3]})
    assert [result["metrics"] for result in results] == [{"total": 6 + 4 * index, "ranks": 4} for index in range(3)], (
        results
    )
    for result in results:
        assert [artifact["name"] for artifact in result["artifacts"]] == [f"rank-{rank}.txt" for rank in range(4)]
        hosts = [rank["host"] for rank in result["timing"]["ranks"]]
        assert hosts[0] == hosts[1] != hosts[2] == hosts[3]
        assert all(rank["computing"] > 0 and rank["sent"] is not None for rank in result["timing"]["ranks"])


def test_a_gang_whose_node_is_lost_goes_on_from_its_checkpoint(platform: PlatformProcess) -> None:
    gang = {"size": 2, "slots": 2, "communication": "mpi", "command": [*MPI, "half"]}
    id = _submit(platform, HALVES, gang)
    until(lambda: "waits to be lost" in platform.http.get(f"/v1/simulations/{id}/logs").text, 120)
    [*_, node] = [pid for pid in _processes("runtimes.harness.gang.gang_node") if _name(pid).startswith("python")]
    os.kill(node, signal.SIGKILL)
    platform.wait_for_end(id, 240)
    [result] = platform.results(id)
    assert (result["status"], result["metrics"]) == ("ok", {"total": 24}), result
    until(lambda: not _processes("model.py half"))


def test_a_job_step_that_is_killed_is_a_loss(platform: PlatformProcess) -> None:
    id = _submit(platform, HALVES, {"size": 2, "slots": 2, "communication": "mpi", "command": [*MPI, "step"]})
    until(lambda: "waits to be lost" in platform.http.get(f"/v1/simulations/{id}/logs").text, 120)
    [step] = [
        pid for pid in _processes("runtimes.harness.gang.gang_node") if _name(pid).startswith("srun") and _is_first(pid)
    ]
    os.kill(step, signal.SIGKILL)
    platform.wait_for_end(id, 240)
    [result] = platform.results(id)
    assert (result["status"], result["metrics"]) == ("ok", {"total": 24}), result
    until(lambda: not _processes("model.py step"))


def _is_first(pid: int) -> bool:
    """Whether a process of srun is not the one that it has forked."""
    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    return not _name(int(parent)).startswith("srun")


def test_a_packaged_simulator_has_all_ranks_on_one_node(platform: PlatformProcess) -> None:
    sent = platform.http.post("/v1/simulations", json={"dataset": "lammps_melt", "scenarios": {"range": [0, 1]}})
    assert sent.status_code == 201, sent.text
    platform.wait_for_end(sent.json()["id"], 600)
    [result] = platform.results(sent.json()["id"])
    assert result["status"] == "ok" and result["timing"]["ranks"][1]["computing"] > 0, result.get("error")


def test_a_gang_of_one_node_has_a_network_of_its_own_and_one_of_several_has_to_be_allowed(
    slurm_of_two: Slurm, tmp_path: Path
) -> None:
    platform = _platform(slurm_of_two, tmp_path)
    try:
        program = NETWORK % platform.runner_api_port
        [result] = _run(platform, program, {"size": 1, "command": ["python", "model.py"]})
        assert result["metrics"] == {"addresses": "127.0.0.1 ::1", "reaches": False}, result
        fields = {"dataset": "program", "scenarios": {"range": [0, 1]}}
        gang = json.dumps({"size": 2, "command": ["python", "model.py"]})
        refused = platform.http.post(
            "/v1/simulations",
            data={"dataset": "program", "scenarios": json.dumps(fields["scenarios"]), "gang": gang},
            files={"model": ("model.py", b"print()")},
        )
        assert (
            refused.status_code == 422
            and "`hpc`: a gang has one node there; the executor's option `gang_network`" in refused.json()["detail"]
        )
    finally:
        platform.stop()
