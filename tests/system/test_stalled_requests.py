"""The platform under attack by connections: bodies that stall, answers that must be readable, foreign protocols."""

import json
import resource
import select
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import requests

from server.token_guesses import BURST, MOST_WAITING
from tests.system.platform_process import PlatformProcess
from tests.waiting import until

TOKEN = "a-token-of-sixteen-characters"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
#: More than the threads for requests that are not streams, and than the bodies that threads read.
STALLED = 1500
BODY_TIMEOUT = 6.0
#: Bytes of an upload that arrives slowly.
UPLOAD = 1000
TUS = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream", **BEARER}


@pytest.fixture(scope="module")
def guarded(prepared_environments: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    """A platform with a token and a short time limit for bodies."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    settings = {"TOKEN": TOKEN, "BODY_TIMEOUT": str(BODY_TIMEOUT), "SCS_PORT": "0"}
    platform = PlatformProcess(tmp_path_factory.mktemp("guarded"), settings=settings)
    platform.http.headers.update(BEARER)
    try:
        yield platform.start()
    finally:
        platform.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def head(method: str, target: str, **headers: str) -> bytes:
    lines = {"Host": "localhost", **BEARER, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return "\r\n".join([f"{method} {target} HTTP/1.1", *map(": ".join, lines.items()), "", ""]).encode()


@contextmanager
def sent(port: int, data: bytes, count: int = 1) -> Iterator[list[socket.socket]]:
    """Open connections that each send the same bytes, and nothing more."""
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            connection.sendall(data)
            connections.append(connection)
        yield connections


def answer_of(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Read a whole answer: its status, headers and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        assert chunk, f"the connection ended within the head: {data!r}"
        data += chunk
    first, *lines = data.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = data.partition(b"\r\n\r\n")[2]
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    return int(first.split(" ")[1]), headers, body


def serves_others(platform: PlatformProcess) -> None:
    """Check that probes are answered, and that an honest submission is accepted and ends."""
    for url in (f"{platform.url}/healthz", f"{platform.url}/readyz"):
        assert httpx.get(url, timeout=20, trust_env=False).status_code == 200
    assert platform.http.get("/v1/models").status_code == 200
    assert platform.run(dataset="noop", model="zero", scenarios={"range": [0, 2]})["state"] == "succeeded"


@pytest.mark.parametrize(
    ("count", "announced", "started"), [(STALLED, 100, 1), (600, 3 << 20, 100 << 10)], ids=["small", "large"]
)
def test_stalled_bodies_keep_no_client_out_and_are_answered_408(
    guarded: PlatformProcess, count: int, announced: int, started: int
) -> None:
    data = head("POST", "/v1/simulations", Content_Type="application/json", Content_Length=str(announced))
    upload = create_upload(guarded, UPLOAD)
    media_type = TUS["Content-Type"]
    tus = {"Content_Type": media_type, "Content_Length": str(UPLOAD), "Upload_Offset": "0", "Tus_Resumable": "1.0.0"}
    slow = head("PATCH", upload, **tus)
    with sent(guarded.port, slow) as [moving], sent(guarded.port, data + b"x" * started, count) as connections:
        with dripping(moving) as moved:
            serves_others(guarded)
            until(lambda: len(ready(connections)) == count)
        # the first stalls for too long, or makes room; the last finds no room if threads would have to read it
        for connection, statuses in ((connections[0], {408}), (connections[-1], {408, 503})):
            status, headers, body = answer_of(connection)
            assert status in statuses and headers["content-type"] == "application/problem+json", body
            assert json.loads(body)["status"] == status and int(headers["retry-after"]) >= 1
        moving.sendall(b"y" * (UPLOAD - len(moved)))
        assert answer_of(moving)[0] == 204
    serves_others(guarded)


@contextmanager
def dripping(connection: socket.socket) -> Iterator[list[int]]:
    """Send a byte every 200 ms; yield the list of what was sent."""
    stop, moved = threading.Event(), list[int]()

    def drip() -> None:
        while not stop.wait(0.2) and len(moved) < UPLOAD - 1:
            moved.append(connection.send(b"y"))

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield moved
    finally:
        stop.set()
        thread.join()


def ready(connections: list[socket.socket]) -> list[int]:
    """Return the descriptors of the connections that have been answered."""
    poll = select.poll()
    for connection in connections:
        poll.register(connection, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(0)]


def create_upload(platform: PlatformProcess, length: int) -> str:
    response = platform.http.post("/v1/uploads", headers={**TUS, "Upload-Length": str(length)})
    assert response.status_code == 201, response.text
    return response.headers["Location"]


def test_a_body_that_drips_is_too_slow(guarded: PlatformProcess) -> None:
    data = head("PUT", "/v1/models/dripping", Content_Type="application/octet-stream", Content_Length=str(1 << 20))
    with sent(guarded.port, data + b"x" * 1000) as [connection]:

        def answered() -> bool:
            connection.sendall(b"x")
            return bool(ready([connection]))

        until(answered, every=0.5)
        status, _, body = answer_of(connection)
    assert status == 408 and "too slowly" in json.loads(body)["detail"]


def test_stalled_bodies_do_not_stop_the_runner_api(guarded: PlatformProcess) -> None:
    data = head("POST", "/v1/launches/l1/lease", Content_Length="100")
    with sent(guarded.runner_api_port, data + b"x", 400) as connections:
        url = f"http://127.0.0.1:{guarded.runner_api_port}/healthz"
        assert httpx.get(url, timeout=20, trust_env=False).status_code == 200
        serves_others(guarded)  # its runner leases and reports beside the stalled requests
        until(lambda: len(ready(connections)) == len(connections))
        assert answer_of(connections[0])[0] == 408


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("target", ["/v1/simulations", "/v1/datasets"])
def test_requests_can_read_why_a_large_json_is_refused(guarded: PlatformProcess, target: str, chunked: bool) -> None:
    body = b'{"dataset": "' + b"x" * (40 << 20) + b'"}'
    pieces = (body[start : start + (1 << 16)] for start in range(0, len(body), 1 << 16))
    response = requests.post(
        f"{guarded.url}{target}",
        data=pieces if chunked else body,
        headers={**BEARER, "Content-Type": "application/json"},
        timeout=60,
    )
    assert (response.status_code, response.json()["type"]) == (413, "/problems/too-large")
    assert "4,194,304 bytes" in response.json()["detail"]


def test_requests_can_read_a_refusal_that_precedes_its_body(guarded: PlatformProcess) -> None:
    response = requests.post(f"{guarded.url}/v1/simulations", data=b"x" * (40 << 20), timeout=60)
    assert (response.status_code, response.json()["type"]) == (401, "/problems/unauthorized")


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("expect", ["Expect:", "Expect: 100-continue"])
def test_curl_can_read_why_a_large_json_is_refused(guarded: PlatformProcess, tmp_path: Path, expect: str) -> None:
    path = tmp_path / "large.json"
    path.write_bytes(b'{"dataset": "' + b"x" * (40 << 20) + b'"}')
    command = ["curl", "-sS", "--max-time", "60", "-H", f"Authorization: Bearer {TOKEN}", "-H", expect]
    command += ["-H", "Content-Type: application/json", "--data-binary", f"@{path}", f"{guarded.url}/v1/simulations"]
    result = subprocess.run(command, capture_output=True, check=False)
    assert json.loads(result.stdout)["type"] == "/problems/too-large", result.stderr


def test_http_2_by_prior_knowledge_is_refused(guarded: PlatformProcess) -> None:
    settings_frame = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings_frame
    for port in (guarded.port, guarded.runner_api_port):
        with sent(port, preface) as [connection]:
            answer = connection.recv(65536)
            assert answer[3:4] != b"\x04", "the server speaks HTTP/2"
            assert not answer or answer.startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://evil.example/v1/models", "localhost", 421),
        ("http://localhost/v1/models", "evil.example", 200),
        ("http://localhost@evil.example/v1/models", "localhost", 421),
        ("/v1/models", "localhost", 200),
        ("/v1/models", "evil.example", 421),
    ],
)
def test_an_absolute_target_is_judged_by_its_own_host(
    guarded: PlatformProcess, target: str, host: str, status: int
) -> None:
    with sent(guarded.port, head("GET", target, Host=host)) as [connection]:
        assert answer_of(connection)[0] == status


def answer_to(port: int, token: str, address: str, path: str = "/v1/simulations", method: str = "GET") -> int:
    """Return the status of a request with a token from an address; 0 if it is not answered at once."""
    transport = httpx.HTTPTransport(local_address=address)
    with httpx.Client(transport=transport, trust_env=False, timeout=0.8) as client:
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            data = {"token": "a-guess"} if method == "POST" else None
            return client.request(method, f"http://127.0.0.1:{port}{path}", headers=headers, data=data).status_code
        except httpx.ReadTimeout:
            return 0


def test_guesses_of_the_token_are_slowed_per_caller_and_lock_out_nobody(guarded: PlatformProcess) -> None:
    guesser, user = "127.0.0.66", "127.0.0.77"
    assert answer_to(guarded.port, TOKEN, user) == 200
    assert [answer_to(guarded.port, "wrong-and-again", guesser) for _ in range(30)] == [401] * 30, "this is one guess"
    with ThreadPoolExecutor(40) as pool:
        statuses = list(pool.map(lambda n: answer_to(guarded.port, f"guess-{n}", guesser), range(120)))
    assert statuses.count(401) <= BURST + 5 and statuses.count(0) <= 2 * MOST_WAITING, "in a few seconds"
    assert statuses.count(429) >= 60, "those that do not wait are not looked at"
    assert answer_to(guarded.port, TOKEN, guesser) in {0, 429}, "nor is the right one of that address looked at sooner"
    assert answer_to(guarded.port, "", guesser, "/sign-in", "POST") in {0, 429}, "nor a form"
    assert answer_to(guarded.port, "", guesser, "/sign-in") == answer_to(guarded.port, "", guesser, "/healthz") == 200
    assert answer_to(guarded.port, TOKEN, user) == 200
    assert answer_to(guarded.port, "wrong", user) == 401, "a slip of someone with the right token"
    until(lambda: answer_to(guarded.port, TOKEN, guesser) == 200)
    assert [answer_to(guarded.port, TOKEN, guesser) for _ in range(30)] == [200] * 30
