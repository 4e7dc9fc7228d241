"""The Kubernetes API client against a scripted server with responses that a real API server does not give on demand."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.access import Kubeconfig
from kube.client import KubernetesClient
from kube.messages import ApiRefused
from tests.contracts.kubernetes_server import (
    Answer,
    ScriptedServer,
    chunked_response,
    close_connection,
    response,
    truncate_response,
)
from workers.executors.kubernetes.metrics import ClusterMetrics
from workers.executors.kubernetes.objects import Owner, OwnerList


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture
def open_client(server: ScriptedServer, tmp_path: Path) -> Iterator[Callable[..., KubernetesClient]]:
    clients: list[KubernetesClient] = []

    def make(**options: Any) -> KubernetesClient:
        document = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"token": "secret-word"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        clients.append(KubernetesClient(Kubeconfig(path), **{"time_out": 2.0} | options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(open_client: Callable[..., KubernetesClient]) -> KubernetesClient:
    return open_client()


def test_consecutive_calls_share_one_connection(server: ScriptedServer, client: KubernetesClient) -> None:
    server.answers = [response(200, {"items": [{"metadata": {"name": "a", "annotations": {"x": "y"}}, "other": [1]}]})]
    for _ in range(3):
        assert client.get("/apis/x", OwnerList, labelSelector="a=b").items[0].metadata.name == "a"
    assert server.connections == 1
    verb, path, headers, _ = server.requests[0]
    assert (verb, path) == ("GET", "/apis/x?labelSelector=a%3Db")
    assert headers["authorization"] == "Bearer secret-word" and headers["Accept-Encoding"] == "gzip"
    assert headers["User-Agent"] == "windtunnel"


def test_threads_share_at_most_one_connection_each(server: ScriptedServer, client: KubernetesClient) -> None:
    server.answers = [response(200, {"items": [{}]})]
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda: counts.extend(len(client.get("/x", OwnerList).items) for _ in range(20)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1] * 160
    assert server.connections <= 8


def test_gzipped_responses_are_decompressed(server: ScriptedServer, client: KubernetesClient) -> None:
    server.answers = [response(200, gzip.compress(b'{"items": [{}]}'), Content_Encoding="gzip")]
    assert len(client.get("/x", OwnerList).items) == 1


@pytest.mark.parametrize("verb", ["get", "create"])
def test_a_connection_that_the_server_closed_is_reopened(
    server: ScriptedServer, client: KubernetesClient, verb: str
) -> None:
    server.answers = [response(200, {}), close_connection, response(200, {})]
    client.get("/x", Owner)
    client.get("/x", Owner) if verb == "get" else client.create("/x", {"a": 1})
    assert len(server.requests) == 3
    assert server.requests[1] == server.requests[2]


@pytest.mark.parametrize(
    "answer",
    [
        close_connection,
        truncate_response,
        response(429, {"message": "slow down"}, Retry_After="1"),
        response(500, {"message": "failed calling webhook"}),
        response(503, b"<html>", Retry_After="1"),
        response(401, {"message": "Unauthorized"}),
        response(200, b"<html>no API here</html>"),
        response(200, {"items": "many"}),
    ],
)
def test_a_temporary_failure_is_an_oserror_without_the_token(
    server: ScriptedServer, client: KubernetesClient, answer: Answer
) -> None:
    server.answers = [answer]
    with pytest.raises(OSError) as caught:
        client.get("/x", OwnerList)
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failed_request_is_not_retried_by_the_client(
    server: ScriptedServer, client: KubernetesClient, status: int
) -> None:
    """A client that retries would hide an outage from the metrics of calls and double time-outs."""
    server.answers = [response(status, {}, Retry_After="0")]
    with pytest.raises(OSError):
        client.get("/x", Owner)
    assert len(server.requests) == 1


def test_a_redirect_is_refused_and_does_not_forward_the_token(server: ScriptedServer, client: KubernetesClient) -> None:
    elsewhere = ScriptedServer()
    server.answers = [response(302, {}, Location=f"{elsewhere.url}/x")]
    try:
        with pytest.raises(ApiRefused) as caught:
            client.get("/x", Owner)
        assert caught.value.status == 302
        assert elsewhere.requests == []
    finally:
        elsewhere.close()


def test_a_server_that_does_not_respond_is_a_time_out_without_a_retry(
    server: ScriptedServer, open_client: Callable[..., KubernetesClient]
) -> None:
    finished = threading.Event()

    def silent(_: Any) -> None:
        finished.wait(20)

    server.answers = [silent]
    try:
        with pytest.raises(TimeoutError):
            open_client(time_out=0.2).get("/x", Owner)
        assert len(server.requests) == 1
    finally:
        finished.set()


def test_a_refused_connection_is_an_oserror(server: ScriptedServer, client: KubernetesClient) -> None:
    server.close()
    with pytest.raises(OSError):
        client.get("/x", Owner)


def test_a_refusal_has_the_server_s_reason_and_message(server: ScriptedServer, client: KubernetesClient) -> None:
    server.answers = [response(409, {"kind": "Status", "reason": "AlreadyExists", "message": "it exists"})]
    with pytest.raises(ApiRefused) as caught:
        client.create("/x", {"a": 1})
    assert (caught.value.status, caught.value.reason, caught.value.message) == (409, "AlreadyExists", "it exists")


def test_a_patch_is_sent_as_a_json_merge_patch(server: ScriptedServer, client: KubernetesClient) -> None:
    server.answers = [response(200, {})]
    client.patch("/x/a", {"metadata": {"labels": {"old": None, "new": "1"}}})
    verb, _, headers, body = server.requests[0]
    assert (verb, headers["Content-Type"]) == ("PATCH", "application/merge-patch+json")
    assert json.loads(body) == {"metadata": {"labels": {"old": None, "new": "1"}}}


def test_deleting_a_missing_object_returns_false(server: ScriptedServer, client: KubernetesClient) -> None:
    server.answers = [response(200, {}), response(404, {"reason": "NotFound"})]
    assert client.delete("/x/a") is True
    assert client.delete("/x/a") is False
    assert json.loads(server.requests[0][3])["propagationPolicy"] == "Background"


def test_a_stream_that_stalls_is_a_time_out(server: ScriptedServer, client: KubernetesClient) -> None:
    finished = threading.Event()

    def half(request: Any) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        line = json.dumps({"type": "ADDED", "object": {"metadata": {"resourceVersion": "1"}}}).encode() + b"\n"
        request.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
        finished.wait(20)

    server.answers = [half]
    events = client.watch("/x", seconds=9, quiet=0.3)
    try:
        assert next(events).resource_version == "1"
        with pytest.raises(TimeoutError):
            next(events)
    finally:
        finished.set()


def event(type: str, version: str, **object: Any) -> bytes:
    return json.dumps({"type": type, "object": {"metadata": {"resourceVersion": version}} | object}).encode() + b"\n"


def test_a_watch_yields_events_with_their_resource_versions(server: ScriptedServer, client: KubernetesClient) -> None:
    server.answers = [
        chunked_response(event("ADDED", "7", spec=1)[:9], event("ADDED", "7", spec=1)[9:] + event("BOOKMARK", "9"))
    ]
    events = list(client.watch("/x", seconds=30, quiet=2.0, resource_version="5", labelSelector="a=b"))
    assert [(item.type, item.resource_version) for item in events] == [("ADDED", "7"), ("BOOKMARK", "9")]
    assert events[0].object["spec"] == 1
    path = server.requests[0][1]
    for part in ("watch=true", "resourceVersion=5", "timeoutSeconds=30", "labelSelector=a%3Db"):
        assert part in path
    assert len(server.requests) == 1, "a watch ends at its time-out and is not restarted by the client"


def test_a_watch_from_the_beginning_sends_no_resource_version(server: ScriptedServer, client: KubernetesClient) -> None:
    server.answers = [chunked_response(event("ADDED", "7"))]
    assert len(list(client.watch("/x", seconds=30, quiet=2.0))) == 1
    assert "resourceVersion" not in server.requests[0][1]


def expired(code: int) -> bytes:
    status = {"kind": "Status", "code": code, "reason": "Expired", "message": "too old resource version: 1 (2)"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


@pytest.mark.parametrize(
    "answer", [chunked_response(expired(410)), response(410, {"reason": "Expired", "message": "too old"})]
)
def test_an_expired_resource_version_is_refused_with_410(
    server: ScriptedServer, client: KubernetesClient, answer: Answer
) -> None:
    server.answers = [answer]
    with pytest.raises(ApiRefused, match="too old") as caught:
        list(client.watch("/x", seconds=30, quiet=2.0, resource_version="1"))
    assert caught.value.status == 410
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        chunked_response(expired(500)),
        chunked_response(b'{"type": "ADDED"}\n'),
        chunked_response(b"[1]\n"),
        truncate_response,
        close_connection,
    ],
)
def test_a_watch_that_breaks_is_an_oserror(server: ScriptedServer, client: KubernetesClient, answer: Answer) -> None:
    server.answers = [answer]
    with pytest.raises(OSError):
        list(client.watch("/x", seconds=30, quiet=2.0))


def test_calls_are_counted_by_verb_and_outcome(
    server: ScriptedServer, open_client: Callable[..., KubernetesClient]
) -> None:
    metrics = ClusterMetrics("west")
    client = open_client(observer=metrics.observe_call)
    server.answers = [response(200, {}), response(200, {}), response(409, {}), close_connection]
    client.get("/x", OwnerList)
    client.get("/x", Owner)
    for failure in (ApiRefused, OSError):
        with pytest.raises(failure):
            client.create("/x", {})
    counts = {
        (verb, outcome): metrics.registry.get_sample_value(
            "windtunnel_cluster_calls_total", {"context": "west", "verb": verb, "outcome": outcome}
        )
        for verb, outcome in (("list", "ok"), ("get", "ok"), ("create", "409"), ("create", "away"))
    }
    assert set(counts.values()) == {1.0}, counts


def test_a_closed_client_opens_a_new_connection(server: ScriptedServer, client: KubernetesClient) -> None:
    server.answers = [response(200, {})]
    client.get("/x", Owner)
    client.close()
    client.get("/x", Owner)
    assert server.connections == 2
