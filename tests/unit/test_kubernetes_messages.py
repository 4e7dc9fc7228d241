"""Responses of the Kubernetes API server: transient errors and refusals."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kube.messages import ApiRefused, Request, refusal

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
