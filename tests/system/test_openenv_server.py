"""The OpenEnv server with OpenEnv's own client, and a platform that measures the same policies on equal scenarios."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.services.uploads.shipped_models import shipped
from datasets.catalogue import datasets
from runtimes import catalogue, environments
from tests.cached import ENVIRONMENTS
from tests.maps import town
from tests.ports import free_ports
from tests.system.platform_process import ROOT, PlatformProcess, die_with, share_environments
from tests.system.test_datasets import dataset_json, register
from tests.waiting import until

PROGRAM = Path(__file__).parent / "clients" / "openenv" / "program.py"
DOUBLES = "class Model:\n    def act(self, observation):\n        return observation * 2\n"
#: A policy of one dataset for each kind of simulator.
POLICIES = {
    "noop": DOUBLES,
    **{
        dataset: shipped()[datasets()[dataset].definition["yardstick"]].read_text()
        for dataset in (
            "car_street",
            "cartpole",
            "highway",
            "mujoco_reacher",
            "pettingzoo_simple_tag",
            "pettingzoo_tictactoe",
        )
    },
}


class OpenEnvServer:
    """A server of a dataset, started as by `make openenv`."""

    def __init__(self, home: Path, dataset: str, *options: str) -> None:
        self.dataset = dataset
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        home.mkdir(parents=True, exist_ok=True)
        share_environments(home)
        self._log = home / "terminal.log"
        parent = os.getpid()
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "local_play.openenv_server",
                    "--dataset",
                    dataset,
                    "--port",
                    str(self.port),
                    *options,
                ],
                cwd=ROOT,
                env={**os.environ, "WINDTUNNEL_HOME": str(home)},
                stdout=log,
                stderr=log,
                preexec_fn=lambda: die_with(parent),
            )
        until(self._serves, 60.0, lambda: f"the server does not start: {self.output()}")

    def _serves(self) -> bool:
        assert self.process.poll() is None, self.output()
        return "clients connect to" in self.output()

    def output(self) -> str:
        return self._log.read_text()

    def sessions(self) -> list[str]:
        """Return the ids of its children: one for each session with a simulator."""
        return Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split() + [
            child
            for task in Path(f"/proc/{self.process.pid}/task").iterdir()
            if task.name != str(self.process.pid)
            for child in (task / "children").read_text().split()
        ]

    def stop(self) -> int:
        """Press Ctrl-C and wait for the end; return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(15)


class Client:
    """A process with OpenEnv's own client, and a session of its own on the server."""

    def __init__(self, site: Path, url: str, token: str = "") -> None:
        boot = "import runpy, sys; sys.path[:0] = [sys.argv.pop(1)]; sys.argv.pop(0); runpy.run_path(sys.argv[0])"
        command = [sys.executable, "-S", "-P", "-c", boot, str(site), str(PROGRAM), url, *([token] if token else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")

    def order(self, verb: str, value: Any) -> dict[str, Any]:
        self.send(verb, value)
        return self.answer()

    def send(self, verb: str, value: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({verb: value}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def reset(self, **arguments: Any) -> dict[str, Any]:
        return self.order("reset", arguments)

    def step(self, **action: Any) -> dict[str, Any]:
        return self.order("step", action)

    def play(self, dataset: str, **reset: Any) -> dict[str, Any]:
        space = datasets()[dataset].definition["interface"]["observation"]
        form = {"dtype": space["dtype"], "shape": space["shape"]}
        return self.order("play", {"source": POLICIES[dataset], **form, "reset": reset})

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


Serve = Callable[..., OpenEnvServer]
Connect = Callable[..., Client]


@pytest.fixture(scope="module")
def site(prepared_environments: None) -> Path:
    return environments.prepare(catalogue.servers()["openenv_server"], ENVIRONMENTS, lambda message, fraction: None)


@pytest.fixture
def serve(site: Path, tmp_path: Path) -> Iterator[Serve]:
    started: list[OpenEnvServer] = []

    def start(dataset: str, *options: str) -> OpenEnvServer:
        started.append(OpenEnvServer(tmp_path / f"home-{len(started)}", dataset, *options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def connect(site: Path) -> Iterator[Connect]:
    clients: list[Client] = []

    def start(server: OpenEnvServer, token: str = "") -> Client:
        clients.append(Client(site, server.url, token))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


@pytest.mark.parametrize("dataset", POLICIES)
def test_the_policy_trained_is_the_policy_measured(
    platform: PlatformProcess, serve: Serve, connect: Connect, dataset: str
) -> None:
    measured = platform.run(
        model=POLICIES[dataset].encode(), dataset=dataset, seed=11, repeat=2, scenarios={"tasks": [2, 1]}
    )
    results = platform.results(measured["id"])
    assert {result["status"] for result in results} == {"ok"} and len(results) == 4
    client = connect(serve(dataset))
    for result in reversed(results):
        scenario = result["scenario"]
        played = client.play(dataset, scenario=scenario["index"], repeat=scenario["repeat"], seed=11)
        assert played["metadata"]["metrics"] == result["metrics"]
        assert played["metadata"]["scenario_seed"] == scenario["seed"]
        if (score := datasets()[dataset].definition["score"]) is not None:
            assert played["total"] == pytest.approx(result["metrics"][score["metric"]])


def test_parameters_are_those_of_a_simulation(platform: PlatformProcess, serve: Serve, connect: Connect) -> None:
    params = {"latency_steps": 3, "lane_guard": True}
    measured = platform.run(
        model=POLICIES["car_street"].encode(), dataset="car_street", params=params, scenarios={"tasks": [40]}
    )
    client = connect(serve("car_street", "--param", "latency_steps=3", "--param", "lane_guard=true"))
    played = client.play("car_street", scenario=40)
    assert played["metadata"]["metrics"] == platform.results(measured["id"])[0]["metrics"]


def test_a_registered_dataset_of_a_platform_is_served_and_measured(
    platform: PlatformProcess, serve: Serve, connect: Connect
) -> None:
    starts = ({"name": f"start {low}", "options": {"low": low, "high": 0.0}} for low in (-0.2, -0.1))
    lines = "".join(json.dumps(start) + "\n" for start in starts).encode()
    register(platform, "starts", {"dataset.json": dataset_json("cartpole"), "lines.ndjson": lines})
    measured = platform.run(model=POLICIES["cartpole"].encode(), dataset="starts", seed=3)
    client = connect(serve("starts@1", "--server", platform.url))
    for result in platform.results(measured["id"]):
        played = client.play("cartpole", scenario=result["scenario"]["index"], seed=3)["metadata"]
        assert (played["metrics"], played["name"]) == (result["metrics"], result["scenario"]["name"])


def test_a_registered_map_is_driven_as_in_a_simulation(
    platform: PlatformProcess, serve: Serve, connect: Connect
) -> None:
    description = {"extends": "car_street", "maps": [{"file": "town.xodr", "name": "town"}], "generate": {"count": 3}}
    register(platform, "town", {"dataset.json": json.dumps(description).encode(), "town.xodr": town()})
    measured = platform.run(model=POLICIES["car_street"].encode(), dataset="town", scenarios={"tasks": [2]})
    client = connect(serve("town", "--server", platform.url))
    played = client.play("car_street", scenario=2)["metadata"]
    assert played["metrics"] == platform.results(measured["id"])[0]["metrics"]


def test_a_dataset_that_the_platform_lacks_is_refused_in_its_words(platform: PlatformProcess, tmp_path: Path) -> None:
    register(platform, "files", {"readme.txt": b"no scenarios"})
    for name, reason in {"starst": "There is no dataset", "files": "holds files, not scenarios"}.items():
        command = [sys.executable, "-m", "local_play.openenv_server", "--dataset", name, "--server", platform.url]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 2 and reason in ended.stderr, ended.stderr


def test_four_clients_at_once_play_as_if_alone_and_a_fifth_is_refused(serve: Serve, connect: Connect) -> None:
    server = serve("car_street")
    alone = connect(server)
    expected = [alone.play("car_street", scenario=scenario)["metadata"] for scenario in range(4)]
    clients = [alone, *(connect(server) for _ in range(3))]
    with ThreadPoolExecutor(4) as threads:
        played = list(threads.map(lambda index: clients[index].play("car_street", scenario=index), range(4)))
    assert [result["metadata"] for result in played] == expected
    assert len(server.sessions()) == 4
    assert "CAPACITY_REACHED" in connect(server).reset()["error"]
    answer = httpx.post(f"{server.url}/reset", json={}, timeout=60)
    assert answer.status_code == 503 and "All 4 sessions of this server are in use" in answer.json()["detail"]
    for client in clients[:2]:
        client.close()
    until(lambda: len(server.sessions()) == 2, message="processes of clients that are gone go on")
    assert connect(server).play("car_street", scenario=0)["metadata"] == expected[0]


def test_errors_leave_the_session_usable(serve: Serve, connect: Connect) -> None:
    client = connect(serve("car_street"))
    assert "No scenario is under way: reset first" in client.step(values=[0, 0])["error"]
    first = client.reset(scenario=3)
    assert first["reward"] is None and first["metadata"]["scenario"] == 3
    names = datasets()["car_street"].definition["interface"]["observation"]["names"]
    assert first["observation"]["named"] == dict(zip(names, first["observation"]["values"], strict=True))
    faults = {
        "The action has 2 numbers; 1 came": {"values": [0]},
        "is not finite (nan)": {"values": [float("nan"), 0]},
        "The action was not applied: the action is not finite": {"values": [1e300, 0]},
        "lacks the field 'lane'": {"accel": 1},
        "has no field 'brake'": {"brake": 1},
    }
    for text, action in faults.items():
        assert text in client.step(**action)["error"]
    assert "`scenario` is a whole number from 0 to 287" in client.reset(scenario=288)["error"]
    assert "`episode_id` is a text of up to 255 characters, not 7" in client.reset(scenario=1, episode_id=7)["error"]
    assert "`reset` has no argument 'scenarioo'" in client.reset(scenarioo=1)["error"]
    assert client.step(accel=0.5, lane=0)["done"] is False
    assert client.order("state", {})["step_count"] == 1
    assert client.reset(split="scenarios", index=5)["metadata"]["scenario"] == 5


def test_a_crash_of_a_simulator_ends_the_scenario_and_neither_the_session_nor_the_server(
    serve: Serve, connect: Connect
) -> None:
    server = serve("noop", "--param", "crash_at=1", "--param", "raise_at=2")
    client, neighbour = connect(server), connect(server)
    neighbour.reset(scenario=7)
    client.reset(scenario=1)
    assert "has ended: it exited with code 1. The scenario is lost" in client.step(values=[0] * 4)["error"]
    assert "No scenario is under way" in client.step(values=[0] * 4)["error"]
    client.reset(scenario=2)
    assert "RuntimeError: the parameter raise_at names this scenario" in client.step(values=[0] * 4)["error"]
    client.reset(scenario=3)
    assert client.step(values=[1, 2, 3, 4])["metadata"]["metrics"]["value"] == 10
    assert neighbour.step(values=[1, 1, 1, 1])["metadata"]["metrics"]["value"] == 4


def test_a_server_stops_although_a_simulator_hangs(serve: Serve, connect: Connect) -> None:
    server = serve("noop", "--param", "hang_at=1")
    client = connect(server)
    client.reset(scenario=1)
    client.send("step", {"values": [0] * 4})
    assert server.stop() == 0


def test_an_idle_session_is_ended_and_its_client_told(serve: Serve, connect: Connect) -> None:
    server = serve("noop", "--idle", "1")
    client = connect(server)
    client.reset(scenario=1)
    assert len(server.sessions()) == 1
    until(lambda: not server.sessions(), 30.0, message="the process of an idle session goes on")
    for answer in (client.step(values=[0] * 4), client.reset(scenario=1)):
        assert "This session was closed after 1 s without a request: connect again" in answer["error"]
    assert not server.sessions()


def test_http_describes_the_dataset_and_openenvs_own_check_passes(serve: Serve, site: Path) -> None:
    server = serve("car_street")
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        schema = http.get("/schema").json()
        interface = datasets()["car_street"].definition["interface"]
        named = schema["observation"]["properties"]["named"]["properties"]
        assert list(named) == interface["observation"]["names"]
        assert [entry["description"] for entry in named.values()] == [
            unit or "no unit" for unit in interface["observation"]["units"]
        ]
        assert schema["action"]["properties"]["accel"]["minimum"] == -9
        metadata = http.get("/metadata").json()
        assert metadata["name"] == "car_street" and "| accel | m/s2 | -9.0 | 3.0 |" in metadata["readme_content"]
        assert http.post("/car_street/num_tasks", json={"split": "scenarios"}).json() == {"num_tasks": 288}
        assert http.post("/car_street/task", json={"split": "scenarios", "index": 288}).status_code == 400
        started = http.post("/reset", json={"scenario": 3}).json()
        assert started["metadata"]["scenario"] == 3 and len(started["observation"]["values"]) == 32
        lost = http.post("/step", json={"action": {"values": [0, 0]}})
        assert lost.status_code == 409 and "each HTTP request" in lost.json()["detail"]
        assert http.post("/reset", json={"scenario": 288}).status_code == 422
        assert http.get("/health", headers={"Origin": "http://evil.example"}).status_code == 403
        assert http.get("/health", headers={"Host": "evil.example"}).status_code == 421
    until(lambda: not server.sessions(), message="a process outlives its HTTP request")
    check = (
        "import sys; sys.path[:0] = [sys.argv[1]]; "
        "from openenv.cli._validation import validate_running_environment as check; print(check(sys.argv[2]))"
    )
    report = subprocess.run(
        [sys.executable, "-S", "-P", "-c", check, str(site), server.url], capture_output=True, text=True, timeout=60
    )
    assert "'passed': True" in report.stdout, report.stdout + report.stderr
    assert server.stop() == 0


def test_a_server_with_a_token_refuses_clients_without_it(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    server = serve("noop", "--token-file", str(token), "--host", "0.0.0.0")
    assert connect(server, token.read_text().strip()).reset(scenario=1)["metadata"]["scenario"] == 1
    assert httpx.post(f"{server.url}/reset", json={}).status_code == 401
    assert httpx.get(f"{server.url}/health").status_code == 200
    assert "HTTP 401" in connect(server).answer()["error"]
    command = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    assert token.read_bytes().strip() not in command


def test_the_examples_of_a_typed_client_and_of_a_search_work(serve: Serve, site: Path) -> None:
    server = serve("cartpole")
    program = (
        "import sys; sys.path[:0] = sys.argv[1:3]; import client, cross_entropy as search\n"
        "with client.DatasetClient(base_url=sys.argv[3]).sync() as env:\n"
        "    result = env.reset(scenario=1)\n"
        "    while not result.done:\n"
        "        result = env.step([0.0])\n"
        "    print(result.observation.metrics['outcome'])\n"
        "search.SAMPLES, search.ROUNDS = 8, 1\n"
        "with search.GenericEnvClient(base_url=sys.argv[3]).sync() as env:\n"
        "    print(search.episode(env, search.search(env), scenario=17))\n"
    )
    folder = ROOT / "examples" / "openenv"
    ended = subprocess.run(
        [sys.executable, "-S", "-P", "-c", program, str(site), str(folder), server.url],
        capture_output=True,
        text=True,
        timeout=200,
    )
    outcome, total = ended.stdout.split()
    assert outcome == "fell" and float(total) > 1, ended.stderr
