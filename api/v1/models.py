"""Routes /v1/models: creation, list, description, content, tags and deletion of models."""

from typing import Any

from flask import Response, request

from api import model_sources
from api.blueprint import BINARY, Blueprint, Success, header, json_response
from api.body import base_name, chunks_of, json_body, raw_chunks, validated
from api.context import caller
from api.context import file_services as services
from api.downloads import DOWNLOAD_HEADERS, NOT_MODIFIED, PARTIAL_CONTENT, REDIRECT, download, redirect, wants_redirect
from api.paging import LINK, page
from api.problems import LengthRequired
from api.schemas.models import (
    ModelFields,
    ModelFromUpload,
    ModelPageSchema,
    ModelPutQuery,
    ModelQuery,
    ModelSchema,
    ModelTagSchema,
)
from api.schemas.results import RangeHeaders
from api.schemas.transfers import RedirectQuery
from api.spooling import spool_form
from api.v1 import imports
from common.downloads import Download
from common.errors import (
    BadArchive,
    BadRequirements,
    DigestMismatch,
    Gone,
    InUse,
    Invalid,
    NoLock,
    NotFound,
    PreconditionFailed,
    QuotaExceeded,
    RangeNotSatisfiable,
    ShippedModel,
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
from core.domain.access.roles import Verb
from core.domain.submissions.records import Model

blueprint = Blueprint(
    "models", __name__, url_prefix="/v1/models", description="Model binaries, addressed by their content."
)

CREATION_ERRORS = (
    TooLarge,
    TruncatedUpload,
    UnsupportedMedia,
    UnknownFormat,
    UnknownRuntime,
    BadArchive,
    BadRequirements,
    QuotaExceeded,
    ShippedModel,
    StorageFull,
    Unsafe,
)
MODEL_SCHEMA = ModelSchema()
CREATED = {"Location": header("Address of the model.")}


def created(model: Model) -> Response:
    """Answer with a new model and its address."""
    return json_response(MODEL_SCHEMA.dump(model), 201, {"Location": f"/v1/models/{model.id}"})


def from_form() -> Model:
    """Create a model from a multipart form: one file, and optional fields."""
    if request.mimetype != "multipart/form-data":
        raise UnsupportedMedia("Send a multipart form with a `file`, or PUT the bytes to /v1/models/{name}.")
    spool_form()
    files = [(name, file) for name, file in request.files.items(multi=True)]
    if len(files) != 1 or files[0][0] not in {"file", "model"}:
        raise Invalid("Send exactly one file, in the field `file`: `curl -F file=@policy.onnx`.")
    options = validated(ModelFields(), request.form.to_dict())
    file = files[0][1]
    return services().models.add(caller(), chunks_of(file.stream), filename=base_name(file.filename), **options)


def from_json() -> Response:
    """Create a model from a finished upload or transfer, or begin to import it by reference."""
    document = json_body()
    if "model_reference" in document:
        return imports.accepted(document)
    options = validated(ModelFromUpload(), document)
    if (key := options.pop("transfer", None)) is not None:
        return created(model_sources.of_transfer(key, **options))
    return created(model_sources.of_upload(options.pop("upload"), **options))


@blueprint.operation("GET", Success(schema=ModelPageSchema, description="A page of models.", headers=LINK))
@blueprint.takes(ModelQuery)
def list_models(query: dict[str, Any]) -> Response:
    """List models

    Uploaded models, newest first, then the baselines that ship with the platform. With `shared`, what other projects
    share with yours.
    """
    return page(*services().models.list(caller(), **query), MODEL_SCHEMA)


@blueprint.operation(
    "POST",
    Success(schema=ModelSchema, status=201, description="The model is created.", headers=CREATED),
    body={"application/json": ModelFromUpload},
    errors=(*CREATION_ERRORS, UnknownUpload, UploadUnfinished, Gone, UnknownTransfer, DigestMismatch),
    verb=Verb.UPLOAD,
)
def create_model() -> Response:
    """Create a model from a finished upload or from a transfer

    The forms of `/v1/forms/models` are accepted here too, and the bodies of `/v1/imports`, with their answers.
    """
    return from_json() if request.mimetype == "application/json" else created(from_form())


@blueprint.operation("GET /<ref:model>", Success(schema=ModelSchema, description="The model."), errors=[UnknownModel])
def get_model(model: str) -> Model:
    """Describe a model

    By its name (the newest version), `name@version`, `name@tag`, id or digest.
    """
    return services().models.get(caller(), model)


@blueprint.operation(
    "PUT /<ref:model>",
    Success(schema=ModelSchema, status=201, description="The model is created.", headers=CREATED),
    body={"application/octet-stream": BINARY},
    errors=(*CREATION_ERRORS, LengthRequired),
    verb=Verb.UPLOAD,
)
@blueprint.takes(ModelPutQuery)
def put_model(query: dict[str, Any], model: str) -> Response:
    """Create a model from the body

    The path has the model's name; an existing name gets its next version.
    """
    filename = base_name(query.pop("filename", None)) or model
    return created(services().models.add(caller(), raw_chunks(), name=model, filename=filename, **query))


@blueprint.operation(
    "DELETE /<ref:model>",
    Success(status=204, description="The model is deleted."),
    errors=[UnknownModel, InUse, ShippedModel],
    verb=Verb.CHANGE,
)
def delete_model(model: str) -> None:
    """Delete a model

    Names no longer find it, and its tags are deleted. Refused while a simulation or a comparison that has not ended
    needs it, and for models that ship with the platform.
    """
    services().models.delete(caller(), model)


@blueprint.operation(
    "PUT /<name:name>/tags/<name:tag>",
    Success(schema=ModelSchema, description="The version that the tag now refers to."),
    body={"application/json": ModelTagSchema},
    errors=(UnknownModel, ShippedModel, Invalid, UnsupportedMedia),
    verb=Verb.CHANGE,
)
def put_model_tag(name: str, tag: str) -> Model:
    """Set a tag to a version of a model

    `name@tag` refers to the version from then on. A tag that exists is moved; simulations and comparisons keep the
    version that they were submitted with.
    """
    return services().models.tag(caller(), name, tag, validated(ModelTagSchema(), json_body())["version"])


@blueprint.operation(
    "DELETE /<name:name>/tags/<name:tag>",
    Success(status=204, description="Deleted."),
    errors=[NotFound],
    verb=Verb.CHANGE,
)
def delete_model_tag(name: str, tag: str) -> None:
    """Delete a tag of a model

    The version that it refers to stays.
    """
    services().models.untag(caller(), name, tag)


@blueprint.operation(
    "GET /<ref:model>/lock",
    Success(
        description="A requirements file with a version and hashes for each package.",
        media={"text/plain": {"type": "string"}},
    ),
    errors=[UnknownModel, NoLock],
)
def get_model_lock(model: str) -> Response:
    """Get the lock of a model's dependencies

    The packages of all simulations with this model, for ever: its content has one lock, which its first simulation
    resolves.
    """
    record = services().models.get(caller(), model)
    lock = services().models.lock(record)
    if lock is None:
        raise NoLock(
            "The model declares no dependencies."
            if record.dependencies is None
            else "The dependencies were not resolved yet: the model's first simulation does (`POST /v1/checks`)."
        )
    return Response(lock, mimetype="text/plain")


@blueprint.operation(
    "GET /<ref:model>/content",
    Success(description="The bytes.", media={"application/octet-stream": BINARY}, headers=DOWNLOAD_HEADERS),
    other_responses={
        206: PARTIAL_CONTENT | {"content": {"application/octet-stream": {"schema": BINARY}}},
        304: NOT_MODIFIED,
        307: REDIRECT,
    },
    errors=[UnknownModel, PreconditionFailed, RangeNotSatisfiable, StoreUnavailable],
)
@blueprint.takes(RedirectQuery)
@blueprint.takes(RangeHeaders, location="headers")
def get_model_content(query: dict[str, Any], headers: dict[str, Any], model: str) -> Response:
    """Download a model, whole or a range of it

    The bytes as they were sent. A `Range` is answered with 206. With `redirect`, they come from the object store
    itself where that is possible.
    """
    record = services().models.get(caller(), model)
    if wants_redirect(query) and (url := services().models.link(record)) is not None:
        return redirect(url)
    blob = Download(
        record.size,
        "application/octet-stream",
        record.digest,
        lambda start, stop: services().models.content(record, start, stop),
    )
    return download(blob, record.filename or record.name)
