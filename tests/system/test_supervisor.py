"""The supervisor with small roles: dead roles are restarted, stopped roles end, no process is left."""

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.logs import LogFile, terminal_text
from server.supervisor import STOP_TIMEOUT
from tests.ports import free_ports
from tests.waiting import until

ROOT = Path(__file__).parents[2]
#: Keeps four roles: one that lives, one that dies at once, one that ignores SIGTERM, one that runs once.
SCRIPT = """
import sys
from pathlib import Path
from server import supervisor as module
from server.supervisor import AlreadyRunning, Role, Supervisor, print_line
home = Path(sys.argv[1])
module.STOP_TIMEOUT = float(sys.argv[2])
py = [sys.executable, "-c"]
def note(name, rest):
    birth = "import os, signal, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\\\n'); "
    return [*py, birth + rest, str(home / name)]
warning = '{"level": "WARNING", "message": "once is enough"}'
stays = '{"level": "WARNING", "message": "SIGTERM is ignored"}'
ignore = f"signal.signal(15, lambda *_: print({stays!r}, flush=True)); "
roles = [
    Role(name="lives", command=note("lives", "time.sleep(1000)"), after=lambda: (home / "once").exists()),
    Role(name="dies", command=note("dies", "sys.exit(3)")),
    Role(name="stubborn", command=note("stubborn", ignore + "time.sleep(1000)"), order=1),
    Role(name="once", command=note("once", f"print({warning!r})"), once=True),
]
try:
    supervisor = Supervisor(home=home, run_dir=home / "run")
except AlreadyRunning as error:
    print_line(str(error))
    sys.exit(1)
supervisor.run(roles, {}, (home / "lives").exists, lambda: print_line("ready"))
"""


class Started:
    def __init__(self, home: Path, patience: float = STOP_TIMEOUT) -> None:
        self.home, self.patience = home, patience
        self.output = open(home / "output", "w+")
        self.process = self.again()

    def again(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", SCRIPT, str(self.home), str(self.patience)]
        return subprocess.Popen(command, cwd=ROOT, stderr=self.output, stdout=self.output)

    def pids(self, name: str) -> list[int]:
        path = self.home / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def restart(self) -> None:
        """Kill the role that runs twice; when it runs again, the supervisor's loop has done all due work."""
        for _ in range(2):
            before = self.pids("lives")
            os.kill(before[-1], signal.SIGKILL)
            until(lambda before=before: len(self.pids("lives")) > len(before))  # type: ignore[misc]

    def said(self) -> str:
        return (self.home / "output").read_text()

    def alive(self) -> list[int]:
        every = [pid for name in ("lives", "dies", "stubborn", "once") for pid in self.pids(name)]
        return [pid for pid in every if Path(f"/proc/{pid}").exists()]


@pytest.fixture
def patience() -> float:
    """Seconds that the supervisor waits for a role to stop."""
    return STOP_TIMEOUT


@pytest.fixture
def started(tmp_path: Path, patience: float) -> Iterator[Started]:
    made = Started(tmp_path, patience)
    until(lambda: len(made.pids("lives")) == 1 and len(made.pids("stubborn")) == 1)
    yield made
    if made.process.poll() is None:
        made.process.kill()
    made.process.wait()
    made.output.close()


def test_a_killed_role_is_restarted(started: Started) -> None:
    os.kill(started.pids("lives")[0], signal.SIGKILL)
    until(lambda: len(started.pids("lives")) == 2)
    until(lambda: "lives ended (killed by SIGKILL)" in started.said())


def test_a_role_that_dies_repeatedly_is_restarted_with_exponential_back_off(started: Started) -> None:
    until(lambda: len(started.pids("dies")) >= 4)
    assert "it is restarted in 0.1 s" in started.said()
    assert "it is restarted in 0.4 s" in started.said()
    assert "see " in started.said()


def test_a_one_shot_role_is_not_restarted(started: Started) -> None:
    until(lambda: "once: warning: once is enough" in started.said())
    (pid,) = started.pids("once")
    until(lambda: not Path(f"/proc/{pid}").exists())  # its end is noticed
    started.restart()
    assert len(started.pids("once")) == 1


def test_readiness_is_reported_once(started: Started) -> None:
    until(lambda: "ready" in started.said())
    started.restart()
    assert started.said().count("ready") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_every_role_also_roles_that_ignore_it(started: Started, number: int) -> None:
    started.process.send_signal(number)
    assert started.process.wait(30) == 0
    assert started.alive() == []


@pytest.mark.parametrize("patience", [600.0])
def test_a_second_signal_kills_at_once(started: Started) -> None:
    started.process.send_signal(signal.SIGINT)
    until(lambda: "stubborn: warning: SIGTERM is ignored" in started.said())
    assert started.process.poll() is None  # the stubborn role is waited for
    started.process.send_signal(signal.SIGINT)
    assert started.process.wait(60) == 0


def test_no_process_outlives_a_killed_supervisor(started: Started) -> None:
    started.process.kill()
    started.process.wait()
    until(lambda: started.alive() == [])


def test_a_second_supervisor_is_refused_and_a_killed_ones_lock_is_free(started: Started) -> None:
    assert started.again().wait(20) == 1
    assert f"running in this home already (process {started.process.pid})" in started.said()
    started.process.kill()
    started.process.wait()
    again = started.again()
    until(lambda: len(started.pids("lives")) == 2)
    again.kill()
    again.wait()


def test_a_full_disk_ends_no_role(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("lives", "dies", "stubborn", "once"):
        (tmp_path / "logs" / f"{name}.log").symlink_to("/dev/full")
    with open("/dev/full", "w") as terminal:
        supervisor = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path), str(STOP_TIMEOUT)], cwd=ROOT, stderr=terminal
        )
        try:
            dies = tmp_path / "dies"
            until(lambda: dies.exists() and len(dies.read_text().split()) >= 3)  # what it says of each goes nowhere
            assert supervisor.poll() is None
            supervisor.send_signal(signal.SIGTERM)
            assert supervisor.wait(30) == 0
        finally:
            supervisor.kill()
            supervisor.wait()


def test_a_log_says_how_many_lines_were_lost(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "role.log")
    log.write(b"zero\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))  # as a disk on which three more bytes have room
    try:
        log.write(b"one\ntwo\n")
        log.write(b"three\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.write(b"four\n")
    log.close()
    zero, lost, four = (tmp_path / "role.log").read_bytes().splitlines()
    assert (zero, four) == (b"zero", b"four")
    assert terminal_text(lost) == "warning: 3 lines of this log were lost: No space left on device"


def test_a_log_is_rotated_at_its_size_limit(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "role.log", size=100, kept=2)
    for number in range(10):
        log.write(f"line {number} {'x' * 40}\n".encode())
    log.close()
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["role.log", "role.log.1", "role.log.2"]
    assert "line 9" in (tmp_path / "role.log").read_text()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"level": "INFO", "message": "all is well"}', None),
        (b'{"level": "ERROR", "message": "it is not"}', "error: it is not"),
        (b"no json at all", None),
        (b"[1]", None),
    ],
)
def test_the_terminal_shows_warnings_and_errors(line: bytes, told: str | None) -> None:
    assert terminal_text(line) == told


@pytest.mark.parametrize(
    ("name", "text", "mode", "words"),
    [
        ("connections.json", '{"connections": {}}', 0o644, "chmod 600"),
        ("connections.json", '{"connections": 7}', 0o600, "connections must be an object by name"),
        ("scs.json", '{"Bucket": []}', 0o600, "at least one bucket"),
    ],
)
def test_an_error_that_prevents_every_role_is_printed_once(
    tmp_path: Path, name: str, text: str, mode: int, words: str
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / name).chmod(mode)
    told = {"WINDTUNNEL_HOME": str(tmp_path)}
    told |= {"WINDTUNNEL_SCS_CONFIG": str(tmp_path / name)} if name == "scs.json" else {}
    command = [sys.executable, "-m", "server", "run"]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ | told, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and words in ended.stdout + ended.stderr, ended


@pytest.mark.parametrize("name", ["PORT", "RUNNER_API_PORT", "OBJECT_STORE_URL"])
def test_an_invalid_setting_is_an_error_instead_of_restarts(tmp_path: Path, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        value, words = (
            ("ftp://elsewhere", "unsupported object store URL") if name.endswith("URL") else (port, f"{port} is in use")
        )
        told = {"WINDTUNNEL_HOME": str(tmp_path), "WINDTUNNEL_SCS_PORT": "0"}
        told |= {f"WINDTUNNEL_{one}": str(free_ports(1)[0]) for one in ("PORT", "RUNNER_API_PORT")}
        told[f"WINDTUNNEL_{name}"] = value
        command = [sys.executable, "-m", "server", "run"]
        ended = subprocess.run(command, cwd=ROOT, env=os.environ | told, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and words in ended.stdout + ended.stderr, ended
