"""The client of an API server against one that misbehaves, and the ways a kubeconfig says who we are."""

import base64
import gzip
import json
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contracts.kubernetes_server import Answer, Server, breaks_off, hangs_up, says
from workers.executors.kubernetes.access import kubeconfig_access, pod_access
from workers.executors.kubernetes.client import ApiRefused, KubernetesClient
from workers.executors.kubernetes.metrics import ClusterMetrics
from workers.executors.kubernetes.objects import Owner, OwnerList


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def configured(server: Server, tmp_path: Path) -> Callable[..., Path]:
    def make(user: dict[str, Any], **cluster: Any) -> Path:
        document = {
            "current-context": "here",
            "contexts": [
                {"name": "here", "context": {"cluster": "c", "user": "u"}},
                {"name": "nobody", "context": {"cluster": "c"}},
            ],
            "clusters": [{"name": "c", "cluster": {"server": server.url, **cluster}}],
            "users": [{"name": "u", "user": user}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    return make


@pytest.fixture
def client(configured: Callable[..., Path]) -> Iterator[KubernetesClient]:
    made = KubernetesClient(kubeconfig_access(configured({"token": "secret-word"})), time_out=2.0)
    yield made
    made.close()


def test_one_connection_is_kept_for_many_calls(server: Server, client: KubernetesClient) -> None:
    server.answers = [says(200, {"items": [{"metadata": {"name": "a", "annotations": {"x": "y"}}, "other": [1]}]})]
    for _ in range(3):
        assert client.get("/apis/x", OwnerList, labelSelector="a=b").items[0].metadata.name == "a"
    assert server.connections == 1
    verb, path, headers, _ = server.asked[0]
    assert (verb, path) == ("GET", "/apis/x?labelSelector=a%3Db")
    assert headers["Authorization"] == "Bearer secret-word" and headers["Accept-Encoding"] == "gzip"


def test_packed_answers_are_unpacked(server: Server, client: KubernetesClient) -> None:
    server.answers = [says(200, gzip.compress(b'{"items": [{}]}'), Content_Encoding="gzip")]
    assert len(client.get("/x", OwnerList).items) == 1


def test_a_connection_that_was_closed_meanwhile_is_made_again(server: Server, client: KubernetesClient) -> None:
    server.answers = [says(200, {}), hangs_up, says(200, {})]
    client.get("/x", Owner)
    client.get("/x", Owner)
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    "answer",
    [
        hangs_up,
        breaks_off,
        says(429, {"message": "slow down"}),
        says(500, {"message": "failed calling webhook"}),
        says(503, b"<html>"),
        says(401, {"message": "Unauthorized"}),
        says(200, b"<html>no API here</html>"),
        says(200, {"items": "many"}),
    ],
)
def test_no_answer_for_now_is_an_oserror(server: Server, client: KubernetesClient, answer: Answer) -> None:
    server.answers = [answer]
    with pytest.raises(OSError) as caught:
        client.get("/x", OwnerList)
    assert "secret-word" not in str(caught.value)


def test_silence_is_a_time_out(server: Server, configured: Callable[..., Path]) -> None:
    over = threading.Event()
    server.answers = [lambda asked: over.wait(20) and None]
    impatient = KubernetesClient(kubeconfig_access(configured({})), time_out=0.2)
    try:
        with pytest.raises(TimeoutError):
            impatient.get("/x", Owner)
    finally:
        over.set()
        impatient.close()


def test_nobody_there_is_an_oserror(server: Server, client: KubernetesClient) -> None:
    server.close()
    with pytest.raises(OSError):
        client.get("/x", Owner)


def test_a_no_has_its_reason_and_words(server: Server, client: KubernetesClient) -> None:
    server.answers = [says(409, {"kind": "Status", "reason": "AlreadyExists", "message": "it exists"})]
    with pytest.raises(ApiRefused) as caught:
        client.create("/x", {"a": 1})
    assert (caught.value.status, caught.value.reason, caught.value.message) == (409, "AlreadyExists", "it exists")


def test_deleting_what_is_not_there_is_no_error(server: Server, client: KubernetesClient) -> None:
    server.answers = [says(200, {}), says(404, {"reason": "NotFound"})]
    assert client.delete("/x/a") is True
    assert client.delete("/x/a") is False
    assert json.loads(server.asked[0][3])["propagationPolicy"] == "Background"


def test_lines_are_followed_until_their_end(server: Server, client: KubernetesClient) -> None:
    server.answers = [says(200, b"one\ntwo\nthree")]
    assert list(client.lines("/log", quiet=2.0, follow="true")) == [b"one\n", b"two\n", b"three"]
    server.answers = [says(400, {"message": "container is waiting to start"})]
    with pytest.raises(ApiRefused):
        list(client.lines("/log", quiet=2.0))


def test_calls_are_counted_by_verb_and_outcome(server: Server, configured: Callable[..., Path]) -> None:
    measures = ClusterMetrics("west")
    client = KubernetesClient(kubeconfig_access(configured({})), time_out=2.0, observer=measures.observe_call)
    server.answers = [says(200, {}), says(200, {}), says(409, {}), hangs_up]
    client.get("/x", OwnerList)
    client.get("/x", Owner)
    for failure in (ApiRefused, OSError):
        with pytest.raises(failure):
            client.create("/x", {})
    client.close()
    counted = {
        (verb, outcome): measures.registry.get_sample_value(
            "windtunnel_cluster_calls_total", {"context": "west", "verb": verb, "outcome": outcome}
        )
        for verb, outcome in (("list", "ok"), ("get", "ok"), ("create", "409"), ("create", "away"))
    }
    assert set(counted.values()) == {1.0}, counted


# -- who we are


def test_a_token_file_is_read_again(configured: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    access = kubeconfig_access(configured({"tokenFile": "token"}))
    assert access.headers() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second, longer\n")
    assert access.headers() == {"Authorization": "Bearer second, longer"}


def test_a_program_is_asked_for_a_token_until_that_ends(configured: Callable[..., Path], tmp_path: Path) -> None:
    program = tmp_path / "login"
    program.write_text(
        f"#!/bin/sh\necho asked >> {tmp_path}/count\n"
        'echo "{\\"status\\": {\\"token\\": \\"$WORD\\", \\"expirationTimestamp\\": \\"2100-01-01T00:00:00Z\\"}}"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    spec = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./login",
        "env": [{"name": "WORD", "value": "made-up"}],
    }
    access = kubeconfig_access(configured({"exec": spec}))
    assert access.headers() == access.headers() == {"Authorization": "Bearer made-up"}
    assert (tmp_path / "count").read_text().count("asked") == 1
    program.write_text("#!/bin/sh\necho a-secret; exit 3\n")
    with pytest.raises(OSError) as caught:
        kubeconfig_access(configured({"exec": spec})).headers()
    assert "a-secret" not in str(caught.value)


def test_a_name_and_password_or_nothing(configured: Callable[..., Path]) -> None:
    both = base64.b64encode(b"me:pw").decode()
    path = configured({"username": "me", "password": "pw"})
    assert kubeconfig_access(path).headers() == {"Authorization": f"Basic {both}"}
    assert kubeconfig_access(path, "nobody").headers() == {}


def test_a_kubeconfig_that_lacks_something_says_what(configured: Callable[..., Path], tmp_path: Path) -> None:
    path = configured({})
    with pytest.raises(ValueError, match="no context 'elsewhere'"):
        kubeconfig_access(path, "elsewhere")
    with pytest.raises(ValueError, match="server is an address"):
        kubeconfig_access(configured({}, server="nonsense"))
    (tmp_path / "empty").write_text("")
    with pytest.raises(ValueError, match="no kubeconfig"):
        kubeconfig_access(tmp_path / "empty")


def test_outside_of_a_pod_a_kubeconfig_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name a kubeconfig"):
        pod_access(tmp_path, {})
