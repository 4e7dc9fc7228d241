"""Every refusal is a problem that says what to do; every kind of problem is on the page about them."""

import re
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient

from api.problems import catalogue, every
from errors import StoreUnavailable
from tests.api.answers import problem

PAGE = Path(__file__).parents[2] / "docs" / "problems.md"


def test_every_slug_is_one_kinds_alone() -> None:
    kinds = list(every())
    assert len({kind.slug for kind in kinds}) == len(kinds)


def test_every_kind_has_a_paragraph_of_its_own() -> None:
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    told = {section.partition("\n")[0].strip(): section.partition("\n")[2].strip() for section in sections}
    assert set(told) == set(catalogue())
    for slug, text in told.items():
        assert str(catalogue()[slug].status.value) in text, slug
        assert len(text) > 60, slug


def test_every_kind_can_be_looked_up(client: FlaskClient) -> None:
    for slug, kind in catalogue().items():
        page = client.get(f"/problems/{slug}")
        assert page.json == {
            "type": f"/problems/{slug}",
            "title": slug.replace("-", " ").capitalize(),
            "status": kind.status.value,
            "detail": kind.__doc__,
        }


def test_an_address_that_is_not_there(client: FlaskClient) -> None:
    assert "/docs" in problem(client.get("/v1/simulation"), 404, "not-found")["detail"]


@pytest.mark.parametrize("path", ["/v1/simulations/", "/v1//simulations", "/v1/models/a/b"])
def test_an_address_is_taken_as_it_is(client: FlaskClient, path: str) -> None:
    assert client.get(path).status_code in {404, 405}


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "BREW"])
def test_a_wrong_method_names_the_right_ones(client: FlaskClient, method: str) -> None:
    answer = client.open("/v1/simulations", method=method)
    problem(answer, 405, "method-not-allowed")
    assert set(answer.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS", "POST"}


def test_options_tells_what_is_allowed(client: FlaskClient) -> None:
    assert set(client.options("/v1/models/x").headers["Allow"].split(", ")) == {
        "DELETE",
        "GET",
        "HEAD",
        "OPTIONS",
        "PUT",
    }


def test_head_is_get_without_its_body(client: FlaskClient) -> None:
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
def test_what_is_no_json_object_is_refused_in_words(client: FlaskClient, body: bytes) -> None:
    for path in ("/v1/simulations", "/1.0/simluation/tests"):
        answer = client.post(path, data=body, headers={"Content-Type": "application/json"})
        assert len(problem(answer, 400, "bad-request")["detail"]) > 20


def test_a_json_body_that_is_too_large_is_refused(client: FlaskClient) -> None:
    body = b'{"dataset": "' + b"x" * (9 << 20) + b'"}'
    problem(client.post("/v1/simulations", data=body, content_type="application/json"), 413, "too-large")


@pytest.mark.parametrize("given", ["text/plain", "application/x-www-form-urlencoded", None])
def test_another_content_type_is_refused_with_the_right_one(client: FlaskClient, given: str | None) -> None:
    answer = client.post("/v1/simulations", data=b'{"dataset": "noop"}', content_type=given)
    assert "application/json" in problem(answer, 415, "unsupported-media-type")["detail"]


def test_a_bug_is_a_500_that_tells_nothing(application: Flask, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        raise RuntimeError("the secret path is /home/someone")

    application.add_url_rule("/broken", "broken", broken)
    answer = application.test_client().get("/broken")
    body = problem(answer, 500, "internal")
    assert "secret" not in str(body)
    assert "the secret path" in caplog.text


def test_a_full_disk_is_no_bug(application: Flask) -> None:
    def full() -> str:
        with open("/dev/full", "w") as file:
            file.write("x")
        return "written"

    application.add_url_rule("/full", "full", full)
    assert "free some space" in problem(application.test_client().get("/full"), 507, "storage-full")["detail"]


def test_an_error_keeps_its_members_and_its_pause(application: Flask) -> None:
    def busy() -> str:
        raise StoreUnavailable(retry_after=7, nearest=["a"], status=1)

    application.add_url_rule("/busy", "busy", busy)
    answer = application.test_client().get("/busy")
    body = problem(answer, 503, "store-unavailable")
    assert body["nearest"] == ["a"]
    assert answer.headers["Retry-After"] == "7"
