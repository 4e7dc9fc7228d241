"""Uploads over broken connections and killed processes: no byte is lost or duplicated, no client is locked out."""

import hashlib
import io
import json
import os
import random
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from tusclient.client import TusClient

from core.services.uploads.uploads import UploadLimits
from tests.databases import postgres_url
from tests.system.platform_process import ROOT
from tests.system.servers import Api
from tests.waiting import until

TUS_HEADERS = {"Tus-Resumable": "1.0.0"}
APPEND_HEADERS = TUS_HEADERS | {"Content-Type": "application/offset+octet-stream"}
TUS_JS_SCRIPT = Path(__file__).parent / "tus_upload.cjs"

StartApi = Callable[[], Api]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An API process that no test kills."""
    server = Api(tmp_path_factory.mktemp("uploads"), {}).migrate()
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def start_api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartApi]:
    """Function that starts API processes on one database and one store; a test may kill them."""
    settings = {}
    if request.param == "postgresql":
        url = postgres_url(request.getfixturevalue("postgres"), request.node.nodeid)
        settings["DATABASE_URL"] = url
    servers: list[Api] = []

    def start() -> Api:
        server = Api(tmp_path / "home", settings)
        servers.append(server if servers else server.migrate())
        return server.start()

    yield start
    for server in servers:
        server.stop()


def random_bytes(size: int) -> bytes:
    """Return random bytes, so that a misplaced byte changes the digest."""
    return random.Random(size).randbytes(size)


def create(api: Api, length: int) -> str:
    """Create an upload and return its address."""
    response = api.http.post("/v1/uploads", headers=TUS_HEADERS | {"Upload-Length": str(length)})
    assert response.status_code == 201, response.text
    return response.headers["Location"]


def offset_of(api: Api, address: str) -> int:
    """Return the offset by HEAD, as a reconnecting client requests it."""
    response = api.http.head(address, headers=TUS_HEADERS)
    assert response.status_code == 200
    return int(response.headers["Upload-Offset"])


def stored_bytes(api: Api, address: str) -> int:
    """Return the stored bytes of an upload by GET, which does not interrupt its client."""
    return int(api.http.get(address).json()["offset"])


def append(api: Api, address: str, offset: int, data: bytes) -> httpx.Response:
    """Append bytes in one request over an intact connection."""
    return api.http.patch(address, content=data, headers=APPEND_HEADERS | {"Upload-Offset": str(offset)})


class UploadConnection:
    """PATCH request whose body the test sends in parts, over a connection that the test breaks."""

    def __init__(self, api: Api, address: str, offset: int, length: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", api.port), timeout=30.0)
        head = {**APPEND_HEADERS, "Host": f"localhost:{api.port}", "Upload-Offset": offset, "Content-Length": length}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        self._socket.sendall(f"PATCH {address} HTTP/1.1\r\n{lines}\r\n".encode())

    def __enter__(self) -> "UploadConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> bool:
        """Send a part of the body; return whether the connection is still open."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def status_line(self) -> bytes:
        """Return the status line of the response."""
        return self._socket.recv(4096).partition(b"\r\n")[0]

    def hang_up(self) -> None:
        """Close the connection with a FIN."""
        self._socket.close()

    def reset(self) -> None:
        """Close the connection with an RST."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


def digest_of(api: Api, address: str, name: str = "model") -> str:
    """Return the digest of a finished upload, from a model created from it."""
    response = api.http.post("/v1/models", json={"upload": address, "name": name, "format": "python"})
    assert response.status_code == 201, response.text
    return str(response.json()["digest"])


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


# -- broken connections


@pytest.mark.parametrize("break_connection", [UploadConnection.hang_up, UploadConnection.reset])
def test_all_bytes_before_a_broken_connection_are_stored(
    api: Api, break_connection: Callable[[UploadConnection], None]
) -> None:
    data = random_bytes(300_001)
    address = create(api, len(data))
    with UploadConnection(api, address, 0, len(data)) as connection:
        connection.send(data[:200_001])
        # all but the bytes of the read in progress
        until(
            lambda: stored_bytes(api, address) > 200_001 - (64 << 10),
            message="bytes are not stored before more bytes arrive",
        )
        break_connection(connection)
    offset = offset_of(api, address)
    assert offset == 200_001
    assert append(api, address, offset, data[offset:]).status_code == 204
    assert digest_of(api, address) == sha256(data)


def test_bytes_are_stored_although_the_connection_breaks_immediately(api: Api) -> None:
    data = random_bytes(300_000)
    address = create(api, len(data))
    with UploadConnection(api, address, 0, len(data)) as connection:
        connection.send(data[:5000])
        until(lambda: stored_bytes(api, address) > 0, message="bytes are not stored before more bytes arrive")
        connection.send(data[5000:200_000])
    offset = offset_of(api, address)
    assert offset == 200_000
    assert append(api, address, offset, data[offset:]).status_code == 204
    assert digest_of(api, address) == sha256(data)


def test_a_reconnecting_client_succeeds_although_its_old_request_hangs(api: Api) -> None:
    data = random_bytes(400_000)
    address = create(api, len(data))
    with UploadConnection(api, address, 0, len(data)) as old_request:
        old_request.send(data[:150_000])
        until(lambda: stored_bytes(api, address) > 0, message="no bytes are stored")
        offset = offset_of(api, address)
        assert 0 < offset <= 150_000
        assert append(api, address, offset, data[offset:]).status_code == 204
        old_request.send(data[150_000:])  # the old request continues, and gets a 409
        assert old_request.status_line() == b"HTTP/1.1 409 Conflict"
    assert offset_of(api, address) == len(data)
    assert digest_of(api, address) == sha256(data)


def test_reading_an_upload_does_not_interrupt_it(api: Api) -> None:
    data = random_bytes(600_000)
    address = create(api, len(data))
    with UploadConnection(api, address, 0, len(data)) as connection:
        for offset in range(0, len(data), 10_000):
            assert connection.send(data[offset : offset + 10_000])
            if offset == 0:
                until(lambda: stored_bytes(api, address) > 0, message="the request has stored no bytes")
            assert stored_bytes(api, address) <= offset + 10_000
        assert connection.status_line() == b"HTTP/1.1 204 No Content"
    assert digest_of(api, address) == sha256(data)


def test_concurrent_clients_never_mix_their_bytes(api: Api) -> None:
    data = random_bytes(1 << 20)
    address = create(api, len(data))
    statuses: list[int] = []

    def upload() -> None:
        with httpx.Client(base_url=api.url, timeout=60.0, trust_env=False) as http:
            while (offset := int(http.get(address).json()["offset"])) < len(data):
                piece = data[offset : offset + 50_000]
                statuses.append(
                    http.patch(
                        address, content=piece, headers=APPEND_HEADERS | {"Upload-Offset": str(offset)}
                    ).status_code
                )

    threads = [threading.Thread(target=upload) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert set(statuses) <= {204, 409} and 204 in statuses
    assert digest_of(api, address) == sha256(data)


def test_a_body_without_a_length_is_accepted(api: Api) -> None:
    data = random_bytes(300_000)
    address = create(api, len(data))

    def pieces() -> Iterator[bytes]:
        for offset in range(0, len(data), 70_000):
            yield data[offset : offset + 70_000]

    response = api.http.patch(address, content=pieces(), headers=APPEND_HEADERS | {"Upload-Offset": "0"})
    assert response.status_code == 204 and response.headers["Upload-Offset"] == str(len(data))
    assert digest_of(api, address) == sha256(data)


def test_memory_use_is_constant(api: Api) -> None:
    piece = random_bytes(1 << 20)
    append(api, create(api, 8 << 20), 0, piece * 8)
    before = api.resident()
    address = create(api, 256 << 20)
    headers = APPEND_HEADERS | {"Upload-Offset": "0", "Content-Length": str(256 << 20)}
    assert api.http.patch(address, content=(piece for _ in range(256)), headers=headers).status_code == 204
    assert api.resident() - before < 40 << 20
    api.http.delete(address, headers=TUS_HEADERS)


def test_hundreds_of_idle_appends_do_not_block_other_requests(api: Api) -> None:
    address, *idle_uploads = [create(api, 10) for _ in range(1 + UploadLimits().writers)]

    def status() -> int:
        return append(api, address, 0, b"").status_code

    with ExitStack() as stack:

        def is_limit_reached() -> bool:
            if status() == 503:
                return True
            # The request for the status was itself a writer, and may have kept an idle one out.
            idle_uploads.append(create(api, 10))
            stack.enter_context(UploadConnection(api, idle_uploads[-1], 0, 10))
            return False

        for idle_address in idle_uploads:
            stack.enter_context(UploadConnection(api, idle_address, 0, 10))
        until(is_limit_reached, message="the limit is not reached")
        assert api.http.get("/v1/models").status_code == 200
    until(lambda: status() == 204, message="requests are still refused")
    for created in [*idle_uploads, address]:
        assert api.http.delete(created, headers=TUS_HEADERS).status_code == 204


# -- killed processes


def test_connections_use_tcp_keepalive(api: Api) -> None:
    def timer(port: int) -> str:
        """Return the kernel's timer for the server's end of a connection; 02 is keepalive (proc(5))."""
        for connection in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, state, _, timer, *_ = connection.split()
            if state == "01" and (local[-4:], remote[-4:]) == (f"{api.port:04X}", f"{port:04X}"):
                return timer[:2]
        return "none"

    with socket.create_connection(("127.0.0.1", api.port)) as connection:
        until(lambda: timer(connection.getsockname()[1]) == "02", message="TCP keepalive is not enabled")


def test_kill_9_never_loses_or_duplicates_bytes(start_api: StartApi) -> None:
    rng = random.Random(7)
    data = random_bytes(2_000_000)
    first, second = start_api(), start_api()
    address = create(first, len(data))
    durable, kills = 0, 0
    while durable < len(data):
        server = rng.choice([first, second])
        offset = offset_of(server, address)
        assert offset >= durable, "bytes that were reported as stored are missing"
        with UploadConnection(server, address, offset, len(data) - offset) as connection:
            sent, stop = offset, offset + rng.randrange(100_000, 400_000)
            while sent < min(len(data), stop) and connection.send(data[sent : sent + 20_000]):
                sent = min(len(data), sent + 20_000)
            # The connection or the process ends after a random number of stored bytes.
            other, goal = second if server is first else first, offset + int(rng.random() * (sent - offset))
            until(lambda other=other, goal=goal: stored_bytes(other, address) > goal - (64 << 10))  # type: ignore[misc]
            durable = max(offset, stored_bytes(other, address))
            assert durable <= sent
            if sent == len(data):
                assert connection.status_line() == b"HTTP/1.1 204 No Content"
            elif kills < 3 and rng.random() < 0.7:
                kills += 1
                server.kill()
                server.start()
            else:
                rng.choice([connection.hang_up, connection.reset])()
    assert kills >= 2
    assert digest_of(second, address) == sha256(data)
    parts = [path.stat().st_size for path in (first.home / "objects" / "uploads").rglob("*") if path.is_file()]
    assert len(data) <= sum(parts)  # objects without a row are deleted later, and are not part of the upload


# -- third-party clients


def test_tuspy_uploads_checks_and_resumes(api: Api) -> None:
    data = random_bytes(700_000)
    client = TusClient(f"{api.url}/v1/uploads")
    single = client.uploader(file_stream=io.BytesIO(data), upload_checksum=True)
    single.upload()
    assert digest_of(api, single.url) == sha256(data)
    chunked = client.uploader(
        file_stream=io.BytesIO(data), chunk_size=100_000, metadata={"filename": "a policy.py"}, upload_checksum=True
    )
    chunked.upload(stop_at=300_000)
    resumed = client.uploader(file_stream=io.BytesIO(data), chunk_size=130_000, url=chunked.url)
    assert resumed.offset == 300_000
    resumed.upload()
    assert digest_of(api, chunked.url) == sha256(data)
    assert httpx.get(chunked.url, trust_env=False).json()["metadata"] == {"filename": "a policy.py"}
    empty = client.uploader(file_stream=io.BytesIO(b""))
    empty.upload()
    assert httpx.get(empty.url, trust_env=False).json()["state"] == "finished"


@pytest.mark.parametrize("start_api", ["postgresql"], indirect=True)
def test_tuspy_survives_kill_9(start_api: StartApi) -> None:
    data = random_bytes(4_000_000)
    api = start_api()
    uploader = TusClient(f"{api.url}/v1/uploads").uploader(
        file_stream=io.BytesIO(data), chunk_size=50_000, retries=120, retry_delay=0.25
    )
    uploader.set_url(uploader.create_url())
    uploader.offset = 0
    failures: list[BaseException] = []

    def upload() -> None:
        try:
            uploader.upload()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=upload)
    thread.start()
    address = uploader.url.removeprefix(api.url)
    for goal in (200_000, 1_000_000):
        until(lambda goal=goal: stored_bytes(api, address) >= goal, message="the upload makes no progress")  # type: ignore[misc]
        api.kill()
        api.start()
    thread.join(120.0)
    assert not failures and not thread.is_alive()
    assert digest_of(api, address) == sha256(data)


@pytest.fixture(scope="session")
def javascript() -> str:
    """Path of the folder with tus-js-client for Node."""
    run = subprocess.run([str(ROOT / "scripts/tools/tus-js-client")], capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def start_tus_js(javascript: str, api: Api, file: Path, **options: object) -> "subprocess.Popen[str]":
    """Start an upload with tus-js-client."""
    upload = {"endpoint": f"{api.url}/v1/uploads", "file": str(file), **options}
    environ = {
        "NODE_PATH": f"{javascript}/node_modules",
        "PATH": os.environ["PATH"],
        "UPLOAD_OPTIONS": json.dumps(upload),
    }
    return subprocess.Popen(
        [str(ROOT / "scripts/tools/npm"), "node", str(TUS_JS_SCRIPT)],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result_of(process: "subprocess.Popen[str]") -> dict[str, str]:
    """Wait for the end of an upload with tus-js-client and return its result."""
    try:
        output, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, errors[-3000:]
    assert output, f"tus-js-client printed no result: {errors[-2000:]}"
    result: dict[str, str] = json.loads(output)
    return result


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunkSize": 100_000, "metadata": {"filename": "a policy.py"}},
        {"chunkSize": 100_000, "uploadDataDuringCreation": True},
        {"chunkSize": 100_000, "uploadLengthDeferred": True},
        {"parallelUploads": 3},
        {"chunkSize": 100_000, "overridePatchMethod": True},
        {"chunkSize": 100_000, "abortAfter": 250_000},
    ],
    ids=lambda options: "-".join(options) or "single-request",
)
def test_tus_js_client_uploads(api: Api, javascript: str, tmp_path: Path, options: dict[str, object]) -> None:
    data = random_bytes(900_001)  # with a multiple of the chunk size, this client does not send the length
    file = tmp_path / "policy.py"
    file.write_bytes(data)
    url = result_of(start_tus_js(javascript, api, file, **options))["url"]
    assert digest_of(api, url) == sha256(data)


@pytest.mark.parametrize("start_api", ["sqlite"], indirect=True)
def test_tus_js_client_survives_kill_9(start_api: StartApi, javascript: str, tmp_path: Path) -> None:
    data = random_bytes(4_000_000)
    api = start_api()
    file = tmp_path / "policy.py"
    file.write_bytes(data)
    process = start_tus_js(javascript, api, file, chunkSize=50_000)
    for goal in (200_000, 1_000_000):

        def has_reached(goal: int = goal) -> bool:
            items = api.http.get("/v1/uploads").json()["items"]
            return bool(items) and items[0]["offset"] >= goal

        until(has_reached, message="the upload makes no progress")
        api.kill()
        api.start()
    assert digest_of(api, result_of(process)["url"]) == sha256(data)
