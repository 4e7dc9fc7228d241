"""The attack suite in a real pod of the installed platform: as a user's model, and as an unconfined process beside it.

The outcomes must be those of docs/sandbox.md, for the model and for an unconfined process of the same container: an
attack that fails without confinement, too, would prove nothing.
"""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.platform_release import PROJECT, PlatformRelease, without_timing
from tests.cluster.pod_exec import Container, bundle, metadata_service, model_source, outcomes, target_addresses
from tests.waiting import until
from workers.executors.kubernetes import names

DOCUMENT = Path(__file__).parents[2] / "docs" / "sandbox.md"
FOLDER = "/tmp/stage"
#: The suite's stage for a process of the same container; the attacked process is the first process of the container.
STAGE = {
    "runner": 1,
    "tmp": "/tmp",
    "folder": FOLDER,
    "ready": f"{FOLDER}/ready",
    "key": f"{FOLDER}/driver/key",
    "database": f"{FOLDER}/driver/database",
    "environment": "/opt/windtunnel/site",  # a model server may read all of it
    "module": "/opt/windtunnel/site/numpy/__init__.py",
    "model": f"{FOLDER}/driver/model.bin",
    "tcp": 18001,
    "udp": 18002,
    "path_socket": f"{FOLDER}/agent",
    "datagram_socket": f"{FOLDER}/log",
    "abstract_socket": FOLDER,
}


class AttackedLaunch:
    """A launch whose model runs every attack, and an unconfined process in its container that runs the same attacks."""

    def __init__(self, platform: PlatformRelease, cluster: Cluster) -> None:
        self.platform, self.cluster = platform, cluster
        self.stage = STAGE | target_addresses(platform, cluster)
        self.id = self.submit("attacking_model", scenarios={"range": [0, 10_000]}, params={"sleep_ms": 200})

    def submit(self, name: str, **request: Any) -> str:
        """Upload a model of the tests and submit a simulation with it."""
        self.platform.until(lambda: self.platform.ready, "the API answers")
        source = model_source(name, self.stage)
        file = {"file": (f"{name}.py", source)}
        response = httpx.post(f"{self.platform.url}/v1/models", data={"name": name}, files=file, timeout=60.0)
        assert response.status_code == 201, response.text
        request = {"scenarios": {"range": [0, 3]}} | request
        return self.platform.submit(dataset="noop", runtime="python", model=name, workers=1, **request)

    def run_attacks(self) -> None:
        """Run all attacks, confined and unconfined."""
        platform, selector = self.platform, f"windtunnel/simulation={names.label(self.id)}"
        platform.until(lambda: platform.pods(selector), "there is a pod")
        self.spec = platform.pods(selector)[0]["spec"]
        pod = platform.pods(selector)[0]["metadata"]["name"]

        def containers_run() -> bool:
            statuses = platform.pods(selector)[0]["status"].get("containerStatuses", [])
            return len(statuses) == 3 and all("running" in status["state"] for status in statuses)

        platform.until(containers_run, "its containers run")
        self.containers = {
            name: Container(self.cluster, PROJECT, pod, name) for name in ("runner", "evaluator", "model-server")
        }
        beside = self.containers["model-server"]
        with beside.start(bundle("import victim; victim.main(__import__('attack_stage').STAGE)", self.stage)) as victim:
            platform.until(lambda: "all attacks have run" in self.logs(self.id), "the model has run all attacks")
            self.confined = outcomes(self.logs(self.id))
            self.unconfined = outcomes(
                beside.python(
                    bundle(
                        "import attack_runner, attack_stage; attack_runner.run_all(attack_stage.STAGE, bombs=False)",
                        self.stage,
                    )
                )
            )
            assert victim.stdin is not None
            victim.stdin.close()
        launch = self.containers["runner"].python("print(open('/run/windtunnel/token/launch.json').read())")
        self.launch = json.loads(launch)
        self.token = self.containers["runner"].python("print(open('/run/windtunnel/token/token').read())").strip()

    def logs(self, id: str) -> str:
        """Return a simulation's log."""

        def response_or_none() -> httpx.Response | None:
            try:
                return httpx.get(f"{self.platform.url}/v1/simulations/{id}/logs?raw=true", timeout=30.0)
            except httpx.TransportError:
                return None

        response = until(response_or_none, message="the logs are not served")
        assert response is not None
        return response.text

    def search_token(self, container: str) -> Any:
        """Search for the launch's token from a container; return the report."""
        code = bundle("import secret_search; secret_search.main(sys.stdin.readline().strip())", self.stage)
        return json.loads(self.containers[container].python(code, stdin=f"{self.token}\n"))


@pytest.fixture(scope="module")
def attacked_launch(platform: PlatformRelease, own_cluster: Cluster) -> Iterator[AttackedLaunch]:
    """A launch after its attacks; its simulation continues while the tests run."""
    with metadata_service(own_cluster):
        launch = AttackedLaunch(platform, own_cluster)
        try:
            launch.run_attacks()
            yield launch
        finally:
            platform.cancel(launch.id)
            platform.wait_for_end(launch.id)


def documented(column: str) -> dict[str, str]:
    """Read a column of the document's table of attacks that has it."""
    lines = iter(DOCUMENT.read_text().splitlines())
    header = next(cells for cells in map(cells_of, lines) if cells[:1] == ["attack"] and column in cells)
    next(lines)  # the rule below the header
    rows = itertools.takewhile(bool, map(cells_of, lines))
    return {cells[0].strip("`"): cells[header.index(column)] for cells in rows}


def cells_of(line: str) -> list[str]:
    """Return the cells of a table's line; none of another line."""
    return [cell.strip() for cell in line.split("|")[1:-1]]


def printed_results(outcomes: dict[str, tuple[str, str, str]]) -> dict[str, str]:
    """Print the outcomes, for the report of a failed test, and return the results."""
    for name, (result, details, _) in outcomes.items():
        print(f"{name:36} {result:10} {details}")
    return {name: result for name, (result, _, _) in outcomes.items()}


def test_a_model_in_a_pod_is_confined_as_documented(attacked_launch: AttackedLaunch) -> None:
    results = printed_results(attacked_launch.confined)
    suite, pods = documented("2, user"), documented("a model")
    for name in ("inherited_descriptors", "calls_of_another_kind"):
        del suite[name]  # see `other_descriptors`, and the test of another architecture's system call
    assert results == suite | pods


def test_unconfined_attacks_from_the_same_container_succeed_as_documented(attacked_launch: AttackedLaunch) -> None:
    results = printed_results(attacked_launch.unconfined)
    assert {name: results[name] for name in documented("unconfined")} == documented("unconfined")
    assert {
        name: details for name, (_, details, _) in attacked_launch.unconfined.items() if name.startswith("ask_")
    } == {
        "ask_the_api_server": "HTTP 403",
        "ask_the_kubelet": "HTTP 401",
        "ask_another_pod": "HTTP 200",
        "ask_the_runner_api": "HTTP 401",
        "ask_the_cache": "HTTP 401",
        "ask_for_credentials_of_the_machine": "HTTP 404",
    }
    assert attacked_launch.unconfined["connect_to_the_runner"][1] == "connected, then the runner closed the connection"


def test_the_documented_table_describes_each_attack(attacked_launch: AttackedLaunch) -> None:
    rows = re.findall(r"\| `(\w+)` \| ([^|]*) \| \w+ \| \w+ \|\n", DOCUMENT.read_text())
    assert dict(rows) == {name: attacked_launch.confined[name][2] for name, _ in rows}


def test_a_system_call_of_another_architecture_ends_the_model_with_a_result(attacked_launch: AttackedLaunch) -> None:
    id = attacked_launch.submit("foreign_system_call", scenarios={"tasks": [0]})
    assert attacked_launch.platform.wait_for_end(id)["state"] == "failed"
    (result,) = attacked_launch.platform.results(id)
    assert (result["status"], result["metrics"]["value"]) == ("crashed", 0.0)
    assert "the model's process ended" in result["error"]


def test_the_pod_is_restricted_and_its_containers_share_no_user(attacked_launch: AttackedLaunch) -> None:
    labels = attacked_launch.cluster.get(f"/api/v1/namespaces/{PROJECT}")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    for name, user in {"runner": 10001, "evaluator": 10002, "model-server": 10003}.items():
        report = attacked_launch.search_token(name)
        assert report["status"] == {
            "Uid": "\t".join([str(user)] * 4),
            "Groups": f"10000 {user}",
            "CapEff": "0" * 16,
            "CapBnd": "0" * 16,
            "NoNewPrivs": "1",
            "Seccomp": "2",
        }


def test_a_models_address_space_is_limited_below_its_containers_memory(attacked_launch: AttackedLaunch) -> None:
    container_init, *model_servers = attacked_launch.search_token("model-server")["addresses"]
    assert container_init == "unlimited" and model_servers, "the first process is the container init"
    assert {int(limit) < 1 << 30 for limit in model_servers} == {True}, model_servers


def test_the_token_is_in_the_runners_container_only(attacked_launch: AttackedLaunch) -> None:
    reports = {name: attacked_launch.search_token(name) for name in ("runner", "evaluator", "model-server")}
    assert "/run/windtunnel/token/token" in " ".join(reports["runner"]["found"]), (
        "the search finds the token where it is readable"
    )
    runner_module = "workers.standalone_runner"
    assert [command for command in reports["runner"]["processes"] if runner_module in command]
    for name in ("evaluator", "model-server"):
        report = reports[name]
        assert (report["found"], report["environment"]) == ([], [])
        assert not [path for path in report["mounts"] if "token" in path or "secrets" in path]
        assert not [command for command in report["processes"] if runner_module in command], "the runner is visible"
    assert len(attacked_launch.token) >= 32


def test_without_the_token_the_runner_api_refuses_requests_even_of_the_pod_itself(
    attacked_launch: AttackedLaunch,
) -> None:
    code = """
import json, sys, urllib.error, urllib.request
url, tokens = json.loads(sys.stdin.readline())
for token in tokens:
    for path, body in ("", None), ("/results", b"{}"), ("/lease", b"{}"), ("/model", None), ("/play", None):
        request = urllib.request.Request(url + path, data=body, headers={"Authorization": token})
        try:
            print(path, urllib.request.urlopen(request, timeout=10).status)
        except urllib.error.HTTPError as error:
            print(path, error.code)
"""
    url = f"{attacked_launch.launch['url'].rstrip('/')}/v1/launches/{attacked_launch.launch['id']}"
    request = json.dumps(
        [url, ["", "Bearer x", f"Bearer {attacked_launch.token[:-1]}", f"Bearer {attacked_launch.token.swapcase()}"]]
    )
    lines = attacked_launch.containers["model-server"].python(code, stdin=request + "\n").split("\n")
    codes = {line.split()[-1] for line in lines if line}
    assert codes <= {"401", "404", "405"} and "401" in codes, lines


def test_a_model_can_forge_neither_a_score_nor_a_task(attacked_launch: AttackedLaunch) -> None:
    platform, request = attacked_launch.platform, {"seed": 7}
    ids = {name: attacked_launch.submit(name, **request) for name in ("honest", "forges_lines", "forges_frames")}
    ended = {name: platform.wait_for_end(id) for name, id in ids.items()}
    states = {name: simulation["state"] for name, simulation in ended.items()}
    assert states == {"honest": "succeeded", "forges_lines": "succeeded", "forges_frames": "failed"}
    results = {name: platform.results(id) for name, id in ids.items()}
    for results_of_model in results.values():
        assert [result["task"] for result in results_of_model] == [0, 1, 2]
    assert without_timing(results["forges_lines"]) == without_timing(results["honest"])
    logs = attacked_launch.logs(ids["forges_lines"])
    assert '"value": 1000000000.0' in logs, "printed lines are part of the model's log"
    keys = set(re.findall(r"reset (\[.*?\])", logs))
    assert keys == {'["action", "observation", "params", "seed"]'}
    assert {result["status"] for result in results["forges_frames"]} == {"invalid"}
    assert {result["metrics"]["value"] for result in results["forges_frames"]} == {0.0}
