"""The Kubernetes API client against a server that misbehaves, for which a real API server cannot be asked."""

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
from tests.contracts.kubernetes_server import Answer, Server, breaks_off, hangs_up, says, streams
from workers.executors.kubernetes.metrics import ClusterMetrics
from workers.executors.kubernetes.objects import Owner, OwnerList


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def opened(server: Server, tmp_path: Path) -> Iterator[Callable[..., KubernetesClient]]:
    made: list[KubernetesClient] = []

    def make(**options: Any) -> KubernetesClient:
        document = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"token": "secret-word"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        made.append(KubernetesClient(Kubeconfig(path), **{"time_out": 2.0} | options))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(opened: Callable[..., KubernetesClient]) -> KubernetesClient:
    return opened()


def test_one_connection_is_kept_for_many_calls(server: Server, client: KubernetesClient) -> None:
    server.answers = [says(200, {"items": [{"metadata": {"name": "a", "annotations": {"x": "y"}}, "other": [1]}]})]
    for _ in range(3):
        assert client.get("/apis/x", OwnerList, labelSelector="a=b").items[0].metadata.name == "a"
    assert server.connections == 1
    verb, path, headers, _ = server.asked[0]
    assert (verb, path) == ("GET", "/apis/x?labelSelector=a%3Db")
    assert headers["authorization"] == "Bearer secret-word" and headers["Accept-Encoding"] == "gzip"
    assert headers["User-Agent"] == "windtunnel"


def test_threads_share_connections_and_need_no_more_than_there_are_threads(
    server: Server, client: KubernetesClient
) -> None:
    server.answers = [says(200, {"items": [{}]})]
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


def test_packed_answers_are_unpacked(server: Server, client: KubernetesClient) -> None:
    server.answers = [says(200, gzip.compress(b'{"items": [{}]}'), Content_Encoding="gzip")]
    assert len(client.get("/x", OwnerList).items) == 1


@pytest.mark.parametrize("verb", ["get", "create"])
def test_a_connection_that_was_closed_meanwhile_is_made_again(
    server: Server, client: KubernetesClient, verb: str
) -> None:
    server.answers = [says(200, {}), hangs_up, says(200, {})]
    client.get("/x", Owner)
    client.get("/x", Owner) if verb == "get" else client.create("/x", {"a": 1})
    assert len(server.asked) == 3
    assert server.asked[1] == server.asked[2]


@pytest.mark.parametrize(
    "answer",
    [
        hangs_up,
        breaks_off,
        says(429, {"message": "slow down"}, Retry_After="1"),
        says(500, {"message": "failed calling webhook"}),
        says(503, b"<html>", Retry_After="1"),
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


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_the_server_cannot_do_now_is_asked_once(server: Server, client: KubernetesClient, status: int) -> None:
    """A client that repeats by itself would hide an outage from whoever counts calls, and double time-outs."""
    server.answers = [says(status, {}, Retry_After="0")]
    with pytest.raises(OSError):
        client.get("/x", Owner)
    assert len(server.asked) == 1


def test_a_redirection_is_a_refusal_and_takes_the_token_nowhere(server: Server, client: KubernetesClient) -> None:
    elsewhere = Server()
    server.answers = [says(302, {}, Location=f"{elsewhere.url}/x")]
    try:
        with pytest.raises(ApiRefused) as caught:
            client.get("/x", Owner)
        assert caught.value.status == 302
        assert elsewhere.asked == []
    finally:
        elsewhere.close()


def test_silence_is_a_time_out_and_is_asked_once(server: Server, opened: Callable[..., KubernetesClient]) -> None:
    over = threading.Event()

    def silent(_: Any) -> None:
        over.wait(20)

    server.answers = [silent]
    try:
        with pytest.raises(TimeoutError):
            opened(time_out=0.2).get("/x", Owner)
        assert len(server.asked) == 1
    finally:
        over.set()


def test_nobody_there_is_an_oserror(server: Server, client: KubernetesClient) -> None:
    server.close()
    with pytest.raises(OSError):
        client.get("/x", Owner)


def test_a_refusal_has_the_server_s_reason_and_message(server: Server, client: KubernetesClient) -> None:
    server.answers = [says(409, {"kind": "Status", "reason": "AlreadyExists", "message": "it exists"})]
    with pytest.raises(ApiRefused) as caught:
        client.create("/x", {"a": 1})
    assert (caught.value.status, caught.value.reason, caught.value.message) == (409, "AlreadyExists", "it exists")


def test_a_patch_merges_and_removes_by_null(server: Server, client: KubernetesClient) -> None:
    server.answers = [says(200, {})]
    client.patch("/x/a", {"metadata": {"labels": {"old": None, "new": "1"}}})
    verb, _, headers, body = server.asked[0]
    assert (verb, headers["Content-Type"]) == ("PATCH", "application/merge-patch+json")
    assert json.loads(body) == {"metadata": {"labels": {"old": None, "new": "1"}}}


def test_deleting_what_is_not_there_is_no_error(server: Server, client: KubernetesClient) -> None:
    server.answers = [says(200, {}), says(404, {"reason": "NotFound"})]
    assert client.delete("/x/a") is True
    assert client.delete("/x/a") is False
    assert json.loads(server.asked[0][3])["propagationPolicy"] == "Background"


@pytest.mark.parametrize("answer", [says(200, b"one\n\ntwo\nthree"), streams(b"one\n\ntw", b"o\nth", b"ree")])
def test_lines_are_followed_until_their_end(server: Server, client: KubernetesClient, answer: Answer) -> None:
    server.answers = [answer]
    assert list(client.lines("/log", quiet=2.0, follow="true")) == [b"one\n", b"\n", b"two\n", b"three"]


def test_lines_that_are_refused_say_why(server: Server, client: KubernetesClient) -> None:
    server.answers = [says(400, {"message": "container is waiting to start"})]
    with pytest.raises(ApiRefused, match="waiting to start"):
        list(client.lines("/log", quiet=2.0))


def test_a_line_without_end_is_split(server: Server, client: KubernetesClient) -> None:
    server.answers = [streams(*[b"x" * (1 << 16)] * 40)]
    lengths = [len(line) for line in client.lines("/log", quiet=2.0)]
    assert sum(lengths) == 40 << 16
    assert max(lengths) <= 1 << 21


def test_a_stream_that_falls_silent_is_a_time_out(server: Server, client: KubernetesClient) -> None:
    over = threading.Event()

    def half(asked: Any) -> None:
        asked.send_response(200)
        asked.send_header("Transfer-Encoding", "chunked")
        asked.end_headers()
        asked.wfile.write(b"6\r\nfirst\n\r\n")
        over.wait(20)

    server.answers = [half]
    lines = client.lines("/log", quiet=0.3)
    try:
        assert next(lines) == b"first\n"
        with pytest.raises(TimeoutError):
            next(lines)
    finally:
        over.set()


def event(type: str, version: str, **object: Any) -> bytes:
    return json.dumps({"type": type, "object": {"metadata": {"resourceVersion": version}} | object}).encode() + b"\n"


def test_a_watch_tells_events_and_where_the_next_one_continues(server: Server, client: KubernetesClient) -> None:
    server.answers = [
        streams(event("ADDED", "7", spec=1)[:9], event("ADDED", "7", spec=1)[9:] + event("BOOKMARK", "9"))
    ]
    seen = list(client.watch("/x", seconds=30, quiet=2.0, resource_version="5", labelSelector="a=b"))
    assert [(one.type, one.resource_version) for one in seen] == [("ADDED", "7"), ("BOOKMARK", "9")]
    assert seen[0].object["spec"] == 1
    path = server.asked[0][1]
    for part in ("watch=true", "resourceVersion=5", "timeoutSeconds=30", "labelSelector=a%3Db"):
        assert part in path
    assert len(server.asked) == 1, "it ends when its time is over, and does not begin again by itself"


def test_a_watch_from_the_beginning_names_no_version(server: Server, client: KubernetesClient) -> None:
    server.answers = [streams(event("ADDED", "7"))]
    assert len(list(client.watch("/x", seconds=30, quiet=2.0))) == 1
    assert "resourceVersion" not in server.asked[0][1]


def expired(code: int) -> bytes:
    status = {"kind": "Status", "code": code, "reason": "Expired", "message": "too old resource version: 1 (2)"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


@pytest.mark.parametrize("answer", [streams(expired(410)), says(410, {"reason": "Expired", "message": "too old"})])
def test_a_version_that_has_expired_is_told(server: Server, client: KubernetesClient, answer: Answer) -> None:
    server.answers = [answer]
    with pytest.raises(ApiRefused, match="too old") as caught:
        list(client.watch("/x", seconds=30, quiet=2.0, resource_version="1"))
    assert caught.value.status == 410
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "answer", [streams(expired(500)), streams(b'{"type": "ADDED"}\n'), streams(b"[1]\n"), breaks_off, hangs_up]
)
def test_a_watch_that_breaks_is_an_oserror(server: Server, client: KubernetesClient, answer: Answer) -> None:
    server.answers = [answer]
    with pytest.raises(OSError):
        list(client.watch("/x", seconds=30, quiet=2.0))


def test_calls_are_counted_by_verb_and_outcome(server: Server, opened: Callable[..., KubernetesClient]) -> None:
    measures = ClusterMetrics("west")
    client = opened(observer=measures.observe_call)
    server.answers = [says(200, {}), says(200, {}), says(409, {}), hangs_up]
    client.get("/x", OwnerList)
    client.get("/x", Owner)
    for failure in (ApiRefused, OSError):
        with pytest.raises(failure):
            client.create("/x", {})
    counted = {
        (verb, outcome): measures.registry.get_sample_value(
            "windtunnel_cluster_calls_total", {"context": "west", "verb": verb, "outcome": outcome}
        )
        for verb, outcome in (("list", "ok"), ("get", "ok"), ("create", "409"), ("create", "away"))
    }
    assert set(counted.values()) == {1.0}, counted


def test_a_client_that_was_closed_opens_a_connection_again(server: Server, client: KubernetesClient) -> None:
    server.answers = [says(200, {})]
    client.get("/x", Owner)
    client.close()
    client.get("/x", Owner)
    assert server.connections == 2
