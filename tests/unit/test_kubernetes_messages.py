"""Responses of the Kubernetes API server: transient errors, refusals, and lines of streams."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.messages import LONGEST_LINE, ApiRefused, Request, lines_of, refusal

TRANSIENT = {401, 429, 500, 502, 503, 504}


@given(st.integers(300, 599), st.text(max_size=20), st.text(max_size=20))
def test_a_transient_status_may_be_retried_and_other_statuses_are_refusals_with_their_message(
    status: int, reason: str, message: str
) -> None:
    body = json.dumps({"kind": "Status", "reason": reason, "message": message, "code": status}).encode()
    error = refusal(Request("GET", "/x"), status, body)
    if status in TRANSIENT:
        assert isinstance(error, OSError) and f"answered {status} to GET /x" in str(error)
    else:
        assert isinstance(error, ApiRefused)
        assert (error.status, error.reason, error.message) == (status, reason, message)


@given(st.binary(max_size=600))
def test_a_body_that_is_not_a_status_is_the_message(body: bytes) -> None:
    error = refusal(Request("GET", "/x"), 404, b"<" + body)
    assert isinstance(error, ApiRefused) and error.message.startswith("<") and len(error.message) <= 500


@given(st.lists(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\xff"]), max_size=6).map(b"".join), max_size=8))
def test_lines_do_not_depend_on_the_chunks_of_the_stream(chunks: list[bytes]) -> None:
    content = b"".join(chunks)
    assert list(lines_of(chunks)) == [line + b"\n" for line in content.split(b"\n")[:-1]] + [
        line for line in content.split(b"\n")[-1:] if line
    ]


@pytest.mark.parametrize("size", [1 << 12, 1 << 16])
def test_a_line_without_end_is_split_at_the_longest_length(size: int) -> None:
    parts = list(lines_of(b"x" * size for _ in range(3 * LONGEST_LINE // size)))
    assert [len(part) for part in parts] == [LONGEST_LINE] * 3
