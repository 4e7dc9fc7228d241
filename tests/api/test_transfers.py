"""Transfers and redirects: an S3 server has presigned URLs, a store in a folder does not."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from flask.testing import FlaskClient

from core.domain.access.scopes import LOCAL_CALLER
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.services.uploads.transfers import KEPT, Transfers
from core.settings import Settings
from datasets.objectstore import open_store
from server import composition as root
from tests.api.answers import MODEL, problem
from tests.api.conftest import LeasingWorker
from tests.api.people import OPERATOR, People
from tests.databases import sqlite_database
from tests.executor_configs import LOCAL
from tests.s3_servers import S3Server, fresh_bucket


@pytest.fixture
def folder_client(client: FlaskClient) -> FlaskClient:
    """Client of a platform with a store in a folder."""
    return client


@pytest.fixture
def s3_platform(minio: S3Server, settings: Settings) -> Iterator[Platform]:
    """A platform with a store on an S3 server."""
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    store = open_store(minio.url(fresh_bucket()), (minio.access_key, minio.secret_key))
    yield build(
        database,
        store,
        LocalNotifier(),
        PlatformOptions(
            home=settings.home,
            executor_configs=[LOCAL],
            sandbox={"level": 3},
            streams=4,
            max_upload=settings.max_upload,
        ),
    )
    database.close()


@pytest.fixture
def s3_client(s3_platform: Platform, settings: Settings) -> FlaskClient:
    """Client of the platform with the S3 server."""
    return root.create_flask(s3_platform, settings, {"level": 3, "missing": []}).test_client()


def put(url: str, content: bytes) -> None:
    assert httpx.put(url, content=content, trust_env=False, timeout=60).status_code == 200


def fetch(url: str, **headers: str) -> httpx.Response:
    return httpx.get(url, headers=headers, trust_env=False, timeout=60)


def test_a_store_in_a_folder_has_no_presigned_urls(folder_client: FlaskClient) -> None:
    problem(folder_client.post("/v1/transfers"), 409, "no-direct-transfer")
    problem(
        folder_client.post("/v1/models", json={"transfer": "0" * 10 + "-" + "0" * 32}),
        422,
        "unknown-transfer",
    )


def test_without_presigned_urls_a_redirect_is_the_file_itself(
    folder_client: FlaskClient, model: str, finished: str
) -> None:
    assert folder_client.get(f"/v1/models/{model}/content?redirect=true").data == MODEL
    note = folder_client.get(f"/v1/simulations/{finished}/artifacts/0/note.txt?redirect=true")
    assert (note.status_code, note.data) == (200, b"0123456789")


def test_the_content_of_a_model_is_served_completely_and_in_ranges(folder_client: FlaskClient, model: str) -> None:
    response = folder_client.get(f"/v1/models/{model}/content")
    assert (response.data, response.headers["Accept-Ranges"]) == (MODEL, "bytes")
    assert response.headers["Content-Disposition"].startswith("attachment")
    part = folder_client.get(f"/v1/models/{model}/content", headers={"Range": "bytes=6-10"})
    assert (part.status_code, part.data) == (206, MODEL[6:11])
    assert (
        folder_client.get(
            f"/v1/models/{model}/content", headers={"If-None-Match": response.headers["ETag"]}
        ).status_code
        == 304
    )
    problem(folder_client.get("/v1/models/nobody/content"), 404, "unknown-model")


def test_a_model_is_created_from_a_transfer(s3_client: FlaskClient, s3_platform: Platform) -> None:
    transfer = s3_client.post("/v1/transfers")
    assert transfer.status_code == 201, transfer.data
    assert transfer.json["method"] == "PUT" and transfer.json["expires_at"]
    put(transfer.json["url"], MODEL)
    digest = "sha256:" + hashlib.sha256(MODEL).hexdigest()
    document = {"transfer": transfer.json["key"], "name": "far", "filename": "far.py", "digest": digest}
    created = s3_client.post("/v1/models", json=document)
    assert created.status_code == 201, created.data
    assert (created.json["digest"], created.json["size"], created.json["format"]) == (digest, len(MODEL), "python")
    assert s3_client.get("/v1/models/far/content").data == MODEL
    assert not list(s3_platform.store.list("incoming/"))
    problem(s3_client.post("/v1/models", json=document), 422, "unknown-transfer")


def test_a_second_put_to_the_same_address_does_not_change_the_model(s3_client: FlaskClient) -> None:
    transfer = s3_client.post("/v1/transfers").json
    put(transfer["url"], MODEL)
    assert (
        s3_client.post("/v1/models", json={"transfer": transfer["key"], "name": "far", "filename": "m.py"}).status_code
        == 201
    )
    put(transfer["url"], b"something else")
    assert s3_client.get("/v1/models/far/content").data == MODEL


def test_a_transfer_with_another_digest_or_too_many_bytes_creates_no_model(
    s3_client: FlaskClient, s3_platform: Platform
) -> None:
    transfer = s3_client.post("/v1/transfers").json
    put(transfer["url"], MODEL)
    document = {"transfer": transfer["key"], "filename": "m.py", "digest": "sha256:" + "0" * 64}
    problem(s3_client.post("/v1/models", json=document), 422, "digest-mismatch")
    assert s3_client.get("/v1/models?baseline=false").json["items"] == []
    transfer = s3_client.post("/v1/transfers").json
    put(transfer["url"], b"x" * ((1 << 20) + 1))
    problem(s3_client.post("/v1/models", json={"transfer": transfer["key"], "filename": "m.py"}), 413, "too-large")
    assert transfer["key"] not in "".join(s3_platform.store.list("incoming/"))


@pytest.mark.parametrize("key", ["../models/x", "0", "", "models/abc", "0" * 10 + "-" + "G" * 32])
def test_an_invalid_key_reaches_no_other_object(s3_client: FlaskClient, key: str) -> None:
    assert s3_client.post("/v1/models", json={"transfer": key, "filename": "m.py"}).status_code == 422


def test_a_transfer_is_of_the_project_that_began_it(s3_platform: Platform, settings: Settings) -> None:
    app = root.create_flask(
        s3_platform, replace(settings, token=OPERATOR, multi_user=True), {"level": 3, "missing": []}
    )
    people = People(app, {"operator": OPERATOR})
    for name in ("red", "blue"):
        assert people.ask("operator", "POST", "/v1/projects", json={"name": name}).status_code == 201
    made = [
        people.ask("operator", "POST", f"/v1/projects/{name}/tokens", json={"name": name, "role": "submitter"}).json
        for name in ("red", "blue")
    ]
    red, blue = (each["token"] for each in made if each is not None)
    transfer = people.ask(red, "POST", "/v1/transfers").json
    assert transfer is not None
    put(transfer["url"], MODEL)
    body = {"transfer": transfer["key"], "filename": "model.py"}
    problem(people.ask(blue, "POST", "/v1/models", json=body), 422, "unknown-transfer")
    assert people.ask(red, "POST", "/v1/models", json=body).status_code == 201


def test_exactly_one_of_upload_and_transfer_is_required(s3_client: FlaskClient) -> None:
    for document in ({}, {"upload": "a", "transfer": "b"}):
        problem(s3_client.post("/v1/models", json=document), 422, "invalid")


def test_an_unused_transfer_is_deleted_after_a_day(s3_platform: Platform) -> None:
    now = [1_800_000_000.0]
    transfers = Transfers(s3_platform.store, lambda: now[0])
    put(transfers.presign(LOCAL_CALLER.scope).url, b"forgotten")
    now[0] += KEPT - 60
    young = transfers.presign(LOCAL_CALLER.scope)
    put(young.url, b"young")
    assert len(list(s3_platform.store.list("incoming/"))) == 2
    now[0] += 120
    transfers.presign(LOCAL_CALLER.scope)
    assert list(s3_platform.store.list("incoming/")) == [f"incoming/{young.key}"]


def test_downloads_of_models_and_artifacts_are_redirected_on_request(
    s3_client: FlaskClient, s3_platform: Platform, settings: Settings
) -> None:
    octets = {"Content-Type": "application/octet-stream"}
    assert s3_client.put("/v1/models/mine?filename=model.py", data=MODEL, headers=octets).status_code == 201
    moved = s3_client.get("/v1/models/mine/content?redirect=true")
    assert (moved.status_code, moved.headers["Cache-Control"]) == (307, "no-store")
    assert fetch(moved.headers["Location"]).content == MODEL
    head = s3_client.head("/v1/models/mine/content?redirect=true")
    assert (head.status_code, head.headers["Content-Length"]) == (200, str(len(MODEL)))
    document = {"dataset": "noop", "runtime": "python", "model": "mine", "scenarios": {"range": [0, 5]}}
    id = s3_client.post("/v1/simulations", json=document).json["id"]
    LeasingWorker(s3_platform).run_to_end(
        id, artifacts={(0, "note.txt", "text/plain"): b"0123456789", (1, "a/ü.bin", "text/html"): b"<"}
    )
    for task, name, content in ((0, "note.txt", b"0123456789"), (1, "a/ü.bin", b"<"), (0, "note.txt", b"0123456789")):
        path = f"/v1/simulations/{id}/artifacts/{task}/{name}"
        assert s3_client.get(path).data == content
        moved = s3_client.get(path + "?redirect=1")
        assert moved.status_code == 307, moved.data
        response = fetch(moved.headers["Location"])
        assert (response.status_code, response.content) == (200, content)
        assert response.headers["content-disposition"].startswith("attachment")
        assert response.headers["content-type"] == "application/octet-stream"
    assert fetch(moved.headers["Location"], Range="bytes=2-4").content == b"234"
    problem(s3_client.get(f"/v1/simulations/{id}/artifacts/0/none.txt?redirect=true"), 404, "unknown-artifact")
    assert s3_client.delete(f"/v1/simulations/{id}").status_code == 204
    s3_platform.jobs.deletion.remove(id)
    assert not list(s3_platform.store.list(f"results/{id}/"))
