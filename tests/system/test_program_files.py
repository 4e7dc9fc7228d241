"""Files of programs: outputs become artifacts by digest, and a gang that is lost goes on from its newest checkpoint."""

import hashlib
import io
import zipfile
from typing import Any

from tests.system.platform_process import PlatformProcess
from tests.waiting import until

OUTPUTS = """
import json, os, pathlib
index = json.load(open(os.environ["WINDTUNNEL_SCENARIO"]))["index"]
folder = pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"])
(folder / "fields").mkdir()
(folder / "fields" / "small.txt").write_text(f"field of {index}")
if index == 1:
    (folder / "large.bin").write_bytes(bytes(range(256)) * (20 << 12))
print(json.dumps({"index": index}))
"""

CHECKPOINTED = """
import json, os, pathlib, signal, time
rank = int(os.environ["WINDTUNNEL_GANG_INDEX"])
checkpoints = pathlib.Path(os.environ["WINDTUNNEL_CHECKPOINT"])
restored = pathlib.Path(os.environ.get("WINDTUNNEL_RESTORE", "/nowhere"), str(rank))
newest = max((int(entry.name) for entry in restored.glob("*")), default=0)
total = int((restored / str(newest) / "total").read_text()) if newest else 0
for step in range(newest + 1, 9):
    total += step * (rank + 1)
    draft = checkpoints / ".draft"
    draft.mkdir()
    (draft / "total").write_text(str(total))
    (draft / "large").write_bytes(bytes(3 << 20))
    draft.rename(checkpoints / str(step))
    if step == 5 and not newest:
        while (checkpoints / "4").exists():  # it is taken away once it is passed on
            time.sleep(0.05)
        time.sleep(600 if rank != 1 else os.kill(os.getpid(), signal.SIGKILL) or 0)
if rank == 0:
    print(json.dumps({"total": total, "from": newest}))
"""


def run(platform: PlatformProcess, program: str, **gang: Any) -> tuple[str, list[dict[str, Any]]]:
    """Run a program; return the id of its simulation and its results."""
    command = {"command": ["python", "model.py"], **gang}
    fields = {"dataset": "program", "scenarios": {"range": [0, gang.pop("tasks", 1)]}, "gang": command}
    command.pop("tasks", None)
    ended = platform.run(model=program.encode(), filename="own.py", **fields)
    return ended["id"], platform.results(ended["id"])


def test_files_in_the_output_folder_become_artifacts_by_digest(platform: PlatformProcess) -> None:
    id, results = run(platform, OUTPUTS, size=1, tasks=2)
    assert [result["status"] for result in results] == ["ok", "ok"], results
    artifacts = [{item["name"]: item for item in result["artifacts"]} for result in results]
    assert [sorted(found) for found in artifacts] == [["fields/small.txt"], ["fields/small.txt", "large.bin"]]
    for task, name in ((0, "fields/small.txt"), (1, "fields/small.txt"), (1, "large.bin")):
        content = platform.get_until_answered(f"/v1/simulations/{id}/artifacts/{task}/{name}").content
        assert artifacts[task][name]["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert artifacts[task][name]["bytes"] == len(content)


def test_a_gang_that_is_lost_goes_on_from_its_newest_checkpoint(platform: PlatformProcess) -> None:
    _, [result] = run(platform, CHECKPOINTED, size=3)
    assert result["status"] == "ok", result["error"]
    assert result["metrics"] == {"total": sum(range(9)), "from": result["metrics"]["from"]}
    assert result["metrics"]["from"] in {4, 5}
    assert not list(platform.home.glob("objects/checkpoints/**/*-*"))


EMPTY = """
import json, os, pathlib, signal, time
rank = os.environ["WINDTUNNEL_GANG_INDEX"]
checkpoints = pathlib.Path(os.environ["WINDTUNNEL_CHECKPOINT"])
restored = pathlib.Path(os.environ.get("WINDTUNNEL_RESTORE", "/nowhere"))
def save(name, draft):
    draft.rename(checkpoints / name)
    while (checkpoints / name).exists():
        time.sleep(0.01)
    time.sleep(1.0)  # until it is stored
if not restored.exists():
    (checkpoints / ".draft").mkdir()
    if rank == "0":
        (checkpoints / ".draft" / "state").write_text("of rank 0")
    save("1", checkpoints / ".draft")
    (checkpoints / ".draft").mkdir()
    save("2", checkpoints / ".draft")
    os.kill(os.getpid(), signal.SIGKILL)
if rank == "0":
    print(json.dumps({"found": " ".join(sorted(str(path.relative_to(restored)) for path in restored.rglob("*")))}))
"""


def test_a_checkpoint_without_files_is_not_kept_and_one_of_some_ranks_is(platform: PlatformProcess) -> None:
    _, [result] = run(platform, EMPTY, size=2)
    assert (result["status"], result["metrics"]) == ("ok", {"found": "0 0/1 0/1/state"}), result


def test_a_program_that_is_started_once_takes_the_tasks_of_its_launch(platform: PlatformProcess) -> None:
    program = """
from mpi4py import MPI
from windtunnel_program import tasks
world = MPI.COMM_WORLD
for turn, task in enumerate(tasks()):
    task.finish(total=world.allreduce(task.params["weight"] * (world.rank + 1)), turn=turn)
"""
    command = ["python", "-m", "mpi4py", "model.py"]
    gang = {"size": 2, "communication": "mpi", "command": command, "start": "launch"}
    fields = {"dataset": "program", "sweep": {"weight": list(range(100))}, "scenarios": {"range": [0, 1]}, "gang": gang}
    ended = platform.run(model=program.encode(), filename="resident.py", **fields)
    results = platform.results(ended["id"])
    assert [(result["status"], result["metrics"]["total"]) for result in results] == [("ok", 3 * n) for n in range(100)]
    assert max(result["metrics"]["turn"] for result in results) > 50
    assert ended["provenance"]["play"]["start"] == "launch"


RESIDENT = """
import json, os, pathlib, signal, time
from windtunnel_program import tasks
checkpoints = pathlib.Path(os.environ["WINDTUNNEL_CHECKPOINT"])
for task in tasks():
    began = total = 0
    assert task.restore == os.environ.get("WINDTUNNEL_RESTORE")
    for saved in pathlib.Path(task.restore or "/nowhere", "0").glob("*"):
        began, total = json.loads(saved.read_text())
    for step in range(began + 1, 21):
        total += task.params["weight"] * step
        if step == 10:
            (checkpoints / ".new").write_text(json.dumps([step, total]))
            (checkpoints / ".new").rename(checkpoints / "10")
            while (checkpoints / "10").exists():
                time.sleep(0.01)
        if step == 15 and task.params["weight"] == 2 and not began:
            time.sleep(1.0)
            os.kill(os.getpid(), signal.SIGKILL)
    if task.params["weight"] == 4:
        continue
    task.finish(total=total, began=began)
"""


def test_a_resident_program_has_the_checkpoint_of_the_task_that_was_lost_and_of_no_other(
    platform: PlatformProcess,
) -> None:
    gang = {"size": 1, "command": ["python", "model.py"], "start": "launch"}
    fields = {"dataset": "program", "sweep": {"weight": [1, 2, 3, 4]}, "scenarios": {"range": [0, 1]}, "gang": gang}
    ended = platform.run(model=RESIDENT.encode(), filename="resident.py", **fields)
    results = platform.results(ended["id"])
    assert [result["metrics"] for result in results[:3]] == [
        {"total": 210 * weight, "began": 10 if weight == 2 else 0} for weight in (1, 2, 3)
    ], results
    assert results[3]["status"] == "invalid" and "went on without a result of the task" in results[3]["error"]


SOLVER = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, ranks, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("{\\"sum\\": %d, \\"ranks\\": %d}\\n", sum, ranks);
    MPI_Finalize();
    return 0;
}
"""


def archive(**files: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for name, text in files.items():
            packed.writestr(name.replace("__", "."), text)
    return content.getvalue()


def run_solver(platform: PlatformProcess, source: str, tasks: int = 1) -> dict[str, Any]:
    build = ["mpicc", "-O2", "solver.c", "-o", "solver"]
    gang = {"size": 3, "communication": "mpi", "build": build, "command": ["./solver"]}
    fields = {"dataset": "program", "scenarios": {"range": [0, tasks]}, "gang": gang}
    return platform.run(model=archive(solver__c=source), filename="solver.zip", **fields)


def test_a_program_in_c_is_compiled_once_and_runs_on_all_ranks(platform: PlatformProcess) -> None:
    of_others = set((platform.home / "builds").glob("[!.]*"))  # one platform serves the tests of a session
    ended = run_solver(platform, SOLVER, tasks=3)
    assert ended["state"] == "succeeded", ended["reason"]
    results = platform.results(ended["id"])
    assert [(result["status"], result["metrics"]) for result in results] == [("ok", {"sum": 3, "ranks": 3})] * 3
    [built] = set((platform.home / "builds").glob("[!.]*")) - of_others
    made = (built / "solver").stat().st_mtime_ns
    again = run_solver(platform, SOLVER)
    assert platform.results(again["id"])[0]["status"] == "ok"
    assert (built / "solver").stat().st_mtime_ns == made


def test_the_words_of_the_compiler_are_the_reason_where_it_refuses(platform: PlatformProcess) -> None:
    ended = run_solver(platform, SOLVER.replace("int rank, ranks, sum;", "int rank, ranks;"))
    assert ended["state"] == "failed"
    assert "'sum' undeclared" in ended["reason"] or "‘sum’ undeclared" in ended["reason"], ended["reason"]


ODD = r"""
import json, os, pathlib
index = json.load(open(os.environ["WINDTUNNEL_SCENARIO"]))["index"]
kind = ["surrogate", "folder", "huge", "unreadable", "plain", "latin", "replaced"][index]
output = pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"])
if kind == "folder":
    os.mkdir(os.environ["WINDTUNNEL_RESULT"])
if kind == "replaced":
    output.rmdir()
    output.write_text("a file")
if kind == "unreadable":
    (output / "field").write_text("")
    (output / "field").chmod(0)
if kind == "latin":
    pathlib.Path(os.environ["WINDTUNNEL_RESULT"]).write_bytes(b'{"a": "\xe9"}')
print({"surrogate": r'{"a": "\ud800"}', "huge": '{"a": 1e300, "b": 1%s}' % ("0" * 400)}.get(kind, '{"a": 1}'))
"""


def test_a_program_with_an_odd_result_loses_its_own_and_no_other(platform: PlatformProcess) -> None:
    _, results = run(platform, ODD, size=1, tasks=7)
    expected = ["invalid", "invalid", "invalid", "invalid", "ok", "invalid", "invalid"]
    assert [result["status"] for result in results] == expected, results
    assert results[5]["error"].endswith("it is not UTF-8")
    assert results[2]["error"].endswith("b is Infinity"), "a number that no statistics can have"
    assert "field cannot be read: Permission denied" in results[3]["error"]


ANSWERS = """
import json, os, socket
rank = os.environ["WINDTUNNEL_RANK"]
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(os.environ["WINDTUNNEL_TASKS"])
    connection.sendall(rank.encode() + b"\\n")
    for line in connection.makefile("rb"):
        index = json.loads(line)["index"]
        if rank == "0" and index == 5:
            break
        answer = [b"not json", b"[1]", b'{"a": 1}', b'{"a": "%s"}' % (b"x" * 70_000), b'{"a": 4}', b"{}"][index]
        connection.sendall(answer + b"\\n")
"""


def test_a_resident_program_whose_first_rank_answers_wrongly_or_leaves_is_told_why(platform: PlatformProcess) -> None:
    _, results = run(platform, ANSWERS, size=2, start="launch", tasks=6)
    assert [result["status"] for result in results] == ["invalid", "invalid", "ok", "invalid", "ok", "crashed"], results
    assert "more than 65,536 characters" in results[3]["error"]
    assert results[5]["error"] == "rank 0 ended without an answer to its task, and other ranks did not"


WAITS = """
import json, os, pathlib, time
task = json.load(open(os.environ["WINDTUNNEL_SCENARIO"]))
if task["index"] == 1:
    time.sleep(600)
print(json.dumps({"index": task["index"]}))
"""


def test_a_result_is_there_while_the_next_task_runs(platform: PlatformProcess) -> None:
    gang = {"size": 1, "command": ["python", "model.py"]}
    fields = {"dataset": "program", "scenarios": {"range": [0, 2]}, "gang": gang}
    id = platform.submit(model=WAITS.encode(), filename="own.py", **fields)["id"]
    until(lambda: platform.get(id)["tasks"]["done"] == 1, 60)
    assert platform.http.post(f"/v1/simulations/{id}/cancel").status_code < 300
    platform.wait_for_end(id)
    assert [result["metrics"] for result in platform.results(id)] == [{"index": 0}]


def test_a_program_that_is_not_there_is_named_by_its_path_in_the_model(platform: PlatformProcess) -> None:
    _, [result] = run(platform, "pass", size=1, command=["python", "sover/main.py"])
    assert result["status"] == "crashed" and "can't open file 'sover/main.py'" in result["error"], result["error"]
    _, [result] = run(platform, "pass", size=1, command=["/opt/solver/bin/sover"])
    assert "the program sover cannot be started: No such file or directory" in result["error"], result["error"]
    _, [result] = run(platform, "pass", size=1, command=["./sover"])
    assert "No such file or directory; its folder has model, model.py" in result["error"], result["error"]
