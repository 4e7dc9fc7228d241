"""Problem responses (RFC 9457): every error class has a status, a section in docs/problems.md and an address."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import text

from api import runner_api
from api.context import EXTENSION
from api.problems import (
    PROBLEM_TYPES,
    RETRIED,
    FrameworkError,
    catalogue,
    encode,
    error_classes,
    problem_type,
    status_of,
)
from common.errors import PlatformError, StillRunning, StoreUnavailable
from core.services.platform import Platform
from core.services.scheduling.leases import Leases
from core.settings import Settings
from tests.api.answers import problem

PAGE = Path(__file__).parents[2] / "docs" / "problems.md"


def test_no_two_error_classes_share_a_slug() -> None:
    classes = list(error_classes())
    assert len({error_class.slug for error_class in classes}) == len(classes)


def test_every_error_class_has_a_problem_type_of_its_own_or_of_a_specific_base_class() -> None:
    internal = PROBLEM_TYPES[PlatformError]
    without = [error_class for error_class in error_classes() if problem_type(error_class) is internal]
    assert without == [PlatformError]


@pytest.mark.parametrize("error_class", list(error_classes()), ids=lambda error_class: error_class.slug)
def test_only_temporary_errors_have_a_time_to_retry(error_class: type[PlatformError]) -> None:
    headers = problem_type(error_class).headers
    assert ("Retry-After" in headers) is (status_of(error_class) in {*RETRIED, 408} or error_class is StillRunning)
    assert ("WWW-Authenticate" in headers) is (status_of(error_class) == 401)


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_of_the_framework_has_a_time_to_retry_too(status: int) -> None:
    assert encode(FrameworkError("Too many.", slug="busy", status=status))[2]["Retry-After"] == "2"


def test_a_process_that_is_not_ready_says_when_to_ask_again(application: Flask) -> None:
    application.extensions[EXTENSION] = replace(
        application.extensions[EXTENSION], checks={"database": lambda: "the database does not answer"}
    )
    answer = application.test_client().get("/readyz")
    assert answer.status_code == 503 and answer.headers["Retry-After"] == "2"


def test_a_refusal_of_the_runner_api_has_a_time_to_retry() -> None:
    class AwayLeases:
        def authenticate(self, launch: str, token: str) -> None:
            raise StoreUnavailable()

    started: list[tuple[str, dict[str, str]]] = []
    environ = {"PATH_INFO": "/v1/launches/0", "REQUEST_METHOD": "GET", "HTTP_AUTHORIZATION": "Bearer x"}
    application = runner_api.create(cast(Leases, AwayLeases()))
    application(environ, lambda status, headers: started.append((status[:3], dict(headers))))
    assert started[0][0] == "503" and started[0][1]["Retry-After"] == "2"


@pytest.mark.parametrize("package", ["flask", "kubernetes", "numpy"])
def test_the_runner_api_does_not_import(package: str) -> None:
    program = f"import sys, api.runner_api; sys.exit({package!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=PAGE.parents[1], timeout=60).returncode == 0


def test_every_problem_type_has_a_section_with_its_status_in_the_documentation() -> None:
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    texts = {section.partition("\n")[0].strip(): section.partition("\n")[2].strip() for section in sections}
    assert set(texts) == set(catalogue())
    for slug, section in texts.items():
        assert str(status_of(catalogue()[slug])) in section.partition(". ")[0], slug
        assert len(section) > 60, slug


def test_every_problem_type_has_a_page(client: FlaskClient) -> None:
    for slug, error_class in catalogue().items():
        page = client.get(f"/problems/{slug}")
        assert page.json == {
            "type": f"/problems/{slug}",
            "title": slug.replace("-", " ").capitalize(),
            "status": status_of(error_class),
            "detail": error_class.__doc__,
        }


def test_an_unknown_address_is_a_problem(client: FlaskClient) -> None:
    assert "/docs" in problem(client.get("/v1/simulation"), 404, "not-found")["detail"]


@pytest.mark.parametrize("path", ["/v1/simulations/", "/v1//simulations", "/v1/models/a/b"])
def test_addresses_are_not_normalized(client: FlaskClient, path: str) -> None:
    assert client.get(path).status_code in {404, 405}


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "BREW"])
def test_a_wrong_method_gets_the_allowed_methods(client: FlaskClient, method: str) -> None:
    response = client.open("/v1/simulations", method=method)
    problem(response, 405, "method-not-allowed")
    assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS", "POST"}


def test_options_lists_the_allowed_methods(client: FlaskClient) -> None:
    assert set(client.options("/v1/models/x").headers["Allow"].split(", ")) == {
        "DELETE",
        "GET",
        "HEAD",
        "OPTIONS",
        "PUT",
    }


def test_head_equals_get_without_the_body(client: FlaskClient) -> None:
    get, head = client.get("/v1/runtimes"), client.head("/v1/runtimes")
    assert head.status_code == 200 and head.data == b""
    assert head.headers["Content-Length"] == get.headers["Content-Length"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b'"x"', b"NaN", b'{"dataset": NaN}', b'{"dataset": "\\ud800"}', b"[" * 200_000,
        b'{"dataset":' * 50_000, b"\xff\xfe", b'{"seed": 1e999}', b"\xef\xbb\xbf{}", b"{} {}", b'{"a": 01}',
    ],
)  # fmt: skip
def test_a_body_that_is_not_a_json_object_is_refused(client: FlaskClient, body: bytes) -> None:
    for path in ("/v1/simulations", "/1.0/simluation/tests"):
        response = client.post(path, data=body, headers={"Content-Type": "application/json"})
        assert len(problem(response, 400, "bad-request")["detail"]) > 20


def test_a_json_body_that_is_too_large_is_refused(client: FlaskClient) -> None:
    body = b'{"dataset": "' + b"x" * (9 << 20) + b'"}'
    problem(client.post("/v1/simulations", data=body, content_type="application/json"), 413, "too-large")


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (b'{"dataset": [' + b",".join([b"[]"] * 110_000) + b"]}", "100,000 arrays and objects"),
        (b"{" + b",".join(b'"%x":1' % number for number in range(101_000)) + b"}", "100,000 members"),
        (b'{"dataset": [' + b",".join([b"1"] * 400_000) + b"]}", "300,000 values"),
    ],
)
def test_json_with_too_many_values_is_refused_with_the_limit(client: FlaskClient, body: bytes, limit: str) -> None:
    for path in ("/v1/simulations", "/v1/datasets", "/1.0/simluation/tests"):
        answer = client.post(path, data=body, content_type="application/json")
        assert limit in problem(answer, 413, "too-large")["detail"]


def test_at_most_twenty_unknown_members_are_reported(client: FlaskClient) -> None:
    body = {f"unknown{number}": 1 for number in range(50_000)} | {"dataset": "noop"}
    assert len(problem(client.post("/v1/simulations", json=body), 422, "invalid")["errors"]) == 20


def test_at_most_twenty_invalid_items_of_a_list_are_reported(client: FlaskClient) -> None:
    body = {"dataset": "noop", "scenarios": {"tasks": [None] * 100_000}}
    assert len(problem(client.post("/v1/simulations", json=body), 422, "invalid")["errors"]) == 20
    files = [{"path": number} for number in range(10_000)]
    answer = client.post("/v1/datasets", json={"name": "drives", "source": {"manifest": files}})
    assert len(problem(answer, 422, "invalid")["errors"]) <= 100


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_another_content_type_is_refused_and_the_accepted_type_is_named(
    client: FlaskClient, content_type: str | None
) -> None:
    response = client.post("/v1/simulations", data=b'{"dataset": "noop"}', content_type=content_type)
    assert "application/json" in problem(response, 415, "unsupported-media-type")["detail"]


def test_an_unexpected_exception_is_a_500_without_details(application: Flask, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        raise RuntimeError("the secret path is /home/someone")

    application.add_url_rule("/broken", "broken", broken)
    response = application.test_client().get("/broken")
    body = problem(response, 500, "internal")
    assert "secret" not in str(body)
    assert "the secret path" in caplog.text


def test_a_database_that_does_not_answer_is_a_503(
    client: FlaskClient, platform: Platform, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    platform.database.write(lambda c: c.execute(text("PRAGMA busy_timeout=10")) and None)  # milliseconds
    with closing(sqlite3.connect(settings.home / "windtunnel.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        response = client.post("/v1/simulations", json={"dataset": "noop", "model": "zero", "runtime": "python"})
        assert "database" in problem(response, 503, "store-unavailable")["detail"]
        assert response.headers["Retry-After"] == "2"
        other.execute("COMMIT")


def test_a_full_disk_is_a_507(application: Flask) -> None:
    def full() -> str:
        with open("/dev/full", "w") as file:
            file.write("x")
        return "written"

    application.add_url_rule("/full", "full", full)
    assert "free some space" in problem(application.test_client().get("/full"), 507, "storage-full")["detail"]


def test_a_problem_has_the_members_of_its_error_and_its_retry_after(application: Flask) -> None:
    def fail_temporarily() -> str:
        raise StoreUnavailable(retry_after=7, nearest=["a"], status=1)

    application.add_url_rule("/busy", "busy", fail_temporarily)
    response = application.test_client().get("/busy")
    body = problem(response, 503, "store-unavailable")
    assert body["nearest"] == ["a"]
    assert response.headers["Retry-After"] == "7"


@pytest.mark.parametrize(("count", "reported"), [(1, 1), (300, 20)])
def test_an_unknown_field_is_refused_with_the_fields_that_there_are(
    client: FlaskClient, count: int, reported: int
) -> None:
    told = problem(
        client.post("/v1/simulations", json={"dataset": "noop"} | {f"tasks{number}": 20 for number in range(count)}),
        422,
        "invalid",
    )
    assert len(told["errors"]) == reported, told
    assert told["errors"][0].startswith("tasks0: Unknown field. The fields are: connection, dataset, "), told
