"""Every example of the OpenAPI document is true: requests are accepted by a platform, responses fit their schemas."""

import base64
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema_rs
import pytest
from minio import Minio

from api import application
from api.path_parameters import EXAMPLE_ID
from core.domain.scheduling.states import State
from tests.s3_servers import S3Server
from tests.system.platform_process import FINAL, PlatformProcess
from tests.system.test_datasets import dataset_json, register, tar
from tests.waiting import until

MODEL = b"class Model:\n    def act(self, observation):\n        return [0.0, 0.0]\n"
#: A program that leaves the picture which an example names.
DRAWING = """
import os, pathlib
picture = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><path d="M0 0L9 9"/></svg>'
pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"], "flow.svg").write_text(picture)
print('{"drawn": 1}')
"""
#: Operations with examples that this platform cannot answer with a success, each with the reason.
LEFT_OUT = {
    **dict.fromkeys(
        ("get_task_file", "list_task_files", "open_connection"),
        "the operator has to allow it, and a program has to run: tests/system/test_looking_inside.py",
    ),
    **dict.fromkeys(
        (
            "close_project",
            "create_personal_token",
            "create_project",
            "create_project_token",
            "create_service",
            "create_user",
            "delete_project",
            "get_member_quotas",
            "get_project",
            "get_project_quotas",
            "get_project_usage",
            "get_quotas",
            "get_retention",
            "list_audit_entries",
            "list_members",
            "list_personal_tokens",
            "list_project_tokens",
            "list_projects",
            "list_users",
            "put_member",
            "put_member_quotas",
            "put_project_quotas",
            "put_quotas",
            "put_retention",
            "preview_retention",
            "remove_member",
            "remove_user",
            "revoke_personal_token",
            "revoke_project_token",
        ),
        "this platform has no accounts: tests/system/test_account_platform.py",
    ),
    **dict.fromkeys(
        (
            "answer_device",
            "ask_for_new_passkey",
            "ask_for_passkey",
            "begin_device_sign_in",
            "begin_provider_sign_in",
            "create_passkey",
            "delete_passkey",
            "delete_password",
            "delete_provided_user",
            "end_provider_sign_in",
            "fetch_device_token",
            "get_sign_in_methods",
            "get_waiting_device",
            "invite_again",
            "put_password",
            "sign_in_with_invitation",
            "sign_in_with_passkey",
            "sign_in_with_password",
        ),
        "this platform has no accounts: tests/api/test_sign_ins.py",
    ),
    "retry_delivery": "a delivery has to be there: tests/api/test_webhooks.py",
    **dict.fromkeys(("delete_binned", "restore_binned"), "nothing is in its bin: tests/api/test_binned_things.py"),
    "get_model_lock": "only a model that declares packages has one: tests/system/test_model_dependencies.py",
}
#: Headers of a request of tus, without which it is refused.
TUS = {"Tus-Resumable": "1.0.0"}


class Examples:
    """A document's operations, and what their examples refer to on a platform: made when an example needs it."""

    def __init__(self, document: Mapping[str, Any], platform: PlatformProcess) -> None:
        self.document = document
        self._http = platform.http
        self._platform = platform
        self._finished: str | None = None

    # -- what ids of examples stand for

    def upload(self, body: bytes, filename: str, length: int | None = None) -> str:
        """Return the id of an upload; ``length``: bytes that it will have, if these are not all."""
        headers = TUS | {"Upload-Length": str(length or len(body)), "Content-Type": "application/offset+octet-stream"}
        headers["Upload-Metadata"] = f"filename {base64.b64encode(filename.encode()).decode()}"
        return _id(self._http.post("/v1/uploads", content=body, headers=headers))

    def drives(self, title: str) -> dict[str, bytes]:
        """Return the files of a version of the dataset `drives`."""
        scenarios = self._http.get("/v1/datasets/car_street/scenarios?limit=3").json()["items"]
        lines = b"".join(json.dumps(scenario).encode() + b"\n" for scenario in scenarios)
        return {"dataset.json": dataset_json("car_street", title=title), "lines.ndjson": lines}

    def submit(self, **fields: Any) -> str:
        return _id(self._http.post("/v1/simulations", json=fields))

    def waiting(self) -> str:
        """Return the id of a simulation that does not end soon."""
        return self.submit(dataset="noop", runtime="python", scenarios={"range": [0, 50]}, params={"sleep_ms": 60_000})

    def cancel_all(self) -> None:
        """Cancel what earlier examples have left, which would keep workers for minutes."""
        for comparison in self._http.get("/v1/comparisons?state=running").json()["items"]:
            self._http.post(f"/v1/comparisons/{comparison['id']}/cancel")
        unfinished = [state.value for state in State if state not in FINAL]
        self._http.post("/v1/simulations/cancel", json={"filter": {"state": unfinished}})

    def finished(self, **fields: Any) -> str:
        """Return the id of a simulation that has ended."""
        self.cancel_all()
        id = self.submit(**fields)
        return str(self._platform.wait_for_end(id)["id"])

    def swept(self) -> str:
        """Return the id of a simulation that has ended, with all that an analysis needs; always the same."""
        if self._finished is None:
            self._finished = self.finished(
                dataset="car_street", model="idm", scenarios={"sample": 3, "seed": 1}, sweep={"latency_steps": [0, 2]},
                record="all",
            )  # fmt: skip
        return self._finished

    def drawn(self) -> str:
        """Return the id of a simulation that has ended, whose first task has left a picture."""
        assert self._http.put("/v1/models/drawing?filename=drawing.py", content=DRAWING.encode()).is_success
        gang = {"size": 1, "command": ["python", "model.py"]}
        return self.finished(dataset="program", model="drawing", scenarios={"range": [0, 1]}, gang=gang)

    def comparison(self, *, ended: bool) -> str:
        """Return the id of a comparison; one that has not ended plays for minutes."""
        self.cancel_all()
        body = {"dataset": "cartpole", "models": ["cartpole", "zero"], "scenarios": {"range": [0, 20]}}
        if not ended:
            body = {"dataset": "car_street", "models": ["idm", "idm_mobil"], "repeat": 100, "play_all": True}
        id = _id(self._http.post("/v1/comparisons", json=body))
        if ended:
            until(lambda: self._http.get(f"/v1/comparisons/{id}").json()["state"] in FINAL | {"finished"}, 120)
        return id

    def pipeline(self, *, ended: bool) -> str:
        """Return the id of a pipeline with a step `smoke`; one that has ended was cancelled."""
        self.cancel_all()
        waiting = {"dataset": "noop", "runtime": "python", "scenarios": "0-49", "params": {"sleep_ms": 60_000}}
        body = {"steps": [{"name": "smoke", "submission": waiting, "fresh": True}]}
        id = _id(self._http.post("/v1/pipelines", json=body))
        if ended:
            self._http.post(f"/v1/pipelines/{id}/cancel")
            until(lambda: self._http.get(f"/v1/pipelines/{id}").json()["state"] in FINAL, 60)
        return id

    def prefetch_latest(self) -> None:
        """Prefetch the version of `drives` that stays the latest: an example has registered another one."""
        versions = "/v1/datasets/drives/versions"
        until(lambda: all(item["state"] != "registering" for item in self._http.get(versions).json()["items"]), 60)
        assert self._http.post("/v1/datasets/drives/prefetch").is_success

    def id_for(self, operation: str) -> str:
        """Return the id that stands in the place of the example's in a request of an operation."""
        quick: dict[str, Any] = {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, 3]}}
        match operation:
            case "cancel_simulation" | "resize_simulation" | "cancel_simulations":
                return self.waiting()
            case "delete_simulation" | "retry_simulation" | "retry_simulations" | "watch_simulation_events":
                return self.finished(**quick)
            case "get_task_picture":
                return self.drawn()
            case "compare_simulations":
                return self.swept()
            case "get_import":
                body = {"model_reference": "s3://models/policy.py", "connection": "lab"}
                return str(self._http.post("/v1/imports", json=body).json()["id"])
            case "append_upload":
                return self.upload(b"", "greeting.txt", len(b"hello world"))
            case "register_dataset":
                return self.upload(tar(self.drives("Third")), "drives.tar")
            case "create_model" | "create_simulation":
                return self.upload(MODEL, "policy.py")
            case "cancel_comparison":
                return self.comparison(ended=False)
            case "retry_comparison":
                id = self.comparison(ended=False)
                self._http.post(f"/v1/comparisons/{id}/cancel")
                until(lambda: self._http.get(f"/v1/comparisons/{id}").json()["state"] == "cancelled", 60)
                return id
            case name if "comparison" in name:
                return self.comparison(ended=True)
            case name if "pipeline" in name:
                return self.pipeline(ended=name != "cancel_pipeline")
            case name if "webhook" in name or name == "list_deliveries":
                wanted = {"url": "https://ci.example.com/hooks/1", "types": ["simulation.ended"]}
                return _id(self._http.post("/v1/webhooks", json=wanted))
            case name if "upload" in name:
                return self.upload(b"hello", "greeting.txt")
            case _:
                return self.swept()

    # -- requests

    def requests(self) -> Iterator[tuple[str, httpx.Request]]:
        """Yield a request for each example of a body and of a parameter, with its name; deletions come last."""
        operations = [
            (path, method, operation, methods.get("parameters", []))
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
            if method != "parameters" and operation["operationId"] not in LEFT_OUT
        ]
        for path, method, operation, in_path in sorted(operations, key=_order):
            name = operation["operationId"]
            parameters = in_path + operation.get("parameters", [])
            known = [parameter for parameter in parameters if "example" in parameter]
            needed = [parameter for parameter in known if parameter.get("required") or parameter["name"] == "filename"]
            optional = [parameter for parameter in known if parameter not in needed]
            if name == "create_upload":  # a length is required, or that it follows
                needed += [parameter for parameter in optional if parameter["name"] == "Upload-Length"]
            bodies = [
                (title, media_type, example["value"])
                for media_type, media in operation.get("requestBody", {}).get("content", {}).items()
                for title, example in media["examples"].items()
            ]
            for title, media_type, body in bodies or [("", "", None)]:
                if bodies or known:
                    yield f"{name} {title}".strip(), self._request(name, path, method, needed, media_type, body)
            for parameter in optional:
                _, media_type, body = bodies[0] if bodies else ("", "", None)
                request = self._request(name, path, method, [*needed, parameter], media_type, body)
                yield f"{name} {parameter['name']}", request

    def _request(
        self, name: str, path: str, method: str, parameters: list[Mapping[str, Any]], media_type: str, body: Any
    ) -> httpx.Request:
        if name == "get_dataset_prefetch":
            self.prefetch_latest()
        id = self.id_for(name) if EXAMPLE_ID in json.dumps([parameters, body]) else ""
        values: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
        for parameter in parameters:
            value = parameter["example"]
            values[parameter["in"]][parameter["name"]] = id if value == EXAMPLE_ID else value
        for key, value in values["path"].items():
            path = path.replace(f"{{{key}}}", quote(str(value)))
        headers = {key: str(value) for key, value in values["header"].items()}
        query = {key: _text(value) for key, value in values["query"].items()}
        if media_type == "multipart/form-data":
            files = {"file": ("policy.py", body["file"].encode())} if "file" in body else {}
            fields = {key: (None, str(value).encode()) for key, value in body.items() if key != "file"}
            return self._http.build_request(method, path, params=query, headers=headers, files={**fields, **files})
        if media_type == "application/json":
            content = json.dumps(body).replace(EXAMPLE_ID, id).encode()
        else:
            content = body.encode() if body is not None else b""
        if media_type:
            headers["Content-Type"] = media_type
        return self._http.build_request(method.upper(), path, params=query, headers=headers, content=content)


def _order(operation: tuple[str, str, Any, Any]) -> int:
    """Return the order of an operation: deletions come last, that of a tag before that of its dataset."""
    path, method, _, _ = operation
    return -path.count("/") if method == "delete" else -100


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _id(response: httpx.Response) -> str:
    assert response.is_success, response.text
    return response.headers["Location"].rpartition("/")[2]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return application.describe()


@pytest.fixture
def with_bucket(prepared_environments: None, minio: S3Server, tmp_path: Path) -> Iterator[PlatformProcess]:
    """A platform with the connection `lab`, which the examples name, to buckets with a model and a dataset."""
    client = Minio(minio.endpoint.removeprefix("http://"), minio.access_key, minio.secret_key, secure=False)
    for bucket, key, body in (("models", "policy.py", MODEL), ("drives", "2026/greeting.txt", b"hello")):
        if not client.bucket_exists(bucket):
            client.make_bucket(bucket)
        client.put_object(bucket, key, io.BytesIO(body), len(body))
    platform = PlatformProcess(tmp_path / "platform")
    lab = {"endpoint": minio.endpoint, "access_key": minio.access_key, "secret_key": minio.secret_key}
    file = platform.home / "connections.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"connections": {"lab": {**lab, "buckets": ["models", "drives"]}}}))
    yield platform.start()
    platform.stop()


def validator(document: Mapping[str, Any], schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """Return the validator of a schema that refers to components of the document."""
    return jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})


def test_every_example_of_a_request_is_accepted(document: dict[str, Any], with_bucket: PlatformProcess) -> None:
    examples = Examples(document, with_bucket)
    assert with_bucket.http.put("/v1/models/policy?filename=policy.py", content=MODEL).status_code == 201
    for title in ("First", "Second"):
        register(with_bucket, "drives", examples.drives(title))
    assert with_bucket.http.put("/v1/datasets/drives/tags/gold", json={"version": "1"}).is_success
    register(with_bucket, "greetings", {"a.txt": b"hello"})  # for the example of a manifest, which names this content
    refused, sent = [], 0
    for name, request in examples.requests():
        response = with_bucket.http.send(request, stream=True)  # some answers are streams that do not end
        sent += 1
        if not response.is_success:
            refused.append(f"{name}: {response.status_code} {response.read().decode(errors='replace')[:300]}")
        response.close()
    assert not refused, f"{len(refused)} of {sent} examples are refused:\n" + "\n".join(refused)
    assert sent >= 140, f"{sent} examples were sent"


def test_every_example_of_a_response_fits_its_schema(document: dict[str, Any]) -> None:
    responses = list(document["components"]["responses"].items())
    for methods in document["paths"].values():
        for method, operation in methods.items():
            if method != "parameters":
                responses += [(operation["operationId"], response) for response in operation["responses"].values()]
    examples = [
        (name, media["schema"], media["example"])
        for name, response in responses
        for media in response.get("content", {}).values()
        if "example" in media
    ]
    errors = {
        name: [error.message for error in validator(document, schema).iter_errors(example)]
        for name, schema, example in examples
    }
    assert {name: found for name, found in errors.items() if found} == {}
    assert len(examples) >= 45, f"{len(examples)} examples of responses"


def test_every_example_of_a_body_a_parameter_or_a_member_fits_its_schema(document: dict[str, Any]) -> None:
    examples = list(with_schemas(document))
    errors = {
        name: [error.message for error in validator(document, schema).iter_errors(example)]
        for name, schema, example in examples
    }
    assert {name: found for name, found in errors.items() if found} == {}
    assert len(examples) >= 150, f"{len(examples)} examples of bodies, parameters and members"


def with_schemas(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """Yield the examples of bodies, parameters and members, each with its name and its schema."""
    for path, methods in document["paths"].items():
        for method, value in methods.items():
            for parameter in value if method == "parameters" else value.get("parameters", ()):
                if "example" in parameter:
                    yield f"{method} {path} {parameter['name']}", parameter["schema"], parameter["example"]
            content = {} if method == "parameters" else value.get("requestBody", {}).get("content", {})
            for media in content.values():
                for name, example in media["examples"].items():
                    yield f"{method} {path} {name}", media["schema"], example["value"]
    for name, schema in document["components"]["schemas"].items():
        for key, member in schema.get("properties", {}).items():
            if "example" in member:
                yield f"{name}.{key}", member, member["example"]
