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
from tests.cluster.platform_release import NAMESPACE, PROJECT, RELEASE, PlatformRelease, without_timing
from tests.cluster.pod_exec import Container
from tests.cluster.test_tokens import signed

TOKENS = "/run/tokens"
#: Sends requests to the cache service, with tokens from files or arguments, and prints the responses.
REQUEST_SCRIPT = """
import http.client, json, sys
host, requests = json.loads(sys.stdin.readline())
for method, path, token, body in requests:
    if token.startswith("/"):
        token = open(token).read().strip()
    connection = http.client.HTTPConnection(host, timeout=20)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request(method, path, body.encode() if method == "PUT" else None, headers)
    response = connection.getresponse()
    print(json.dumps([response.status, response.read().decode(errors="replace")]))
"""


class CacheClientPod:
    """A pod of the server's image with projected tokens of several audiences, which sends requests to the cache."""

    def __init__(self, platform: PlatformRelease, namespace: str) -> None:
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
        """Wait until the pod runs."""
        self._cluster.until(lambda: self.pod["status"]["phase"] == "Running", f"{self.name} runs")

    def token(self, audience: str) -> str:
        """Return a projected token."""
        return self._container.python(f"print(open({TOKENS + '/' + audience!r}).read())").strip()

    def send(self, *requests: tuple[str, str, str]) -> list[tuple[int, str]]:
        """Send requests, each with a method, an object's key or a path, and a token or its file."""
        entries = []
        for method, key_or_path, token in requests:
            path = key_or_path if key_or_path.startswith("/") else f"/v1/objects/private/{key_or_path}"
            entries.append((method, path, token, f"content of {key_or_path}"))
        output = self._container.python(REQUEST_SCRIPT, stdin=json.dumps([self._host, entries]) + "\n")
        return [(response[0], response[1]) for response in map(json.loads, output.splitlines())]

    def statuses(self, *requests: tuple[str, str, str]) -> list[int]:
        """Send requests and return the statuses only."""
        return [status for status, _ in self.send(*requests)]

    def put(self, key: str, content: str) -> int:
        """Put text into an object."""
        entries = [("PUT", f"/v1/objects/private/{key}", f"{TOKENS}/{AUDIENCE}", content)]
        status: int = json.loads(
            self._container.python(REQUEST_SCRIPT, stdin=json.dumps([self._host, entries]) + "\n")
        )[0]
        return status

    def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels."""
        ((_, text),) = self.send(("GET", "/metrics", ""))
        return sum(float(value) for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE))

    def remove(self) -> None:
        """Delete the pod at once."""
        self._cluster.kubectl("delete", "pod", "-n", self._namespace, self.name, "--grace-period=0", "--force")


@pytest.fixture(scope="module")
def cache_client(platform: PlatformRelease) -> Iterator[CacheClientPod]:
    """A pod in the namespace of a project."""
    client = CacheClientPod(platform, PROJECT)
    client.wait()
    yield client
    client.remove()


@pytest.fixture
def key() -> str:
    """A unique object key."""
    return os.urandom(8).hex()


CACHE_TOKEN = f"{TOKENS}/{AUDIENCE}"


def test_a_pod_of_a_project_puts_and_gets_with_its_projected_token(cache_client: CacheClientPod, key: str) -> None:
    assert cache_client.statuses(("GET", key, CACHE_TOKEN), ("PUT", key, CACHE_TOKEN), ("PUT", key, CACHE_TOKEN)) == [
        404,
        201,
        201,
    ]
    assert cache_client.send(("GET", key, CACHE_TOKEN)) == [(200, f"content of {key}")]


def test_other_tokens_of_the_same_pod_are_refused(cache_client: CacheClientPod, key: str) -> None:
    assert cache_client.statuses(("PUT", key, CACHE_TOKEN)) == [201]
    for token in (f"{TOKENS}/another", f"{TOKENS}/apiserver", "", "garbage", cache_client.token(AUDIENCE)[:-2]):
        assert cache_client.statuses(("GET", key, token), ("PUT", key, token)) == [401, 401], token
    assert cache_client.send(("GET", key, CACHE_TOKEN)) == [(200, f"content of {key}")]


def test_a_pod_of_another_namespace_is_refused(
    platform: PlatformRelease, cache_client: CacheClientPod, key: str, own_cluster: Cluster, namespace: str
) -> None:
    other_client = CacheClientPod(platform, namespace)
    assert cache_client.statuses(("PUT", key, CACHE_TOKEN)) == [201]
    other_client.wait()
    assert other_client.statuses(
        ("GET", key, CACHE_TOKEN), ("PUT", key, CACHE_TOKEN), ("GET", key, f"{TOKENS}/another")
    ) == [
        403,
        403,
        401,
    ]
    token = other_client.token(AUDIENCE)
    assert cache_client.statuses(("GET", key, token)) == [403], "its token is refused from a pod of the project, too"


def test_an_expired_token_is_refused(cache_client: CacheClientPod, key: str, own_cluster: Cluster) -> None:
    control_plane, now = own_cluster.control_plane, int(time.time())
    token = Account(control_plane, PROJECT, "default").token(AUDIENCE, pod=cache_client.pod)
    valid = signed(control_plane, token, exp=now + 300)
    expired = signed(control_plane, token, iat=now - 900, nbf=now - 900, exp=now - 300)
    assert cache_client.statuses(("PUT", key, valid), ("GET", key, valid), ("GET", key, expired)) == [201, 200, 401]


def test_a_token_becomes_invalid_with_its_pod(
    platform: PlatformRelease, cache_client: CacheClientPod, key: str, own_cluster: Cluster
) -> None:
    other_client = CacheClientPod(platform, PROJECT)
    other_client.wait()
    account = Account(own_cluster.control_plane, PROJECT, "default")
    # The second token is used only after the deletion: the cache keeps an accepted token for a minute.
    used, unused = other_client.token(AUDIENCE), account.token(AUDIENCE, pod=other_client.pod)
    assert cache_client.statuses(("PUT", key, used), ("GET", key, used)) == [201, 200]
    other_client.remove()
    platform.until(lambda: other_client.pod is None, "the pod is deleted")
    # The API server may cache its result for some seconds, and the cache a rejection for five.
    platform.until(lambda: cache_client.statuses(("GET", key, unused)) == [401], "the token is refused", 60.0)


def run_simulation(platform: PlatformRelease, name: str, source: bytes, **request: Any) -> tuple[Any, list[Any]]:
    """Run a simulation to its end; return it and its results."""
    platform.until(lambda: platform.ready, "the API answers")
    response = httpx.post(
        f"{platform.url}/v1/models", data={"name": name}, files={"file": ("m.py", source)}, timeout=60.0
    )
    assert response.status_code == 201, response.text
    request = {"scenarios": {"tasks": [0, 1, 2]}, "seed": 5, "workers": 1} | request
    id = platform.submit(dataset="noop", runtime="python", model=name, **request)
    return platform.wait_for_end(id), platform.results(id)


def test_runners_fill_the_cache_and_read_from_it_the_next_time(
    platform: PlatformRelease, cache_client: CacheClientPod
) -> None:
    source = f"# {os.urandom(8).hex()}\nclass Model:\n    def act(self, observation):\n        return [0.5] * 4\n"
    key = "sha256/" + hashlib.sha256(source.encode()).hexdigest()
    before = {name: cache_client.metric(name) for name in ("scs_hits_total", "scs_stores_total")}
    first, results = run_simulation(platform, "cached-model", source.encode())
    assert first["state"] == "succeeded", first["reason"]
    platform.until(lambda: cache_client.statuses(("GET", key, CACHE_TOKEN)) == [200], "the model is in the cache")
    between = {name: cache_client.metric(name) for name in before}
    assert between["scs_stores_total"] > before["scs_stores_total"]
    second, again = run_simulation(platform, "cached-model", source.encode())
    assert second["state"] == "succeeded", second["reason"]
    assert cache_client.metric("scs_hits_total") >= between["scs_hits_total"] + 2, "the model and the dataset's folder"
    assert cache_client.metric("scs_stores_total") == between["scs_stores_total"]
    assert without_timing(again) == without_timing(results)


def test_wrong_content_in_the_cache_is_never_used_as_a_model(
    platform: PlatformRelease, cache_client: CacheClientPod
) -> None:
    source = f"# {os.urandom(8).hex()}\nclass Model:\n    def act(self, observation):\n        return [0.5] * 4\n"
    key = "sha256/" + hashlib.sha256(source.encode()).hexdigest()
    assert cache_client.put(key, source.replace("0.5", "9.5")) == 201
    ended, results = run_simulation(platform, "replaced-model", source.encode())
    assert ended["state"] == "succeeded", ended["reason"]
    assert [result["metrics"]["value"] for result in results] == [2.0] * 3
    platform.until(
        lambda: cache_client.send(("GET", key, CACHE_TOKEN)) == [(200, source)], "the wrong content is replaced"
    )
