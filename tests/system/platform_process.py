"""Platform processes of system tests: started as by `make run`, observed in /proc, stopped as by Ctrl-C."""

import ctypes
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import redis

from tests.cached import ENVIRONMENTS
from tests.ports import free_ports
from tests.waiting import until

ROOT = Path(__file__).parent.parent.parent
MODELS = Path(__file__).parent / "models"
FINAL = frozenset({"succeeded", "failed", "errored", "cancelled"})
#: Every role that can be killed, outermost first; the last three live in launches.
ROLES = ("valkey", "api", "runner-api", "dispatch", "jobs", "agent", "scs", "runner", "evaluator", "model_server")
#: Seconds until a platform must answer; the first platform may also prepare environments.
START_TIMEOUT = 60.0
#: Seconds until a simulation must have ended.
END_TIMEOUT = 120.0
_HARNESS = re.compile(r"from harness\.(runner|evaluator|model_server)\.(?:runner|evaluator|confined_start) import")
#: A fork server, and what it forks: these have its command line, and another name.
_FORKED, _FORK_SERVER = re.compile(r'"module": "(runner|evaluator|model_server)"'), "fork_server"


class PlatformProcess:
    """One supervisor and its processes, with its own home; ``root`` is the folder of the platform's code."""

    def __init__(self, home: Path, *, settings: Mapping[str, str] | None = None, root: Path = ROOT) -> None:
        self.home = home
        self._root = root
        self.port, self.runner_api_port, self.scs_port = free_ports(3)
        self.url = f"http://127.0.0.1:{self.port}"
        self.terminal_log = home / "terminal.log"
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.http = httpx.Client(base_url=self.url, timeout=120.0, trust_env=False)
        home.mkdir(parents=True, exist_ok=True)
        share_environments(home)

    # -- start and stop

    def start(self) -> "PlatformProcess":
        """Start the platform and wait until it answers."""
        process = self.begin()

        def ready() -> bool:
            assert process.poll() is None, f"the platform has ended: {self.output()[-3000:]}"
            return self.ready()

        until(ready, START_TIMEOUT, lambda: f"the platform does not start: {self.output()[-3000:]}")
        return self

    def begin(self) -> "subprocess.Popen[bytes]":
        """Start the platform's supervisor, also while the servers that it needs are away."""
        self._process = self.supervise()
        return self._process

    def supervise(self) -> "subprocess.Popen[bytes]":
        """Start a supervisor in this home, as `make run` does."""
        parent = os.getpid()
        ports = {"PORT": self.port, "RUNNER_API_PORT": self.runner_api_port, "SCS_PORT": self.scs_port}
        values = {"HOME": self.home, **ports, **self._settings}
        environ = {key: value for key, value in os.environ.items() if not key.startswith("WINDTUNNEL_")}
        environ |= {f"WINDTUNNEL_{key}": str(value) for key, value in values.items()}
        with open(self.terminal_log, "ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "server", "run"],
                cwd=self._root,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: die_with(parent),
            )

    def ready(self) -> bool:
        """Return whether the platform answers that it is ready."""
        try:
            return self.http.get("/readyz", timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    def output(self) -> str:
        """Return the platform's output on its terminal."""
        return self.terminal_log.read_text(errors="replace")

    def interrupt(self, timeout: float = 30.0) -> int:
        """Press Ctrl-C and wait for the end; return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(timeout)

    def crash(self) -> None:
        """Kill the supervisor, which ends all its processes, and wait for their end."""
        assert self._process is not None
        processes = {pid: (started_at, role_of(pid)) for pid, started_at in self.processes().items()}
        self._process.kill()
        self._process.wait()

        def alive() -> list[str]:
            return [f"{role} ({pid})" for pid, (started_at, role) in processes.items() if lives(pid, started_at)]

        until(lambda: not alive(), message=lambda: f"processes outlive the supervisor: {', '.join(alive())}")

    def stop(self) -> None:
        """Stop the platform in any state; idempotent."""
        if self._process is not None and self._process.poll() is None:
            try:
                self.interrupt()
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self.http.close()

    # -- processes

    @property
    def began(self) -> bool:
        """Whether a supervisor was started and has not been seen to end."""
        return self._process is not None and self._process.poll() is None

    def processes_with_parents(self) -> dict[int, int]:
        """Return the supervisor's descendants and their parents."""
        own = self.processes()
        return {pid: parent for pid, (parent, _) in census() if pid in own}

    def processes(self) -> dict[int, int]:
        """Return the supervisor and its descendants, by process id, with their start times in clock ticks."""
        assert self._process is not None
        table = dict(census())
        children: dict[int, list[int]] = {}
        for pid, (parent, _) in table.items():
            children.setdefault(parent, []).append(pid)
        descendants, waiting = {}, [self._process.pid]
        while waiting:
            pid = waiting.pop()
            if pid in table:
                descendants[pid] = table[pid][1]
            waiting += children.get(pid, [])
        return descendants

    def pids(self, role: str) -> list[int]:
        """Return the ids of the processes of a role."""
        return sorted(pid for pid in self.processes() if role_of(pid) == role)

    def kill(self, role: str, rng: random.Random) -> int:
        """Wait for a process of a role, kill it and return its id."""

        def killed() -> int:
            pids = self.pids(role)
            return pid if pids and self.kill_process(pid := rng.choice(pids)) else 0

        return until(killed, message=lambda: f"no process of the role {role} runs: {self.output()[-2000:]}")

    def kill_process(self, pid: int) -> bool:
        """Kill a process of this platform; return whether it still existed."""
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            if pid not in self.processes():
                return False  # the id belongs to another process by now
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)

    def flush_redis(self) -> None:
        """Empty the notifier's Redis, as an operator might."""
        run = self.home / "run"
        connection = redis.Redis(
            unix_socket_path=str(run / "valkey.sock"), password=(run / "valkey.password").read_text()
        )
        with connection:
            connection.flushall()

    # -- simulations, over HTTP

    def submit(self, *, model: Any = None, filename: str = "model.py", **fields: Any) -> dict[str, Any]:
        """Submit a simulation and return the accepted representation."""
        response = self.post(model=model, filename=filename, **fields)
        assert response.status_code == 201, response.text
        return dict(response.json())

    def post(
        self,
        *,
        model: Path | bytes | str | None = None,
        filename: str = "model.py",
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> httpx.Response:
        """Send a submission as JSON, or as a form if it has a model's file instead of its name."""
        if model is None or isinstance(model, str):
            return self.http.post("/v1/simulations", json={"model": model, **fields}, headers=headers)
        data = model.read_bytes() if isinstance(model, Path) else model
        return self.http.post("/v1/simulations", data=form(fields), files={"model": (filename, data)}, headers=headers)

    def get(self, id: str) -> dict[str, Any]:
        """Return a simulation as it is now, also while API processes restart."""
        return dict(self.get_until_answered(f"/v1/simulations/{id}").json())

    def get_until_answered(self, path: str) -> httpx.Response:
        """Repeat a GET until it is answered with a status below 500."""

        def answered() -> httpx.Response | None:
            try:
                response = self.http.get(path)
            except httpx.TransportError:
                return None
            return response if response.status_code < 500 else None

        response = until(answered, message=f"{path} is not answered")
        assert response is not None
        return response

    def wait_for_end(self, id: str, timeout: float = END_TIMEOUT) -> dict[str, Any]:
        """Wait until a simulation has ended and return it."""
        simulation: dict[str, Any] = {}

        def has_ended() -> bool:
            simulation.update(self.get(id))
            return simulation["state"] in FINAL

        until(has_ended, timeout, lambda: f"the simulation has not ended: {simulation} {self.output()[-2000:]}")
        summary = self.get_until_answered(f"/v1/simulations/{id}/summary")
        assert summary.status_code == 200, f"it has ended, and its summary says otherwise: {summary.text}"
        return simulation

    def run(self, *, wait_timeout: float = END_TIMEOUT, **fields: Any) -> dict[str, Any]:
        """Submit a simulation, wait for its end and return it."""
        return self.wait_for_end(self.submit(**fields)["id"], wait_timeout)

    def lines(self, id: str) -> list[bytes]:
        """Return all result lines, in task order."""
        response = self.get_until_answered(f"/v1/simulations/{id}/results")
        assert response.status_code == 200, response.text
        return response.content.splitlines()

    def results(self, id: str) -> list[dict[str, Any]]:
        """Return all results, parsed."""
        return [json.loads(line) for line in self.lines(id)]

    def summary(self, id: str) -> dict[str, Any]:
        """Return the summary of a simulation."""
        response = self.get_until_answered(f"/v1/simulations/{id}/summary")
        assert response.status_code == 200, response.text
        return dict(response.json())


# -- processes of this machine


def census() -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield every live process of this machine as (id, (parent, start time in clock ticks))."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                stat = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if stat[0] not in "ZX":
                    yield int(entry), (int(stat[1]), int(stat[19]))


def lives(pid: int, started_at: int) -> bool:
    """Return whether the process with this id and start time is alive."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return stat[0] not in "ZX" and int(stat[19]) == started_at


def role_of(pid: int) -> str | None:
    """Return the role of a process by its command line, or None."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    if arguments[1:4] == ["-m", "server", "run"]:
        return name if (name := name_of(pid)) in ROLES else "run"  # a fork of the supervisor, or the supervisor
    if arguments[1:3] == ["-m", "server"]:
        return arguments[3]
    if "valkey" in Path(arguments[0]).name:
        return "valkey"
    for argument in arguments:
        if match := _HARNESS.search(argument):
            return match[1]
    if any(f"harness.runner.{_FORK_SERVER} import" in argument for argument in arguments):
        forked = _FORKED.search(arguments[-2])
        return forked[1] if forked is not None and name_of(pid) != _FORK_SERVER else _FORK_SERVER
    return None


def name_of(pid: int) -> str:
    """Return the name of a process: that of its role or runner if it was forked; "" once it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies, so that a killed test run leaves no process."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def share_environments(home: Path) -> None:
    """Let a platform under test use the cached environments; the first platform that needs an environment makes it."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    if not (home / "environments").exists():
        (home / "environments").symlink_to(ENVIRONMENTS)


# -- requests and results


def form(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return a submission as form fields: texts unchanged, other values as JSON."""
    texts = {"dataset", "runtime", "model", "record"}
    return {name: value if name in texts else json.dumps(value) for name, value in fields.items()}


def untimed(line: bytes) -> bytes:
    """Return a result line without its `timing`, which is its last member."""
    return line[: line.rindex(b',"timing":')]


def has_one_result_per_task(results: Sequence[Mapping[str, Any]], total: int) -> bool:
    """Return whether there is exactly one result for each task, in order."""
    return [result["task"] for result in results] == list(range(total))
