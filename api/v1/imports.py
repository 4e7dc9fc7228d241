"""Routes /v1/imports: models that are imported by reference, from buckets and addresses outside of the platform."""

from collections.abc import Mapping
from typing import Any

from flask import Response

from api.blueprint import Blueprint, Success, header, json_response
from api.body import json_body, validated
from api.context import caller
from api.context import submission_services as services
from api.schemas.models import ImportRequest, ImportSchema
from common.errors import Invalid, UnknownImport, UnsupportedMedia
from core.domain.access.roles import Verb

blueprint = Blueprint("imports", __name__, url_prefix="/v1/imports", description="Imports of models by reference.")

_SCHEMA = ImportSchema()


def accepted(document: Mapping[str, Any]) -> Response:
    """Begin the import that a JSON object describes; answer with it and its address."""
    options = validated(ImportRequest(), document)
    record = services().model_imports.request(
        caller(), options.pop("model_reference"), options.pop("connection", None), **options
    )
    return json_response(_SCHEMA.dump(record), 202, {"Location": f"/v1/imports/{record['id']}"})


@blueprint.operation(
    "POST",
    Success(
        schema=ImportSchema,
        status=202,
        description="The import has begun.",
        headers={"Location": header("Address of the import.")},
    ),
    body={"application/json": ImportRequest},
    errors=[Invalid, UnsupportedMedia],
    verb=Verb.UPLOAD,
)
def import_model() -> Response:
    """Import a model by reference

    A job reads it once; its bytes are stored by their digest. `POST /v1/models` accepts the same body.
    """
    return accepted(json_body())


@blueprint.operation(
    "GET /<id:id>", Success(schema=ImportSchema, plain=True, description="The import."), errors=[UnknownImport]
)
def get_import(id: str) -> dict[str, Any]:
    """Describe an import: its state, and its model once it is ready

    `fetching` until its bytes are read, then `ready` or `failed` with the reason.
    """
    return services().model_imports.get(caller(), id)
