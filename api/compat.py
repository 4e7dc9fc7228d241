"""The 1.0 paths: a translator in front of /v1, with no rule of its own.

The promise sends JSON without a content type, so curl calls it a form; the raw bytes are read before anything can
take them for one, because `&`, `=` and `+` within the JSON would not survive that.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from flask import Blueprint, Response, request

from api.body import json_object, raw_body
from api.submissions import checked, submit
from errors import UnsupportedMedia

NAMES: Mapping[str, str] = {"runtimePath": "runtime", "model_data": "dataset"}

blueprint = Blueprint("compat", __name__)


def translated(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a 1.0 body in the words of /v1; words of /v1 are let through."""
    return {NAMES.get(name, name): value for name, value in document.items()}


def found(raw: bytes) -> bytes:
    """Return the JSON, also where `curl --data-urlencode` has wrapped it."""
    bare = raw.strip()
    return unquote_to_bytes(bare.replace(b"+", b" ")) if bare[:3].upper() == b"%7B" else bare


@blueprint.post("/1.0/simulation/tests")
@blueprint.post("/1.0/simluation/tests")
def tests() -> Response:
    """Answer the oldest request of all."""
    if request.mimetype == "multipart/form-data":
        raise UnsupportedMedia("Send JSON here; a form with the model in it goes to /v1/simulations.")
    document = translated(json_object(found(raw_body())))
    key, prefer = request.headers.get("Idempotency-Key"), request.headers.get("Prefer")
    return submit(checked(document), None, key=key, prefer=prefer)
