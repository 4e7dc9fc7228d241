"""Gangs on this machine: ranks in one sandbox for each task, what each end of them means, and what is left: nothing."""

import contextlib
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from core.domain.scheduling.launches import Gang, Launch, Placement
from runtimes.harness import sandbox
from runtimes.harness.evaluator.result_batch import Played, TaskOutput
from runtimes.harness.gang.delivered_files import Delivery
from runtimes.harness.gang.gang_runner import GangStopped
from runtimes.harness.gang.gang_transport import ReplicaLost
from runtimes.harness.gang.local_gang import LocalGang
from runtimes.harness.gang.task_storage import TaskStorage
from tests.archives import tar, zipped
from tests.document_commands import ROOT, blocks
from tests.system.platform_process import PlatformProcess
from tests.unit.launch_samples import launch
from tests.waiting import until
from workers import local_gangs
from workers.warm_runners import PreparedFolders

PATIENCE = 60.0
MIB = 1 << 20

MPI = """
# /// script
# dependencies = ["mpich", "mpi4py"]
# ///
import json, os
from mpi4py import MPI
world = MPI.COMM_WORLD
index = json.load(open(os.environ["WINDTUNNEL_SCENARIO"]))["index"]
total = world.allreduce(world.rank + index)
if world.rank == 0:
    print("computed")
    print(json.dumps({"total": total, "ranks": world.size}))
"""

MEETING = """
import json, os, socket
size, index = (int(os.environ["WINDTUNNEL_GANG_" + name]) for name in ("SIZE", "INDEX"))
if index == 0:
    listener = socket.create_server((os.environ["WINDTUNNEL_GANG_FIRST"], 29500), backlog=size)
    numbers = []
    for _ in range(size - 1):
        connection, _ = listener.accept()
        numbers.append(int(connection.makefile().readline()))
    json.dump({"sum": sum(numbers), "host": socket.gethostname()}, open(os.environ["WINDTUNNEL_RESULT"], "w"))
else:
    while True:
        try:
            connection = socket.create_connection((os.environ["WINDTUNNEL_GANG_FIRST"], 29500))
            break
        except ConnectionRefusedError:
            pass
    connection.sendall(b"%d\\n" % index)
    connection.close()
"""

FIRST_WAITS = """
import os, time
if os.environ["WINDTUNNEL_GANG_INDEX"] == "0":
    time.sleep(600)
"""


class KeptHere:
    """The storage of a task, without a platform: outputs are kept as text."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    has_checkpoint = False

    def restore(self, folder: str) -> bool:
        return False

    def keep(self, delivery: Delivery) -> None:
        delivery.close()

    def tell_progress(self, fraction: float) -> None:
        pass

    def close(self) -> None:
        pass

    def outputs(self, delivery: Delivery) -> list[TaskOutput]:
        self.texts = {file.path: b"".join(file.chunks()).decode() for file in delivery.files}
        delivery.close()
        return []


class GangHere:
    """Makes gangs of a program on this machine."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._level = sandbox.level().number
        monkeypatch.setattr(local_gangs, "gang_packages", lambda *_: [])  # the standard library is enough here
        self.agent, self._control = socket.socketpair()
        self.storage = KeptHere()
        self._made: list[LocalGang] = []
        self._name = secrets.token_hex(8)

    def gang(
        self, program: str, size: int = 2, memory: int = 512 * MIB, *, shown: bool = False, **changes: Any
    ) -> LocalGang:
        """Return a gang of a Python program; ``shown``: people may look into its tasks."""
        model = self._folder / "program"
        model.write_text(program)
        self._folder.chmod(0o755)
        model.chmod(0o644)
        gang = Gang(size=size, command=("python", "model.py", self._name))
        placement = Placement(memory=memory // size)
        given: Launch = launch(gang=gang, format="python", runtime="python", placement=placement)
        folders = PreparedFolders.below(self._folder, self._folder)
        options = local_gangs.local_gang_spec(given, folders, self._level, model)
        assert options is not None
        folder = self._folder / "launch"
        folder.mkdir(exist_ok=True)
        made = LocalGang(replace(options, **changes), str(model), self._control, str(folder), shown=shown)
        self._made.append(made)
        return made

    def run(self, program: str, *, patience: float = PATIENCE, **options: Any) -> Played:
        """Run one task of a program."""
        return self.play(self.gang(program, **options), 0, patience)

    def play(self, gang: LocalGang, index: int, patience: float = PATIENCE) -> Played:
        """Run a task of a gang."""
        storage = cast(TaskStorage, self.storage)
        return gang.run({"index": index, "params": {}}, patience, storage)

    def processes(self, text: str) -> list[int]:
        """Return the processes of these gangs in whose command line a text occurs."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                command = path.read_text(errors="replace")
                if text in command and self._name in command:
                    found.append(int(path.parent.name))
        return found

    def close(self) -> None:
        for gang in self._made:
            gang.close()
        self.agent.close()
        self._control.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GangHere]:
    gangs = GangHere(tmp_path, monkeypatch)
    yield gangs
    gangs.close()


def test_a_gang_runs_an_mpi_program_with_the_packages_that_it_declares(platform: PlatformProcess) -> None:
    gang = {"size": 2, "communication": "mpi", "command": ["python", "-m", "mpi4py", "model.py"]}
    fields = {"dataset": "program", "scenarios": {"range": [0, 4]}, "gang": gang}
    results = platform.results(platform.run(model=MPI.encode(), filename="ranks.py", **fields)["id"])
    assert [(result["status"], result["metrics"]) for result in results] == [
        ("ok", {"total": 1 + 2 * index, "ranks": 2}) for index in range(4)
    ]
    assert all(len(result["timing"]["ranks"]) == 2 for result in results)
    assert all(rank["computing"] > 0 for result in results for rank in result["timing"]["ranks"])


def test_an_mpi_program_that_declares_no_packages_has_an_mpi_and_its_ranks_are_measured(
    platform: PlatformProcess,
) -> None:
    program = """
import json, time
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
if world.rank == 0:
    world.Send(np.zeros(1 << 17), dest=1)
    world.barrier()
    print(json.dumps({"version": MPI.Get_library_version().split()[0]}))
else:
    received = np.empty(1 << 17)
    world.Recv(received, source=0)
    time.sleep(0.5)
    world.barrier()
    time.sleep(0.3)
world.Allreduce(np.zeros(4), np.zeros(4))
"""
    gang = {"size": 2, "communication": "mpi", "command": ["python", "-m", "mpi4py", "model.py"]}
    fields = {"dataset": "program", "scenarios": {"range": [0, 1]}, "gang": gang}
    ended = platform.run(model=program.encode(), filename="plain.py", **fields)
    [result] = platform.results(ended["id"])
    assert (result["status"], result["metrics"]) == ("ok", {"version": "MPICH"}), result
    first, second = result["timing"]["ranks"]
    assert first["sent"] >= 1 << 20 > second["sent"]
    assert first["waiting"] >= 0.7  # at the barrier and in the sum, for the other, which sleeps
    assert 0.2 <= first["all_reduce"] <= first["waiting"] - 0.4 and second["all_reduce"] <= second["waiting"]
    assert ended["provenance"]["communication"]["name"] == "mpi"


def test_a_build_removes_what_one_has_left_that_was_killed(here: GangHere, tmp_path: Path) -> None:
    left = tmp_path / "builds" / ".draft-left"
    left.mkdir(parents=True)
    (left / "half").write_text("of a program")
    made = "import json; print(json.dumps({'made': open('made').read()}))"
    gang = here.gang(made, size=1, build=["python", "-c", "open('made', 'w').write('whole')"])
    gang.build(str(tmp_path / "builds"), "sha256:of the model")
    played = here.play(gang, 0)
    assert (played.status, played.metrics) == ("ok", {"made": "whole"}), played.error
    assert not left.exists()


SCRIPT = b"#!/bin/sh\necho '{\"answer\": 42}' > written && cat written\n"


@pytest.mark.parametrize(
    ("program", "command"),
    [
        pytest.param(Path("/bin/echo").read_bytes(), ["./model", '{"answer": 42}'], id="program for Linux"),
        pytest.param(SCRIPT, ["./model"], id="script"),
        pytest.param(zipped({"Makefile": b"all:\n", "source/answer.sh": SCRIPT}), ["sh", "source/answer.sh"], id="zip"),
        pytest.param(tar({"parts/answer.sh": SCRIPT, "notes": b"x"}), ["./parts/answer.sh"], id="tar"),
    ],
)
def test_a_gang_runs_any_file_or_archive_in_a_folder_that_it_may_write_to(
    platform: PlatformProcess, program: bytes, command: list[str]
) -> None:
    fields = {"dataset": "program", "scenarios": {"range": [0, 1]}, "gang": {"size": 2, "command": command}}
    [result] = platform.results(platform.run(model=program, filename="answer", **fields)["id"])
    assert (result["status"], result["metrics"]) == ("ok", {"answer": 42}), result


def test_an_mpi_program_has_the_halo_package_without_declaring_it(platform: PlatformProcess) -> None:
    page = blocks((ROOT / "docs/gangs.md").read_text())
    [program] = [block.text for block in page if block.note == "life.py"]
    gang = {"size": 2, "communication": "mpi", "command": ["python", "-m", "mpi4py", "model.py"]}
    fields = {"dataset": "program", "scenarios": {"range": [0, 1]}, "gang": gang}
    [result] = platform.results(platform.run(model=program.encode(), filename="life.py", **fields)["id"])
    assert (result["status"], result["metrics"]) == ("ok", {"alive": 5, "row": 25, "ranks": 2}), result
    assert all(rank["sent"] > 100 * 52 for rank in result["timing"]["ranks"])  # a row of each generation at least


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("raise ValueError('the mesh is too coarse')", "ValueError: the mesh is too coarse"),
        ("print('given up', flush=True); world.Abort(3)", "given up"),
        ("__import__('os')._exit(0)", "rank 1 ended with status 0 without finishing MPI"),
    ],
    ids=["exception", "abort", "early end"],
)
def test_a_rank_that_ends_all_others_says_why(platform: PlatformProcess, ending: str, words: str) -> None:
    program = f"from mpi4py import MPI\nworld = MPI.COMM_WORLD\nif world.rank == 1:\n    {ending}\nworld.barrier()\n"
    gang = {"size": 3, "communication": "mpi", "command": ["python", "-m", "mpi4py", "model.py"]}
    fields = {"dataset": "program", "scenarios": {"range": [0, 1]}, "gang": gang}
    [result] = platform.results(platform.run(model=program.encode(), filename="aborts.py", **fields)["id"])
    assert result["status"] == "crashed" and words in result["error"], (result["error"], result["timing"])


def test_ranks_may_use_make_and_list_files(here: GangHere) -> None:
    program = """
import json, subprocess
open("Makefile", "w").write("answer:\\n\\techo 42 > answer\\n")
made = subprocess.run(["make"], capture_output=True, text=True)
listed = subprocess.run(["ls", "-l"], capture_output=True, text=True)
print(json.dumps({"problem": made.stderr + listed.stderr}))
"""
    played = here.run(program, size=1)
    assert played.metrics == {"problem": ""}, (played.metrics, played.error)


def test_a_rank_may_become_the_user_that_it_is_and_no_other(here: GangHere) -> None:
    program = """
import json, os
def refused(change, value):
    try:
        change(value)
    except PermissionError:
        return True
    return False
print(json.dumps({
    "itself": not refused(os.setuid, os.getuid()) and not refused(os.setgid, os.getgid()),
    "root": not refused(os.setuid, 0) or not refused(os.setgid, 0),
    "another": not refused(os.setuid, os.getuid() + 1) or not refused(os.setgid, os.getgid() + 1),
}))
"""
    assert here.run(program, size=1).metrics == {"itself": True, "root": False, "another": False}


def test_replicas_find_each_other_by_the_names_that_they_have_on_kubernetes(here: GangHere) -> None:
    played = here.run(MEETING, size=4)
    assert (played.status, played.metrics["sum"]) == ("ok", 6), played.error
    assert str(played.metrics["host"]).startswith("wt-s1x1x1-w-0-0.")


def test_each_task_has_a_folder_memory_and_ports_of_its_own(here: GangHere) -> None:
    program = """
import json, os, pathlib, socket
index = os.environ["WINDTUNNEL_GANG_INDEX"]
listener = socket.create_server(("", 29500 + int(index)))
before = [str(path) for root in (".", "/dev/shm", "/tmp") for path in pathlib.Path(root).glob("left-*")]
for root in (".", "/dev/shm", "/tmp"):
    pathlib.Path(root, "left-" + index).write_text("x")
if os.fork() == 0:
    os.setsid()
    import time
    time.sleep(600)
print(json.dumps({"before": len(before) if index == "0" else 0}))
"""
    gang = here.gang(program, size=1)
    for index in range(2):
        played = here.play(gang, index)
        assert (played.status, played.metrics) == ("ok", {"before": 0}), played.error
    until(lambda: here.processes("") == [], message="processes are left")


def test_without_confinement_each_task_has_a_folder_of_its_own_and_what_it_leaves_is_ended(
    here: GangHere, tmp_path: Path
) -> None:
    program = """
import json, os, pathlib, time
print(json.dumps({"before": len(list(pathlib.Path(".").glob("left*")))}))
pathlib.Path("left").write_text("x")
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
"""
    gang = here.gang(program, size=1, level=None)
    for index in range(2):
        played = here.play(gang, index)
        assert (played.status, played.metrics) == ("ok", {"before": 0}), played.error
    assert here.processes("model.py") == []
    assert not list((tmp_path / "launch").iterdir())


def test_an_unconfined_gang_that_takes_too_long_is_ended(here: GangHere) -> None:
    played = here.run("import time\ntime.sleep(600)\n", patience=2.0, level=None)
    assert played.status == "timed_out"
    until(lambda: here.processes("model.py") == [], message="ranks are left")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL], ids=lambda n: n.name)
def test_a_fault_of_a_rank_is_the_programs_and_ends_the_others(here: GangHere, number: signal.Signals) -> None:
    program = f"{FIRST_WAITS}\nprint('before the fault', flush=True)\nos.kill(os.getpid(), {int(number)})\n"
    played = here.run(program, size=3)
    assert played.status == "crashed"
    assert played.error is not None and number.name in played.error and "before the fault" in played.error


def test_an_exit_status_is_in_the_result_with_the_rank_and_its_last_lines(here: GangHere) -> None:
    played = here.run(FIRST_WAITS + "\nraise ValueError('the mesh is too coarse')\n")
    assert played.status == "crashed"
    assert played.error is not None and played.error.startswith("rank 1 exited with status 1")
    assert "the mesh is too coarse" in played.error


def test_a_rank_that_is_killed_is_a_loss(here: GangHere) -> None:
    with pytest.raises(ReplicaLost, match="rank 1 was killed by SIGKILL"):
        here.run(FIRST_WAITS + "\nos.kill(os.getpid(), 9)\n")


def test_a_sandbox_that_is_killed_is_a_loss_and_leaves_no_process(here: GangHere) -> None:
    def kill() -> None:
        until(lambda: len(here.processes("rank.py")) >= 2, message="the ranks do not start")
        for pid in here.processes("gang.shared_sandbox"):
            with contextlib.suppress(ProcessLookupError):  # it has ended with one that was killed before it
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ReplicaLost):
        here.run("import time\ntime.sleep(600)\n")
    killer.join()
    until(lambda: here.processes("rank.py") == [], message="ranks are left")


def test_a_gang_that_takes_too_long_is_ended(here: GangHere) -> None:
    played = here.run("import time\ntime.sleep(600)\n", patience=2.0)
    assert (played.status, played.error) == ("timed_out", "the program took longer than 2 s")
    until(lambda: here.processes("rank.py") == [], message="ranks are left")


def test_the_agents_end_ends_the_gang(here: GangHere) -> None:
    def leave() -> None:
        until(lambda: len(here.processes("rank.py")) >= 2, message="the ranks do not start")
        here.agent.close()

    leaving = threading.Thread(target=leave)
    leaving.start()
    with pytest.raises(GangStopped):
        here.run("import time\ntime.sleep(600)\n")
    leaving.join()
    until(lambda: here.processes("rank.py") == [], message="ranks are left")


@pytest.mark.parametrize(
    "taking",
    [
        "hoard = [bytearray(4 << 20) for _ in range(40)]",
        "open('/dev/shm/hoard', 'wb').write(bytes(160 << 20))",
        "import mmap; hoard = mmap.mmap(-1, 160 << 20); hoard.write(bytes(160 << 20))",
    ],
    ids=["heap", "shm", "shared"],
)
def test_the_memory_of_all_ranks_together_is_limited(here: GangHere, taking: str) -> None:
    """Each of two ranks takes 160 MiB, and the gang has 256 MiB."""
    program = f"import os, time\n{taking.replace('hoard', 'hoard' + '0')}\ntime.sleep(600)\n"
    program = program.replace("/dev/shm/hoard0", "/dev/shm/hoard' + os.environ['WINDTUNNEL_GANG_INDEX'] + '")
    played = here.run(program, memory=256 * MIB)
    assert played.status == "crashed" and played.error is not None
    assert "256 MiB of memory" in played.error or "No space left" in played.error, played.error


def test_a_command_that_is_not_there_is_said(here: GangHere) -> None:
    played = here.run("", command=["gmx_mpi", "mdrun"])
    assert played.status == "crashed" and played.error is not None
    assert "the program gmx_mpi cannot be started: No such file or directory" in played.error


def test_the_last_line_of_json_is_the_result_and_a_program_without_one_is_invalid(here: GangHere) -> None:
    printing = (
        "import os\nif os.environ['WINDTUNNEL_GANG_INDEX'] == '0':\n    print('step 1')\n    print('{\"drag\": 1.5}')\n"
    )
    assert here.run(printing).metrics == {"drag": 1.5}
    assert here.run("print('done')").status == "invalid"


@pytest.mark.parametrize(
    ("writing", "reason"),
    [
        ("open(path, 'w')", "is empty"),
        ("os.mkdir(path)", "is a folder"),
        ("os.symlink('model.py', path)", "is a link"),
        ("os.mkfifo(path)", "is no file"),
    ],
)
def test_a_result_that_has_no_text_is_invalid_and_says_what_it_is(here: GangHere, writing: str, reason: str) -> None:
    played = here.run(f"import os\npath = os.environ['WINDTUNNEL_RESULT']\n{writing}\nprint('{{}}')\n", size=1)
    assert played.status == "invalid" and f"WINDTUNNEL_RESULT names, {reason}" in str(played.error), played


def test_a_program_writes_beside_its_files_and_starts_programs_of_its_own(here: GangHere) -> None:
    program = """
import json, os, subprocess, sys
open("own.sh", "w").write("#!/bin/sh\\necho 42\\n")
os.chmod("own.sh", 0o755)
own = int(subprocess.run(["./own.sh"], capture_output=True, check=True).stdout)
same = subprocess.run(["python", "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)
print(json.dumps({"own": own, "same": same.stdout.strip() == sys.prefix}))
"""
    played = here.run(program, size=1)
    assert played.metrics == {"own": 42, "same": True}, played.error


def test_the_outputs_of_a_task_outlive_its_sandbox(here: GangHere) -> None:
    program = """
import json, os, pathlib
folder = pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"])
index = os.environ["WINDTUNNEL_GANG_INDEX"]
(folder / "fields").mkdir(exist_ok=True)
(folder / "fields" / (index + ".txt")).write_text("field " + index)
if index == "0":
    (folder / "leads-out").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
print(json.dumps({"ok": 1}))
"""
    played = here.run(program, size=2)
    assert played.status == "ok", played.error
    assert here.storage.texts == {"output/fields/0.txt": "field 0", "output/fields/1.txt": "field 1"}


RESIDENT = """
import json, os, pathlib, signal, sys
from windtunnel_program import tasks
rank = int(os.environ["WINDTUNNEL_RANK"])
started = 0
for task in tasks():
    started += 1
    {extra}
    pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"], str(rank)).write_text(f"{{task.index}}")
    task.finish(index=task.index, turn=started, rank=rank)
"""


def test_a_program_that_is_started_once_takes_task_after_task(here: GangHere) -> None:
    gang = here.gang(RESIDENT.format(extra="pass"), size=3, start="launch")
    for turn, index in enumerate((7, 8, 9), 1):
        played = here.play(gang, index)
        assert (played.status, played.metrics) == ("ok", {"index": index, "turn": turn, "rank": 0}), played.error
        assert here.storage.texts == {f"output/{rank}": str(index) for rank in range(3)}
        assert len(played.ranks) == 3
    assert len(here.processes("gang.shared_sandbox")) > 0
    gang.close()
    until(lambda: here.processes("") == [], message="processes are left")


def test_a_task_that_faults_fails_alone_and_the_program_is_started_again(here: GangHere) -> None:
    fault = "rank == 1 and task.index == 8 and os.kill(os.getpid(), signal.SIGSEGV)"
    gang = here.gang(RESIDENT.format(extra=fault), size=2, start="launch")
    outcomes = [here.play(gang, index) for index in (7, 8, 9)]
    assert [played.status for played in outcomes] == ["ok", "crashed", "ok"]
    assert outcomes[1].error is not None and "rank 1 was ended by SIGSEGV" in outcomes[1].error
    assert outcomes[2].metrics["turn"] == 1


def test_a_task_that_a_program_does_not_finish_fails_alone_and_says_so(here: GangHere) -> None:
    skipped = "if task.index == 8:\n        continue"
    gang = here.gang(RESIDENT.format(extra=skipped), size=1, start="launch")
    outcomes = [here.play(gang, index) for index in (7, 8, 9)]
    assert [played.status for played in outcomes] == ["ok", "invalid", "ok"]
    assert "`task.finish`" in str(outcomes[1].error) and outcomes[2].metrics["turn"] == 3


def test_a_program_that_ends_between_two_tasks_is_started_again(here: GangHere) -> None:
    gang = here.gang(RESIDENT.format(extra="pass") + "    break\n", size=2, start="launch")
    for index in (7, 8):
        played = here.play(gang, index)
        assert (played.status, played.metrics.get("turn")) == ("ok", 1), (played, gang.outputs.take())


def test_a_program_that_does_not_take_its_task_is_late(here: GangHere) -> None:
    gang = here.gang("import time\ntime.sleep(600)\n", size=1, start="launch")
    assert here.play(gang, 0, patience=2.0).status == "timed_out"
    until(lambda: here.processes("") == [], message="processes are left")


def test_a_gang_larger_than_the_machine_runs_with_a_note(platform: PlatformProcess) -> None:
    program = "import json, os\nif os.environ['WINDTUNNEL_GANG_INDEX'] == '0':\n    print(json.dumps({'ok': 1}))\n"
    gang = {"size": 9, "command": ["python", "model.py"]}
    fields = {"dataset": "program", "scenarios": {"range": [0, 1]}, "gang": gang}
    ended = platform.run(model=program.encode(), filename="crowd.py", **fields)
    assert ended["state"] == "succeeded"
    assert "9 ranks share" in platform.get_until_answered(f"/v1/simulations/{ended['id']}/events").text
