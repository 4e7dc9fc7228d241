"""The attack suite as a user's model in a real pod of the installed platform, and unconfined beside it.

The outcomes must be those of docs/sandbox.md, for the model and for an unconfined process of the same container: an
attack that fails even there would prove nothing.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.platform_release import PROJECT, Installed, untimed
from tests.cluster.pod_exec import Container, bundle, metadata_service, model, outcomes, surroundings
from tests.waiting import until
from workers.executors.kubernetes import names

DOCUMENT = Path(__file__).parents[2] / "docs" / "sandbox.md"
FOLDER = "/tmp/stage"
#: The suite's stage for a process of the same container; the attacked process is the container's first.
STAGE = {
    "driver": 1,
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


class Siege:
    """A launch whose model runs every attack; the outcomes, and those of an unconfined process beside it."""

    def __init__(self, platform: Installed, cluster: Cluster) -> None:
        self.platform, self.cluster = platform, cluster
        self.stage = STAGE | surroundings(platform, cluster)
        self.id = self.submit("attacking_model", scenarios={"range": [0, 10_000]}, params={"sleep_ms": 200})

    def submit(self, name: str, **asked: Any) -> str:
        """Submit a simulation of a model of the tests."""
        self.platform.until(lambda: self.platform.ready, "the API answers")
        source = model(name, self.stage)
        file = {"file": (f"{name}.py", source)}
        made = httpx.post(f"{self.platform.url}/v1/models", data={"name": name}, files=file, timeout=60.0)
        assert made.status_code == 201, made.text
        asked = {"scenarios": {"range": [0, 3]}} | asked
        return self.platform.submit(dataset="noop", runtime="python", model=name, workers=1, **asked)

    def play(self) -> None:
        """Run all attacks, confined and unconfined."""
        platform, selector = self.platform, f"windtunnel/simulation={names.label(self.id)}"
        platform.until(lambda: platform.pods(selector), "there is a pod")
        self.spec = platform.pods(selector)[0]["spec"]
        pod = platform.pods(selector)[0]["metadata"]["name"]

        def there() -> bool:
            said = platform.pods(selector)[0]["status"].get("containerStatuses", [])
            return len(said) == 3 and all("running" in one["state"] for one in said)

        platform.until(there, "its containers run")
        self.containers = {
            name: Container(self.cluster, PROJECT, pod, name) for name in ("runner", "evaluator", "model-server")
        }
        beside = self.containers["model-server"]
        with beside.keep(bundle("import victim; victim.main(__import__('attack_stage').STAGE)", self.stage)) as victim:
            platform.until(lambda: "that was all" in self.logs(self.id), "the model has tried everything")
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

        def answered() -> httpx.Response | None:
            try:
                return httpx.get(f"{self.platform.url}/v1/simulations/{id}/logs?raw=true", timeout=30.0)
            except httpx.TransportError:
                return None

        answer = until(answered, message="no logs")
        assert answer is not None
        return answer.text

    def hunt(self, container: str) -> Any:
        """Search for the launch's token from a container."""
        code = bundle("import secret_search; secret_search.main(sys.stdin.readline().strip())", self.stage)
        return json.loads(self.containers[container].python(code, given=f"{self.token}\n"))


@pytest.fixture(scope="module")
def siege(platform: Installed, own_cluster: Cluster) -> Iterator[Siege]:
    """A siege after its attacks; its simulation continues while the tests run."""
    with metadata_service(own_cluster):
        found = Siege(platform, own_cluster)
        try:
            found.play()
            yield found
        finally:
            platform.cancel(found.id)
            platform.ended(found.id)


def documented(columns: int, column: int) -> dict[str, str]:
    """Read a column of the document's table with this many columns."""
    row = re.compile(r"\| `(\w+)` \|[^|]*" + r"\| (contained|escaped) " * columns + r"\|")
    return {found[1]: found[column + 2] for found in map(row.fullmatch, DOCUMENT.read_text().splitlines()) if found}


def shown(outcomes: dict[str, tuple[str, str, str]]) -> dict[str, str]:
    """Print the outcomes, for messages of failed tests, and return the results."""
    for name, (result, how, _) in outcomes.items():
        print(f"{name:36} {result:10} {how}")
    return {name: result for name, (result, _, _) in outcomes.items()}


def test_a_model_in_a_pod_is_confined_as_documented(siege: Siege) -> None:
    found = shown(siege.confined)
    suite, pods = documented(4, 3), documented(2, 0)
    for apart in ("inherited_descriptors", "calls_of_another_kind"):
        del suite[apart]  # see `other_descriptors`, and the test of another architecture's system call
    assert found == suite | pods


def test_unconfined_attacks_from_the_same_container_succeed_as_documented(siege: Siege) -> None:
    found = shown(siege.unconfined)
    assert {name: found[name] for name in documented(2, 1)} == documented(2, 1)
    assert {name: how for name, (_, how, _) in siege.unconfined.items() if name.startswith("ask_")} == {
        "ask_the_api_server": "HTTP 403",
        "ask_the_kubelet": "HTTP 401",
        "ask_another_pod": "HTTP 200",
        "ask_the_runner_api": "HTTP 401",
        "ask_the_cache": "HTTP 401",
        "ask_for_credentials_of_the_machine": "HTTP 404",
    }
    assert siege.unconfined["connect_to_the_runner"][1] == "connected, then the runner closed the connection"


def test_the_documented_table_describes_each_attack(siege: Siege) -> None:
    rows = re.findall(r"\| `(\w+)` \| ([^|]*) \| \w+ \| \w+ \|\n", DOCUMENT.read_text())
    assert dict(rows) == {name: siege.confined[name][2] for name, _ in rows}


def test_a_system_call_of_another_architecture_ends_the_model_with_a_result(siege: Siege) -> None:
    id = siege.submit("foreign_system_call", scenarios={"tasks": [0]})
    assert siege.platform.ended(id)["state"] == "succeeded"
    (result,) = siege.platform.results(id)
    assert (result["status"], result["metrics"]["value"]) == ("crashed", 0.0)
    assert "the model's process ended" in result["error"]


def test_the_pod_is_restricted_and_its_containers_share_no_user(siege: Siege) -> None:
    labels = siege.cluster.get(f"/api/v1/namespaces/{PROJECT}")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    for name, user in {"runner": 10001, "evaluator": 10002, "model-server": 10003}.items():
        found = siege.hunt(name)
        assert found["status"] == {
            "Uid": "\t".join([str(user)] * 4),
            "Groups": f"10000 {user}",
            "CapEff": "0" * 16,
            "CapBnd": "0" * 16,
            "NoNewPrivs": "1",
            "Seccomp": "2",
        }


def test_a_models_address_space_is_limited_below_its_containers_memory(siege: Siege) -> None:
    post, *model_servers = siege.hunt("model-server")["addresses"]
    assert post == "unlimited" and model_servers, "the first process is the post"
    assert {int(limit) < 1 << 30 for limit in model_servers} == {True}, model_servers


def test_the_token_is_in_the_runners_container_only(siege: Siege) -> None:
    found = {name: siege.hunt(name) for name in ("runner", "evaluator", "model-server")}
    assert "/run/windtunnel/token/token" in " ".join(found["runner"]["found"]), "the hunt finds what is there"
    holder = "workers.standalone_runner"
    assert [command for command in found["runner"]["processes"] if holder in command]
    for name in ("evaluator", "model-server"):
        mine = found[name]
        assert (mine["found"], mine["environment"]) == ([], [])
        assert not [path for path in mine["mounts"] if "token" in path or "secrets" in path]
        assert not [command for command in mine["processes"] if holder in command], "the runner is visible"
    assert len(siege.token) >= 32


def test_without_the_token_the_runner_api_refuses_requests_even_of_the_pod_itself(siege: Siege) -> None:
    code = """
import json, sys, urllib.error, urllib.request
url, tokens = json.loads(sys.stdin.readline())
for token in tokens:
    for path, body in ("", None), ("/results", b"{}"), ("/lease", b"{}"), ("/model", None), ("/play", None):
        asked = urllib.request.Request(url + path, data=body, headers={"Authorization": token})
        try:
            print(path, urllib.request.urlopen(asked, timeout=10).status)
        except urllib.error.HTTPError as error:
            print(path, error.code)
"""
    url = f"{siege.launch['url'].rstrip('/')}/v1/launches/{siege.launch['id']}"
    given = json.dumps([url, ["", "Bearer x", f"Bearer {siege.token[:-1]}", f"Bearer {siege.token.swapcase()}"]])
    said = siege.containers["model-server"].python(code, given=given + "\n").split("\n")
    codes = {line.split()[-1] for line in said if line}
    assert codes <= {"401", "404", "405"} and "401" in codes, said


def test_a_model_can_forge_neither_a_score_nor_a_task(siege: Siege) -> None:
    platform, asked = siege.platform, {"seed": 7}
    ids = {name: siege.submit(name, **asked) for name in ("honest", "forges_lines", "forges_frames")}
    ended = {name: platform.ended(id) for name, id in ids.items()}
    assert {one["state"] for one in ended.values()} == {"succeeded"}
    results = {name: platform.results(id) for name, id in ids.items()}
    for found in results.values():
        assert [one["task"] for one in found] == [0, 1, 2]
    assert untimed(results["forges_lines"]) == untimed(results["honest"])
    logs = siege.logs(ids["forges_lines"])
    assert '"value": 1000000000.0' in logs, "what it printed is shown as its words"
    told = set(re.findall(r"told (\[.*?\])", logs))
    assert told == {'["action", "observation", "params", "seed"]'}
    assert {one["status"] for one in results["forges_frames"]} == {"invalid"}
    assert {one["metrics"]["value"] for one in results["forges_frames"]} == {0.0}
