"""The cache service as the chart installs it: tokens checked by a real API server, and its use by runners."""

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.conftest import AUDIENCE, Account
from tests.cluster.platform_release import NAMESPACE, PROJECT, RELEASE, Installed, untimed
from tests.cluster.pod_exec import Container
from tests.cluster.test_tokens import signed

TOKENS = "/run/tokens"
#: Sends requests to the cache, with tokens from files or arguments, and prints the answers.
ASKING = """
import http.client, json, sys
host, asked = json.loads(sys.stdin.readline())
for method, path, token, body in asked:
    if token.startswith("/"):
        token = open(token).read().strip()
    connection = http.client.HTTPConnection(host, timeout=20)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request(method, path, body.encode() if method == "PUT" else None, headers)
    answer = connection.getresponse()
    print(json.dumps([answer.status, answer.read().decode(errors="replace")]))
"""


class Caller:
    """A pod of the server's image with projected tokens of several audiences, which sends requests to the cache."""

    def __init__(self, platform: Installed, namespace: str) -> None:
        self._cluster, self._namespace = platform.cluster, namespace
        self.name = f"caller-{os.urandom(3).hex()}"
        deployed = self._cluster.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}-api")
        image = deployed["spec"]["template"]["spec"]["containers"][0]["image"]
        sources = [
            {"serviceAccountToken": {"audience": audience, "expirationSeconds": 600, "path": audience}}
            for audience in (AUDIENCE, "another")
        ]
        sources.append({"serviceAccountToken": {"expirationSeconds": 600, "path": "apiserver"}})
        container = {
            "name": "main",
            "image": image,
            "imagePullPolicy": "Never",
            "command": ["python", "-c", "import time; time.sleep(900)"],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "resources": {"requests": {"cpu": "5m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
            "volumeMounts": [{"name": "tokens", "mountPath": TOKENS, "readOnly": True}],
        }
        spec = {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": [{"name": "tokens", "projected": {"defaultMode": 0o444, "sources": sources}}],
        }
        metadata = {"name": self.name, "namespace": namespace}
        self._cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        self._container = Container(self._cluster, namespace, self.name, "main")
        service = self._cluster.get(f"/api/v1/namespaces/{NAMESPACE}/services/{RELEASE}-scs")["spec"]
        self._host = f"{RELEASE}-scs.{NAMESPACE}.svc.cluster.local:{service['ports'][0]['port']}"

    @property
    def pod(self) -> Any:
        """The pod's object, or None."""
        return self._cluster.get(f"/api/v1/namespaces/{self._namespace}/pods/{self.name}")

    def wait(self) -> None:
        """Wait until it runs."""
        self._cluster.until(lambda: self.pod["status"]["phase"] == "Running", f"{self.name} runs")

    def token(self, audience: str) -> str:
        """Return a projected token."""
        return self._container.python(f"print(open({TOKENS + '/' + audience!r}).read())").strip()

    def ask(self, *asked: tuple[str, str, str]) -> list[tuple[int, str]]:
        """Send a request with a method, an object's key or a path, and a token or its file."""
        told = []
        for method, key, token in asked:
            path = key if key.startswith("/") else f"/v1/objects/private/{key}"
            told.append((method, path, token, f"content of {key}"))
        said = self._container.python(ASKING, given=json.dumps([self._host, told]) + "\n")
        return [(answer[0], answer[1]) for answer in map(json.loads, said.splitlines())]

    def statuses(self, *asked: tuple[str, str, str]) -> list[int]:
        """Send requests and return the statuses only."""
        return [status for status, _ in self.ask(*asked)]

    def put(self, key: str, content: str) -> int:
        """Put text into an object."""
        told = [("PUT", f"/v1/objects/private/{key}", f"{TOKENS}/{AUDIENCE}", content)]
        status: int = json.loads(self._container.python(ASKING, given=json.dumps([self._host, told]) + "\n"))[0]
        return status

    def counted(self, name: str) -> float:
        """Return the sum of a metric over its labels."""
        ((_, text),) = self.ask(("GET", "/metrics", ""))
        return sum(float(value) for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE))

    def remove(self) -> None:
        """Delete the pod at once."""
        self._cluster.kubectl("delete", "pod", "-n", self._namespace, self.name, "--grace-period=0", "--force")


@pytest.fixture(scope="module")
def caller(platform: Installed) -> Iterator[Caller]:
    """A pod in the namespace of a project."""
    found = Caller(platform, PROJECT)
    found.wait()
    yield found
    found.remove()


@pytest.fixture
def key() -> str:
    """A unique object key."""
    return os.urandom(8).hex()


MINE = f"{TOKENS}/{AUDIENCE}"


def test_a_pod_of_a_project_puts_and_gets_with_its_projected_token(caller: Caller, key: str) -> None:
    assert caller.statuses(("GET", key, MINE), ("PUT", key, MINE), ("PUT", key, MINE)) == [404, 201, 201]
    assert caller.ask(("GET", key, MINE)) == [(200, f"content of {key}")]


def test_other_tokens_of_the_same_pod_are_refused(caller: Caller, key: str) -> None:
    assert caller.statuses(("PUT", key, MINE)) == [201]
    for token in (f"{TOKENS}/another", f"{TOKENS}/apiserver", "", "garbage", caller.token(AUDIENCE)[:-2]):
        assert caller.statuses(("GET", key, token), ("PUT", key, token)) == [401, 401], token
    assert caller.ask(("GET", key, MINE)) == [(200, f"content of {key}")]


def test_a_pod_of_another_namespace_is_refused(
    platform: Installed, caller: Caller, key: str, own_cluster: Cluster, namespace: str
) -> None:
    stranger = Caller(platform, namespace)
    assert caller.statuses(("PUT", key, MINE)) == [201]
    stranger.wait()
    assert stranger.statuses(("GET", key, MINE), ("PUT", key, MINE), ("GET", key, f"{TOKENS}/another")) == [
        403,
        403,
        401,
    ]
    taken = stranger.token(AUDIENCE)
    assert caller.statuses(("GET", key, taken)) == [403], "nor is its token good in a pod of ours"


def test_an_expired_token_is_refused(caller: Caller, key: str, own_cluster: Cluster) -> None:
    plane, now = own_cluster.control_plane, int(time.time())
    token = Account(plane, PROJECT, "default").token(AUDIENCE, pod=caller.pod)
    good = signed(plane, token, exp=now + 300)
    over = signed(plane, token, iat=now - 900, nbf=now - 900, exp=now - 300)
    assert caller.statuses(("PUT", key, good), ("GET", key, good), ("GET", key, over)) == [201, 200, 401]


def test_a_token_becomes_invalid_with_its_pod(
    platform: Installed, caller: Caller, key: str, own_cluster: Cluster
) -> None:
    leaver = Caller(platform, PROJECT)
    leaver.wait()
    tokens = Account(own_cluster.control_plane, PROJECT, "default")
    # One token is used before, one only afterwards: the cache keeps an accepted token for a minute.
    shown, kept = leaver.token(AUDIENCE), tokens.token(AUDIENCE, pod=leaver.pod)
    assert caller.statuses(("PUT", key, shown), ("GET", key, shown)) == [201, 200]
    leaver.remove()
    platform.until(lambda: leaver.pod is None, "the pod is gone")
    # The API server may cache its result for some seconds, and the cache a rejection for five.
    platform.until(lambda: caller.statuses(("GET", key, kept)) == [401], "the token is refused", 60.0)


def play(platform: Installed, name: str, source: bytes, **asked: Any) -> tuple[Any, list[Any]]:
    """Run a simulation to its end; return it and its results."""
    platform.until(lambda: platform.ready, "the API answers")
    sent = httpx.post(f"{platform.url}/v1/models", data={"name": name}, files={"file": ("m.py", source)}, timeout=60.0)
    assert sent.status_code == 201, sent.text
    asked = {"scenarios": {"tasks": [0, 1, 2]}, "seed": 5, "workers": 1} | asked
    id = platform.submit(dataset="noop", runtime="python", model=name, **asked)
    return platform.ended(id), platform.results(id)


def test_runners_fill_the_cache_and_read_from_it_the_next_time(platform: Installed, caller: Caller) -> None:
    source = f"# {os.urandom(8).hex()}\nclass Model:\n    def act(self, observation):\n        return [0.5] * 4\n"
    key = "sha256/" + hashlib.sha256(source.encode()).hexdigest()
    before = {name: caller.counted(name) for name in ("scs_hits_total", "scs_stores_total")}
    first, results = play(platform, "kept-near", source.encode())
    assert first["state"] == "succeeded", first["reason"]
    platform.until(lambda: caller.statuses(("GET", key, MINE)) == [200], "the model is in the cache")
    between = {name: caller.counted(name) for name in before}
    assert between["scs_stores_total"] > before["scs_stores_total"]
    second, again = play(platform, "kept-near", source.encode())
    assert second["state"] == "succeeded", second["reason"]
    assert caller.counted("scs_hits_total") >= between["scs_hits_total"] + 2, "the model and the folder that is played"
    assert caller.counted("scs_stores_total") == between["scs_stores_total"]
    assert untimed(again) == untimed(results)


def test_wrong_content_in_the_cache_is_never_used_as_a_model(platform: Installed, caller: Caller) -> None:
    source = f"# {os.urandom(8).hex()}\nclass Model:\n    def act(self, observation):\n        return [0.5] * 4\n"
    key = "sha256/" + hashlib.sha256(source.encode()).hexdigest()
    assert caller.put(key, source.replace("0.5", "9.5")) == 201
    ended, results = play(platform, "in-its-place", source.encode())
    assert ended["state"] == "succeeded", ended["reason"]
    assert [one["metrics"]["value"] for one in results] == [2.0] * 3
    platform.until(lambda: caller.ask(("GET", key, MINE)) == [(200, source)], "it has been put right again")
