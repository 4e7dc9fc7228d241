"""Leader and followers of a gang as local processes: they connect, run a program together and fail together."""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from runtimes.harness.gang.gang_transport import ReplicaLost, lay_out
from runtimes.harness.gang.replica import Leader, join
from tests.ports import free_ports
from tests.waiting import until

ROOT = Path(__file__).parents[2]
TIMEOUT = 60
SUM = """
import json, os, socket
rank, size = int(os.environ["WINDTUNNEL_GANG_INDEX"]), int(os.environ["WINDTUNNEL_GANG_SIZE"])
number = json.load(open(os.environ["WINDTUNNEL_SCENARIO"]))["number"]
assert "WINDTUNNEL_GANG_KEY" not in os.environ
json.dump({"sum": sum(range(size)) + number}, open(os.environ["WINDTUNNEL_RESULT"], "w"))
"""
KILL_REPLICA_1_AND_HANG = """
import os, time
if os.environ["WINDTUNNEL_GANG_INDEX"] == "1":
    os.kill(os.getpid(), 9)
time.sleep(600)
"""


class Gang:
    """Replicas as processes, each with its own folder as /tmp."""

    def __init__(
        self, folder: Path, size: int, program: str, *, leader_command: Sequence[str] = (), key: str = ""
    ) -> None:
        [port] = free_ports(1)
        self.key = key or secrets.token_hex()
        self.size = size
        self.program = program
        self.folder = folder
        self.environ = {
            **{"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "WINDTUNNEL_GANG_LEADER": f"127.0.0.1:{port}"},
            **{"WINDTUNNEL_GANG_SIZE": str(size), "WINDTUNNEL_GANG_SLICES": "1", "WINDTUNNEL_GANG_SLICE": "0"},
        }
        self.leader_command = leader_command

    def start(self, role: str, index: int, command: Sequence[str], **extra: str) -> "subprocess.Popen[str]":
        """Start a replica."""
        code = "import pathlib, signal, sys; from runtimes.harness.gang import replica as gang; "
        code += "signal.signal(15, gang.stop); "
        code += "sys.exit(gang.main(sys.argv[2:], pathlib.Path(sys.argv[1])))"
        environ = {"WINDTUNNEL_GANG_KEY": self.key, "WINDTUNNEL_GANG_INDEX": str(index)}
        return subprocess.Popen(
            [sys.executable, "-c", code, str(self.folder / f"{role}-{index}"), role, *command],
            env=self.environ | environ | extra,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def connected(self) -> bool:
        """Return whether the leader has a connection from a replica (proc(5): addresses in hex, 01 is ESTABLISHED)."""
        port = f"{int(self.environ['WINDTUNNEL_GANG_LEADER'].rpartition(':')[2]):04X}"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, state, *_ = line.split()
            if state == "01" and local.endswith(f":{port}") and not remote.endswith(f":{port}"):
                return True
        return False

    def run(self, **extra: str) -> tuple[int, str, list[int]]:
        """Start all replicas; return the leader's exit code and output, and the exit codes of the other replicas."""
        replicas = [self.start("follow", 0, [sys.executable, "-c", self.program])]
        leader = self.start("lead", 0, self.leader_command, **extra)
        until(self.connected, message="the first replica does not find the leader")
        replicas += [self.start("follow", i, [sys.executable, "-c", self.program]) for i in range(1, self.size)]
        try:
            output, _ = leader.communicate(timeout=TIMEOUT)
            return leader.returncode, output, [process.wait(TIMEOUT) for process in replicas]
        finally:
            for process in (leader, *replicas):
                process.kill()
                process.communicate()


@contextlib.contextmanager
def lead_followers(gang: Gang, *commands: Sequence[str]) -> Iterator[Leader]:
    """Lead follower processes, each with its own command, from this process, for several tasks."""
    address = ("127.0.0.1", int(gang.environ["WINDTUNNEL_GANG_LEADER"].rpartition(":")[2]))
    with contextlib.ExitStack() as stack:
        with socket.create_server(address) as listener:
            for index, command in enumerate(commands):
                replica = stack.enter_context(gang.start("follow", index, command))
                stack.callback(replica.kill)
            leader = Leader(listener, gang.key, [(0, index) for index in range(len(commands))])
            leader.gather(TIMEOUT)
        stack.callback(leader.dismiss, 0)
        yield leader


def test_a_gang_runs_its_program_once_and_its_first_replica_reports_the_result(tmp_path):
    code, output, replica_codes = Gang(tmp_path, 3, SUM).run(WINDTUNNEL_SCENARIO=json.dumps({"number": 39}))
    assert (code, json.loads(output), replica_codes) == (0, {"sum": 42}, [0, 0, 0])


def test_a_replica_that_is_killed_fails_the_gang_and_ends_the_others(tmp_path):
    code, _, replica_codes = Gang(tmp_path, 3, KILL_REPLICA_1_AND_HANG).run()
    assert (code, replica_codes) == (137, [0, 0, 0])


def test_a_process_of_the_leader_counts_as_a_replica(tmp_path):
    code, _, _ = Gang(tmp_path, 2, SUM, leader_command=[sys.executable, "-c", "raise SystemExit(7)"]).run(
        WINDTUNNEL_SCENARIO='{"number": 1}'
    )
    assert code == 7


@pytest.mark.parametrize(("mode", "exit"), [(None, 127), (0o644, 126)])
def test_a_command_that_cannot_be_started_fails_its_task_and_not_the_gang(tmp_path, mode, exit):
    wrong = tmp_path / "wrong"
    if mode is not None:
        wrong.write_text("no program")
        wrong.chmod(mode)
    hangs = [sys.executable, "-c", "import time; time.sleep(600)"]
    with lead_followers(Gang(tmp_path, 2, ""), hangs, [str(wrong)]) as leader:
        assert [leader.run({"task": task}, (), tmp_path, TIMEOUT) for task in range(2)] == [(exit, None)] * 2


def test_a_command_of_the_leader_that_cannot_be_started_fails_its_task_only(tmp_path):
    with lead_followers(Gang(tmp_path, 1, ""), [sys.executable, "-c", SUM]) as leader:
        assert leader.run(None, [str(tmp_path / "wrong")], tmp_path, TIMEOUT) == (127, None)
        assert leader.run({"number": 42}, (), tmp_path, TIMEOUT) == (0, '{"sum": 42}')


def test_programs_of_a_model_are_executable_and_not_writable_by_others(tmp_path):
    modes = {"run.sh": 0o106775, "notes.txt": 0o100666, "bin/tool": 0o100700}
    with zipfile.ZipFile(tmp_path / "packed", "w") as archive:
        for name, mode in modes.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, "#!/bin/sh\nexec bin/tool 7\n" if name == "run.sh" else "#!/bin/sh\nexit $1\n")
    folder = tmp_path / "follow-0" / "model"
    lay_out(tmp_path / "packed", folder, "model")
    file_modes = {name: (folder / name).stat().st_mode & 0o7777 for name in modes}
    assert file_modes == {"run.sh": 0o755, "notes.txt": 0o644, "bin/tool": 0o755}
    with lead_followers(Gang(tmp_path, 1, ""), ["./run.sh"]) as leader:
        assert leader.run(None, (), tmp_path, TIMEOUT) == (7, None)


@pytest.mark.parametrize("victim", ["leader", "replica"])
def test_a_lost_replica_ends_the_whole_gang(tmp_path, victim):
    gang = Gang(tmp_path, 2, "import time; time.sleep(600)")
    replicas = [gang.start("follow", index, [sys.executable, "-c", gang.program]) for index in range(2)]
    leader = gang.start("lead", 0, ())
    try:
        until(lambda: (gang.folder / "follow-1" / "scenario.json").exists())
        (leader if victim == "leader" else replicas[1]).kill()
        assert replicas[0].wait(TIMEOUT) == (1 if victim == "leader" else 0)
        assert leader.wait(TIMEOUT) == (-9 if victim == "leader" else 1)
    finally:
        for process in (leader, *replicas):
            process.kill()
            process.communicate()


def test_a_replica_without_the_key_is_refused(tmp_path):
    gang = Gang(tmp_path, 1, "pass")
    leader = gang.start("lead", 0, ())
    intruder = gang.start("follow", 0, [sys.executable, "-c", "pass"], WINDTUNNEL_GANG_KEY="guessed")
    try:
        output, _ = intruder.communicate(timeout=TIMEOUT)
        assert intruder.returncode != 0 and "ReplicaLost" in output
        replica = gang.start("follow", 0, [sys.executable, "-c", "pass"])
        assert leader.wait(TIMEOUT) == 0
        assert replica.wait(TIMEOUT) == 0
        replica.communicate()
    finally:
        for process in (leader, intruder):
            process.kill()
            process.communicate()


def test_a_replica_that_tries_to_reach_the_leader_does_not_connect_to_itself(monkeypatch):
    [port] = free_ports(1)
    address, sockets = ("127.0.0.1", port), []
    create_connection = socket.create_connection

    def connect_from_own_port(requested, **options):
        """Use the requested address as the client's own address on the first call."""
        sockets.append(create_connection(requested, source_address=None if sockets else address, **options))
        return sockets[-1]

    monkeypatch.setattr(socket, "create_connection", connect_from_own_port)
    with pytest.raises(ReplicaLost, match="does not answer"):
        join(address, "key", (0, 0), 0.3)
    [connection] = sockets
    assert connection.fileno() == -1, "the port is not released, so the leader cannot listen on it"


def test_a_failed_task_ends_only_when_every_replica_has_stopped_it(tmp_path):
    [port] = free_ports(1)
    events, stop_requested, may_stop = [], threading.Event(), threading.Event()

    def follow(index):
        connection, messages = join(("127.0.0.1", port), "key", (0, index), TIMEOUT)
        while True:
            for message in messages:
                if "run" in message and index == 0:
                    connection.send(run=message["run"], exit=3, result=None)
                elif "stop" in message:
                    stop_requested.set()
                    assert may_stop.wait(TIMEOUT)
                    events.append("stopped")
                    connection.send(run=1, stopped=True)
                elif "over" in message:
                    connection.connection.close()
                    return
            messages = connection.receive()

    followers = [threading.Thread(target=follow, args=(index,)) for index in range(2)]
    with socket.create_server(("127.0.0.1", port)) as listener:
        leader = Leader(listener, "key", [(0, 0), (0, 1)])
        for thread in followers:
            thread.start()
        leader.gather(TIMEOUT)
    outcomes = []
    running = threading.Thread(target=lambda: outcomes.append((leader.run(None, (), tmp_path, None), list(events))))
    running.start()
    assert stop_requested.wait(TIMEOUT)
    running.join(0.2)  # without the wait, the run would have ended by now
    may_stop.set()
    running.join(TIMEOUT)
    leader.dismiss(0)
    for thread in followers:
        thread.join(TIMEOUT)
    assert outcomes == [((3, None), ["stopped"])]
