"""Models on the wire."""

from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields, validates_schema

from api.schemas.fields import NAME, Binary, Open, Strict, Text
from api.schemas.pages import PageQuery, PageSchema


class ModelSchema(Open):
    """An immutable binary, named by its content."""

    id = fields.String(required=True)
    name = fields.String(required=True)
    version = fields.Integer(required=True, metadata={"description": "Counts from 1 within the name."})
    digest = fields.String(required=True, metadata={"description": "sha256: and 64 hexadecimal digits."})
    format = fields.String(required=True, metadata={"description": "Told from the bytes unless it was given."})
    size = fields.Integer(required=True, metadata={"description": "Bytes."})
    filename = fields.String(required=True, allow_none=True)
    runtime = fields.String(required=True, allow_none=True)
    baseline = fields.Boolean(required=True, metadata={"description": "Whether it ships with the platform."})
    created_at = fields.AwareDateTime(required=True, format="iso")


class ModelPageSchema(PageSchema):
    """Models, newest first."""

    items = fields.List(fields.Nested(ModelSchema), required=True)


class ModelQuery(PageQuery):
    """Which models are listed."""

    name = Text(NAME, longest=100, metadata={"description": "Only the versions of this name."})
    format = Text(NAME, longest=100, metadata={"description": "Only this format."})


class ModelFields(Strict):
    """What may be said about a model that is uploaded; all of it may be left out."""

    name = Text(NAME, longest=100, metadata={"description": "Defaults to the file's name."})
    format = Text(NAME, longest=100, metadata={"description": "Told from the bytes where they tell it."})
    runtime = Text(NAME, longest=100, metadata={"description": "The runtime it is meant for."})


class ModelPutQuery(Strict):
    """What may be said about a model that is sent as the body itself."""

    format = Text(NAME, longest=100, metadata={"description": "Told from the bytes where they tell it."})
    runtime = Text(NAME, longest=100, metadata={"description": "The runtime it is meant for."})
    filename = Text(longest=255, metadata={"description": "What the file is called; helps to tell a `.py` from text."})


class ModelForm(ModelFields):
    """A model and what may be said about it, as a multipart form."""

    file = Binary(required=True, metadata={"description": "The binary."})


class ModelFromUpload(ModelFields):
    """A model whose bytes were sent before: in pieces as an `upload`, or to the address of a `transfer`."""

    upload = Text(longest=2000, metadata={"description": "A finished upload: its id or its address."})
    transfer = Text(longest=100, metadata={"description": "The key of a transfer whose PUT has ended."})
    filename = Text(longest=255, metadata={"description": "What the file is called; an upload may have said so."})
    digest = Text(r"^sha256:[0-9a-f]{64}$", metadata={"description": "What the bytes must hash to."})

    @validates_schema
    def one_source(self, given: Mapping[str, Any], **_: Any) -> None:
        """Refuse none and both."""
        if ("upload" in given) == ("transfer" in given):
            raise ValidationError("Name either an upload or a transfer.")
