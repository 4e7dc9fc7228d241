"""Looks into tasks that run: on a platform, by its API and command line, and into the sandbox of a gang."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from runtimes.harness.gang.gang_runner import GangStopped
from runtimes.harness.gang.local_gang import LocalGang
from runtimes.harness.gang.looked_files import LARGEST_PIECE, NotShown, Seen
from tests.system.platform_process import PlatformProcess
from tests.system.test_local_gangs import GangHere
from tests.system.test_local_gangs import here as here  # a fixture
from tests.waiting import until
from windtunnel import Client, Refused
from windtunnel.look_records import TaskEntry
from windtunnel.port_forwarding import PortForwarding

#: A program whose ranks go on until a file says that they may end; each prints a line in each round.
GROWING = """
import itertools, json, os, pathlib, sys, time
rank, output = os.environ["WINDTUNNEL_RANK"], pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"])
for step in itertools.count():
    print(f"rank {rank} step {step}", flush=True)
    if rank == "0":
        with open(output / "residuals.csv", "a") as residuals:
            residuals.write(f"{step},{1 / (step + 1):.6f}\\n")
    if step >= 2 and pathlib.Path("end").exists() or step > 600:
        break
    time.sleep(0.1)
print(json.dumps({"steps": step}))
"""

HOSTILE = """
import os, pathlib, time
output = pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"])
(output / "passwd").symlink_to("/etc/passwd")
(output / "proc").symlink_to("/proc")
(output / "root").symlink_to("/")
os.mkfifo(output / "pipe")
with open(output / "sparse", "wb") as sparse:
    sparse.truncate(1 << 28)
for number in range(20_000):
    os.symlink("x", f"many-{number}")
(output / "ready").touch()
time.sleep(600)
"""


SERVING = """
import functools, http.server, os, pathlib, threading
folder = pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"])
(folder / "large").write_bytes(bytes(range(256)) * 8000)
(folder / "index.html").write_text("from inside")
serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), serve)
threading.Timer(600, server.shutdown).start()
server.serve_forever()
"""


class RunningGang:
    """A gang that runs a task in a thread, to look into."""

    def __init__(self, here: GangHere, program: str, **options: Any) -> None:
        self._here = here
        self.gang = here.gang(program, shown=True, **options)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._here.play(self.gang, 0)
        except GangStopped:
            pass

    def look(self, kind: str, path: str, offset: int = 0) -> Seen:
        task = self.gang.at_work
        if task is None:
            raise NotShown("there is no task")
        return task.look(kind, path, offset, LARGEST_PIECE)

    def names(self, path: str) -> set[str]:
        """Return the names in a folder; none if it cannot be looked at yet."""
        try:
            return {str(entry["name"]) for entry in self.look("list", path).entries}
        except (NotShown, OSError):
            return set()

    def close(self) -> None:
        self._here.agent.send(b"end")
        self._thread.join()


@pytest.fixture
def running(here: GangHere) -> Iterator[Any]:
    started: list[RunningGang] = []

    def start(program: str, **options: Any) -> RunningGang:
        started.append(RunningGang(here, program, **options))
        return started[-1]

    yield start
    for gang in started:
        gang.close()


def test_the_sandbox_of_a_running_gang_shows_its_folders_and_what_each_rank_prints(running: Any) -> None:
    gang = running(GROWING)
    until(lambda: {"0", "1"} <= gang.names("logs"))
    assert gang.names("") == {"output", "model", "checkpoints", "logs"}
    assert "model.py" in gang.names("model")
    until(lambda: b"rank 1 step 2" in gang.look("read", "logs/1").data)
    assert b"rank 0" not in gang.look("read", "logs/1").data
    until(lambda: b"\n2," in gang.look("read", "output/residuals.csv").data)


def test_a_program_cannot_lead_a_look_out_of_its_folders(running: Any) -> None:
    gang = running(HOSTILE, size=1)
    until(lambda: "ready" in gang.names("output"))
    for path in ("output/passwd", "output/proc/self/environ", "output/root/etc/passwd", "output/pipe"):
        with pytest.raises(NotShown):
            gang.look("read", path)
    assert gang.look("read", "output/sparse").data == b""
    assert gang.look("list", "model").more


def test_a_gang_that_may_not_be_looked_into_keeps_no_logs_and_shows_nothing(here: GangHere) -> None:
    program = "import json, os\nprint(json.dumps({'logs': 'WINDTUNNEL_RANK_LOGS' in os.environ}))"
    gang: LocalGang = here.gang(program, size=1)
    played = here.play(gang, 0)
    assert played.metrics == {"logs": False}
    assert gang.at_work is None


def test_a_port_that_a_program_listens_at_is_connected_to_from_outside_of_its_sandbox(running: Any) -> None:
    gang = running(SERVING, size=1)
    until(lambda: "index.html" in gang.names("output"))

    def fetched() -> bytes:
        try:
            with gang.gang.at_work.connect(8000) as connection:
                connection.sendall(b"GET /index.html HTTP/1.0\r\n\r\n")
                return b"".join(iter(lambda: connection.recv(1000), b""))
        except NotShown as error:
            assert "refused" in str(error)
            return b""

    assert until(fetched).endswith(b"from inside")
    with pytest.raises(NotShown, match="refused"):
        gang.gang.at_work.connect(8001)


@pytest.fixture(scope="module")
def open_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    """A platform whose operator lets people look."""
    process = PlatformProcess(
        tmp_path_factory.mktemp("looks") / "home", settings={"LOOK_INSIDE": "yes", "FORWARDED_PORTS": "8000"}
    )
    yield process.start()
    process.stop()


def submit(platform: PlatformProcess, program: str = GROWING, size: int = 2) -> str:
    """Start a simulation of a program; return its id once it runs."""
    gang = {"size": size, "command": ["python", "model.py"]}
    fields = {"dataset": "program", "scenarios": {"range": [0, 1]}, "gang": gang}
    id = str(platform.submit(model=program.encode(), filename="model.py", **fields)["id"])
    until(lambda: platform.http.get(f"/v1/simulations/{id}").json()["state"] == "running", 60.0)
    return id


def test_a_person_follows_a_file_of_a_running_task_and_the_look_is_recorded(open_platform: PlatformProcess) -> None:
    id = submit(open_platform)
    address = f"/v1/simulations/{id}/tasks/0/files"
    began = time.monotonic()
    until(lambda: open_platform.http.get(address, params={"path": "output"}).json().get("entries"), 30.0)
    print(f"first look after {time.monotonic() - began:.2f} s")
    names = {entry["name"] for entry in open_platform.http.get(address).json()["entries"]}
    assert names == {"output", "model", "checkpoints", "logs"}
    page = open_platform.http.get(f"/simulations/{id}/tasks/0/files", params={"path": "output"})
    assert (
        page.status_code == 200 and f"/simulations/{id}/tasks/0/files/content?path=output%2Fresiduals.csv" in page.text
    )
    shown = open_platform.http.get(f"/simulations/{id}/tasks/0/files/content", params={"path": "output/residuals.csv"})
    assert (
        shown.status_code == 200 and f'<growing-file src="{address}/content?path=output%2Fresiduals.csv">' in shown.text
    )
    assert "Look inside" in open_platform.http.get(f"/simulations/{id}").text
    text, offset, pieces = b"", 0, 0
    began = time.monotonic()
    while text.count(b"\n") < 20:
        query = {"path": "output/residuals.csv", "offset": offset, "wait_seconds": 20}
        answer = open_platform.http.get(f"{address}/content", params=query)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Security-Policy"].startswith("sandbox")
        text += answer.content
        offset = int(answer.headers["File-Offset"]) + len(answer.content)
        pieces += 1
    print(f"{pieces} pieces in {time.monotonic() - began:.2f} s")
    assert text.startswith(b"0,1.000000\n1,0.500000\n")
    [look] = [
        look for look in open_platform.http.get(f"/v1/simulations/{id}/looks").json()["items"] if look["kind"] == "read"
    ]
    assert (look["path"], look["times"], look["bytes"]) == ("output/residuals.csv", pieces, len(text))
    assert look["looked_by"] == "127.0.0.1"
    refused = {
        "nothing/there": 404,
        "output/none": 404,
        "output/../../x": 404,
    }
    for path, status in refused.items():
        assert open_platform.http.get(f"{address}/content", params={"path": path}).status_code == status
    for number in (-1, 7):
        other = open_platform.http.get(f"/v1/simulations/{id}/tasks/{number}/files")
        assert (other.status_code, other.json()["type"]) == (404, "/problems/unknown-task")
    unclear = open_platform.http.get(address, params={"path": "/etc"})
    assert unclear.status_code == 422 and "Write a path such as model/case" in unclear.text
    open_platform.http.post(f"/v1/simulations/{id}/cancel")
    open_platform.wait_for_end(id)
    ended = open_platform.http.get(address)
    assert (ended.status_code, ended.json()["type"]) == (409, "/problems/task-not-at-work")


def test_the_command_line_lists_folders_prints_files_and_follows_a_rank(
    open_platform: PlatformProcess, tmp_path: Path
) -> None:
    id = submit(open_platform)
    environ = {**os.environ, "WINDTUNNEL_URL": open_platform.url, "HOME": str(tmp_path)}

    def look(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "windtunnel", "look", id, *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)

    until(lambda: "residuals.csv" in look("0", "output").stdout, 60.0)
    folders = look()
    assert folders.returncode == 0 and all(name in folders.stdout for name in ("output/", "model/", "logs/")), folders
    assert [entry["name"] for entry in json.loads(look("0", "logs", "--output", "json").stdout)] == ["0", "1"]
    assert look("0", "output/residuals.csv").stdout.startswith("0,1.000000\n")
    follow = [sys.executable, "-m", "windtunnel", "look", id, "0", "logs/1", "--follow"]
    with subprocess.Popen(follow, env=environ, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert [following.stdout.readline().rpartition(" ")[0] for _ in range(3)] == ["rank 1 step"] * 3
        open_platform.http.post(f"/v1/simulations/{id}/cancel")
        following.stdout.read()
    assert "output/residuals.csv" in look("--records").stdout
    ended = look("0", "output")
    assert ended.returncode != 0 and "task-not-at-work" in ended.stderr


def test_without_the_operators_setting_nobody_looks(platform: PlatformProcess) -> None:
    id = submit(platform)
    refused = platform.http.get(f"/v1/simulations/{id}/tasks/0/files")
    assert (refused.status_code, refused.json()["type"]) == (403, "/problems/looks-not-allowed")
    platform.http.post(f"/v1/simulations/{id}/cancel")
    platform.wait_for_end(id)
    assert platform.http.get(f"/v1/simulations/{id}/looks").json()["items"] == []


def test_a_port_of_a_program_is_forwarded_to_this_machine_and_recorded(open_platform: PlatformProcess) -> None:
    id = submit(open_platform, SERVING, size=1)
    with Client(open_platform.url) as client:
        until(lambda: any(entry.name == "index.html" for entry in listed(client, id)), 60.0)
        said: list[str] = []
        forwarding = PortForwarding(client, id, 0, 8000, local_port=0, say=said.append)
        threading.Thread(target=forwarding.serve).start()
        with httpx.Client(base_url=f"http://127.0.0.1:{forwarding.local_port}", trust_env=False, timeout=30.0) as http:
            assert http.get("/index.html").text == "from inside"
            forwarding.check()
            began = time.monotonic()
            for _ in range(10):
                assert http.get("/index.html").text == "from inside"
            print(f"{(time.monotonic() - began) / 10 * 1000:.1f} ms for a page")
            began = time.monotonic()
            large = http.get("/large").content
            print(f"{len(large) / (time.monotonic() - began) / 1e6:.1f} MB/s")
            assert large == bytes(range(256)) * 8000
            with ThreadPoolExecutor(6) as threads:
                assert {answer.status_code for answer in threads.map(http.get, ["/index.html"] * 12)} == {200}
        until(lambda: open_platform.http.get(f"/v1/simulations/{id}/looks").json()["items"][-1]["bytes"] > len(large))
        forwarding.close()
        [look] = [look for look in client.looks.records(id) if look.kind == "connect"]
        assert (look.path, look.task, said) == ("8000", 0, []) and look.times >= 12
        with closing(PortForwarding(client, id, 0, 22, local_port=0, say=said.append)) as forbidden:
            with pytest.raises(Refused, match="FORWARDED_PORTS"):
                forbidden.check()
        client.simulations.cancel(id)
        client.simulations.wait(id)
        with pytest.raises(Refused, match="cancelled"):
            client.looks.connect(id, 0, 8000)


def listed(client: Client, id: str) -> list[TaskEntry]:
    """Return the outputs of a task, none if it is not at work yet."""
    try:
        return client.looks.list(id, 0, "output").entries
    except Refused:
        return []
