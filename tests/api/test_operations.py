"""Health, readiness, metrics, the OpenAPI document and its page."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from core.services.platform import Platform
from core.settings import Settings
from datasets.objectstore import filesystem
from tests.api.conftest import Submit
from tests.waiting import until

ROOT = Path(__file__).parents[2]


def test_health_and_readiness(client: FlaskClient) -> None:
    assert client.get("/healthz").json == {"status": "ok"}
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json == {
        "ready": True,
        "checks": dict.fromkeys(("database", "notifier", "store", "roles", "dispatcher", "webhooks", "disk"), "ok"),
        "sandbox": {"level": 3, "missing": []},
    }


def test_an_unavailable_database_makes_the_process_unready(client: FlaskClient, platform: Platform) -> None:
    def broken() -> None:
        raise OSError("/home/someone/windtunnel.db")

    platform.database.read = broken  # type: ignore[method-assign, assignment]
    response = client.get("/readyz")
    assert response.status_code == 503 and response.json["ready"] is False
    assert response.json["checks"]["database"] == "the database (DATABASE_URL) does not answer (OSError)"


def test_a_full_disk_is_named_by_the_readiness_check(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "RESERVE", 1 << 60)
    monkeypatch.setattr(filesystem, "RESERVE_FRACTION", 1)  # the whole disk is kept free
    response = client.get("/readyz")
    assert response.status_code == 200, "what is stored can be read, and deleting frees space"
    assert "(HOME) is full" in response.json["checks"]["disk"] and "MiB are free" in response.json["checks"]["disk"]


def test_a_lost_data_folder_is_named_by_the_readiness_check(client: FlaskClient, settings: Settings) -> None:
    settings.home.rename(settings.home.with_name("elsewhere"))
    response = client.get("/readyz")
    assert f"{settings.home} (HOME) cannot be used: No such file or directory" in response.json["checks"]["disk"]
    assert samples(client, "windtunnel_check_ok")["disk"] == 0


def test_metrics_are_labelled_by_route_and_not_by_id(client: FlaskClient, submit: Submit) -> None:
    for _ in range(3):
        client.get(f"/v1/simulations/{submit().json['id']}")
    client.get("/nothing/at/all")
    client.open("/v1/models", method="BREW")
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    states = {sample.labels["state"]: sample.value for sample in families["windtunnel_simulations"].samples}
    assert states["queued"] == 3 and states["failed"] == 0
    requests = {
        tuple(sample.labels.values()): sample.value
        for sample in families["windtunnel_http_requests"].samples
        if sample.name.endswith("_total")
    }
    by = {(s.labels["method"], s.labels["route"]) for s in families["windtunnel_http_requests"].samples}
    assert ("GET", "/v1/simulations/<id:id>") in by and ("GET", "none") in by
    assert any(method == "other" for method, _ in by)
    assert 3.0 in requests.values()
    assert "windtunnel_streams" in families and "windtunnel_http_request_seconds" in families


def samples(client: FlaskClient, name: str) -> dict[str, float]:
    """Return the samples of a metric by the value of its only label."""
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    return {"".join(sample.labels.values()): sample.value for sample in families[name].samples}


def test_metrics_have_the_checks_the_disks_and_how_long_the_oldest_simulation_waits(
    client: FlaskClient, submit: Submit
) -> None:
    checks = dict.fromkeys(("database", "notifier", "store", "roles", "dispatcher", "webhooks", "disk"), 1)
    assert samples(client, "windtunnel_check_ok") == checks
    free, floor = samples(client, "windtunnel_disk_free_bytes"), samples(client, "windtunnel_disk_floor_bytes")
    assert set(free) == set(floor) == {"data,objects"} and free["data,objects"] > floor["data,objects"] > 0
    until(lambda: samples(client, "windtunnel_waiting_oldest_seconds") == {"": 0.0})
    submit()
    until(lambda: samples(client, "windtunnel_waiting_simulations") == {"": 1.0})
    assert samples(client, "windtunnel_waiting_tasks")[""] > 0
    until(lambda: samples(client, "windtunnel_waiting_oldest_seconds")[""] > 0)


def test_metrics_are_served_while_the_database_is_away(
    client: FlaskClient, platform: Platform, settings: Settings
) -> None:
    platform.database.close()
    file = settings.home / "windtunnel.db"
    file.rename(settings.home / "away.db")
    file.mkdir()  # SQLite cannot open it
    assert samples(client, "windtunnel_check_ok")["database"] == 0
    assert samples(client, "windtunnel_simulations") == {}


def test_only_the_files_of_the_documentation_page_are_served(client: FlaskClient) -> None:
    for path in ("/docs/index.html", "/docs/..%2fapplication.py", "/docs/docs.py", "/docs/LICENSE"):
        assert client.get(path).status_code == 404


def test_the_committed_openapi_document_is_current(client: FlaskClient) -> None:
    check = subprocess.run(
        [sys.executable, "-m", "scripts.openapi", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert check.returncode == 0, check.stderr
    committed = yaml.safe_load((ROOT / "openapi.yaml").read_text(encoding="utf-8"))
    assert client.get("/openapi.json").json == committed


def test_every_operation_has_an_id_a_description_and_problem_responses(client: FlaskClient) -> None:
    document = client.get("/openapi.json").json
    names = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method == "parameters":
                continue
            names.append(operation["operationId"])
            assert operation["summary"], (path, method)
            assert {"400", "401", "403", "421"} <= operation["responses"].keys(), (path, method)
    assert len(set(names)) == len(names) > 20


def schemas_within(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a document that has a `type`, without those inside of examples."""
    if isinstance(node, dict):
        if isinstance(node.get("type"), str | list):
            yield node
        for key, value in node.items():
            if key not in {"example", "examples", "default"}:
                yield from schemas_within(value)
    elif isinstance(node, list):
        for value in node:
            yield from schemas_within(value)


@pytest.mark.parametrize(("kind", "format"), [("integer", "int64"), ("number", "double")])
def test_every_number_is_declared_with_64_bits(client: FlaskClient, kind: str, format: str) -> None:
    """Generators for Java and Go use 32 bits, or the machine's, for a number without a format."""
    schemas = schemas_within(client.get("/openapi.json").json)
    numbers = [schema for schema in schemas if schema["type"] == kind or kind in list(schema["type"])]
    assert len(numbers) >= 4 and {schema.get("format") for schema in numbers} == {format}


def operations_of(document: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every operation with its id."""
    for methods in document["paths"].values():
        yield from ((value["operationId"], value) for name, value in methods.items() if name != "parameters")


#: Operations whose JSON also has a picture or tables; clients get the JSON, because it is documented first.
WITH_OTHER_FORMATS = {"get_task_replay", "get_simulation_sweep", "get_project_usage", "get_usage", "list_audit_entries"}


def test_an_operation_has_one_kind_of_body_and_one_kind_of_success(client: FlaskClient) -> None:
    """Generated clients encode the first documented kind of body, and decode every success as the first kind."""
    for name, operation in operations_of(client.get("/openapi.json").json):
        bodies = operation.get("requestBody", {}).get("content", {})
        assert len(bodies) <= 1, name
        assert not any("anyOf" in body["schema"] or "oneOf" in body["schema"] for body in bodies.values()), name
        if name in WITH_OTHER_FORMATS:
            assert next(iter(operation["responses"]["200"]["content"])) == "application/json"
            continue
        kinds = {
            yaml.dump({key: value for key, value in media["schema"].items() if key != "description"})
            for status, response in operation["responses"].items()
            if status.startswith("2")
            for media in response.get("content", {}).values()
        }
        assert len(kinds) <= 1, name


def test_only_json_and_text_are_declared_as_other_than_bytes(client: FlaskClient) -> None:
    """Generated clients refuse to decode a content type that they do not know, or decode it as JSON; NDJSON is one."""
    document = client.get("/openapi.json").json
    for name, operation in operations_of(document):
        for status, response in operation["responses"].items():
            for media_type, media in response.get("content", {}).items():
                known = media_type in {"application/json", "application/problem+json", "image/svg+xml"}
                text = media_type == "text/plain" and media["schema"].get("type") == "string"
                assert known or text or media["schema"].get("format") == "binary", (name, status, media_type)
    assert {"Result", "Change"} <= document["components"]["schemas"].keys(), "the lines of NDJSON have schemas"


def test_no_path_parameter_has_the_name_of_a_package_that_generated_clients_import(client: FlaskClient) -> None:
    """oapi-codegen's client for Go calls the package `runtime` where an argument of that name would hide it."""
    imported = {"bytes", "context", "fmt", "http", "io", "json", "runtime", "strings", "url", "client", "requests"}
    paths = client.get("/openapi.json").json["paths"]
    assert not imported & {name for path in paths for name in re.findall(r"{(\w+)}", path)}


def test_every_route_is_documented(client: FlaskClient) -> None:
    rules = {re.sub(r"<(?:[^:>]*:)?([^>]+)>", r"{\1}", rule.rule) for rule in client.application.url_map.iter_rules()}
    undocumented = rules - set(client.get("/openapi.json").json["paths"])
    assert undocumented == {
        "/1.0/simulation/tests", "/1.0/simluation/tests", "/docs/{asset}", "/openapi.json", "/metrics",
    }  # fmt: skip
