"""tus 1.0, header by header: begin, bring bytes, ask, go on, check, put together, delete, let expire."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.http import parse_date
from werkzeug.test import TestResponse

import app as root
from core.services.platform import Platform
from core.services.uploads.uploads import UploadLimits, Uploads
from core.settings import Settings
from tests.api.answers import MODEL, problem

TUS = {"Tus-Resumable": "1.0.0"}
BYTES = TUS | {"Content-Type": "application/offset+octet-stream"}


def begin(client: FlaskClient, length: int | None = None, **headers: str) -> str:
    """Begin an upload and return its address."""
    asked = {name.replace("_", "-"): value for name, value in headers.items()}
    if length is not None:
        asked["Upload-Length"] = str(length)
    sent = client.post("/v1/uploads", headers=TUS | asked)
    assert sent.status_code == 201, sent.data
    return sent.headers["Location"]


def bring(client: FlaskClient, address: str, offset: int, data: bytes, **headers: str) -> TestResponse:
    """Bring bytes."""
    asked = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.patch(address, data=data, headers=BYTES | {"Upload-Offset": str(offset)} | asked)


def whole(client: FlaskClient, data: bytes, **headers: str) -> str:
    """Upload bytes at one go and return the address."""
    address = begin(client, len(data), **headers)
    assert bring(client, address, 0, data).status_code == 204
    return address


def offset(client: FlaskClient, address: str) -> int:
    """Ask where to go on."""
    return int(client.head(address, headers=TUS).headers["Upload-Offset"])


def client_of(platform: Platform, settings: Settings, **options: Any) -> FlaskClient:
    """Return a client of the platform whose upload service has these options."""
    uploads = Uploads(platform.database, platform.store, **options)
    return root.create_flask(replace(platform, uploads=uploads), settings).test_client()


def id_of(address: str) -> str:
    return address.rpartition("/")[2]


def content(platform: Platform, address: str) -> bytes:
    """Return what a finished upload holds."""
    return b"".join(platform.uploads.content(id_of(address)))


def sent_along(algorithm: str, data: bytes) -> str:
    return f"{algorithm} {base64.b64encode(hashlib.new(algorithm, data).digest()).decode()}"


def cut(length: int) -> Mapping[str, Any]:
    """What a server sees of a request whose line breaks before so many bytes have come."""
    return {"CONTENT_LENGTH": str(length), "wsgi.input_terminated": True}


# -- capabilities and the version


def test_options_say_what_is_spoken_without_being_asked_in_a_version(client: FlaskClient) -> None:
    for path in ("/v1/uploads", begin(client, 1)):
        said = client.options(path)
        assert said.status_code == 204
        assert said.headers["Tus-Version"] == said.headers["Tus-Resumable"] == "1.0.0"
        assert set(said.headers["Tus-Extension"].split(",")) == {
            "creation", "creation-with-upload", "creation-defer-length", "checksum", "expiration", "termination",
            "concatenation",
        }  # fmt: skip
        assert said.headers["Tus-Checksum-Algorithm"] == "sha1,sha256"
        assert int(said.headers["Tus-Max-Size"]) == 64 << 30


@pytest.mark.parametrize("version", [{}, {"Tus-Resumable": "0.2.2"}])
def test_another_version_is_refused_and_told_ours(client: FlaskClient, version: dict[str, str]) -> None:
    address = begin(client, 3)
    body = {"Content-Type": BYTES["Content-Type"], "Upload-Offset": "0"}
    for refused in (
        client.post("/v1/uploads", headers=version | {"Upload-Length": "3"}),
        client.patch(address, data=b"abc", headers=version | body),
        client.delete(address, headers=version),
    ):
        problem(refused, 412, "tus-version")
        assert refused.headers["Tus-Version"] == refused.headers["Tus-Resumable"] == "1.0.0"
    assert client.head(address, headers=version).status_code == 412
    assert offset(client, address) == 0


def test_every_answer_carries_the_version_refusals_of_the_gate_too(client: FlaskClient) -> None:
    address = begin(client, 3)
    for answer in (
        client.get("/v1/uploads"),
        client.get(address),
        client.get("/v1/uploads/nothing"),
        client.get("/v1/uploads", headers={"Host": "evil.example"}),
        client.head("/v1/uploads/00000000000000000000000000", headers=TUS),
        bring(client, address, 2, b"c"),
    ):
        assert answer.headers.getlist("Tus-Resumable") == ["1.0.0"]
    assert "Tus-Resumable" not in client.get("/v1/models").headers


def test_a_web_page_of_another_origin_uploads_nothing(client: FlaskClient) -> None:
    headers = TUS | {"Upload-Length": "3", "Origin": "http://evil.example"}
    problem(client.post("/v1/uploads", headers=headers), 403, "forbidden-origin")


# -- begin


def test_an_upload_begins_empty_and_says_when_it_expires(client: FlaskClient) -> None:
    sent = client.post("/v1/uploads", headers=TUS | {"Upload-Length": "10"})
    assert sent.status_code == 201 and sent.headers["Upload-Offset"] == "0"
    assert parse_date(sent.headers["Upload-Expires"]) is not None
    asked = client.head(sent.headers["Location"], headers=TUS)
    assert asked.status_code == 200
    assert asked.headers["Upload-Offset"] == "0" and asked.headers["Upload-Length"] == "10"
    assert asked.headers["Cache-Control"] == "no-store"
    assert "Upload-Defer-Length" not in asked.headers and "Upload-Metadata" not in asked.headers


def test_an_empty_upload_is_complete_at_once(client: FlaskClient, platform: Platform) -> None:
    address = begin(client, 0)
    assert client.get(address).json["state"] == "finished"
    assert content(platform, address) == b""


def test_metadata_come_back_as_they_were_sent(client: FlaskClient) -> None:
    given = "filename cG9saWN5Lm9ubng=,public,note ZsO8cg=="
    address = begin(client, 1, Upload_Metadata=given)
    assert client.head(address, headers=TUS).headers["Upload-Metadata"] == given
    assert client.get(address).json["metadata"] == {"filename": "policy.onnx", "public": None, "note": "für"}


def test_empty_metadata_are_none(client: FlaskClient) -> None:
    assert client.get(begin(client, 1, Upload_Metadata="")).json["metadata"] == {}


@pytest.mark.parametrize(
    "headers",
    [
        {"Upload-Length": "-1"},
        {"Upload-Length": "ten"},
        {"Upload-Length": "1.0"},
        {"Upload-Length": ""},
        {"Upload-Defer-Length": "2"},
        {"Upload-Length": "1", "Upload-Metadata": "name not-base64!"},
        {"Upload-Length": "1", "Upload-Metadata": "name YQ==,name Yg=="},
        {"Upload-Length": "1", "Upload-Metadata": "na\xefve YQ=="},
        {"Upload-Length": "1", "Upload-Metadata": "a" * 5000},
        {"Upload-Length": "1", "Upload-Concat": "half"},
        {"Upload-Concat": "final"},
        {"Upload-Concat": "final;"},
        {"Upload-Length": "1", "Upload-Checksum": "md5 1B2M2Y8AsgTpgAmY7PhCfg=="},
    ],
)
def test_headers_that_say_nothing_are_refused(client: FlaskClient, headers: dict[str, str]) -> None:
    problem(client.post("/v1/uploads", headers=TUS | headers), 400, "bad-request")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Upload-Length": "1", "Upload-Defer-Length": "1"},
        {"Upload-Length": "1", "Upload-Concat": "final;/v1/uploads/00000000000000000000000000"},
        {"Upload-Concat": "final;/v1/uploads/00000000000000000000000000"},
        {"Upload-Concat": "final;/etc/passwd"},
        {"Upload-Concat": "final;http://[/v1/uploads"},
    ],
)
def test_headers_that_contradict_each_other_are_refused(client: FlaskClient, headers: dict[str, str]) -> None:
    problem(client.post("/v1/uploads", headers=TUS | headers), 422, "invalid")


def test_an_upload_that_is_too_large_is_refused(client: FlaskClient) -> None:
    problem(client.post("/v1/uploads", headers=TUS | {"Upload-Length": str((64 << 30) + 1)}), 413, "too-large")


def test_only_so_many_uploads_may_wait_for_bytes(platform: Platform, settings: Settings) -> None:
    client = client_of(platform, settings, limits=UploadLimits(unfinished=2))
    first, _ = begin(client, 1), begin(client, 1)
    problem(client.post("/v1/uploads", headers=TUS | {"Upload-Length": "1"}), 429, "too-many-uploads")
    bring(client, first, 0, b"x")
    begin(client, 1)


def test_bytes_may_come_along_with_the_beginning(client: FlaskClient, platform: Platform) -> None:
    sent = client.post("/v1/uploads", data=b"hello", headers=BYTES | {"Upload-Length": "10"})
    assert sent.status_code == 201 and sent.headers["Upload-Offset"] == "5"
    assert bring(client, sent.headers["Location"], 5, b"world").headers["Upload-Offset"] == "10"
    assert content(platform, sent.headers["Location"]) == b"helloworld"


def test_a_beginning_that_is_refused_leaves_nothing(client: FlaskClient) -> None:
    headers = BYTES | {"Upload-Length": "5"}
    problem(client.post("/v1/uploads", data=b"hello world", headers=headers), 413, "too-large")
    wrong = headers | {"Upload-Checksum": sent_along("sha1", b"other")}
    assert client.post("/v1/uploads", data=b"hello", headers=wrong).status_code == 460
    other = TUS | {"Upload-Length": "5", "Content-Type": "text/plain"}
    problem(client.post("/v1/uploads", data=b"hello", headers=other), 415, "unsupported-media-type")
    assert client.get("/v1/uploads").json["items"] == []


# -- bring bytes


def test_an_upload_resumes_at_its_offset(client: FlaskClient, platform: Platform) -> None:
    address = begin(client, 11)
    first = bring(client, address, 0, b"hello ")
    assert first.status_code == 204 and first.headers["Upload-Offset"] == "6" and "Upload-Expires" in first.headers
    assert offset(client, address) == 6
    last = bring(client, address, 6, b"world")
    assert last.headers["Upload-Offset"] == "11" and "Upload-Expires" not in last.headers
    assert content(platform, address) == b"hello world"


@pytest.mark.parametrize("wrong", [0, 4, 6, 11])
def test_bytes_for_another_offset_change_nothing(client: FlaskClient, wrong: int) -> None:
    address = begin(client, 11)
    bring(client, address, 0, b"hello")
    refused = bring(client, address, wrong, b"")
    assert problem(refused, 409, "offset-mismatch")["offset"] == 5
    assert offset(client, address) == 5


def test_what_came_before_the_line_broke_is_kept(client: FlaskClient, platform: Platform) -> None:
    address = begin(client, 11)
    headers = BYTES | {"Upload-Offset": "0"}
    broken = client.patch(address, data=b"hello ", headers=headers, environ_overrides=cut(11))
    assert broken.headers["Upload-Offset"] == "6"
    bring(client, address, 6, b"world")
    assert content(platform, address) == b"hello world"


def test_more_bytes_than_there_is_room_for_are_refused(client: FlaskClient) -> None:
    address = begin(client, 5)
    problem(bring(client, address, 0, b"hello world"), 413, "too-large")
    assert offset(client, address) == 0
    bring(client, address, 0, b"hello")
    problem(bring(client, address, 5, b"!"), 413, "too-large")
    assert bring(client, address, 5, b"").status_code == 204


def test_bytes_need_their_content_type_and_an_offset(client: FlaskClient) -> None:
    address = begin(client, 5)
    plain = TUS | {"Upload-Offset": "0", "Content-Type": "application/octet-stream"}
    problem(client.patch(address, data=b"hello", headers=plain), 415, "unsupported-media-type")
    problem(client.patch(address, data=b"hello", headers=BYTES), 400, "bad-request")
    problem(bring(client, address, 0, b"hello", Upload_Offset="zero"), 400, "bad-request")


def test_a_length_may_be_told_later_and_once(client: FlaskClient, platform: Platform) -> None:
    address = begin(client, Upload_Defer_Length="1")
    asked = client.head(address, headers=TUS)
    assert asked.headers["Upload-Defer-Length"] == "1" and "Upload-Length" not in asked.headers
    assert bring(client, address, 0, b"hello").headers["Upload-Offset"] == "5"
    assert client.get(address).json["length"] is None
    problem(bring(client, address, 5, b" world", Upload_Length="3"), 422, "invalid")
    assert bring(client, address, 5, b" wor", Upload_Length="11").status_code == 204
    assert client.head(address, headers=TUS).headers["Upload-Length"] == "11"
    problem(bring(client, address, 9, b"ld", Upload_Length="12"), 422, "invalid")
    assert bring(client, address, 9, b"ld", Upload_Length="11").status_code == 204
    assert content(platform, address) == b"hello world"


def test_a_client_that_can_only_post_says_what_it_means(client: FlaskClient) -> None:
    address = begin(client, 5)
    patched = client.post(
        address, data=b"hello", headers=BYTES | {"Upload-Offset": "0", "X-HTTP-Method-Override": "PATCH"}
    )
    assert patched.status_code == 204 and patched.headers["Upload-Offset"] == "5"
    asked = client.post(address, headers=TUS | {"X-HTTP-Method-Override": "HEAD"})
    assert asked.headers["Upload-Offset"] == "5" and "Content-Length" not in asked.headers
    assert client.post(address, headers=TUS | {"X-HTTP-Method-Override": "DELETE"}).status_code == 204
    assert client.head(address, headers=TUS).status_code == 404
    assert client.post("/v1/models", headers={"X-HTTP-Method-Override": "DELETE"}).status_code == 415


def test_only_so_many_requests_bring_bytes_at_once(platform: Platform, settings: Settings) -> None:
    client = client_of(platform, settings, limits=UploadLimits(writers=0))
    refused = bring(client, begin(client, 1), 0, b"x")
    problem(refused, 503, "uploads-busy")
    assert int(refused.headers["Retry-After"]) >= 1


# -- checksums


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_bytes_with_a_checksum_are_kept_all_or_not_at_all(
    client: FlaskClient, platform: Platform, algorithm: str
) -> None:
    address = begin(client, 11)
    wrong = bring(client, address, 0, b"hello ", Upload_Checksum=sent_along(algorithm, b"hullo "))
    problem(wrong, 460, "checksum-mismatch")
    assert offset(client, address) == 0
    assert list(platform.store.list("uploads/")) == []
    right = bring(client, address, 0, b"hello ", Upload_Checksum=sent_along(algorithm, b"hello "))
    assert right.status_code == 204 and right.headers["Upload-Offset"] == "6"
    headers = BYTES | {"Upload-Offset": "6", "Upload-Checksum": sent_along(algorithm, b"world")}
    assert client.patch(address, data=b"wor", headers=headers, environ_overrides=cut(5)).status_code == 460
    assert offset(client, address) == 6


@pytest.mark.parametrize("checksum", ["md5 1B2M2Y8AsgTpgAmY7PhCfg==", "sha1 not-base64!", "sha1", ""])
def test_a_checksum_that_cannot_be_checked_is_refused(client: FlaskClient, checksum: str) -> None:
    address = begin(client, 5)
    refused = bring(client, address, 0, b"hello", Upload_Checksum=checksum)
    assert refused.status_code == (460 if checksum == "sha1" else 400)
    assert offset(client, address) == 0


# -- putting together


def test_partial_uploads_are_put_together_and_may_go_then(client: FlaskClient, platform: Platform) -> None:
    partials = [whole(client, data, Upload_Concat="partial") for data in (b"hello ", b"world", b"")]
    assert client.head(partials[0], headers=TUS).headers["Upload-Concat"] == "partial"
    named = f"final;{partials[0]} http://localhost{partials[1]} {partials[2]}"
    final = begin(client, Upload_Concat=named)
    asked = client.head(final, headers=TUS).headers
    assert asked["Upload-Offset"] == asked["Upload-Length"] == "11" and asked["Upload-Concat"] == named
    for partial in partials:
        assert client.delete(partial, headers=TUS).status_code == 204
    assert content(platform, final) == b"hello world"
    assert platform.uploads.read(id_of(final), 4, 4) == b"o wo"
    client.delete(final, headers=TUS)
    assert list(platform.store.list("uploads/")) == []


def test_a_final_upload_takes_no_bytes(client: FlaskClient) -> None:
    final = begin(client, Upload_Concat=f"final;{whole(client, b'x', Upload_Concat='partial')}")
    problem(bring(client, final, 1, b"y"), 403, "final-upload")


def test_what_is_not_partial_or_not_finished_is_not_put_together(client: FlaskClient) -> None:
    ordinary = whole(client, b"x")
    problem(client.post("/v1/uploads", headers=TUS | {"Upload-Concat": f"final;{ordinary}"}), 422, "invalid")
    half = begin(client, 2, Upload_Concat="partial")
    refused = client.post("/v1/uploads", headers=TUS | {"Upload-Concat": f"final;{half}"})
    problem(refused, 409, "upload-unfinished")


# -- looking, deleting, expiring


def test_uploads_are_listed_by_page_newest_first(client: FlaskClient) -> None:
    made = [id_of(begin(client, 1)) for _ in range(5)]
    first = client.get("/v1/uploads?limit=3").json
    assert [one["id"] for one in first["items"]] == made[:1:-1]
    rest = client.get(f"/v1/uploads?limit=3&after={first['next']}").json
    assert [one["id"] for one in rest["items"]] == made[1::-1] and rest["next"] is None


def test_a_deleted_upload_is_gone_with_its_bytes(client: FlaskClient, platform: Platform) -> None:
    address = begin(client, 11)
    bring(client, address, 0, b"hello")
    assert client.delete(address, headers=TUS).status_code == 204
    assert list(platform.store.list("uploads/")) == []
    gone = client.head(address, headers=TUS)
    assert gone.status_code == 404 and "Upload-Offset" not in gone.headers and not gone.data
    problem(bring(client, address, 5, b" world"), 404, "unknown-upload")
    problem(client.delete(address, headers=TUS), 404, "unknown-upload")
    problem(client.get(address), 404, "unknown-upload")


def test_an_upload_that_is_left_alone_expires(settings: Settings, platform: Platform) -> None:
    client = client_of(platform, settings, ttl=-1.0)
    address = begin(client, 5)
    assert client.head(address, headers=TUS).status_code == 410
    problem(bring(client, address, 0, b"hello"), 410, "gone")
    assert platform.uploads.sweep() == 1
    assert client.head(address, headers=TUS).status_code == 404


# -- using


def test_a_finished_upload_becomes_a_model(client: FlaskClient) -> None:
    name = base64.b64encode(b"my policy.py").decode()
    address = whole(client, MODEL, Upload_Metadata=f"filename {name}")
    for reference in (address, id_of(address), f"http://localhost{address}"):
        made = client.post("/v1/models", json={"upload": reference})
        assert made.status_code == 201, made.data
        assert made.json["name"] == "my-policy" and made.json["format"] == "python" and made.json["version"] == 1
        assert made.json["digest"] == "sha256:" + hashlib.sha256(MODEL).hexdigest()
    named = client.post("/v1/models", json={"upload": address, "name": "other", "format": "python"})
    assert named.json["name"] == "other"
    assert client.delete(address, headers=TUS).status_code == 204


def test_an_unfinished_or_unknown_upload_becomes_no_model(client: FlaskClient) -> None:
    half = begin(client, 5)
    assert problem(client.post("/v1/models", json={"upload": half}), 409, "upload-unfinished")["offset"] == 0
    problem(client.post("/v1/models", json={"upload": "0" * 26}), 422, "unknown-upload")
    problem(client.post("/v1/models", json={"upload": "../x"}), 422, "invalid")
    problem(client.post("/v1/models", json={"upload": half, "colour": "red"}), 422, "invalid")
    problem(client.post("/v1/models", json={}), 422, "invalid")


def test_a_finished_upload_is_simulated_without_being_made_a_model_first(client: FlaskClient) -> None:
    name = base64.b64encode(b"policy.py").decode()
    address = whole(client, MODEL, Upload_Metadata=f"filename {name}")
    asked = {"dataset": "noop", "scenarios": {"range": [0, 3]}}
    made = client.post("/v1/simulations", json=asked | {"upload": address})
    assert made.status_code == 201, made.data
    assert made.json["model"]["name"] == "policy" and made.json["runtime"]["name"] == "python"
    problem(client.post("/v1/simulations", json=asked | {"upload": address, "model": "idm"}), 422, "invalid")
    problem(client.post("/v1/simulations", json=asked | {"upload": begin(client, 5)}), 409, "upload-unfinished")
    problem(client.post("/v1/simulations", json=asked | {"upload": "0" * 26}), 422, "unknown-upload")
    problem(client.post("/v1/simulations", json=asked | {"upload": 7}), 422, "invalid")


def test_the_application_has_a_place_for_uploads(application: Flask) -> None:
    rules = {rule.rule for rule in application.url_map.iter_rules()}
    assert {"/v1/uploads", "/v1/uploads/<id:upload>"} <= rules
