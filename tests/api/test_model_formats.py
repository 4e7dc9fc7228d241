"""The `format` of a model: every way to send a model's bytes takes it."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.api.answers import problem

BYTES = {"Content-Type": "application/octet-stream"}
OFFSET_BYTES = {"Content-Type": "application/offset+octet-stream"}
#: Bytes of no known format.
UNRECOGNISED = b"\x00\x01\x02\x03" * 9


def _upload(client: FlaskClient, data: bytes) -> str:
    created = client.post(
        "/v1/uploads", headers={"Tus-Resumable": "1.0.0", "Upload-Length": str(len(data))} | OFFSET_BYTES, data=data
    )
    assert created.status_code == 201, created.data
    return str(created.headers["Location"]).rpartition("/")[2]


@pytest.mark.parametrize(
    "send",
    [
        lambda client, data: client.put("/v1/models/m?format=onnx", data=data, headers=BYTES),
        lambda client, data: client.post("/v1/models", data={"file": (io.BytesIO(data), "m"), "format": "onnx"}),
        lambda client, data: client.post("/v1/forms/models", data={"file": (io.BytesIO(data), "m"), "format": "onnx"}),
        lambda client, data: client.post("/v1/models", json={"upload": _upload(client, data), "format": "onnx"}),
        lambda client, data: client.post(
            "/v1/simulations", data={"model": (io.BytesIO(data), "m"), "format": "onnx", "dataset": "noop"}
        ),
        lambda client, data: client.post(
            "/v1/forms/simulations", data={"model": (io.BytesIO(data), "m"), "format": "onnx", "dataset": "noop"}
        ),
        lambda client, data: client.post(
            "/v1/simulations", json={"upload": _upload(client, data), "format": "onnx", "dataset": "noop"}
        ),
    ],
    ids=["PUT", "models form", "forms/models", "models upload", "simulations form", "forms/simulations", "upload"],
)
def test_every_way_to_send_a_model_takes_its_format(client: FlaskClient, send: Callable[..., Any]) -> None:
    response = send(client, UNRECOGNISED)
    assert response.status_code == 201, response.data
    body = response.json
    assert (body.get("format") or body["model"]["format"]) == "onnx"


def test_a_format_without_a_models_bytes_is_refused(client: FlaskClient, model: str) -> None:
    fields = {"dataset": "noop", "model": model, "format": "onnx"}
    for body in ({"json": fields}, {"data": fields, "content_type": "multipart/form-data"}):
        assert "`format`" in problem(client.post("/v1/simulations", **body), 422, "invalid")["detail"]
