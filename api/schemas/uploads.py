"""Uploads on the wire: as JSON, and the headers of tus for the document."""

from collections.abc import Mapping, Sequence
from typing import Any

from marshmallow import fields

from api import tus
from api.schemas.fields import Open
from api.schemas.pages import PageSchema
from core.domain.uploads import ALGORITHMS

LARGEST = 64 << 30
BYTES = {"type": "integer", "minimum": 0, "maximum": LARGEST}


class UploadSchema(Open):
    """Bytes that come in pieces, and how far they have come."""

    id = fields.String(required=True)
    state = fields.String(required=True, metadata={"enum": ["unfinished", "finished"]})
    kind = fields.String(
        required=True,
        metadata={
            "enum": ["whole", "partial", "final"],
            "description": "Whether it is to be put together with others (`partial`), or was (`final`).",
        },
    )
    offset = fields.Integer(required=True, metadata={"description": "Bytes that are here for good."})
    length = fields.Integer(
        required=True, allow_none=True, metadata={"description": "Bytes there will be; null until that is told."}
    )
    metadata = fields.Dict(
        required=True,
        keys=fields.String(),
        values=fields.String(allow_none=True),
        metadata={"description": "What the client said of it, such as `filename`."},
    )
    created_at = fields.AwareDateTime(required=True, format="iso")
    expires_at = fields.AwareDateTime(
        required=True, format="iso", metadata={"description": "When it goes, unless bytes come before."}
    )


class UploadPageSchema(PageSchema):
    """Uploads, newest first."""

    items = fields.List(fields.Nested(UploadSchema), required=True)


def parameters(*names: str, required: Sequence[str] = ()) -> list[Mapping[str, Any]]:
    """Document headers of tus that a request brings; the version it always brings."""
    known: Mapping[str, tuple[str, Mapping[str, Any]]] = {
        "Tus-Resumable": ("The version of the protocol.", {"type": "string", "enum": [tus.VERSION]}),
        "Upload-Offset": ("Where these bytes begin: where the upload stands.", BYTES),
        "Upload-Length": ("How many bytes there will be.", BYTES),
        "Upload-Defer-Length": ("That the length will be told later.", {"type": "string", "enum": ["1"]}),
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
            {"type": "string", "example": "sha1 2jmj7l5rSw0yVb/vlWAYkK/YBwk="},
        ),
    }
    return [
        {
            "in": "header",
            "name": name,
            "required": name in {"Tus-Resumable", *required},
            "description": known[name][0],
            "schema": dict(known[name][1]),
        }
        for name in ("Tus-Resumable", *names)
    ]
