"""Schemas of resumable uploads: their JSON, and the headers of tus for the OpenAPI document."""

from collections.abc import Mapping, Sequence
from typing import Any

from marshmallow import fields

from api import tus
from api.schemas.fields import Open
from api.schemas.members import dictionary, documents, integer, moment, string
from api.schemas.pages import PageSchema
from core.domain.submissions.uploads import ALGORITHMS

LARGEST = 64 << 30
BYTES = {"type": "integer", "minimum": 0, "maximum": LARGEST}


class UploadSchema(Open):
    """A resumable upload and its progress."""

    id = string("Id of the upload.")
    state = string("Whether all bytes are received.", enum=["unfinished", "finished"])
    kind = string(
        "`partial`: part of a concatenation; `final`: the concatenation of partial uploads.",
        enum=["whole", "partial", "final"],
    )
    offset = integer("Number of bytes received and stored.")
    length = integer("Total number of bytes; null until it is known.", allow_none=True)
    metadata = dictionary("Metadata from the client, such as `filename`.", fields.String(allow_none=True))
    created_at = moment("When it was created.")
    expires_at = moment("When it is deleted, unless more bytes arrive before.")


class UploadPageSchema(PageSchema):
    """A page of uploads, newest first."""

    items = documents(UploadSchema, "The uploads of the page, newest first.")


def parameters(*names: str, required: Sequence[str] = ()) -> list[Mapping[str, Any]]:
    """Return the OpenAPI parameters of tus request headers; Tus-Resumable is always among them."""
    documents: Mapping[str, tuple[str, Mapping[str, Any]]] = {
        "Tus-Resumable": ("Version of the tus protocol.", {"type": "string", "enum": [tus.VERSION]}),
        "Upload-Offset": ("Position of the body's first byte; must equal the upload's offset.", BYTES),
        "Upload-Length": ("Total number of bytes of the upload.", BYTES),
        "Upload-Defer-Length": ("The length follows in a later request.", {"type": "string", "enum": ["1"]}),
        "Upload-Metadata": (
            "`key base64` pairs, separated by commas.",
            {"type": "string", "maxLength": tus.LONGEST_METADATA, "example": "filename cG9saWN5Lm9ubng="},
        ),
        "Upload-Concat": (
            "`partial`, or `final;` and the addresses of partial uploads.",
            {"type": "string", "example": "partial"},
        ),
        "Upload-Checksum": (
            f"{' or '.join(f'`{name}`' for name in ALGORITHMS)} and the base64 digest of this request's body.",
            {"type": "string", "example": "sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0="},
        ),
    }
    return [
        {
            "in": "header",
            "name": name,
            "required": name in {"Tus-Resumable", *required},
            "description": documents[name][0],
            "schema": dict(documents[name][1]),
        }
        for name in ("Tus-Resumable", *names)
    ]
