"""Launch inputs: downloads are complete and verified or absent; from the cache service or the runner API, resumed."""

import hashlib
import http.client
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from datasets.catalogue import datasets
from datasets.versions import scenario_folder
from runtimes.harness.runner.runner_api_client import Credentials, LaunchOver
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from workers.launch_inputs import LaunchInputs, WrongInput

MODEL = hashlib.sha256(b"weights").digest() * 40_000


class OneObjectCache:
    """A cache client with one object, possibly with wrong bytes, which records the digests that are put."""

    def __init__(self, content: bytes | None = None) -> None:
        self.content = content
        self.put_digests: list[str] = []
        self.filled = threading.Event()

    def get(self, digest: str, size: int, target: BinaryIO) -> bool:
        if self.content is None:
            return False
        target.write(self.content)
        return True

    def put(self, digest: str, path: Path) -> None:
        self.put_digests.append(digest)
        self.filled.set()


@pytest.fixture
def runner_api(tmp_path: Path) -> Iterator[RunnerApi]:
    packed = scenario_folder.pack(datasets()["car_street"].folder)
    api = RunnerApi(tmp_path, total=10, play={}, model=MODEL, packed=packed, cache_ttl=0.0)
    yield api
    api.close()


@pytest.fixture
def inputs(runner_api: RunnerApi, tmp_path: Path) -> Callable[..., LaunchInputs]:
    def make(cache: OneObjectCache | None = None, token: str = TOKEN) -> LaunchInputs:
        credentials = Credentials(url=runner_api.url, launch=LAUNCH, token=token)
        return LaunchInputs(credentials, threading.Event(), tmp_path / "files", cache)

    return make


def described_files(runner_api: RunnerApi) -> dict[str, Any]:
    """Return the runner API's description of the launch's files."""
    files: dict[str, Any] = runner_api.leases.describe(runner_api.leases.authenticate(LAUNCH, TOKEN))["files"]
    return files


def test_model_and_dataset_folder_are_downloaded_completely(
    runner_api: RunnerApi, inputs: Callable[..., LaunchInputs]
) -> None:
    model, folder = inputs().download(described_files(runner_api), model=None, dataset="")
    assert Path(model).read_bytes() == MODEL
    shipped = datasets()["car_street"].folder
    for path in (file for file in shipped.rglob("*") if file.is_file() and "__pycache__" not in file.parts):
        assert (Path(folder) / path.relative_to(shipped)).read_bytes() == path.read_bytes()
    assert not any(path.name.startswith(".") for path in Path(folder).parent.iterdir())


def test_inputs_with_a_path_are_not_downloaded(runner_api: RunnerApi, inputs: Callable[..., LaunchInputs]) -> None:
    assert inputs().download({}, model="/a/model", dataset="/a/folder") == ("/a/model", "/a/folder")
    assert runner_api.requests == []


def test_an_interrupted_download_is_resumed(
    runner_api: RunnerApi, inputs: Callable[..., LaunchInputs], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = runner_api.leases.files.read
    starts: list[int] = []

    def broken(bundle: Any, start: int, stop: int) -> Iterator[bytes]:
        starts.append(start)
        pieces = read(bundle, start, min(stop, start + 500_000))
        return pieces  # fewer bytes than the Content-Length

    monkeypatch.setattr(runner_api.leases.files, "read", broken)
    model, _ = inputs().download(described_files(runner_api), model=None, dataset="/a/folder")
    assert Path(model).read_bytes() == MODEL
    assert starts == [0, 500_000, 1_000_000]


def test_a_wrong_digest_is_refused_after_three_downloads(
    runner_api: RunnerApi, inputs: Callable[..., LaunchInputs]
) -> None:
    files = described_files(runner_api)
    files["model"]["digest"] = "sha256:" + "0" * 64
    with pytest.raises(WrongInput, match="3 times"):
        inputs().download(files, model=None, dataset="/a/folder")


def test_an_object_in_the_cache_is_not_requested_from_the_runner_api(
    runner_api: RunnerApi, inputs: Callable[..., LaunchInputs]
) -> None:
    files = described_files(runner_api)
    cache = OneObjectCache(MODEL)
    model, _ = inputs(cache).download(files, model=None, dataset="/a/folder")
    assert Path(model).read_bytes() == MODEL
    assert "model" not in runner_api.requests
    assert cache.put_digests == []


@pytest.mark.parametrize("content", [None, b"x" * len(MODEL)])
def test_a_cache_without_the_object_or_with_wrong_bytes_is_bypassed_and_filled(
    runner_api: RunnerApi, inputs: Callable[..., LaunchInputs], content: bytes | None
) -> None:
    files = described_files(runner_api)
    cache = OneObjectCache(content)
    model, _ = inputs(cache).download(files, model=None, dataset="/a/folder")
    assert Path(model).read_bytes() == MODEL
    assert cache.filled.wait(10.0)
    assert cache.put_digests == [files["model"]["digest"]]


def test_the_files_of_an_ended_launch_or_without_its_token_are_refused(
    runner_api: RunnerApi, inputs: Callable[..., LaunchInputs]
) -> None:
    files = described_files(runner_api)
    runner_api.cancel()
    with pytest.raises(LaunchOver, match="410"):
        inputs().download(files, model=None, dataset="/a/folder")
    with pytest.raises(LaunchOver, match="401"):
        inputs(token="wrong").download(files, model=None, dataset="/a/folder")


def get(runner_api: RunnerApi, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """GET a file of the launch; return status, headers and body."""
    connection = http.client.HTTPConnection(runner_api.url.removeprefix("http://"), timeout=20.0)
    connection.request("GET", f"/v1/launches/{LAUNCH}/{path}", headers={"Authorization": f"Bearer {TOKEN}"} | headers)
    response = connection.getresponse()
    try:
        return response.status, dict(response.headers), response.read()
    finally:
        connection.close()


def test_byte_ranges_of_a_file_are_served(runner_api: RunnerApi) -> None:
    status, headers, body = get(runner_api, "model", Range="bytes=10-19")
    assert (status, body, headers["Content-Range"]) == (206, MODEL[10:20], f"bytes 10-19/{len(MODEL)}")
    status, headers, body = get(runner_api, "model", Range=f"bytes={len(MODEL)}-")
    assert (status, headers["Content-Range"]) == (416, f"bytes */{len(MODEL)}")
    status, headers, body = get(runner_api, "model")
    assert (status, len(body), headers["Content-Length"]) == (200, len(MODEL), str(len(MODEL)))


def test_a_launch_without_a_packed_dataset_answers_404(tmp_path: Path) -> None:
    api = RunnerApi(tmp_path, total=10, play={}, model=MODEL)
    try:
        assert get(api, "play")[0] == 404
        assert set(described_files(api)) == {"model"}
    finally:
        api.close()


def test_a_redirect_to_the_object_store_is_followed_without_the_launchs_credentials(
    runner_api: RunnerApi, inputs: Callable[..., LaunchInputs]
) -> None:
    requests: list[dict[str, Any]] = []
    runner_api_application = runner_api.application

    def store(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/bucket/object":
            requests.append(environ)
            start("206 Partial Content", [("Content-Length", str(len(MODEL)))])
            return [MODEL]
        if environ["PATH_INFO"].endswith("/model"):
            start(
                "307 Temporary Redirect",
                [("Location", f"{runner_api.url}/bucket/object?sig=1"), ("Content-Length", "0")],
            )
            return []
        return runner_api_application(environ, start)

    runner_api.application = store
    model, _ = inputs().download(described_files(runner_api), model=None, dataset="/a/folder")
    assert Path(model).read_bytes() == MODEL
    assert requests[0]["QUERY_STRING"] == "sig=1"
    assert "HTTP_AUTHORIZATION" not in requests[0]
