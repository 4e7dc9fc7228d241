"""The supervisor with small roles: dead roles are restarted, stopped roles end, no process remains."""

import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from server import role_health
from server.logs import LogFile, terminal_text
from server.supervisor import STOP_TIMEOUT
from tests.ports import free_ports
from tests.waiting import until

ROOT = Path(__file__).parents[2]
#: Supervises four roles: `lives` sleeps, `dies` exits at once, `stubborn` ignores SIGTERM, `once` runs once.
SCRIPT = """
import sys
from pathlib import Path
from server import supervisor as module
from server.supervisor import AlreadyRunning, Role, Supervisor, print_line
home = Path(sys.argv[1])
module.STOP_TIMEOUT = float(sys.argv[2])
py = [sys.executable, "-c"]
def note(name, rest):
    record_pid = "import os, signal, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\\\n'); "
    return [*py, record_pid + rest, str(home / name)]
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


class SupervisorProcess:
    def __init__(self, home: Path, stop_timeout: float = STOP_TIMEOUT) -> None:
        self.home, self.stop_timeout = home, stop_timeout
        self.output_file = open(home / "output", "w+")
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", SCRIPT, str(self.home), str(self.stop_timeout)]
        return subprocess.Popen(command, cwd=ROOT, stderr=self.output_file, stdout=self.output_file)

    def pids(self, name: str) -> list[int]:
        path = self.home / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def restart(self) -> None:
        """Kill the role `lives` twice; once it has restarted twice, the supervisor's loop has done all due work."""
        for _ in range(2):
            before = self.pids("lives")
            os.kill(before[-1], signal.SIGKILL)
            until(lambda before=before: len(self.pids("lives")) > len(before))  # type: ignore[misc]

    def output(self) -> str:
        return (self.home / "output").read_text()

    def alive(self) -> list[int]:
        pids = [pid for name in ("lives", "dies", "stubborn", "once") for pid in self.pids(name)]
        return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.fixture
def stop_timeout() -> float:
    """Seconds that the supervisor waits for a role to stop."""
    return STOP_TIMEOUT


@pytest.fixture
def supervisor(tmp_path: Path, stop_timeout: float) -> Iterator[SupervisorProcess]:
    started = SupervisorProcess(tmp_path, stop_timeout)
    until(lambda: len(started.pids("lives")) == 1 and len(started.pids("stubborn")) == 1)
    yield started
    if started.process.poll() is None:
        started.process.kill()
    started.process.wait()
    started.output_file.close()


def test_a_killed_role_is_restarted(supervisor: SupervisorProcess) -> None:
    os.kill(supervisor.pids("lives")[0], signal.SIGKILL)
    until(lambda: len(supervisor.pids("lives")) == 2)
    until(lambda: "lives ended (killed by SIGKILL)" in supervisor.output())


def test_a_role_that_dies_repeatedly_is_restarted_with_exponential_back_off(supervisor: SupervisorProcess) -> None:
    until(lambda: len(supervisor.pids("dies")) >= 4)
    assert "it is restarted in 0.1 s" in supervisor.output()
    assert "it is restarted in 0.4 s" in supervisor.output()
    assert "see " in supervisor.output()


#: Supervises one role that touches its liveness file until it is stopped.
PROBED = """
import sys
from pathlib import Path
from server import probes
from server.supervisor import Role, Supervisor, print_line
home = Path(sys.argv[1])
probes.INTERVAL = 0.05
loop = "import os, pathlib, sys, time; print(os.getpid(), file=open(sys.argv[1] + '/pids', 'a'), flush=True); "
loop += "[(pathlib.Path(sys.argv[1], 'beat').touch(), time.sleep(0.02)) for _ in iter(int, 1)]"
role = Role(name="loops", command=[sys.executable, "-c", loop, str(home)],
            probe=probes.file_probe(home / "beat", 1.0), patience=0.5)
Supervisor(home=home, run_dir=home / "run").run([role], {}, lambda: True, lambda: print_line("ready"))
"""


def test_a_role_that_stops_answering_its_probe_is_killed_and_restarted(tmp_path: Path) -> None:
    with open(tmp_path / "output", "w") as output:
        process = subprocess.Popen([sys.executable, "-c", PROBED, str(tmp_path)], cwd=ROOT, stderr=output)
    pids = tmp_path / "pids"
    try:
        until(lambda: (tmp_path / "beat").exists())
        [first] = [int(line) for line in pids.read_text().split()]
        assert role_health.problem(tmp_path / "run") is None
        os.kill(first, signal.SIGSTOP)
        until(lambda: role_health.problem(tmp_path / "run") == "the role loops does not answer")
        until(lambda: len(pids.read_text().split()) == 2)
        assert "loops does not answer; it is killed" in (tmp_path / "output").read_text()
        assert not Path(f"/proc/{first}").exists()
        until(lambda: role_health.problem(tmp_path / "run") is None)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def test_a_one_shot_role_is_not_restarted(supervisor: SupervisorProcess) -> None:
    until(lambda: "once: warning: once is enough" in supervisor.output())
    (pid,) = supervisor.pids("once")
    until(lambda: not Path(f"/proc/{pid}").exists())  # its end is detected
    supervisor.restart()
    assert len(supervisor.pids("once")) == 1


def test_readiness_is_reported_once(supervisor: SupervisorProcess) -> None:
    until(lambda: "ready" in supervisor.output())
    supervisor.restart()
    assert supervisor.output().count("ready") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_every_role_even_a_role_that_ignores_it(supervisor: SupervisorProcess, number: int) -> None:
    supervisor.process.send_signal(number)
    assert supervisor.process.wait(30) == 0
    assert supervisor.alive() == []


@pytest.mark.parametrize("stop_timeout", [600.0])
def test_a_second_signal_kills_at_once(supervisor: SupervisorProcess) -> None:
    supervisor.process.send_signal(signal.SIGINT)
    until(lambda: "stubborn: warning: SIGTERM is ignored" in supervisor.output())
    assert supervisor.process.poll() is None  # it still waits for the stubborn role
    supervisor.process.send_signal(signal.SIGINT)
    assert supervisor.process.wait(60) == 0


def test_no_process_outlives_a_killed_supervisor(supervisor: SupervisorProcess) -> None:
    supervisor.process.kill()
    supervisor.process.wait()
    until(lambda: supervisor.alive() == [])


def test_a_second_supervisor_is_refused_until_the_first_is_killed(supervisor: SupervisorProcess) -> None:
    assert supervisor.start().wait(20) == 1
    assert f"running in this home already (process {supervisor.process.pid})" in supervisor.output()
    supervisor.process.kill()
    supervisor.process.wait()
    second = supervisor.start()
    until(lambda: len(supervisor.pids("lives")) == 2)
    second.kill()
    second.wait()


def test_a_full_disk_ends_no_role(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("lives", "dies", "stubborn", "once"):
        (tmp_path / "logs" / f"{name}.log").symlink_to("/dev/full")
    with open("/dev/full", "w") as terminal:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path), str(STOP_TIMEOUT)], cwd=ROOT, stderr=terminal
        )
        try:
            dies = tmp_path / "dies"
            # each restart is logged to the full disk
            until(lambda: dies.exists() and len(dies.read_text().split()) >= 3)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()


def test_a_log_reports_how_many_lines_were_lost(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "role.log")
    log.write(b"zero\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))  # like a disk with room for three more bytes
    try:
        log.write(b"one\ntwo\n")
        log.write(b"three\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.write(b"four\n")
    log.close()
    zero, warning, four = (tmp_path / "role.log").read_bytes().splitlines()
    assert (zero, four) == (b"zero", b"four")
    assert terminal_text(warning) == "warning: 3 lines of this log were lost: No space left on device"


def test_a_log_is_rotated_at_its_size_limit(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "role.log", size=100, kept=2)
    for number in range(10):
        log.write(f"line {number} {'x' * 40}\n".encode())
    log.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["role.log", "role.log.1", "role.log.2"]
    assert "line 9" in (tmp_path / "role.log").read_text()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"level": "INFO", "message": "all is well"}', None),
        (b'{"level": "ERROR", "message": "it is not"}', "error: it is not"),
        (b"no json at all", None),
        (b"[1]", None),
    ],
)
def test_the_terminal_shows_warnings_and_errors(line: bytes, expected: str | None) -> None:
    assert terminal_text(line) == expected


@pytest.mark.parametrize(
    ("name", "text", "mode", "message"),
    [
        ("connections.json", '{"connections": {}}', 0o644, "chmod 600"),
        ("connections.json", '{"connections": 7}', 0o600, "connections must be an object by name"),
        ("scs.json", '{"Bucket": []}', 0o600, "at least one bucket"),
    ],
)
def test_an_error_that_prevents_every_role_is_printed_once(
    tmp_path: Path, name: str, text: str, mode: int, message: str
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / name).chmod(mode)
    environment = {"WINDTUNNEL_HOME": str(tmp_path)}
    environment |= {"WINDTUNNEL_SCS_CONFIG": str(tmp_path / name)} if name == "scs.json" else {}
    command = [sys.executable, "-m", "server", "run"]
    completed = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=60
    )
    assert completed.returncode == 2 and message in completed.stdout + completed.stderr, completed


def run_server(command: str, *options: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of the server that must end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "server.windtunnel_server", command, *options],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


def home_of_a_later_version(folder: Path) -> Path:
    """Return a home whose database has a revision that this version does not know."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / "windtunnel.db")) as connection, connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999')")
    return folder


@pytest.mark.parametrize("command", ["run", "up"])
def test_a_home_of_a_later_version_ends_the_platform_with_the_next_step(tmp_path: Path, command: str) -> None:
    home = home_of_a_later_version(tmp_path / "home")
    variables = {"WINDTUNNEL_HOME": str(home), "WINDTUNNEL_SCS_PORT": "0"}
    ports = dict(zip(("WINDTUNNEL_PORT", "WINDTUNNEL_RUNNER_API_PORT"), map(str, free_ports(2)), strict=True))
    completed = run_server(command, **variables, **ports)
    output = completed.stdout + completed.stderr
    assert completed.returncode == 2, output
    sentence = (
        "This home was written by a later version of Windtunnel (schema 9999); start that version, or restore a backup."
    )
    assert output.count(sentence) == 1, output
    assert "Traceback" not in output and "restarted" not in output and "logs" not in output, output


@pytest.mark.parametrize("command", ["up", "run", "migrate", "agent", "scs"])
def test_a_home_that_cannot_be_made_is_a_sentence_with_the_next_step(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").touch()
    home = tmp_path / "file" / "home"
    completed = run_server(command, WINDTUNNEL_HOME=str(home))
    output = completed.stdout + completed.stderr
    assert completed.returncode == 2, output
    assert "Traceback" not in output and "logs" not in output, output
    assert str(home) in output and "WINDTUNNEL_HOME (--home)" in output, output


def test_a_home_on_a_disk_that_is_read_only_is_a_sentence_with_the_next_step(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.fail("a read-only file system can only be mounted by root")
    home = tmp_path / "read-only"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "home-test", str(home)], check=True)
    try:
        completed = run_server("up", WINDTUNNEL_HOME=str(home))
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)
    output = completed.stdout + completed.stderr
    assert completed.returncode == 2 and f"{home} cannot be used: Read-only file system." in output, output
    assert "Traceback" not in output and "logs" not in output, output


@pytest.mark.parametrize("module", ["windtunnel", "server.windtunnel_server"])
def test_an_empty_option_home_is_refused_instead_of_the_current_folder(tmp_path: Path, module: str) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", module, "up", "--home", ""],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    output = completed.stdout + completed.stderr
    assert completed.returncode == 2 and "empty" in output and "name " in output, output
    assert list(tmp_path.iterdir()) == []


def test_the_role_scs_on_a_port_in_use_is_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        completed = run_server("scs", WINDTUNNEL_HOME=str(tmp_path), WINDTUNNEL_SCS_PORT=port)
    assert completed.returncode == 2 and "Traceback" not in completed.stderr
    assert f"127.0.0.1:{port} cannot be listened on: Address already in use." in completed.stderr
    assert "WINDTUNNEL_SCS_PORT" in completed.stderr


@pytest.mark.parametrize("name", ["run", "migrate", "api", "dispatch", "jobs"])
def test_an_invalid_bucket_ends_the_start_of_every_role_with_a_sentence(tmp_path: Path, name: str) -> None:
    environment = {"WINDTUNNEL_HOME": str(tmp_path), "WINDTUNNEL_OBJECT_STORE_URL": "s3://My_Bucket"}
    completed = subprocess.run(
        [sys.executable, "-m", "server", name],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert completed.returncode == 2
    assert completed.stderr.startswith("OBJECT_STORE_URL: 'My_Bucket' is not the name of a bucket")
    assert "Traceback" not in completed.stderr


@pytest.mark.parametrize("name", ["PORT", "RUNNER_API_PORT", "OBJECT_STORE_URL"])
def test_an_invalid_setting_is_an_error_instead_of_restarts(tmp_path: Path, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        value, message = (
            ("ftp://elsewhere", "unsupported object store URL") if name.endswith("URL") else (port, f"{port} is in use")
        )
        environment = {"WINDTUNNEL_HOME": str(tmp_path), "WINDTUNNEL_SCS_PORT": "0"}
        environment |= {f"WINDTUNNEL_{setting}": str(free_ports(1)[0]) for setting in ("PORT", "RUNNER_API_PORT")}
        environment[f"WINDTUNNEL_{name}"] = value
        command = [sys.executable, "-m", "server", "run"]
        completed = subprocess.run(
            command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=60
        )
    assert completed.returncode == 2 and message in completed.stdout + completed.stderr, completed
