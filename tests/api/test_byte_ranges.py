"""Range and conditional requests: ranges equal slices, and invalid headers are ignored."""

from collections.abc import Iterator

import pytest
from flask import Flask, Response
from hypothesis import given
from hypothesis import strategies as st

from api.byte_ranges import parse, serve
from common.errors import RangeNotSatisfiable

CONTENT = bytes(range(256)) * 4


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None), ("bytes=0-0", (0, 1)), ("bytes=10-19", (10, 20)), ("bytes=1000-", (1000, 1024)),
        ("bytes=-24", (1000, 1024)), ("bytes=-9999", (0, 1024)), ("bytes=0-99999", (0, 1024)),
        ("Bytes = 5 - 6", (5, 7)),
        ("bytes=5-4", None), ("bytes=-", None), ("bytes=0-1,5-6", None), ("lines=0-1", None), ("bytes=a-b", None),
        ("bytes=٣-٤", None), ("bytes=" + "9" * 5000 + "-", None),
    ],
)  # fmt: skip
def test_a_header_is_parsed_to_a_half_open_range_or_ignored(
    header: str | None, expected: tuple[int, int] | None
) -> None:
    assert parse(header, 1024) == expected


@pytest.mark.parametrize("header", ["bytes=1024-", "bytes=5000-6000", "bytes=-0"])
def test_a_range_outside_the_content_is_not_satisfiable(header: str) -> None:
    with pytest.raises(RangeNotSatisfiable):
        parse(header, 1024)


@given(first=st.integers(0, 1100), last=st.integers(0, 1100))
def test_any_range_equals_a_slice(first: int, last: int) -> None:
    expected = CONTENT[first : last + 1]
    response = fetch(Range=f"bytes={first}-{last}")
    if first >= len(CONTENT):
        assert response.status_code == (416 if last >= first else 200)
    elif last < first:
        assert response.status_code == 200
    else:
        assert response.status_code == 206
        assert response.data == expected
        assert response.headers["Content-Length"] == str(len(expected))
        assert response.headers["Content-Range"] == f"bytes {first}-{min(last, 1023)}/1024"


def fetch(method: str = "GET", **headers: str) -> Response:
    app = Flask("ranges")

    def read(start: int, stop: int) -> Iterator[bytes]:
        yield CONTENT[start:stop]

    def content() -> Response:
        return serve(read, size=len(CONTENT), etag="abc", media_type="application/zip")

    app.add_url_rule("/", "content", content)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return app.test_client().open("/", method=method, headers=named)


def test_a_response_has_length_entity_tag_and_type() -> None:
    response = fetch()
    assert response.status_code == 200 and response.data == CONTENT
    assert response.headers["Content-Length"] == "1024"
    assert response.headers["ETag"] == '"abc"'
    assert response.headers["Accept-Ranges"] == "bytes"
    assert response.content_type == "application/zip"


def test_head_has_the_length_and_no_body() -> None:
    head = fetch("HEAD")
    assert head.headers["Content-Length"] == "1024" and head.data == b""


def test_a_refused_range_has_the_size_of_the_content() -> None:
    assert fetch(Range="bytes=2000-").headers["Content-Range"] == "bytes */1024"


@pytest.mark.parametrize(
    ("tag", "status"), [('"abc"', 206), ('"old"', 200), ('W/"abc"', 200), ("Sat, 01 Jan 2000", 200)]
)
def test_if_range_serves_a_range_only_of_the_same_content(tag: str, status: int) -> None:
    assert fetch(Range="bytes=0-9", If_Range=tag).status_code == status


@pytest.mark.parametrize(("tag", "status"), [('"abc"', 304), ('"x", W/"abc"', 304), ("*", 304), ('"old"', 200)])
def test_a_current_copy_is_not_sent_again(tag: str, status: int) -> None:
    response = fetch(If_None_Match=tag)
    assert response.status_code == status
    assert response.headers["ETag"] == '"abc"'
    assert (response.data == b"") == (status == 304)


@pytest.mark.parametrize(
    ("tags", "status"), [('"abc"', 206), ('"x", "abc"', 206), ("*", 206), ('"x"', 412), ('W/"abc"', 412)]
)
def test_if_match_refuses_another_content(tags: str, status: int) -> None:
    response = fetch(Range="bytes=5-6", If_Match=tags)
    assert response.status_code == status
    assert response.headers["ETag"] == '"abc"'
