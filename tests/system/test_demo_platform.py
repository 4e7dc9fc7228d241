"""The demo's platform: strangers on its port are left alone, and only a platform of this home is used."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from api import application
from benchmarks.terminal import Terminal
from server.local import local_platform
from server.local.demo import documented_request
from server.local.local_platform import NotStarted, open_platform
from tests.ports import free_ports
from tests.system.conftest import StartPlatform
from tests.system.platform_process import ROOT, PlatformProcess
from tests.waiting import until
from windtunnel import Client

TOKEN = "token-of-the-demo-tests"


class AnswersEverything(BaseHTTPRequestHandler):
    """A server that answers 200 to every request."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def stranger(port: int, kind: str) -> Iterator[None]:
    """Listen on a port: an HTTP server that answers 200, on IPv4 or IPv6, or a socket that never answers."""
    if kind == "silent":
        with socket.create_server(("127.0.0.1", port)):
            yield
        return

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if kind == "ipv6" else socket.AF_INET

    with Server(("::1" if kind == "ipv6" else "127.0.0.1", port), AnswersEverything) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


def environ_of(platform: PlatformProcess, port: int, runner_api_port: int) -> dict[str, str]:
    values = {"HOME": platform.home, "PORT": port, "RUNNER_API_PORT": runner_api_port, "SCS_PORT": 0}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("WINDTUNNEL_")}
    return environ | {f"WINDTUNNEL_{name}": str(value) for name, value in values.items()}


@pytest.fixture
def idle(tmp_path: Path) -> PlatformProcess:
    """A home whose platform does not run."""
    return PlatformProcess(tmp_path / "idle")


@pytest.mark.parametrize("kind", ["answers 200", "silent", "ipv6"])
def test_a_strangers_server_on_the_port_is_not_used(idle: PlatformProcess, kind: str) -> None:
    if kind == "ipv6" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    told: list[str] = []
    with (
        stranger(idle.port, kind),
        open_platform(environ_of(idle, idle.port, idle.runner_api_port), told.append) as platform,
    ):
        url = platform.url
        assert url != f"http://127.0.0.1:{idle.port}"
        assert httpx.get(f"{url}/readyz", trust_env=False).json()["ready"] is True
        assert local_platform.supervisor_of_home(idle.home) is not None
    assert f"Port {idle.port} is in use" in told[0] and told[1].startswith(f"Starting Windtunnel at {url}")
    assert local_platform.supervisor_of_home(idle.home) is None, "the demo stops the platform that it started"


def test_the_platform_of_another_home_on_the_port_is_not_used(
    start_platform: StartPlatform, idle: PlatformProcess
) -> None:
    other = start_platform(scs_port=0)
    told: list[str] = []
    with open_platform(environ_of(idle, other.port, other.runner_api_port), told.append) as platform:
        url = platform.url
        assert url != other.url and httpx.get(f"{url}/v1/simulations", trust_env=False).json()["items"] == []
    assert other.ready()


def test_the_platform_of_this_home_is_used_wherever_it_listens_unless_it_is_of_another_version(
    start_platform: StartPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = start_platform(scs_port=0)
    environ = environ_of(own, *free_ports(2))
    told: list[str] = []
    with open_platform(environ, told.append) as platform:
        assert platform.url == own.url and "runs in this home already" in told[0]
    assert own.ready(), "it outlives the demo"
    monkeypatch.setattr(application, "describe", lambda: {"info": {"version": "0.3.0"}})
    with pytest.raises(NotStarted, match=r"Another version .* \(process \d+\).*kill"), open_platform(environ, print):
        raise AssertionError("the other version must not be used")


def test_the_demo_sends_the_token_of_the_platform_that_it_starts(idle: PlatformProcess) -> None:
    environ = environ_of(idle, idle.port, idle.runner_api_port) | {"WINDTUNNEL_TOKEN": TOKEN}
    with open_platform(environ, lambda _: None) as platform:
        assert httpx.get(f"{platform.url}/v1/simulations", trust_env=False).status_code == 401
        created = documented_request(platform)
        with Client(platform.url, token=platform.token) as client:
            simulations = client.get("/v1/simulations")["items"]
        assert [simulation["id"] for simulation in simulations] == [created["id"]]


def test_the_demo_sends_the_token_of_the_platform_that_runs_whatever_its_own_environment_has(
    start_platform: StartPlatform,
) -> None:
    own = start_platform(scs_port=0, token=TOKEN)
    with open_platform(environ_of(own, *free_ports(2)), lambda _: None) as platform:
        assert platform.url == own.url
        with Client(platform.url, token=platform.token) as client:
            assert client.get("/v1/simulations")["items"] == []


def test_another_port_than_that_of_the_platform_that_runs_is_said_to_have_no_effect(
    start_platform: StartPlatform,
) -> None:
    own = start_platform(scs_port=0)
    for port, sentence in ((free_ports(1)[0], True), (own.port, False)):
        command = [sys.executable, "-m", "server.windtunnel_server", "up", "--port", str(port)]
        environ = environ_of(own, own.port, own.runner_api_port)
        finished = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
        assert finished.returncode == 0 and f"at {own.url}." in finished.stdout, finished
        assert (f"--port (WINDTUNNEL_PORT) {port} has no effect." in finished.stdout) is sentence, finished


def test_ctrl_c_before_it_serves_is_said_and_is_130(idle: PlatformProcess) -> None:
    command = [sys.executable, "-m", "server.windtunnel_server", "up", "--port", str(idle.port)]
    environ = environ_of(idle, idle.port, idle.runner_api_port)
    starting = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lock = idle.home / "run/supervisor.lock"
    until(lambda: lock.exists() and lock.read_text(), message="it does not start")
    starting.send_signal(signal.SIGINT)
    output = starting.communicate(timeout=60)[0]
    assert starting.returncode == 130 and "Stopping Windtunnel ..." in output and "Aborted" not in output, output


def test_ctrl_c_while_the_command_is_read_is_said_and_is_130(idle: PlatformProcess) -> None:
    program = (
        "import signal, server.local.commands as program;"
        " program.commands = lambda: signal.raise_signal(signal.SIGINT); program.main()"
    )
    finished = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (finished.returncode, finished.stderr) == (130, "Interrupted.\n")


@pytest.mark.parametrize("ready", [False, True], ids=["starting", "ready"])
def test_the_platform_ends_with_a_demo_that_is_terminated(idle: PlatformProcess, ready: bool) -> None:
    command = [sys.executable, "-m", "server.windtunnel_server", "demo"]
    environ = environ_of(idle, idle.port, idle.runner_api_port)
    demo = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    lock = idle.home / "run/supervisor.lock"
    until(lambda: idle.ready() if ready else lock.exists() and lock.read_text(), message="it does not start")
    supervisor = int(lock.read_text())
    demo.terminate()
    assert demo.wait(60) == 130
    assert not Path(f"/proc/{supervisor}").exists() and not idle.ready()


def test_the_demo_says_that_it_starts_before_the_platform_answers(idle: PlatformProcess) -> None:
    command = [sys.executable, "-m", "server.windtunnel_server", "demo"]
    environ = environ_of(idle, idle.port, idle.runner_api_port)
    demo = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert demo.stdout is not None
        assert demo.stdout.readline().startswith(f"Starting Windtunnel at {idle.url}")
        assert not idle.ready()
    finally:
        os.killpg(demo.pid, signal.SIGTERM)  # SIGINT may be ignored: a shell's background job inherits that
        demo.communicate(timeout=60)


def test_on_a_terminal_the_demo_serves_its_page_until_it_is_terminated(idle: PlatformProcess) -> None:
    environ = environ_of(idle, idle.port, idle.runner_api_port)
    environ.pop("CI", None)
    terminal = Terminal([sys.executable, "-m", "server.windtunnel_server", "demo"], ROOT, environ)
    try:
        page = terminal.until(r"(http://\S+/simulations/\w+) shows the results in a browser", 300)[1]
        shown = httpx.get(page, trust_env=False)
        assert shown.status_code == 200 and "succeeded" in shown.text
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.process.wait(60) == 0
        assert not idle.ready()
    finally:
        terminal.end()
