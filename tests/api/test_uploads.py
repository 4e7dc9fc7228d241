"""Routes of uploads (tus 1.0): creation, appending, checksums, concatenation, list, deletion and expiry."""

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

from core.domain.access.scopes import LOCAL_CALLER
from core.services.platform import Platform
from core.services.uploads.uploads import UploadLimits, Uploads
from core.settings import Settings
from server import composition as root
from tests.api.answers import MODEL, problem

TUS = {"Tus-Resumable": "1.0.0"}
BYTES = TUS | {"Content-Type": "application/offset+octet-stream"}


def create(client: FlaskClient, length: int | None = None, **headers: str) -> str:
    """Create an upload and return its address."""
    request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if length is not None:
        request_headers["Upload-Length"] = str(length)
    response = client.post("/v1/uploads", headers=TUS | request_headers)
    assert response.status_code == 201, response.data
    return response.headers["Location"]


def append(client: FlaskClient, address: str, offset: int, data: bytes, **headers: str) -> TestResponse:
    """Append bytes to an upload."""
    request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.patch(address, data=data, headers=BYTES | {"Upload-Offset": str(offset)} | request_headers)


def upload_all(client: FlaskClient, data: bytes, **headers: str) -> str:
    """Create an upload, append all bytes and return the address."""
    address = create(client, len(data), **headers)
    assert append(client, address, 0, data).status_code == 204
    return address


def offset(client: FlaskClient, address: str) -> int:
    """Return the offset of an upload."""
    return int(client.head(address, headers=TUS).headers["Upload-Offset"])


def client_of(platform: Platform, settings: Settings, **options: Any) -> FlaskClient:
    """Return a client of the platform whose upload service has these options."""
    uploads = Uploads(platform.database, platform.store, **options)
    return root.create_flask(replace(platform, files=replace(platform.files, uploads=uploads)), settings).test_client()


def id_of(address: str) -> str:
    return address.rpartition("/")[2]


def content(platform: Platform, address: str) -> bytes:
    """Return the content of a finished upload."""
    return b"".join(platform.files.uploads.content(LOCAL_CALLER, id_of(address)))


def checksum_header(algorithm: str, data: bytes) -> str:
    return f"{algorithm} {base64.b64encode(hashlib.new(algorithm, data).digest()).decode()}"


def broken_connection(length: int) -> Mapping[str, Any]:
    """Return the WSGI environment of a request whose connection breaks before ``length`` bytes."""
    return {"CONTENT_LENGTH": str(length), "wsgi.input_terminated": True}


# -- capabilities and version


def test_options_lists_the_capabilities_without_a_tus_version(client: FlaskClient) -> None:
    for path in ("/v1/uploads", create(client, 1)):
        response = client.options(path)
        assert response.status_code == 204
        assert response.headers["Tus-Version"] == response.headers["Tus-Resumable"] == "1.0.0"
        assert set(response.headers["Tus-Extension"].split(",")) == {
            "creation", "creation-with-upload", "creation-defer-length", "checksum", "expiration", "termination",
            "concatenation",
        }  # fmt: skip
        assert response.headers["Tus-Checksum-Algorithm"] == "sha1,sha256"
        assert int(response.headers["Tus-Max-Size"]) == 64 << 30


@pytest.mark.parametrize("version", [{}, {"Tus-Resumable": "0.2.2"}])
def test_another_tus_version_is_refused_with_the_supported_one(client: FlaskClient, version: dict[str, str]) -> None:
    address = create(client, 3)
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


def test_every_response_has_the_tus_version_including_errors_of_the_request_guard(client: FlaskClient) -> None:
    address = create(client, 3)
    for response in (
        client.get("/v1/uploads"),
        client.get(address),
        client.get("/v1/uploads/nothing"),
        client.get("/v1/uploads", headers={"Host": "evil.example"}),
        client.head("/v1/uploads/00000000000000000000000000", headers=TUS),
        append(client, address, 2, b"c"),
    ):
        assert response.headers.getlist("Tus-Resumable") == ["1.0.0"]
    assert "Tus-Resumable" not in client.get("/v1/models").headers


def test_a_web_page_of_another_origin_cannot_upload(client: FlaskClient) -> None:
    headers = TUS | {"Upload-Length": "3", "Origin": "http://evil.example"}
    problem(client.post("/v1/uploads", headers=headers), 403, "forbidden-origin")


# -- creation


def test_a_new_upload_is_empty_and_has_an_expiry(client: FlaskClient) -> None:
    created = client.post("/v1/uploads", headers=TUS | {"Upload-Length": "10"})
    assert created.status_code == 201 and created.headers["Upload-Offset"] == "0"
    assert parse_date(created.headers["Upload-Expires"]) is not None
    head = client.head(created.headers["Location"], headers=TUS)
    assert head.status_code == 200
    assert head.headers["Upload-Offset"] == "0" and head.headers["Upload-Length"] == "10"
    assert head.headers["Cache-Control"] == "no-store"
    assert "Upload-Defer-Length" not in head.headers and "Upload-Metadata" not in head.headers


def test_an_upload_of_length_zero_is_finished_immediately(client: FlaskClient, platform: Platform) -> None:
    address = create(client, 0)
    assert client.get(address).json["state"] == "finished"
    assert content(platform, address) == b""


def test_metadata_are_returned_unchanged(client: FlaskClient) -> None:
    metadata = "filename cG9saWN5Lm9ubng=,public,note ZsO8cg=="
    address = create(client, 1, Upload_Metadata=metadata)
    assert client.head(address, headers=TUS).headers["Upload-Metadata"] == metadata
    assert client.get(address).json["metadata"] == {"filename": "policy.onnx", "public": None, "note": "für"}


def test_empty_metadata_have_no_pairs(client: FlaskClient) -> None:
    assert client.get(create(client, 1, Upload_Metadata="")).json["metadata"] == {}


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
def test_malformed_headers_are_refused(client: FlaskClient, headers: dict[str, str]) -> None:
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


def test_the_number_of_unfinished_uploads_is_limited(platform: Platform, settings: Settings) -> None:
    client = client_of(platform, settings, limits=UploadLimits(per_project=2))
    first, _ = create(client, 1), create(client, 1)
    problem(client.post("/v1/uploads", headers=TUS | {"Upload-Length": "1"}), 429, "too-many-uploads")
    append(client, first, 0, b"x")
    create(client, 1)
    assert creation_from(client, "203.0.113.7").status_code == 201, "a caller without an unfinished upload"
    problem(creation_from(client, "203.0.113.7"), 429, "too-many-uploads")


def creation_from(client: FlaskClient, address: str, **headers: str) -> TestResponse:
    """Create an upload from an address."""
    all_headers = TUS | {"Upload-Length": "1"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post("/v1/uploads", headers=all_headers, environ_overrides={"REMOTE_ADDR": address})


def test_empty_creations_of_one_caller_block_no_other_caller(platform: Platform, settings: Settings) -> None:
    client = client_of(platform, settings)
    answers = [creation_from(client, "203.0.113.7") for _ in range(501)]
    assert [answer.status_code for answer in answers] == [201] * 500 + [429]
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60
    problem(creation_from(client, "203.0.113.7", X_Forwarded_For="198.51.100.1"), 429, "too-many-uploads")
    assert creation_from(client, "203.0.113.8").status_code == 201
    finished = client.post("/v1/uploads", headers=TUS | {"Upload-Length": "0"})
    assert finished.status_code == 201, "an upload of length zero is finished"


def test_the_clients_of_a_trusted_proxy_are_callers_of_their_own(platform: Platform, settings: Settings) -> None:
    proxied = replace(settings, trusted_proxies=("10.0.0.0/8",))
    uploads = Uploads(platform.database, platform.store, limits=UploadLimits(per_caller=1))
    client = root.create_flask(replace(platform, files=replace(platform.files, uploads=uploads)), proxied).test_client()
    for address, status in (("198.51.100.1", 201), ("198.51.100.1", 429), ("198.51.100.2", 201)):
        assert creation_from(client, "10.0.0.1", X_Forwarded_For=address).status_code == status


def test_a_creation_may_contain_the_first_bytes(client: FlaskClient, platform: Platform) -> None:
    created = client.post("/v1/uploads", data=b"hello", headers=BYTES | {"Upload-Length": "10"})
    assert created.status_code == 201 and created.headers["Upload-Offset"] == "5"
    assert append(client, created.headers["Location"], 5, b"world").headers["Upload-Offset"] == "10"
    assert content(platform, created.headers["Location"]) == b"helloworld"


def test_a_refused_creation_leaves_no_upload(client: FlaskClient) -> None:
    headers = BYTES | {"Upload-Length": "5"}
    problem(client.post("/v1/uploads", data=b"hello world", headers=headers), 413, "too-large")
    wrong_checksum = headers | {"Upload-Checksum": checksum_header("sha1", b"other")}
    assert client.post("/v1/uploads", data=b"hello", headers=wrong_checksum).status_code == 460
    other = TUS | {"Upload-Length": "5", "Content-Type": "text/plain"}
    problem(client.post("/v1/uploads", data=b"hello", headers=other), 415, "unsupported-media-type")
    assert client.get("/v1/uploads").json["items"] == []


# -- appending


def test_an_upload_resumes_at_its_offset(client: FlaskClient, platform: Platform) -> None:
    address = create(client, 11)
    first = append(client, address, 0, b"hello ")
    assert first.status_code == 204 and first.headers["Upload-Offset"] == "6" and "Upload-Expires" in first.headers
    assert offset(client, address) == 6
    last = append(client, address, 6, b"world")
    assert last.headers["Upload-Offset"] == "11" and "Upload-Expires" not in last.headers
    assert content(platform, address) == b"hello world"


@pytest.mark.parametrize("wrong_offset", [0, 4, 6, 11])
def test_bytes_for_another_offset_change_nothing(client: FlaskClient, wrong_offset: int) -> None:
    address = create(client, 11)
    append(client, address, 0, b"hello")
    refused = append(client, address, wrong_offset, b"")
    assert problem(refused, 409, "offset-mismatch")["offset"] == 5
    assert offset(client, address) == 5


def test_bytes_before_a_broken_connection_are_stored(client: FlaskClient, platform: Platform) -> None:
    address = create(client, 11)
    headers = BYTES | {"Upload-Offset": "0"}
    broken = client.patch(address, data=b"hello ", headers=headers, environ_overrides=broken_connection(11))
    assert broken.headers["Upload-Offset"] == "6"
    append(client, address, 6, b"world")
    assert content(platform, address) == b"hello world"


def test_more_bytes_than_the_length_are_refused(client: FlaskClient) -> None:
    address = create(client, 5)
    problem(append(client, address, 0, b"hello world"), 413, "too-large")
    assert offset(client, address) == 0
    append(client, address, 0, b"hello")
    problem(append(client, address, 5, b"!"), 413, "too-large")
    assert append(client, address, 5, b"").status_code == 204


def test_bytes_need_their_content_type_and_an_offset(client: FlaskClient) -> None:
    address = create(client, 5)
    plain = TUS | {"Upload-Offset": "0", "Content-Type": "application/octet-stream"}
    problem(client.patch(address, data=b"hello", headers=plain), 415, "unsupported-media-type")
    problem(client.patch(address, data=b"hello", headers=BYTES), 400, "bad-request")
    problem(append(client, address, 0, b"hello", Upload_Offset="zero"), 400, "bad-request")


def test_a_deferred_length_can_be_set_once(client: FlaskClient, platform: Platform) -> None:
    address = create(client, Upload_Defer_Length="1")
    head = client.head(address, headers=TUS)
    assert head.headers["Upload-Defer-Length"] == "1" and "Upload-Length" not in head.headers
    assert append(client, address, 0, b"hello").headers["Upload-Offset"] == "5"
    assert client.get(address).json["length"] is None
    problem(append(client, address, 5, b" world", Upload_Length="3"), 422, "invalid")
    assert append(client, address, 5, b" wor", Upload_Length="11").status_code == 204
    assert client.head(address, headers=TUS).headers["Upload-Length"] == "11"
    problem(append(client, address, 9, b"ld", Upload_Length="12"), 422, "invalid")
    assert append(client, address, 9, b"ld", Upload_Length="11").status_code == 204
    assert content(platform, address) == b"hello world"


def test_the_method_can_be_overridden_by_a_header(client: FlaskClient) -> None:
    address = create(client, 5)
    patched = client.post(
        address, data=b"hello", headers=BYTES | {"Upload-Offset": "0", "X-HTTP-Method-Override": "PATCH"}
    )
    assert patched.status_code == 204 and patched.headers["Upload-Offset"] == "5"
    head = client.post(address, headers=TUS | {"X-HTTP-Method-Override": "HEAD"})
    assert head.headers["Upload-Offset"] == "5" and "Content-Length" not in head.headers
    assert client.post(address, headers=TUS | {"X-HTTP-Method-Override": "DELETE"}).status_code == 204
    assert client.head(address, headers=TUS).status_code == 404
    assert client.post("/v1/models", headers={"X-HTTP-Method-Override": "DELETE"}).status_code == 415


def test_the_number_of_concurrent_appends_is_limited(platform: Platform, settings: Settings) -> None:
    client = client_of(platform, settings, limits=UploadLimits(writers=0))
    refused = append(client, create(client, 1), 0, b"x")
    problem(refused, 503, "uploads-busy")
    assert int(refused.headers["Retry-After"]) >= 1


# -- checksums


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_bytes_with_a_checksum_are_stored_completely_or_not_at_all(
    client: FlaskClient, platform: Platform, algorithm: str
) -> None:
    address = create(client, 11)
    mismatch = append(client, address, 0, b"hello ", Upload_Checksum=checksum_header(algorithm, b"hullo "))
    problem(mismatch, 460, "checksum-mismatch")
    assert offset(client, address) == 0
    assert list(platform.store.list("uploads/")) == []
    accepted = append(client, address, 0, b"hello ", Upload_Checksum=checksum_header(algorithm, b"hello "))
    assert accepted.status_code == 204 and accepted.headers["Upload-Offset"] == "6"
    headers = BYTES | {"Upload-Offset": "6", "Upload-Checksum": checksum_header(algorithm, b"world")}
    assert (
        client.patch(address, data=b"wor", headers=headers, environ_overrides=broken_connection(5)).status_code == 460
    )
    assert offset(client, address) == 6


@pytest.mark.parametrize("checksum", ["md5 1B2M2Y8AsgTpgAmY7PhCfg==", "sha1 not-base64!", "sha1", ""])
def test_a_malformed_checksum_is_refused(client: FlaskClient, checksum: str) -> None:
    address = create(client, 5)
    refused = append(client, address, 0, b"hello", Upload_Checksum=checksum)
    assert refused.status_code == (460 if checksum == "sha1" else 400)
    assert offset(client, address) == 0


# -- concatenation


def test_a_concatenation_outlives_its_partial_uploads(client: FlaskClient, platform: Platform) -> None:
    partials = [upload_all(client, data, Upload_Concat="partial") for data in (b"hello ", b"world", b"")]
    assert client.head(partials[0], headers=TUS).headers["Upload-Concat"] == "partial"
    named = f"final;{partials[0]} http://localhost{partials[1]} {partials[2]}"
    final = create(client, Upload_Concat=named)
    head = client.head(final, headers=TUS).headers
    assert head["Upload-Offset"] == head["Upload-Length"] == "11" and head["Upload-Concat"] == named
    for partial in partials:
        assert client.delete(partial, headers=TUS).status_code == 204
    assert content(platform, final) == b"hello world"
    assert platform.files.uploads.read(LOCAL_CALLER, id_of(final), 4, 4) == b"o wo"
    client.delete(final, headers=TUS)
    assert list(platform.store.list("uploads/")) == []


def test_a_final_upload_accepts_no_bytes(client: FlaskClient) -> None:
    final = create(client, Upload_Concat=f"final;{upload_all(client, b'x', Upload_Concat='partial')}")
    problem(append(client, final, 1, b"y"), 403, "final-upload")


def test_only_finished_partial_uploads_are_concatenated(client: FlaskClient) -> None:
    ordinary = upload_all(client, b"x")
    problem(client.post("/v1/uploads", headers=TUS | {"Upload-Concat": f"final;{ordinary}"}), 422, "invalid")
    half = create(client, 2, Upload_Concat="partial")
    refused = client.post("/v1/uploads", headers=TUS | {"Upload-Concat": f"final;{half}"})
    problem(refused, 409, "upload-unfinished")


# -- list, deletion, expiry


def test_uploads_are_listed_by_page_newest_first(client: FlaskClient) -> None:
    ids = [id_of(create(client, 1)) for _ in range(5)]
    first = client.get("/v1/uploads?limit=3").json
    assert [item["id"] for item in first["items"]] == ids[:1:-1]
    rest = client.get(f"/v1/uploads?limit=3&after={first['next']}").json
    assert [item["id"] for item in rest["items"]] == ids[1::-1] and rest["next"] is None


def test_a_deleted_upload_is_gone_with_its_objects(client: FlaskClient, platform: Platform) -> None:
    address = create(client, 11)
    append(client, address, 0, b"hello")
    assert client.delete(address, headers=TUS).status_code == 204
    assert list(platform.store.list("uploads/")) == []
    response = client.head(address, headers=TUS)
    assert response.status_code == 404 and "Upload-Offset" not in response.headers and not response.data
    problem(append(client, address, 5, b" world"), 404, "unknown-upload")
    problem(client.delete(address, headers=TUS), 404, "unknown-upload")
    problem(client.get(address), 404, "unknown-upload")


def test_an_idle_upload_expires(settings: Settings, platform: Platform) -> None:
    client = client_of(platform, settings, ttl=-1.0)
    address = create(client, 5)
    assert client.head(address, headers=TUS).status_code == 410
    problem(append(client, address, 0, b"hello"), 410, "gone")
    assert platform.files.uploads.sweep() == 1
    assert client.head(address, headers=TUS).status_code == 404


# -- models and simulations from uploads


def test_a_finished_upload_becomes_a_model(client: FlaskClient) -> None:
    name = base64.b64encode(b"my policy.py").decode()
    address = upload_all(client, MODEL, Upload_Metadata=f"filename {name}")
    for reference in (address, id_of(address), f"http://localhost{address}"):
        created = client.post("/v1/models", json={"upload": reference})
        assert created.status_code == 201, created.data
        assert (
            created.json["name"] == "my-policy" and created.json["format"] == "python" and created.json["version"] == 1
        )
        assert created.json["digest"] == "sha256:" + hashlib.sha256(MODEL).hexdigest()
    named = client.post("/v1/models", json={"upload": address, "name": "other", "format": "python"})
    assert named.json["name"] == "other"
    assert client.delete(address, headers=TUS).status_code == 204


def test_an_unfinished_or_unknown_upload_cannot_become_a_model(client: FlaskClient) -> None:
    half = create(client, 5)
    assert problem(client.post("/v1/models", json={"upload": half}), 409, "upload-unfinished")["offset"] == 0
    problem(client.post("/v1/models", json={"upload": "0" * 26}), 422, "unknown-upload")
    problem(client.post("/v1/models", json={"upload": "../x"}), 422, "invalid")
    problem(client.post("/v1/models", json={"upload": half, "colour": "red"}), 422, "invalid")
    problem(client.post("/v1/models", json={}), 422, "invalid")


def test_a_submission_may_refer_to_a_finished_upload(client: FlaskClient) -> None:
    name = base64.b64encode(b"policy.py").decode()
    address = upload_all(client, MODEL, Upload_Metadata=f"filename {name}")
    document = {"dataset": "noop", "scenarios": {"range": [0, 3]}}
    created = client.post("/v1/simulations", json=document | {"upload": address})
    assert created.status_code == 201, created.data
    assert created.json["model"]["name"] == "policy" and created.json["runtime"]["name"] == "python"
    problem(client.post("/v1/simulations", json=document | {"upload": address, "model": "idm"}), 422, "invalid")
    problem(client.post("/v1/simulations", json=document | {"upload": create(client, 5)}), 409, "upload-unfinished")
    problem(client.post("/v1/simulations", json=document | {"upload": "0" * 26}), 422, "unknown-upload")
    problem(client.post("/v1/simulations", json=document | {"upload": 7}), 422, "invalid")


def test_the_application_has_upload_routes(application: Flask) -> None:
    rules = {rule.rule for rule in application.url_map.iter_rules()}
    assert {"/v1/uploads", "/v1/uploads/<id:upload>"} <= rules
