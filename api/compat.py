"""Compatibility with API 1.0: its paths and field names, translated to a submission of /v1.

Requests of 1.0 have JSON without its content type; curl then labels the body as a form. The raw bytes are parsed as
JSON, because parsing them as a form would change `&`, `=` and `+` within the JSON.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from flask import Blueprint, Response, request

from api.blueprint import needs
from api.body import json_object, raw_body
from api.submissions import parse_submission, submit
from common.errors import Invalid, UnsupportedMedia
from core.domain.access.roles import Verb

FIELD_NAMES: Mapping[str, str] = {"runtimePath": "runtime", "model_data": "dataset"}

blueprint = Blueprint("compat", __name__)


def translated(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a 1.0 body with the field names of /v1; names of /v1 are accepted too, but not both."""
    for former, name in FIELD_NAMES.items():
        if document.keys() >= {former, name}:
            raise Invalid(f"`{former}` is the former name of `{name}`; send one of the two.")
    return {FIELD_NAMES.get(name, name): value for name, value in document.items()}


def url_decoded(raw: bytes) -> bytes:
    """Return the JSON of a body, decoded if `curl --data-urlencode` has encoded it."""
    body = raw.strip()
    return unquote_to_bytes(body.replace(b"+", b" ")) if body[:3].upper() == b"%7B" else body


@blueprint.post("/1.0/simulation/tests")
@blueprint.post("/1.0/simluation/tests")
@needs(Verb.SUBMIT)
def create_simulation_by_1_0() -> Response:
    """Submit a simulation."""
    if request.mimetype == "multipart/form-data":
        raise UnsupportedMedia("Send JSON to this address. Send a form that contains the model to /v1/simulations.")
    document = translated(json_object(url_decoded(raw_body())))
    key, prefer = request.headers.get("Idempotency-Key"), request.headers.get("Prefer")
    return submit(parse_submission(document), None, key=key, prefer=prefer)
