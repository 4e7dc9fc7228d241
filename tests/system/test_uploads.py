"""Uploads over lines that break and through processes that die: not a byte is lost or doubled, nobody is locked out."""

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

from tests.databases import postgres_url
from tests.system.house import ROOT
from tests.system.servers import Api
from tests.waiting import until

TUS = {"Tus-Resumable": "1.0.0"}
BYTES = TUS | {"Content-Type": "application/offset+octet-stream"}
NODE = Path(__file__).parent / "tus_upload.cjs"

Found = Callable[[], Api]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An API process that no test of this file harms."""
    made = Api(tmp_path_factory.mktemp("uploads"), {}).migrate()
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def found(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Found]:
    """Start API processes on one database and one store; a test may kill them."""
    settings = {}
    if request.param == "postgresql":
        url = postgres_url(request.getfixturevalue("postgres"), request.node.nodeid)
        settings["DATABASE_URL"] = url
    made: list[Api] = []

    def start() -> Api:
        one = Api(tmp_path / "home", settings)
        made.append(one if made else one.migrate())
        return one.start()

    yield start
    for one in made:
        one.stop()


def noise(size: int) -> bytes:
    """Return bytes in which every misplaced one shows."""
    return random.Random(size).randbytes(size)


def begin(api: Api, length: int) -> str:
    """Begin an upload and return its address."""
    sent = api.http.post("/v1/uploads", headers=TUS | {"Upload-Length": str(length)})
    assert sent.status_code == 201, sent.text
    return sent.headers["Location"]


def stands(api: Api, address: str) -> int:
    """Ask where to go on, as a client does that lost its line."""
    asked = api.http.head(address, headers=TUS)
    assert asked.status_code == 200
    return int(asked.headers["Upload-Offset"])


def seen(api: Api, address: str) -> int:
    """Look how far an upload has come, without being its client."""
    return int(api.http.get(address).json()["offset"])


def bring(api: Api, address: str, offset: int, data: bytes) -> httpx.Response:
    """Bring bytes in one request that goes well."""
    return api.http.patch(address, content=data, headers=BYTES | {"Upload-Offset": str(offset)})


class Line:
    """A request that is being sent, byte by byte, over a line that the test breaks."""

    def __init__(self, api: Api, address: str, offset: int, length: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", api.port), timeout=30.0)
        head = {**BYTES, "Host": f"localhost:{api.port}", "Upload-Offset": offset, "Content-Length": length}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        self._socket.sendall(f"PATCH {address} HTTP/1.1\r\n{lines}\r\n".encode())

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> bool:
        """Send some of the body; tell whether the line still holds."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def answer(self) -> bytes:
        """Wait for the answer's first line."""
        return self._socket.recv(4096).partition(b"\r\n")[0]

    def hang_up(self) -> None:
        """End the line in order."""
        self._socket.close()

    def reset(self) -> None:
        """Tear the line."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


def digest_of(api: Api, address: str, name: str = "model") -> str:
    """Return the digest of a finished upload, by making a model of it."""
    made = api.http.post("/v1/models", json={"upload": address, "name": name, "format": "python"})
    assert made.status_code == 201, made.text
    return str(made.json()["digest"])


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


# -- lines that break


@pytest.mark.parametrize("end", [Line.hang_up, Line.reset])
def test_what_arrived_before_the_line_broke_is_kept_to_the_byte(api: Api, end: Callable[[Line], None]) -> None:
    data = noise(300_001)
    address = begin(api, len(data))
    with Line(api, address, 0, len(data)) as line:
        line.send(data[:200_001])
        # but for what waits in one read
        until(lambda: seen(api, address) > 200_001 - (64 << 10), message="what came is not durable while nothing comes")
        end(line)
    at = stands(api, address)
    assert at == 200_001
    assert bring(api, address, at, data[at:]).status_code == 204
    assert digest_of(api, address) == sha256(data)


def test_what_arrived_counts_though_the_line_breaks_at_once(api: Api) -> None:
    data = noise(300_000)
    address = begin(api, len(data))
    with Line(api, address, 0, len(data)) as line:
        line.send(data[:5000])
        until(lambda: seen(api, address) > 0, message="what came is not durable while nothing comes")
        line.send(data[5000:200_000])
    at = stands(api, address)
    assert at == 200_000
    assert bring(api, address, at, data[at:]).status_code == 204
    assert digest_of(api, address) == sha256(data)


def test_a_client_that_comes_back_succeeds_at_once_though_its_old_request_hangs(api: Api) -> None:
    data = noise(400_000)
    address = begin(api, len(data))
    with Line(api, address, 0, len(data)) as old:
        old.send(data[:150_000])
        until(lambda: seen(api, address) > 0, message="nothing is durable while bytes come")
        at = stands(api, address)
        assert 0 < at <= 150_000
        assert bring(api, address, at, data[at:]).status_code == 204
        old.send(data[150_000:])  # the old request wakes up, and is told that it is late
        assert old.answer() == b"HTTP/1.1 409 Conflict"
    assert stands(api, address) == len(data)
    assert digest_of(api, address) == sha256(data)


def test_a_client_that_only_looks_stops_nobody(api: Api) -> None:
    data = noise(600_000)
    address = begin(api, len(data))
    with Line(api, address, 0, len(data)) as line:
        for at in range(0, len(data), 10_000):
            assert line.send(data[at : at + 10_000])
            if at == 0:
                until(lambda: seen(api, address) > 0, message="the request is not at work")
            assert seen(api, address) <= at + 10_000
        assert line.answer() == b"HTTP/1.1 204 No Content"
    assert digest_of(api, address) == sha256(data)


def test_two_that_send_at_once_never_mix_their_bytes(api: Api) -> None:
    data = noise(1 << 20)
    address = begin(api, len(data))
    answers: list[int] = []

    def upload() -> None:
        with httpx.Client(base_url=api.url, timeout=60.0, trust_env=False) as http:
            while (at := int(http.get(address).json()["offset"])) < len(data):
                piece = data[at : at + 50_000]
                answers.append(
                    http.patch(address, content=piece, headers=BYTES | {"Upload-Offset": str(at)}).status_code
                )

    threads = [threading.Thread(target=upload) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert set(answers) <= {204, 409} and 204 in answers
    assert digest_of(api, address) == sha256(data)


def test_a_body_of_unannounced_length_is_taken(api: Api) -> None:
    data = noise(300_000)
    address = begin(api, len(data))

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(data), 70_000):
            yield data[at : at + 70_000]

    sent = api.http.patch(address, content=pieces(), headers=BYTES | {"Upload-Offset": "0"})
    assert sent.status_code == 204 and sent.headers["Upload-Offset"] == str(len(data))
    assert digest_of(api, address) == sha256(data)


def test_memory_stays_the_same_however_much_comes(api: Api) -> None:
    piece = noise(1 << 20)
    bring(api, begin(api, 8 << 20), 0, piece * 8)
    before = api.resident()
    address = begin(api, 256 << 20)
    headers = BYTES | {"Upload-Offset": "0", "Content-Length": str(256 << 20)}
    assert api.http.patch(address, content=(piece for _ in range(256)), headers=headers).status_code == 204
    assert api.resident() - before < 40 << 20
    api.http.delete(address, headers=TUS)


def test_hundreds_that_send_nothing_shut_nobody_else_out(api: Api) -> None:
    last = begin(api, 10)
    taken: list[str] = []

    def tried() -> int:
        return bring(api, last, 0, b"").status_code

    with ExitStack() as lines:

        def one_more_is_refused() -> bool:
            taken.append(begin(api, 10))
            lines.enter_context(Line(api, taken[-1], 0, 10))
            return len(taken) >= 256 and tried() == 503

        until(one_more_is_refused, message="everybody is let in", every=0.005)
        assert api.http.get("/v1/models").status_code == 200
    until(lambda: tried() == 204, message="nobody is let in again")
    for address in [*taken, last]:
        assert api.http.delete(address, headers=TUS).status_code == 204


# -- processes that die


def test_the_kernel_asks_now_and_then_whether_a_silent_client_is_still_there(api: Api) -> None:
    def timer(port: int) -> str:
        """Say which timer the kernel runs for the server's end of a connection; 02 is keepalive (proc(5))."""
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, ours, theirs, state, _, timer, *_ = line.split()
            if state == "01" and (ours[-4:], theirs[-4:]) == (f"{api.port:04X}", f"{port:04X}"):
                return timer[:2]
        return "none"

    with socket.create_connection(("127.0.0.1", api.port)) as line:
        until(lambda: timer(line.getsockname()[1]) == "02", message="nobody asks")


def test_kill_9_at_any_moment_loses_and_doubles_nothing(found: Found) -> None:
    chance = random.Random(7)
    data = noise(2_000_000)
    first, second = found(), found()
    address = begin(first, len(data))
    durable, kills = 0, 0
    while durable < len(data):
        one = chance.choice([first, second])
        at = stands(one, address)
        assert at >= durable, "what was told to be durable is not there"
        with Line(one, address, at, len(data) - at) as line:
            sent, stop = at, at + chance.randrange(100_000, 400_000)
            while sent < min(len(data), stop) and line.send(data[sent : sent + 20_000]):
                sent = min(len(data), sent + 20_000)
            # Some of it is durable when the line or the process goes: how much of it at least, chance decides.
            other, goal = second if one is first else first, at + int(chance.random() * (sent - at))
            until(lambda other=other, goal=goal: seen(other, address) > goal - (64 << 10))  # type: ignore[misc]
            durable = max(at, seen(other, address))
            assert durable <= sent
            if sent == len(data):
                assert line.answer() == b"HTTP/1.1 204 No Content"
            elif kills < 3 and chance.random() < 0.7:
                kills += 1
                one.kill()
                one.start()
            else:
                chance.choice([line.hang_up, line.reset])()
    assert kills >= 2
    assert digest_of(second, address) == sha256(data)
    parts = [path.stat().st_size for path in (first.home / "objects" / "uploads").rglob("*") if path.is_file()]
    assert len(data) <= sum(parts)  # what was killed before its row is swept later, and is never part of it


# -- the real clients


def test_tuspy_uploads_checks_and_resumes(api: Api) -> None:
    data = noise(700_000)
    client = TusClient(f"{api.url}/v1/uploads")
    whole = client.uploader(file_stream=io.BytesIO(data), upload_checksum=True)
    whole.upload()
    assert digest_of(api, whole.url) == sha256(data)
    pieces = client.uploader(
        file_stream=io.BytesIO(data), chunk_size=100_000, metadata={"filename": "a policy.py"}, upload_checksum=True
    )
    pieces.upload(stop_at=300_000)
    resumed = client.uploader(file_stream=io.BytesIO(data), chunk_size=130_000, url=pieces.url)
    assert resumed.offset == 300_000
    resumed.upload()
    assert digest_of(api, pieces.url) == sha256(data)
    assert httpx.get(pieces.url, trust_env=False).json()["metadata"] == {"filename": "a policy.py"}
    empty = client.uploader(file_stream=io.BytesIO(b""))
    empty.upload()
    assert httpx.get(empty.url, trust_env=False).json()["state"] == "finished"


@pytest.mark.parametrize("found", ["postgresql"], indirect=True)
def test_tuspy_survives_kill_9(found: Found) -> None:
    data = noise(4_000_000)
    api = found()
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
        until(lambda goal=goal: seen(api, address) >= goal, message="it does not get on")  # type: ignore[misc]
        api.kill()
        api.start()
    thread.join(120.0)
    assert not failures and not thread.is_alive()
    assert digest_of(api, address) == sha256(data)


@pytest.fixture(scope="session")
def javascript() -> str:
    """A folder in which node finds tus-js-client."""
    run = subprocess.run([str(ROOT / "scripts/tools/tus-js-client")], capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def in_node(javascript: str, api: Api, file: Path, **asked: object) -> "subprocess.Popen[str]":
    """Start an upload with tus-js-client."""
    told = {"endpoint": f"{api.url}/v1/uploads", "file": str(file), **asked}
    environ = {
        "NODE_PATH": f"{javascript}/node_modules",
        "PATH": os.environ["PATH"],
        "ASKED": json.dumps(told),
    }
    return subprocess.Popen(
        [str(ROOT / "scripts/tools/npm"), "node", str(NODE)],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process: "subprocess.Popen[str]") -> dict[str, str]:
    """Wait for the end of an upload and return what the client says of it."""
    try:
        output, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, errors[-3000:]
    assert output, f"it ends without a word: {errors[-2000:]}"
    answer: dict[str, str] = json.loads(output)
    return answer


@pytest.mark.parametrize(
    "way",
    [
        {},
        {"chunkSize": 100_000, "metadata": {"filename": "a policy.py"}},
        {"chunkSize": 100_000, "uploadDataDuringCreation": True},
        {"chunkSize": 100_000, "uploadLengthDeferred": True},
        {"parallelUploads": 3},
        {"chunkSize": 100_000, "overridePatchMethod": True},
        {"chunkSize": 100_000, "abortAfter": 250_000},
    ],
    ids=lambda way: "-".join(way) or "at-once",
)
def test_tus_js_client_uploads(api: Api, javascript: str, tmp_path: Path, way: dict[str, object]) -> None:
    data = noise(900_001)  # of so many pieces exactly, this client would not tell the length
    file = tmp_path / "policy.py"
    file.write_bytes(data)
    url = said(in_node(javascript, api, file, **way))["url"]
    assert digest_of(api, url) == sha256(data)


@pytest.mark.parametrize("found", ["sqlite"], indirect=True)
def test_tus_js_client_survives_kill_9(found: Found, javascript: str, tmp_path: Path) -> None:
    data = noise(4_000_000)
    api = found()
    file = tmp_path / "policy.py"
    file.write_bytes(data)
    process = in_node(javascript, api, file, chunkSize=50_000)
    for goal in (200_000, 1_000_000):

        def far(goal: int = goal) -> bool:
            items = api.http.get("/v1/uploads").json()["items"]
            return bool(items) and items[0]["offset"] >= goal

        until(far, message="it does not get on")
        api.kill()
        api.start()
    assert digest_of(api, said(process)["url"]) == sha256(data)
