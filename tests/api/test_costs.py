"""Costs of requests: whatever a body of allowed size contains, answering it takes a bounded processor time."""

import json
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from api import application, json_limits
from api.path_parameters import EXAMPLE_ID
from api.spooling import MOST_FIELDS
from core.settings import Settings
from tests.api.answers import problem
from tests.api.test_size_limits import FORM, form_of

#: Processor time that a request may take, as a multiple of what Python takes to read a body of as many numbers as are
#: allowed: 0.1 s on an idle machine, and several times as much beside other work. Nobody else is answered meanwhile.
MOST = 20.0
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings that allow larger bodies than JSON may have."""
    return Settings(home=tmp_path / "home", max_upload=64 << 20)


def _numbers(number: bytes) -> Callable[[int], bytes]:
    """Return the function of a list of equal numbers, as many as are allowed in a body of so many lists."""

    def text(lists: int) -> bytes:
        count = min(json_limits.MOST_VALUES, json_limits.MOST_BYTES // (len(number) + 1)) // lists - 20
        return b"[" + b",".join([number] * max(1, count)) + b"]"

    return text


def _members(lists: int) -> bytes:
    return b"{" + b",".join(b'"%d":0' % i for i in range(json_limits.MOST_MEMBERS // lists - 20)) + b"}"


def _long(letters: bytes) -> Callable[[int], bytes]:
    return lambda lists: b'"' + letters * ((json_limits.MOST_BYTES - 5000) // lists // len(letters)) + b'"'


def _objects(lists: int) -> bytes:
    return b"[" + b",".join([b'{"index":1}'] * (json_limits.MOST_CONTAINERS // lists - 20)) + b"]"


SHAPES: Mapping[str, Callable[[int], bytes]] = {
    "numbers near the largest": _numbers(b"1.7e307"),
    "numbers beyond the largest": _numbers(b"1.8e308"),
    "the smallest numbers": _numbers(b"5e-324"),
    "numbers of 700 digits": _numbers(b"0." + b"1" * 700),
    "integers of 300 digits": _numbers(b"1" * 300),
    "integers of 4,000 digits": _numbers(b"1" * 4000),
    "an integer of all digits": lambda lists: b"1" * ((json_limits.MOST_BYTES - 5000) // lists),
    "members": _members,
    "objects": _objects,
    "deep lists": lambda lists: b"[" * 60 + b"]" * 60,
    "a long word": _long(b"a"),
    "a long word with separators": _long(b"a-."),
    "a long text of spaces": _long(b" "),
    "a long text of escapes": _long(b"\\u00e9"),
}


def reading() -> float:
    """Return the processor time in seconds of reading a body of numbers, at this moment."""
    body = SHAPES["numbers near the largest"](1)
    began = time.process_time()
    json.loads(body)
    return time.process_time() - began


def operations() -> Iterator[tuple[str, str, list[str]]]:
    """Yield method, path and properties of each operation that takes JSON."""
    document = application.describe()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method == "parameters":
                continue
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body is not None:
                name = body["schema"]["$ref"].rpartition("/")[2]
                yield method, path, sorted(document["components"]["schemas"][name]["properties"])


def filled(path: str) -> str:
    """Return a path with a value for each of its parameters."""
    for name in ("id", "model", "name", "tag", "dataset", "upload"):
        path = path.replace(f"{{{name}}}", EXAMPLE_ID)
    return path


@pytest.mark.parametrize("shape", SHAPES)
def test_no_json_of_allowed_size_holds_the_api(client: FlaskClient, shape: str) -> None:
    longest = MOST * reading()
    for method, path, properties in operations():
        text = SHAPES[shape](len(properties))
        body = b"{" + b",".join(b'"%s":%s' % (name.encode(), text) for name in properties) + b"}"
        began = time.process_time()
        answer = client.open(filled(path), method=method.upper(), data=body, headers=JSON)
        seconds = time.process_time() - began
        assert 400 <= answer.status_code < 500, answer.data
        assert seconds < longest, (method, path)
        assert len(answer.data) < 10_000, (method, path)


@pytest.mark.parametrize("way", ["/v1/simulations", "/v1/models"])
def test_the_fields_of_a_form_are_limited_together_because_they_are_held_in_memory(
    client: FlaskClient, way: str
) -> None:
    field = "a" * json_limits.MOST_BYTES
    body = form_of("model", b"", **{f"field{number}": field for number in range(15)})
    tracemalloc.start()
    try:
        detail = problem(client.post(way, data=body, headers=FORM), 413, "too-large")["detail"]
        assert tracemalloc.get_traced_memory()[1] < 3 * MOST_FIELDS
    finally:
        tracemalloc.stop()
    assert f"{MOST_FIELDS:,}" in detail


def test_the_file_of_a_form_is_none_of_its_fields(client: FlaskClient) -> None:
    body = form_of("file", b"class Model: ...\n" + b"#" * (4 * MOST_FIELDS))
    assert client.post("/v1/models", data=body, headers=FORM).status_code == 201
