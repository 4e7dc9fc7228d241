"""Bytes that do not pass through the API: a folder has no addresses to hand out, an S3 server has."""

import hashlib
from collections.abc import Iterator

import httpx
import pytest
from flask.testing import FlaskClient

import app as root
from core.services.platform import Platform, PlatformOptions, build
from core.services.uploads.transfers import KEPT, Transfers
from core.settings import Settings
from datasets.objectstore import open_store
from tests.api.answers import MODEL, problem
from tests.api.conftest import LeasingWorker
from tests.databases import sqlite_database
from tests.local_notifier import LocalNotifier
from tests.places import HERE
from tests.stores import S3Server, fresh_bucket


@pytest.fixture
def folder(client: FlaskClient) -> FlaskClient:
    """A client of a platform whose objects lie in a folder."""
    return client


@pytest.fixture
def distant(minio: S3Server, settings: Settings) -> Iterator[Platform]:
    """A platform whose objects lie on an S3 server."""
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    store = open_store(minio.url(fresh_bucket()), (minio.access_key, minio.secret_key))
    yield build(
        database,
        store,
        LocalNotifier(),
        PlatformOptions(home=settings.home, executor_configs=[HERE], sandbox={"level": 3}, streams=4),
    )
    database.close()


@pytest.fixture
def s3(distant: Platform, settings: Settings) -> FlaskClient:
    """A client of that platform."""
    return root.create_flask(distant, settings, {"level": 3, "missing": []}).test_client()


def put(url: str, content: bytes) -> None:
    assert httpx.put(url, content=content, trust_env=False, timeout=60).status_code == 200


def got(url: str, **headers: str) -> httpx.Response:
    return httpx.get(url, headers=headers, trust_env=False, timeout=60)


def test_a_folder_has_no_address_to_hand_out(folder: FlaskClient) -> None:
    problem(folder.post("/v1/transfers"), 409, "no-direct-transfer")
    problem(
        folder.post("/v1/models", json={"transfer": "0" * 10 + "-" + "0" * 32}),
        422,
        "unknown-transfer",
    )


def test_a_redirect_that_cannot_be_given_is_the_file_itself(folder: FlaskClient, model: str, finished: str) -> None:
    assert folder.get(f"/v1/models/{model}/content?redirect=true").data == MODEL
    note = folder.get(f"/v1/simulations/{finished}/artifacts/0/note.txt?redirect=true")
    assert (note.status_code, note.data) == (200, b"0123456789")


def test_a_models_bytes_are_given_whole_and_in_part(folder: FlaskClient, model: str) -> None:
    whole = folder.get(f"/v1/models/{model}/content")
    assert (whole.data, whole.headers["Accept-Ranges"]) == (MODEL, "bytes")
    assert whole.headers["Content-Disposition"].startswith("attachment")
    part = folder.get(f"/v1/models/{model}/content", headers={"Range": "bytes=6-10"})
    assert (part.status_code, part.data) == (206, MODEL[6:11])
    assert (
        folder.get(f"/v1/models/{model}/content", headers={"If-None-Match": whole.headers["ETag"]}).status_code == 304
    )
    problem(folder.get("/v1/models/nobody/content"), 404, "unknown-model")


def test_a_model_is_sent_to_the_store_and_made_of_what_came(s3: FlaskClient, distant: Platform) -> None:
    begun = s3.post("/v1/transfers")
    assert begun.status_code == 201, begun.data
    assert begun.json["method"] == "PUT" and begun.json["expires_at"]
    put(begun.json["url"], MODEL)
    digest = "sha256:" + hashlib.sha256(MODEL).hexdigest()
    asked = {"transfer": begun.json["key"], "name": "far", "filename": "far.py", "digest": digest}
    made = s3.post("/v1/models", json=asked)
    assert made.status_code == 201, made.data
    assert (made.json["digest"], made.json["size"], made.json["format"]) == (digest, len(MODEL), "python")
    assert s3.get("/v1/models/far/content").data == MODEL
    assert not list(distant.store.list("incoming/"))
    problem(s3.post("/v1/models", json=asked), 422, "unknown-transfer")


def test_a_second_put_to_the_same_address_does_not_change_the_model(s3: FlaskClient) -> None:
    begun = s3.post("/v1/transfers").json
    put(begun["url"], MODEL)
    assert s3.post("/v1/models", json={"transfer": begun["key"], "name": "far", "filename": "m.py"}).status_code == 201
    put(begun["url"], b"something else")
    assert s3.get("/v1/models/far/content").data == MODEL


def test_nothing_is_made_of_bytes_with_another_digest_or_too_many_of_them(s3: FlaskClient, distant: Platform) -> None:
    begun = s3.post("/v1/transfers").json
    put(begun["url"], MODEL)
    wrong = {"transfer": begun["key"], "filename": "m.py", "digest": "sha256:" + "0" * 64}
    problem(s3.post("/v1/models", json=wrong), 422, "digest-mismatch")
    assert s3.get("/v1/models").json["items"] == []
    begun = s3.post("/v1/transfers").json
    put(begun["url"], b"x" * ((1 << 20) + 1))
    problem(s3.post("/v1/models", json={"transfer": begun["key"], "filename": "m.py"}), 413, "too-large")
    assert begun["key"] not in "".join(distant.store.list("incoming/"))


@pytest.mark.parametrize("key", ["../models/x", "0", "", "models/abc", "0" * 10 + "-" + "G" * 32])
def test_a_key_that_is_none_reaches_no_other_object(s3: FlaskClient, key: str) -> None:
    assert s3.post("/v1/models", json={"transfer": key, "filename": "m.py"}).status_code == 422


def test_either_an_upload_or_a_transfer_is_named(s3: FlaskClient) -> None:
    for asked in ({}, {"upload": "a", "transfer": "b"}):
        problem(s3.post("/v1/models", json=asked), 422, "invalid")


def test_what_nobody_made_anything_of_is_deleted_after_a_day(distant: Platform) -> None:
    now = [1_800_000_000.0]
    transfers = Transfers(distant.store, lambda: now[0])
    put(transfers.presign().url, b"forgotten")
    now[0] += KEPT - 60
    young = transfers.presign()
    put(young.url, b"young")
    assert len(list(distant.store.list("incoming/"))) == 2
    now[0] += 120
    transfers.presign()
    assert list(distant.store.list("incoming/")) == [f"incoming/{young.key}"]


def test_who_asks_is_sent_to_the_store_for_a_model_and_for_an_artifact(
    s3: FlaskClient, distant: Platform, settings: Settings
) -> None:
    octets = {"Content-Type": "application/octet-stream"}
    assert s3.put("/v1/models/mine?filename=model.py", data=MODEL, headers=octets).status_code == 201
    moved = s3.get("/v1/models/mine/content?redirect=true")
    assert (moved.status_code, moved.headers["Cache-Control"]) == (307, "no-store")
    assert got(moved.headers["Location"]).content == MODEL
    head = s3.head("/v1/models/mine/content?redirect=true")
    assert (head.status_code, head.headers["Content-Length"]) == (200, str(len(MODEL)))
    asked = {"dataset": "noop", "runtime": "python", "model": "mine", "scenarios": {"range": [0, 5]}}
    id = s3.post("/v1/simulations", json=asked).json["id"]
    LeasingWorker(distant).play(
        id, artifacts={(0, "note.txt", "text/plain"): b"0123456789", (1, "a/ü.bin", "text/html"): b"<"}
    )
    for task, name, content in ((0, "note.txt", b"0123456789"), (1, "a/ü.bin", b"<"), (0, "note.txt", b"0123456789")):
        path = f"/v1/simulations/{id}/artifacts/{task}/{name}"
        assert s3.get(path).data == content
        moved = s3.get(path + "?redirect=1")
        assert moved.status_code == 307, moved.data
        answer = got(moved.headers["Location"])
        assert (answer.status_code, answer.content) == (200, content)
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["content-type"] == "application/octet-stream"
    assert got(moved.headers["Location"], Range="bytes=2-4").content == b"234"
    problem(s3.get(f"/v1/simulations/{id}/artifacts/0/none.txt?redirect=true"), 404, "unknown-artifact")
    assert s3.delete(f"/v1/simulations/{id}").status_code == 204
    distant.finalization.remove_deleted(id)
    assert not list(distant.store.list(f"results/{id}/"))
