"""Ranks of a worker whose program is hostile: they reach nothing of the platform, and their worker plays on."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.platform_process import ROOT, PlatformProcess

LONG = 300.0
MODEL = b"class Model:\n    def act(self, observation):\n        return [0.0]\n"
#: What a copy of the platform's code is made of.
CODE = (
    "api",
    "cli",
    "common",
    "core",
    "datasets",
    "halo",
    "kube",
    "local_play",
    "runtimes",
    "server",
    "web",
    "workers",
)

# It looks for whatever its worker and its machine have, prints what it could reach, and computes the flow then.
HOSTILE = """
import ctypes, json, os, socket, stat, struct
from pathlib import Path
TARGETS = {targets!r}
LIBC = ctypes.CDLL(None, use_errno=True)
PROC = next(path for path in ("/proc/own", "/proc") if os.path.isdir(path))
own = {{os.getpid(), os.getppid()}}
others = [int(name) for name in os.listdir(PROC) if name.isdigit() and int(name) not in own]
def line(pid):
    try:
        return Path(f"{{PROC}}/{{pid}}/cmdline").read_bytes().replace(b"\\0", b" ").decode()
    except OSError:
        return ""
starters = [pid for pid in others if "simulator_ranks" in line(pid)]
def sockets():
    # A launcher has made some for its ranks. The process that made one which leads outside has no number in here.
    for number in range(3, 64):
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
        except OSError:
            continue
        with socket.socket(fileno=os.dup(number)) as own:
            try:
                inside = own.family == socket.AF_INET or struct.unpack("3i", own.getsockopt(1, 17, 12))[0]
            except OSError:
                inside = False
        if not inside:
            yield number
def read(path):
    with open(path, "rb") as file:
        return file.read(64)
def taken(pid):
    handle = os.pidfd_open(pid)
    found = [LIBC.syscall(438, handle, number, 0) for number in range(3, 64)]
    return [number for number in found if number >= 0]
def connected(family, address):
    with socket.socket(family) as connection:
        connection.settimeout(2)
        connection.connect(address)
        return True
def appended(path):
    with open(path, "ab"):
        return True
def probes():
    yield "a socket that leads outside", lambda: list(sockets())
    yield "a secret in its environment", lambda: [name for name in os.environ if "TOKEN" in name]
    yield "processes of the platform", lambda: [
        pid for pid in others if any(word in line(pid) for word in ("runner.runner", "evaluator.", "model_server."))
    ]
    for pid in starters:
        yield "descriptors of what started it", lambda: os.listdir(f"{{PROC}}/{{pid}}/fd")
        yield "the connection of what started it", lambda: taken(pid)
        yield "memory of what started it", lambda: open(f"{{PROC}}/{{pid}}/mem", "r+b")
        yield "environment of what started it", lambda: read(f"{{PROC}}/{{pid}}/environ")
    for path in TARGETS["folders"]:
        yield "list " + path, lambda: os.listdir(path)
    for path in TARGETS["files"]:
        yield "read " + path, lambda: read(path)
    for path in TARGETS["sockets"]:
        yield "connect to " + path, lambda: connected(socket.AF_UNIX, path)
    for port in TARGETS["ports"]:
        yield f"connect to port {{port}}", lambda: connected(socket.AF_INET, ("127.0.0.1", port))
    yield "write to the platform's code", lambda: appended(__file__)
    yield "write to the packages", lambda: appended(os.__file__)
for name, probe in probes():
    try:
        reached = probe()
    except Exception as error:
        reached = None
    print("probe " + json.dumps([name, repr(reached)[:100] if reached else None]), flush=True)
from harness.simulators.flow.own_flow_ranks import main
main()
"""


@pytest.fixture
def hostile_code(tmp_path: Path) -> Path:
    """A copy of the platform's code, in which the ranks of flows are not yet hostile."""
    root = tmp_path / "code"
    for name in CODE:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, root / path.name)
    return root


@pytest.fixture
def start(hostile_code: Path, tmp_path: Path, prepared_environments: None) -> Iterator[Any]:
    """A function that starts a platform whose ranks are hostile to it."""
    started: list[PlatformProcess] = []

    def start(**settings: str) -> PlatformProcess:
        home = tmp_path / f"home-{len(started)}"
        platform = PlatformProcess(home, settings=settings, root=hostile_code)
        started.append(platform)
        make_hostile(hostile_code, platform)
        return platform.start()

    yield start
    for platform in started:
        platform.stop()


def make_hostile(code: Path, platform: PlatformProcess) -> None:
    """Replace the program of the ranks of flows by one that is hostile to a platform."""
    home = platform.home
    targets = {
        "folders": [str(home / name) for name in ("", "run", "launches", "objects", "cache", "plays")],
        "files": [str(home / "windtunnel.db"), str(home / "run" / "valkey.password")],
        "sockets": [str(home / "run" / name) for name in ("agent.sock", "valkey.sock")],
        "ports": [platform.port, platform.runner_api_port, platform.scs_port],
    }
    flow = code / "runtimes" / "harness" / "simulators" / "flow"
    shutil.copy2(ROOT / "runtimes" / "harness" / "simulators" / "flow" / "flow_ranks.py", flow / "own_flow_ranks.py")
    (flow / "flow_ranks.py").write_text(HOSTILE.format(targets=targets))


def reached(platform: PlatformProcess) -> dict[str, str | None]:
    """Run a simulation of two scenarios; return what its ranks could reach, by what they tried."""
    ended = platform.run(
        model=MODEL,
        dataset="flow_control",
        scenarios={"range": [0, 2]},
        params={"steps": 4},
        workers=1,
        wait_timeout=LONG,
    )
    assert ended["state"] == "succeeded", ended["reason"]
    assert [result["status"] for result in platform.results(ended["id"])] == ["ok", "ok"]
    text = platform.http.get(f"/v1/simulations/{ended['id']}/logs").text
    probes = [json.loads(line.partition("probe ")[2]) for line in text.splitlines() if "probe [" in line]
    return {name: found for name, found in probes}


def test_a_hostile_rank_reaches_nothing_of_its_worker_or_its_machine(start: Any) -> None:
    found = reached(start())
    assert len(found) > 15, found
    assert {name: got for name, got in found.items() if got is not None} == {}


def test_without_a_sandbox_a_hostile_rank_reaches_what_it_looks_for(start: Any) -> None:
    platform = start(SANDBOX="none")
    found = reached(platform)
    needed = {f"list {platform.home}", f"read {platform.home}/windtunnel.db", f"connect to port {platform.port}"}
    needed |= {
        f"connect to {platform.home}/run/agent.sock",
        "write to the platform's code",
        "processes of the platform",
    }
    assert needed <= {name for name, got in found.items() if got is not None}, found
