"""Values of requests on both databases: whatever a number or a text of a request is, the answer is no server error."""

import io
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient

from api import application, runner_api
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.settings import Settings
from core.store.database import Database
from datasets.objectstore.filesystem import FilesystemStore
from server import composition as root
from tests.api.answers import MODEL, line
from tests.api.conftest import LeasingWorker
from tests.dispatching import unended
from tests.executor_configs import LOCAL

#: Numbers at the limits of what languages, JSON and databases hold, and texts that only look like numbers.
NUMBERS = (-1, 2**31, 2**63, 10**30, 1e300, 1.5, True)
NUMERALS = ("-1", str(2**31), str(2**63), str(10**30), "1e400", "\uff11")
#: Texts that no database, header or file name takes as they are.
TEXTS = ("a\x00b", "\ud800", "a\nb", "a" * 5000, "..")


@pytest.fixture
def platform(database: Database, tmp_path: Path) -> Platform:
    options = PlatformOptions(home=tmp_path, executor_configs=[LOCAL], sandbox={"level": 3}, streams=4)
    return build(database, FilesystemStore(tmp_path / "objects"), LocalNotifier(), options)


@pytest.fixture
def client(platform: Platform, tmp_path: Path) -> FlaskClient:
    flask = root.create_flask(platform, Settings(home=tmp_path), {"level": 3, "missing": []})
    flask.config["PROPAGATE_EXCEPTIONS"] = False
    return flask.test_client()


@pytest.fixture
def names(client: FlaskClient, platform: Platform) -> Mapping[str, str]:
    """A value for each parameter of a path: a simulation with results, a model, a dataset."""
    sent = client.put("/v1/models/mine?filename=model.py", data=MODEL, content_type="application/octet-stream")
    assert sent.status_code == 201, sent.data
    document = {"dataset": "noop", "runtime": "python", "model": "mine", "scenarios": {"range": [0, 20]}}
    id: str = client.post("/v1/simulations", json=document).json["id"]  # type: ignore[index]
    LeasingWorker(platform).run_to_end(id)
    return {"id": id, "task": "0", "name": "mine", "model": "mine", "dataset": "noop", "index": "0", "tag": "gold"}


def operations() -> Iterator[tuple[str, str, Mapping[str, Any], list[Mapping[str, Any]]]]:
    """Yield method, path, operation and parameters of each operation that neither streams nor waits for a worker."""
    document = application.describe()
    for path, methods in document["paths"].items():
        shared = methods.get("parameters", [])
        for method, operation in methods.items():
            if method != "parameters" and not operation["operationId"].startswith(("watch_", "check_")):
                yield method.upper(), path, operation, [*shared, *operation.get("parameters", [])]


def address(path: str, names: Mapping[str, str], **changes: str) -> str:
    for name, value in {"upload": names["id"], "file": "x", "slug": "x", **names, **changes}.items():
        path = path.replace(f"{{{name}}}", quote(value, safe="", errors="surrogatepass"))
    return path


def failed(client: FlaskClient, method: str, url: str, **request: Any) -> str | None:
    """Send a request; return it with its answer if that is a server error."""
    answer = client.open(url, method=method, **request)
    answer.close()
    return f"{method} {url[:150]} {str(request)[:200]}: {answer.data[:200]!r}" if answer.status_code >= 500 else None


def test_no_parameter_is_a_server_error(client: FlaskClient, names: Mapping[str, str]) -> None:
    failures = []
    for method, path, _, parameters in operations():
        for parameter in parameters:
            name, place = parameter["name"], parameter["in"]
            for value in (*NUMERALS, *TEXTS):
                url, headers = address(path, names), {}
                if place == "path":
                    url = address(path, names, **{name: value})
                elif place == "query":
                    url += f"?{name}={quote(value, errors='surrogatepass')}"
                elif value.isascii() and value.isprintable():
                    headers = {name: value}
                failures.append(failed(client, method, url, headers=headers))
    assert len(failures) > 1000
    assert [failure for failure in failures if failure] == []


def test_no_number_or_text_of_a_body_is_a_server_error(client: FlaskClient, names: Mapping[str, str]) -> None:
    schemas = application.describe()["components"]["schemas"]
    failures = []
    for method, path, operation, _ in operations():
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            for body in bodies(schemas, content["application/json"]["schema"], 0):
                data = json.dumps(body)
                failures.append(
                    failed(client, method, address(path, names), data=data, content_type="application/json")
                )
    assert len(failures) > 500
    assert [failure for failure in failures if failure] == []


def bodies(schemas: Mapping[str, Any], schema: Mapping[str, Any], depth: int) -> Iterator[Any]:
    """Yield values of a schema in which one number or text is an unusual one."""
    schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for alternative in schema.get("anyOf", ()):
        yield from bodies(schemas, alternative, depth)
    kinds = schema.get("type", ())
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    if kinds & {"integer", "number"} or not kinds:
        yield from NUMBERS
    if "string" in kinds or not kinds:
        yield from TEXTS
    if "array" in kinds and depth < 3:
        yield from ([value] for value in bodies(schemas, schema.get("items", {}), depth + 1))
    if "object" in kinds and depth < 3:
        valid = {"dataset": "noop", "model": "mine"} if "dataset" in schema.get("properties", {}) else {}
        for name, member in schema.get("properties", {}).items():
            yield from (valid | {name: value} for value in bodies(schemas, member, depth + 1))
        if not schema.get("properties"):
            yield from ({text: 1} for text in TEXTS)
            yield from ({"a": value} for value in (*NUMBERS, *TEXTS))


class Runner:
    """A runner with a lease, which sends any message to the runner API."""

    def __init__(self, platform: Platform, client: FlaskClient) -> None:
        worker = LeasingWorker(platform)
        document = {"dataset": "noop", "runtime": "python", "model": "mine", "scenarios": {"range": [0, 20]}}
        id: str = client.post("/v1/simulations", json=document).json["id"]  # type: ignore[index]
        dispatch = worker.dispatch
        busy = next(simulation for simulation in unended(dispatch) if simulation.id == id)
        assert dispatch.admit(busy, LOCAL.name)
        launch = dispatch.launch(next(simulation for simulation in unended(dispatch) if simulation.id == id))
        assert launch is not None
        self._path, self._token = f"/v1/launches/{launch.id}", launch.token
        self._application = runner_api.create(platform.scheduling.leases, wait=0.0)
        self.lease = worker.lease(platform.scheduling.leases.authenticate(launch.id, launch.token))

    def send(self, operation: str, body: bytes, query: str = "") -> int:
        status: list[str] = []
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": f"{self._path}/{operation}",
            "QUERY_STRING": query,
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_AUTHORIZATION": f"Bearer {self._token}",
            "wsgi.input": io.BytesIO(body),
        }
        list(self._application(environ, lambda line, headers: status.append(line)))
        return int(status[0].split()[0])

    def messages(self) -> Mapping[str, dict[str, Any]]:
        """Return a valid message of each operation."""
        held = {"stage": self.lease.stage, "start": self.lease.start, "fencing_token": self.lease.fencing_token}
        entry = {**held, "task": self.lease.cursor}
        artifact = [self.lease.cursor, "a.txt", "text/plain", 0]
        return {
            "lease": {"worker": "w", "rate": 1.0},
            "heartbeat": {"leases": [entry]},
            "leave": {"leases": [entry]},
            "death": {"worker": "w", **entry, "reason": "ended"},
            "report": {
                "worker": "w",
                **held,
                "from": self.lease.cursor,
                "to": self.lease.cursor + 1,
                "lines": 0,
                "artifacts": [artifact],
                "sketch": {"return": [1, 1.0, 1.0, 1.0, 1.0]},
                "rate": 1.0,
            },
            "refused": {"reason": "it does not load"},
        }


def changed(value: Any, replacement: Any) -> Iterator[Any]:
    """Yield a document with each of its leaves replaced in turn, and each name."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from (value | {name: other} for other in changed(member, replacement))
            if isinstance(replacement, str) and name == "return":
                yield {replacement: member}
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from ([*value[:index], other, *value[index + 1 :]] for other in changed(member, replacement))
        yield value[:1]
    else:
        yield replacement


@pytest.mark.parametrize("operation", ["lease", "heartbeat", "leave", "death", "report", "refused", "logs"])
def test_no_message_of_a_runner_is_a_server_error(
    platform: Platform, client: FlaskClient, names: Mapping[str, str], operation: str
) -> None:
    runner = Runner(platform, client)
    if operation == "logs":
        for text in TEXTS:
            assert runner.send("logs", b"x", f"name={quote(text, errors='surrogatepass')}") < 500, text
        return
    line_of_task = line(runner.lease.cursor)
    for replacement in (*NUMBERS, *TEXTS, None, [], {}):
        for message in changed(runner.messages()[operation], replacement):
            body = json.dumps(message).encode()
            if operation == "report":
                lines = message.get("lines") if message.get("lines") != 0 else len(line_of_task)
                body = json.dumps(message | {"lines": lines}).encode()
                body = struct.pack("<I", len(body)) + body + line_of_task
            assert runner.send(operation, body) < 500, message
    assert client.get(f"/v1/simulations/{names['id']}").status_code == 200
    for simulation in client.get("/v1/simulations").json["items"]:  # type: ignore[index]
        assert client.get(f"/v1/simulations/{simulation['id']}").status_code == 200
