"""What a runner fetches is whole and right, or not there: from the cache or the surface, resumed on its way."""

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
from workers.launch_inputs import Damaged, Deliveries

MODEL = hashlib.sha256(b"weights").digest() * 40_000


class Near:
    """A cache of one thing, which may be the wrong one."""

    def __init__(self, content: bytes | None = None) -> None:
        self.content = content
        self.brought: list[str] = []
        self.filled = threading.Event()

    def get(self, digest: str, size: int, target: BinaryIO) -> bool:
        if self.content is None:
            return False
        target.write(self.content)
        return True

    def put(self, digest: str, path: Path) -> None:
        self.brought.append(digest)
        self.filled.set()


@pytest.fixture
def runner_api(tmp_path: Path) -> Iterator[RunnerApi]:
    packed = scenario_folder.pack(datasets()["car_street"].folder)
    one = RunnerApi(tmp_path, total=10, play={}, model=MODEL, packed=packed, cache_ttl=0.0)
    yield one
    one.close()


@pytest.fixture
def deliveries(runner_api: RunnerApi, tmp_path: Path) -> Callable[..., Deliveries]:
    def make(near: Near | None = None, token: str = TOKEN) -> Deliveries:
        credentials = Credentials(url=runner_api.url, launch=LAUNCH, token=token)
        return Deliveries(credentials, threading.Event(), tmp_path / "files", near)

    return make


def announced(runner_api: RunnerApi) -> dict[str, Any]:
    """What the surface says of the files."""
    files: dict[str, Any] = runner_api.leases.describe(runner_api.leases.authenticate(LAUNCH, TOKEN))["files"]
    return files


def test_the_model_and_the_folder_come_whole(runner_api: RunnerApi, deliveries: Callable[..., Deliveries]) -> None:
    model, folder = deliveries().bring(announced(runner_api), model=None, dataset="")
    assert Path(model).read_bytes() == MODEL
    shipped = datasets()["car_street"].folder
    for path in (one for one in shipped.rglob("*") if one.is_file() and "__pycache__" not in one.parts):
        assert (Path(folder) / path.relative_to(shipped)).read_bytes() == path.read_bytes()
    assert not any(one.name.startswith(".") for one in Path(folder).parent.iterdir())


def test_what_is_named_is_not_fetched(runner_api: RunnerApi, deliveries: Callable[..., Deliveries]) -> None:
    assert deliveries().bring({}, model="/a/model", dataset="/a/folder") == ("/a/model", "/a/folder")
    assert runner_api.asked == []


def test_a_download_that_breaks_off_goes_on_where_it_was(
    runner_api: RunnerApi, deliveries: Callable[..., Deliveries], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = runner_api.leases.read
    starts: list[int] = []

    def broken(bundle: Any, start: int, stop: int) -> Iterator[bytes]:
        starts.append(start)
        pieces = read(bundle, start, min(stop, start + 500_000))
        return pieces  # fewer bytes than the head has announced

    monkeypatch.setattr(runner_api.leases, "read", broken)
    model, _ = deliveries().bring(announced(runner_api), model=None, dataset="/a/folder")
    assert Path(model).read_bytes() == MODEL
    assert starts == [0, 500_000, 1_000_000]


def test_what_is_not_what_was_announced_is_refused(
    runner_api: RunnerApi, deliveries: Callable[..., Deliveries]
) -> None:
    files = announced(runner_api)
    files["model"]["digest"] = "sha256:" + "0" * 64
    with pytest.raises(Damaged, match="three times"):
        deliveries().bring(files, model=None, dataset="/a/folder")


def test_a_cache_that_has_it_is_asked_alone(runner_api: RunnerApi, deliveries: Callable[..., Deliveries]) -> None:
    files = announced(runner_api)
    near = Near(MODEL)
    model, _ = deliveries(near).bring(files, model=None, dataset="/a/folder")
    assert Path(model).read_bytes() == MODEL
    assert "model" not in runner_api.asked
    assert near.brought == []


@pytest.mark.parametrize("content", [None, b"x" * len(MODEL)])
def test_a_cache_that_has_it_not_or_wrong_is_passed_by_and_filled(
    runner_api: RunnerApi, deliveries: Callable[..., Deliveries], content: bytes | None
) -> None:
    files = announced(runner_api)
    near = Near(content)
    model, _ = deliveries(near).bring(files, model=None, dataset="/a/folder")
    assert Path(model).read_bytes() == MODEL
    assert near.filled.wait(10.0)
    assert near.brought == [files["model"]["digest"]]


def test_a_launch_that_is_over_has_no_files(runner_api: RunnerApi, deliveries: Callable[..., Deliveries]) -> None:
    files = announced(runner_api)
    runner_api.cancel()
    with pytest.raises(LaunchOver, match="410"):
        deliveries().bring(files, model=None, dataset="/a/folder")
    with pytest.raises(LaunchOver, match="401"):
        deliveries(token="guessed").bring(files, model=None, dataset="/a/folder")


def asked(runner_api: RunnerApi, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """GET a file as any client would."""
    link = http.client.HTTPConnection(runner_api.url.removeprefix("http://"), timeout=20.0)
    link.request("GET", f"/v1/launches/{LAUNCH}/{path}", headers={"Authorization": f"Bearer {TOKEN}"} | headers)
    answer = link.getresponse()
    try:
        return answer.status, dict(answer.headers), answer.read()
    finally:
        link.close()


def test_a_part_is_given_as_a_part(runner_api: RunnerApi) -> None:
    status, headers, body = asked(runner_api, "model", Range="bytes=10-19")
    assert (status, body, headers["Content-Range"]) == (206, MODEL[10:20], f"bytes 10-19/{len(MODEL)}")
    status, headers, body = asked(runner_api, "model", Range=f"bytes={len(MODEL)}-")
    assert (status, headers["Content-Range"]) == (416, f"bytes */{len(MODEL)}")
    status, headers, body = asked(runner_api, "model")
    assert (status, len(body), headers["Content-Length"]) == (200, len(MODEL), str(len(MODEL)))


def test_a_launch_without_a_packed_folder_says_so(tmp_path: Path) -> None:
    one = RunnerApi(tmp_path, total=10, play={}, model=MODEL)
    try:
        assert asked(one, "play")[0] == 404
        assert set(announced(one)) == {"model"}
    finally:
        one.close()


def test_where_others_reach_the_store_a_runner_is_sent_there_without_our_credentials(
    runner_api: RunnerApi, deliveries: Callable[..., Deliveries]
) -> None:
    seen: list[dict[str, Any]] = []
    inside = runner_api.application

    def store(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/bucket/object":
            seen.append(environ)
            start("206 Partial Content", [("Content-Length", str(len(MODEL)))])
            return [MODEL]
        if environ["PATH_INFO"].endswith("/model"):
            start(
                "307 Temporary Redirect",
                [("Location", f"{runner_api.url}/bucket/object?sig=1"), ("Content-Length", "0")],
            )
            return []
        return inside(environ, start)

    runner_api.application = store
    model, _ = deliveries().bring(announced(runner_api), model=None, dataset="/a/folder")
    assert Path(model).read_bytes() == MODEL
    assert seen[0]["QUERY_STRING"] == "sig=1"
    assert "HTTP_AUTHORIZATION" not in seen[0]
