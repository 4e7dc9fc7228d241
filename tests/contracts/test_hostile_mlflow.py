"""An MLflow server that is hostile, broken or away: what it answers is checked, bounded, and never followed."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from core.services.platform import Platform
from datasets.model_origins.config import MlflowServer, OriginConfig
from tests.imported_models import PYTHON, importing_platform
from tests.imported_models import imported as imported_from
from tests.web_files import WebFiles, content, endless, redirect, status, web_files

API = "/base/api/2.0"
VERSION = f"{API}/mlflow/model-versions/get?name=pole&version=1"
URI = f"{API}/mlflow/model-versions/get-download-uri?name=pole&version=1"
LIST = f"{API}/mlflow-artifacts/artifacts?path="
FILE = f"{API}/mlflow-artifacts/artifacts/"


def answer(document: Any) -> Any:
    return content(json.dumps(document).encode(), Content_Type="application/json")


def listing(*names: str, folders: tuple[str, ...] = ()) -> Any:
    files = [{"path": name, "is_dir": name in folders, "file_size": None} for name in (*names, *folders)]
    return answer({"files": files})


@pytest.fixture
def server() -> Iterator[WebFiles]:
    with web_files() as files:
        version = {"name": "pole", "version": "1", "source": "x", "run_id": "", "status": "READY"}
        files.answers[VERSION] = answer({"model_version": version})
        files.answers[URI] = answer({"artifact_uri": "mlflow-artifacts:/0/model"})
        files.answers[f"{LIST}0%2Fmodel"] = listing("MLmodel", "model.onnx")
        files.answers[f"{FILE}0/model/MLmodel"] = content(b"flavors: {onnx: {data: model.onnx}}")
        files.answers[f"{FILE}0/model/model.onnx"] = content(PYTHON)
        yield files


@pytest.fixture
def platform(server: WebFiles, tmp_path: Path) -> Iterator[Platform]:
    known = {"lab": MlflowServer(name="lab", uri=f"{server.origin}/base/", username="reader", password="secret")}
    with importing_platform(tmp_path, model_origins=OriginConfig(mlflow=known)) as built:
        yield built


def imported(platform: Platform, reference: str = "models:/pole/1", **options: str) -> dict[str, Any]:
    """Import a model of the registry; return the import at its end."""
    return imported_from(platform, reference, **options)


def test_the_credentials_of_the_operator_are_sent_with_each_request(platform: Platform, server: WebFiles) -> None:
    record = imported(platform, format="python")
    assert record["state"] == "ready", record
    assert {authorization for _, authorization in server.requests} == {"Basic cmVhZGVyOnNlY3JldA=="}


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc",
        "/etc",
        "http://169.254.169.254/latest",
        "mlflow-artifacts://other.example/0/model",
        "mlflow-artifacts:/0/../../x",
        "mlflow-artifacts:/0/%2e%2e/x",
        "mlflow-artifacts:",
        "s3://bucket/model",
        "s3://",
        "dbfs:/model",
        "",
    ],
)
def test_artifacts_elsewhere_are_not_read(platform: Platform, server: WebFiles, uri: str) -> None:
    server.answers[URI] = answer({"artifact_uri": uri})
    record = imported(platform)
    assert record["state"] == "failed" and "rtifacts" in record["reason"], record
    assert [path for path, _ in server.requests] == [VERSION, URI]


def test_a_redirect_of_the_server_is_not_followed(platform: Platform, server: WebFiles) -> None:
    with web_files() as other:
        for path in (VERSION, f"{FILE}0/model/model.onnx"):
            kept = server.answers[path]
            server.answers[path] = redirect(f"{other.origin}/x")
            assert imported(platform)["state"] == "failed"
            server.answers[path] = kept
        assert other.requests == []


@pytest.mark.parametrize("name", ["..", "a\\b", "a%2fb", ""])
def test_names_in_a_listing_stay_in_the_folder(platform: Platform, server: WebFiles, name: str) -> None:
    server.answers[f"{FILE}0/model/MLmodel"] = content(b"flavors: {keras: {data: data}}")
    server.answers[f"{LIST}0%2Fmodel"] = listing("MLmodel", folders=("data",))
    server.answers[f"{LIST}0%2Fmodel%2Fdata"] = listing(name)
    record = imported(platform)
    assert record["state"] == "failed" and "parts that no artifact has" in record["reason"], record


def test_folders_without_end_are_refused(platform: Platform, server: WebFiles) -> None:
    server.answers[f"{FILE}0/model/MLmodel"] = content(b"flavors: {keras: {data: data}}")
    server.answers[f"{LIST}0%2Fmodel"] = listing("MLmodel", folders=("data",))
    for level in range(20):
        server.answers[f"{LIST}0%2Fmodel%2Fdata" + "%2Fdata" * level] = listing(folders=("data",))
    record = imported(platform)
    assert record["state"] == "failed" and "more than 8 levels" in record["reason"], record


def test_thousands_of_files_are_refused(platform: Platform, server: WebFiles) -> None:
    server.answers[f"{FILE}0/model/MLmodel"] = content(b"flavors: {keras: {data: data}}")
    server.answers[f"{LIST}0%2Fmodel"] = listing("MLmodel", folders=("data",))
    server.answers[f"{LIST}0%2Fmodel%2Fdata"] = listing(*map(str, range(2001)))
    record = imported(platform)
    assert record["state"] == "failed" and "more than 2,000 files" in record["reason"], record


@pytest.mark.parametrize("path", [VERSION, URI, f"{LIST}0%2Fmodel"])
def test_an_endless_answer_is_cut(platform: Platform, server: WebFiles, path: str) -> None:
    server.answers[path] = endless
    record = imported(platform)
    assert record["state"] == "failed" and "8 MiB" in record["reason"], record


def test_an_endless_mlmodel_and_an_endless_model_are_cut(platform: Platform, server: WebFiles) -> None:
    kept = server.answers[f"{FILE}0/model/MLmodel"]
    server.answers[f"{FILE}0/model/MLmodel"] = endless
    assert "The MLmodel cannot be read: it has more than" in imported(platform)["reason"]
    server.answers[f"{FILE}0/model/MLmodel"] = kept
    server.answers[f"{FILE}0/model/model.onnx"] = endless
    assert "WINDTUNNEL_MAX_UPLOAD" in imported(platform)["reason"]


def test_the_files_of_a_saved_model_are_bounded_together(platform: Platform, server: WebFiles) -> None:
    server.answers[f"{FILE}0/model/MLmodel"] = content(b"flavors: {tensorflow: {data: data}}")
    server.answers[f"{LIST}0%2Fmodel"] = listing("MLmodel", folders=("data",))
    server.answers[f"{LIST}0%2Fmodel%2Fdata"] = listing("saved_model.pb", "x")
    for name in ("saved_model.pb", "x"):
        server.answers[f"{FILE}0/model/data/{name}"] = content(bytes(600_000))
    record = imported(platform)
    assert record["state"] == "failed" and "WINDTUNNEL_MAX_UPLOAD" in record["reason"], record


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"model_version": 5}', b"[" * 100_000, b"\xff"])
def test_an_answer_that_is_no_answer_is_tried_again(platform: Platform, server: WebFiles, body: bytes) -> None:
    server.answers[VERSION] = content(body)
    record = imported(platform)
    assert record["state"] == "fetching" and "mlflow/model-versions/get" in record["reason"], record


@pytest.mark.parametrize(("code", "state"), [(401, "failed"), (404, "failed"), (500, "fetching"), (503, "fetching")])
def test_a_refusal_is_final_and_an_outage_is_not(platform: Platform, server: WebFiles, code: int, state: str) -> None:
    server.answers[VERSION] = status(code)
    record = imported(platform)
    assert record["state"] == state and str(code) in record["reason"], record


def test_a_message_of_the_server_is_shortened(platform: Platform, server: WebFiles) -> None:
    def refuse(request: BaseHTTPRequestHandler) -> None:
        body = json.dumps({"message": "x" * 3000}).encode()
        request.send_response(400)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    server.answers[VERSION] = refuse
    assert len(imported(platform)["reason"]) < 400


def test_a_version_that_is_not_ready_is_refused(platform: Platform, server: WebFiles) -> None:
    version = {"name": "pole", "version": "1", "status": "PENDING_REGISTRATION"}
    server.answers[VERSION] = answer({"model_version": version})
    assert "is PENDING_REGISTRATION, not READY" in imported(platform)["reason"]
