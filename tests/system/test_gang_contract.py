"""What a gang gets wherever it runs: results by rank, faults and losses told apart, outputs, builds, further tasks."""

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from datasets.versions.archives.tar_writer import MeasuredTar
from tests.archives import zipped
from tests.system.gang_places import PATIENCE, GangPlace, PodsPlace, place, waits
from tests.system.gang_programs import HALVES, MPI, SUM
from tests.waiting import until

TWO = {"size": 2, "slots": 2, "communication": "mpi", "command": MPI}

RESIDENT = b"""
import os
from mpi4py import MPI
from windtunnel_program import tasks
world = MPI.COMM_WORLD
starts = 0
for task in tasks():
    starts += 1
    task.finish(total=world.allreduce(task.index * (world.rank + 1)), taken=starts)
"""

MEETING = b"""
import json, os, socket
size, index = (int(os.environ["WINDTUNNEL_GANG_" + name]) for name in ("SIZE", "INDEX"))
first, port = os.environ["WINDTUNNEL_GANG_FIRST"], int(os.environ["WINDTUNNEL_GANG_LEADER"].rpartition(":")[2]) + 7
if index == 0:
    connection, _ = socket.create_server(("", port)).accept()
    print(json.dumps({"heard": connection.makefile().readline().strip()}))
else:
    while True:
        try:
            connection = socket.create_connection((first, port))
            break
        except ConnectionRefusedError:
            pass
    connection.sendall(socket.gethostname()[-3:].encode() + b"\\n")
"""


READING = b"""
import json, os, pathlib
folder = pathlib.Path(os.environ["WINDTUNNEL_DATASET"])
names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
try:
    (folder / "new").write_text("x")
    written = True
except OSError:
    written = False
if os.environ["WINDTUNNEL_RANK"] == "1":
    pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"], "read.txt").write_text((folder / "a" / "field.txt").read_text())
print(json.dumps({"names": " ".join(names), "written": written}))
"""

# The ranks go on until a file in their working directory, which a rank makes itself a while later.
WATCHED = b"""
import json, os, pathlib, time
index, output = os.environ["WINDTUNNEL_GANG_INDEX"], pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"])
began, step = time.monotonic(), 0
while time.monotonic() < began + 12:
    print(f"replica {index} step {step}", flush=True)
    with open(output / f"residuals-{index}", "a") as residuals:
        residuals.write(f"{step}\\n")
    step += 1
    time.sleep(0.1)
print(json.dumps({"steps": step}))
"""


def _packed(folder: Path, files: Mapping[str, bytes]) -> bytes:
    """Return packages as a runner downloads them."""
    for name, content in files.items():
        path = folder / "packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755)
    return b"".join(MeasuredTar(folder / "packages"))


@pytest.fixture(scope="module", params=["local", "slurm", "pods"])
def gangs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangPlace]:
    with place(request.param, tmp_path_factory.mktemp(request.param)) as opened:
        yield opened


def test_every_rank_has_its_part_and_leaves_its_files(gangs: GangPlace) -> None:
    with gangs.start(SUM, TWO, tasks=2) as gang:
        results = gang.results()
    assert [result["metrics"] for result in results] == [{"total": 6 + 4 * index, "ranks": 4} for index in range(2)], (
        results
    )
    for result in results:
        assert [artifact["name"] for artifact in result["artifacts"]] == [f"rank-{rank}.txt" for rank in range(4)]
        ranks = result["timing"]["ranks"]
        assert len(ranks) == 4 and all(rank["host"] and rank["computing"] > 0 for rank in ranks)
        assert all(rank["waiting"] is not None and rank["sent"] is not None for rank in ranks), ranks


@pytest.mark.parametrize("fault", ["SIGSEGV", "SIGFPE"])
def test_a_fault_names_the_rank_the_signal_and_the_last_lines(gangs: GangPlace, fault: str) -> None:
    with gangs.start(SUM, TWO, params={"fault": fault}) as gang:
        [result] = gang.results()
    assert result["status"] == "crashed", result
    assert f"rank 3 was ended by {fault}" in result["error"] and "the mesh is too coarse" in result["error"]


def test_a_rank_that_is_killed_is_a_loss_and_its_task_goes_on_from_the_checkpoint(gangs: GangPlace) -> None:
    command = [*MPI, "killed"]
    with gangs.start(HALVES, {**TWO, "command": command}) as gang:
        waits(gang, "waits to be lost")
        os.kill(gang.ranks("model.py killed")[-1], signal.SIGKILL)
        [result] = gang.results()
    assert (result["status"], result["metrics"]) == ("ok", {"total": 24}), result
    until(lambda: not gang.ranks("model.py killed"))


def test_a_rank_that_is_killed_each_time_is_crashed_at_the_third_strike(gangs: GangPlace) -> None:
    with gangs.start(SUM, TWO, params={"fault": "SIGKILL"}) as gang:
        [result] = gang.results()
    assert result["status"] == "crashed" and "rank 3 was killed by SIGKILL" in result["error"], result


def test_a_program_that_is_started_once_takes_one_task_after_the_other(gangs: GangPlace) -> None:
    with gangs.start(RESIDENT, {**TWO, "start": "launch"}, tasks=3) as gang:
        results = gang.results()
    assert [result["metrics"] for result in results] == [{"total": 10 * n, "taken": n + 1} for n in range(3)], results
    assert all(len(result["timing"]["ranks"]) == 4 for result in results)


def test_a_build_is_made_once_and_all_ranks_have_what_it_makes(gangs: GangPlace) -> None:
    build = "import pathlib; pathlib.Path('made').mkdir(); f = pathlib.Path('made/run'); "
    build += "f.write_text('#!/bin/sh\\necho {\\\\\"made\\\\\": 1}\\n'); f.chmod(0o755)"
    build += "; import time; time.sleep(1.5)"  # until what is printed is looked for
    source = zipped({"build.py": build.encode()})
    gang_options = {"size": 2, "build": ["python", "build.py"], "command": ["./made/run"]}
    with gangs.start(source, gang_options, tasks=2) as gang:
        results = gang.results()
    assert [result["metrics"] for result in results] == [{"made": 1}] * 2, results


def test_replicas_without_a_launcher_find_each_other_by_name(gangs: GangPlace) -> None:
    with gangs.start(MEETING, {"size": 2, "command": ["python", "model.py"]}) as gang:
        [result] = gang.results()
    assert result["status"] == "ok" and len(result["metrics"]["heard"]) == 3, result


def test_every_rank_reads_the_files_of_the_dataset_and_none_changes_them(gangs: GangPlace) -> None:
    data = {"a/field.txt": b"0.5", "b.txt": b""}
    with gangs.start(READING, {"size": 2, "command": ["python", "model.py"]}, data=data) as gang:
        [result] = gang.results()
    assert result["metrics"] == {"names": "a/field.txt b.txt", "written": False}, result
    assert [(file["name"], file["bytes"]) for file in result["artifacts"]] == [("read.txt", 3)], result


def test_a_task_is_looked_into_while_it_runs_and_ends_as_it_would(gangs: GangPlace) -> None:
    with gangs.start(WATCHED, {"size": 2, "command": ["python", "model.py"]}) as gang:
        until(lambda: gang.names(""), PATIENCE)
        places = [""] if "output" in gang.names("") else ["node-0/", "node-1/"]
        for place in places:
            assert {"output", "model", "checkpoints", "logs"} <= gang.names(place.rstrip("/"))
            assert "model.py" in gang.names(f"{place}model")
        written = {"residuals-0", "residuals-1"}
        until(lambda: gang.names(f"{places[0]}output") | gang.names(f"{places[-1]}output") == written)
        until(lambda: "1" in gang.names(f"{places[-1]}logs"))
        residuals = gang.read(f"{places[-1]}output/residuals-1", wait=10)
        residuals += gang.read(f"{places[-1]}output/residuals-1", len(residuals), wait=10)
        assert residuals.startswith(b"0\n1\n")
        assert gang.read(f"{places[-1]}logs/1", wait=10).startswith(b"replica 1 step 0\n")
        [result] = gang.results()
    assert result["status"] == "ok" and result["metrics"]["steps"] > 20, result
    assert [artifact["name"] for artifact in result["artifacts"]] == ["residuals-0", "residuals-1"]


def test_a_program_in_a_pod_has_the_packages_that_its_model_declares(tmp_path: Path) -> None:
    program = b"import answers, json, subprocess; print(json.dumps({'answer': answers.ANSWER, "
    program += b"'said': subprocess.check_output(['say'], text=True).strip()}))"
    files = {"site/answers.py": b"ANSWER = 42", "site/bin/say": b"#!/bin/sh\necho packaged\n", "shared/empty.py": b""}
    with PodsPlace(tmp_path).start(
        program, {"size": 2, "command": ["python", "model.py"]}, environment=_packed(tmp_path, files)
    ) as gang:
        [result] = gang.results()
    assert result["metrics"] == {"answer": 42, "said": "packaged"}, result
