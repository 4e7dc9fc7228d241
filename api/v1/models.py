"""/v1/models: bring a model, look at models, delete one."""

from typing import Any

from flask import Response, request
from flask.views import MethodView
from marshmallow import ValidationError

from api import model_sources
from api.blueprint import BINARY, Blueprint, Success, header, json_response
from api.body import base_name, chunks_of, json_body, raw_chunks, read_form
from api.context import services
from api.downloads import DOWNLOAD_HEADERS, NOT_MODIFIED, PARTIAL_CONTENT, REDIRECT, download, redirect, wants_redirect
from api.paging import LINK, page
from api.problems import LengthRequired, invalid
from api.schemas.models import (
    ModelFields,
    ModelForm,
    ModelFromUpload,
    ModelPageSchema,
    ModelPutQuery,
    ModelQuery,
    ModelSchema,
)
from api.schemas.results import RangeHeaders
from api.schemas.transfers import RedirectQuery
from core.domain.downloads import Download
from core.domain.records import Model
from errors import (
    BadArchive,
    DigestMismatch,
    Gone,
    InUse,
    Invalid,
    PreconditionFailed,
    RangeNotSatisfiable,
    StorageFull,
    StoreUnavailable,
    TooLarge,
    TruncatedUpload,
    UnknownFormat,
    UnknownModel,
    UnknownRuntime,
    UnknownTransfer,
    UnknownUpload,
    Unsafe,
    UnsupportedMedia,
    UploadUnfinished,
)

blueprint = Blueprint("models", __name__, url_prefix="/v1/models", description="Binaries, named by their content.")

REFUSED = (TooLarge, TruncatedUpload, UnsupportedMedia, UnknownFormat, UnknownRuntime, BadArchive, StorageFull, Unsafe)
ITEM = ModelSchema()
CREATED = {"Location": header("Where the model is described.")}


def created(model: Model) -> Response:
    """Answer that a model is here."""
    return json_response(ITEM.dump(model), 201, {"Location": f"/v1/models/{model.id}"})


def from_form() -> Model:
    """Take in a multipart form: one file, and what is said about it."""
    if request.mimetype != "multipart/form-data":
        raise UnsupportedMedia("Send a multipart form with a `file`, or PUT the bytes to /v1/models/{name}.")
    read_form()
    files = [(name, file) for name, file in request.files.items(multi=True)]
    if len(files) != 1 or files[0][0] not in {"file", "model"}:
        raise Invalid("Send exactly one file, in the field `file`: `curl -F file=@policy.onnx`.")
    try:
        given = ModelFields().load(request.form.to_dict())
    except ValidationError as error:
        raise invalid(error.messages) from None
    file = files[0][1]
    return services().models.add(chunks_of(file.stream), filename=base_name(file.filename), **given)


def from_upload() -> Model:
    """Make a model of what was sent before."""
    try:
        given = ModelFromUpload().load(json_body())
    except ValidationError as error:
        raise invalid(error.messages) from None
    if (key := given.pop("transfer", None)) is not None:
        return model_sources.of_transfer(key, **given)
    return model_sources.of_upload(given.pop("upload"), **given)


@blueprint.at("")
class ModelsView(MethodView):
    """All models."""

    @blueprint.takes(ModelQuery)
    @blueprint.operation(
        "list_models", Success(schema=ModelPageSchema, description="A page of models, newest first.", headers=LINK)
    )
    def get(self, query: dict[str, Any]) -> Response:
        """List models"""
        return page(*services().models.list(**query), ITEM)

    @blueprint.operation(
        "create_model",
        Success(schema=ModelSchema, status=201, description="The model is here.", headers=CREATED),
        body={"multipart/form-data": ModelForm, "application/json": ModelFromUpload},
        errors=(*REFUSED, UnknownUpload, UploadUnfinished, Gone, UnknownTransfer, DigestMismatch),
    )
    def post(self) -> Response:
        """Create a model from a form, from a finished upload or from a transfer"""
        return created(from_upload() if request.mimetype == "application/json" else from_form())


@blueprint.at("/<ref:model>")
class ModelView(MethodView):
    """One model."""

    @blueprint.operation("get_model", Success(schema=ModelSchema, description="The model."), errors=[UnknownModel])
    def get(self, model: str) -> Model:
        """Describe a model"""
        return services().models.get(model)

    @blueprint.operation(
        "delete_model", Success(status=204, description="The model is gone."), errors=[UnknownModel, InUse]
    )
    def delete(self, model: str) -> None:
        """Delete a model"""
        services().models.delete(model)

    @blueprint.takes(ModelPutQuery)
    @blueprint.operation(
        "put_model",
        Success(schema=ModelSchema, status=201, description="The model is here.", headers=CREATED),
        body={"application/octet-stream": BINARY},
        errors=(*REFUSED, LengthRequired),
    )
    def put(self, query: dict[str, Any], model: str) -> Response:
        """Create a model from the body

        The path has the model's name; an existing name gets its next version.
        """
        filename = base_name(query.pop("filename", None)) or model
        return created(services().models.add(raw_chunks(), name=model, filename=filename, **query))


@blueprint.at("/<ref:model>/content")
class ModelContentView(MethodView):
    """The bytes of a model."""

    @blueprint.takes(RedirectQuery)
    @blueprint.takes(RangeHeaders, location="headers")
    @blueprint.operation(
        "get_model_content",
        Success(description="The bytes.", media={"application/octet-stream": BINARY}, headers=DOWNLOAD_HEADERS),
        other_responses={
            206: PARTIAL_CONTENT | {"content": {"application/octet-stream": {"schema": BINARY}}},
            304: NOT_MODIFIED,
            307: REDIRECT,
        },
        errors=[UnknownModel, PreconditionFailed, RangeNotSatisfiable, StoreUnavailable],
    )
    def get(self, query: dict[str, Any], headers: dict[str, Any], model: str) -> Response:
        """Download a model, whole or a range of it"""
        found = services().models.get(model)
        if wants_redirect(query) and (link := services().models.link(found)) is not None:
            return redirect(link)
        blob = Download(
            found.size, "application/octet-stream", found.digest, lambda a, b: services().models.content(found, a, b)
        )
        return download(blob, found.filename or found.name)
