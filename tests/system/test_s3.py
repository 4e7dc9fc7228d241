"""The platform on a real S3 server: all objects are stored there, and an outage of the server loses nothing."""

import io
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from datasets.objectstore import ObjectStore, open_store
from tests.ports import free_ports
from tests.s3_servers import S3Server, fresh_bucket, minio_server
from tests.system.platform_process import (
    MODELS,
    ROOT,
    PlatformProcess,
    die_with,
    has_one_result_per_task,
    share_environments,
    untimed,
)
from tests.waiting import until

LOAD: dict[str, Any] = {
    "model": MODELS / "echo.py",
    "dataset": "noop",
    "scenarios": {"range": [0, 4000]},
    "params": {"work_us": 1000},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A MinIO for this file only: one test kills it."""
    minio = minio_server(tmp_path_factory.mktemp("minio")).start()
    try:
        yield minio
    finally:
        minio.kill()


@pytest.fixture(scope="module")
def url(server: S3Server) -> str:
    return server.url(fresh_bucket(), "platform")


@pytest.fixture(scope="module")
def platform(
    prepared_environments: None, server: S3Server, url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlatformProcess]:
    """A platform whose object store is the MinIO."""
    settings = {
        "OBJECT_STORE_URL": url,
        "OBJECT_STORE_ACCESS_KEY": server.access_key,
        "OBJECT_STORE_SECRET_KEY": server.secret_key,
        "LEASE_TTL": "3",
    }
    process = PlatformProcess(tmp_path_factory.mktemp("platform"), settings=settings)
    try:
        yield process.start()
    finally:
        process.stop()


@pytest.fixture
def store(server: S3Server, url: str) -> ObjectStore:
    """The platform's bucket, read without the platform."""
    return open_store(url, (server.access_key, server.secret_key))


def test_all_objects_of_a_simulation_are_in_the_bucket_until_its_deletion(
    platform: PlatformProcess, store: ObjectStore
) -> None:
    submission = {"runtime": "python", "dataset": "car_street", "scenarios": {"range": [0, 3]}, "record": "all"}
    ended = platform.run(**submission)
    id = ended["id"]
    assert ended["state"] == "succeeded", ended["reason"]
    assert has_one_result_per_task(platform.results(id), 3)
    archive = platform.http.get(f"/v1/simulations/{id}/archive")
    part = platform.http.get(f"/v1/simulations/{id}/archive", headers={"Range": "bytes=100-299"})
    assert (part.status_code, part.content) == (206, archive.content[100:300])
    with zipfile.ZipFile(io.BytesIO(archive.content)) as zip_file:
        assert zip_file.testzip() is None
    item = platform.http.get(f"/v1/simulations/{id}/artifacts").json()["items"][0]
    artifact = platform.http.get(f"/v1/simulations/{id}/artifacts/{item['task']}/{item['name']}")
    assert artifact.status_code == 200 and len(artifact.content) == item["size"]
    until(
        lambda: platform.http.get(f"/v1/simulations/{id}/tasks/0/replay").status_code == 200,
        message="the replay is not available",
    )
    assert list(store.list(f"results/{id}/")) and list(store.list(f"replays/{id}/")) and list(store.list("models/"))
    assert not list((platform.home / "objects").glob("*"))
    assert platform.http.delete(f"/v1/simulations/{id}").status_code == 204
    until(lambda: not [key for key in store.list("") if id in key], message="objects remain")


def test_small_simulators_and_uploaded_models_run_from_the_bucket(platform: PlatformProcess) -> None:
    assert platform.run(runtime="python", dataset="cartpole", scenarios={"range": [0, 4]})["state"] == "succeeded"
    response = platform.http.post("/v1/models", files={"file": ("echo.py", (MODELS / "echo.py").read_bytes())})
    assert response.status_code == 201, response.text
    ended = platform.run(model=response.json()["digest"], dataset="noop", scenarios={"range": [0, 300]})
    assert ended["state"] == "succeeded", ended["reason"]
    assert has_one_result_per_task(platform.results(ended["id"]), 300)


def test_a_model_is_uploaded_and_downloaded_without_the_api(platform: PlatformProcess, server: S3Server) -> None:
    transfer = platform.http.post("/v1/transfers").json()
    assert transfer["url"].startswith(server.endpoint)
    with httpx.Client(trust_env=False, timeout=60) as client:
        assert client.put(transfer["url"], content=(MODELS / "echo.py").read_bytes()).status_code == 200
        response = platform.http.post(
            "/v1/models", json={"transfer": transfer["key"], "name": "direct", "filename": "echo.py"}
        )
        assert response.status_code == 201, response.text
        ended = platform.run(model="direct", dataset="noop", scenarios={"range": [0, 5]}, record="all")
        assert ended["state"] == "succeeded", ended["reason"]
        redirect = platform.http.get("/v1/models/direct/content?redirect=true")
        assert redirect.status_code == 307
        assert client.get(redirect.headers["location"]).content == (MODELS / "echo.py").read_bytes()


def test_an_outage_of_the_store_delays_a_simulation_and_loses_nothing(
    platform: PlatformProcess, server: S3Server
) -> None:
    undisturbed = platform.run(**LOAD)
    assert undisturbed["state"] == "succeeded", undisturbed["reason"]
    id = platform.submit(**LOAD, workers=1)["id"]
    until(lambda: platform.get(id)["tasks"]["done"] > 0, message="no task is done")
    server.kill()
    response = platform.http.get(f"/v1/simulations/{undisturbed['id']}/results")
    assert response.status_code == 503, response.text[:500]
    assert response.headers["content-type"] == "application/problem+json"
    assert int(response.headers["retry-after"]) > 0
    assert response.json()["type"] == "/problems/store-unavailable"
    assert server.endpoint not in response.text and str(server.port) not in response.text
    assert platform.post(**LOAD).status_code == 503  # a model that cannot be stored is not accepted
    assert platform.get(id)["state"] == "running"
    # A model that is stored, or shipped, is accepted; its simulation waits as long as the outage lasts.
    waiting = [platform.submit(runtime="python", dataset="cartpole", scenarios={"range": [0, 2]}, workers=1)]
    # It waits in the queue for its model, or where that is on the node, runs and keeps its results.
    until(
        lambda: "object store" in str(platform.get(waiting[0]["id"])["reason"]),
        150.0,
        message=lambda: f"it does not say what it waits for: {platform.get(waiting[0]['id'])}",
    )
    model = undisturbed["model"]["digest"]
    waiting.append(platform.submit(model=model, dataset="noop", scenarios={"range": [0, 20]}, workers=1))
    until(lambda: platform.http.get("/readyz").json()["checks"]["store"] != "ok")
    server.start()
    ended = platform.wait_for_end(id, 150.0)
    assert ended["state"] == "succeeded", ended["reason"]
    assert has_one_result_per_task(platform.results(id), ended["tasks"]["total"])
    assert [untimed(line) for line in platform.lines(id)] == [
        untimed(line) for line in platform.lines(undisturbed["id"])
    ]
    assert platform.summary(id)["results_digest"] == platform.summary(undisturbed["id"])["results_digest"]
    for simulation in waiting:
        ended = platform.wait_for_end(simulation["id"], 150.0)
        assert ended["state"] == "succeeded", ended["reason"]


def test_the_keys_of_the_store_are_in_no_output(platform: PlatformProcess, server: S3Server) -> None:
    assert server.secret_key not in platform.output()
    for path in _files(platform.home):
        assert server.secret_key.encode() not in path.read_bytes(), path


def test_one_command_runs_the_platform_with_its_own_minio_and_ctrl_c_leaves_no_process(
    prepared_environments: None, tmp_path: Path
) -> None:
    port, runner_api_port, scs_port = free_ports(3)
    settings = {"HOME": tmp_path, "PORT": port, "RUNNER_API_PORT": runner_api_port, "SCS_PORT": scs_port}
    share_environments(tmp_path)
    parent = os.getpid()
    with open(tmp_path / "terminal.log", "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "scripts.run_s3"],
            cwd=ROOT,
            env={**os.environ, **{f"WINDTUNNEL_{name}": str(value) for name, value in settings.items()}},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: die_with(parent),
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as http:

            def ready() -> bool:
                assert process.poll() is None, (tmp_path / "terminal.log").read_text()
                try:
                    return http.get("/readyz").status_code == 200
                except httpx.TransportError:
                    return False

            until(ready, 90.0, "the platform does not start")
            response = http.post("/v1/models", files={"file": ("echo.py", (MODELS / "echo.py").read_bytes())})
            assert response.status_code == 201, response.text
        assert (tmp_path / "minio" / "keys").stat().st_mode & 0o077 == 0
        assert list((tmp_path / "minio" / "disk" / "windtunnel" / "models").iterdir())
        keys = (tmp_path / "minio" / "keys").read_text().split()
        assert not any(key in (tmp_path / "terminal.log").read_text() for key in keys)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    until(lambda: not _processes_that_mention(str(tmp_path)), message="processes remain")


def _processes_that_mention(folder: str) -> list[int]:
    """Return the processes with a folder in their arguments or environment."""
    pids = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):
                process_texts = (
                    Path(f"/proc/{entry}/cmdline").read_bytes() + Path(f"/proc/{entry}/environ").read_bytes()
                )
                if folder.encode() in process_texts:
                    pids.append(int(entry))
    return pids


def _files(home: Path) -> Iterator[Path]:
    for path in home.rglob("*"):
        if path.is_file() and not path.is_symlink() and "environments" not in path.parts:
            yield path
