"""Routes /v1/uploads: resumable uploads (tus 1.0), and their list and description as JSON."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from flask import Response, request
from werkzeug.http import http_date

from api import tus
from api.blueprint import BINARY, Blueprint, Success, View, empty_response, header
from api.context import caller
from api.context import file_services as services
from api.paging import LINK, page
from api.problem_responses import problem_response
from api.schemas.pages import PageQuery
from api.schemas.uploads import UploadPageSchema, UploadSchema, parameters
from common.errors import (
    BadRequest,
    ChecksumMismatch,
    FinalUpload,
    Gone,
    InUse,
    Invalid,
    OffsetMismatch,
    PlatformError,
    QuotaExceeded,
    StorageFull,
    TooLarge,
    TooManyUploads,
    TusVersion,
    UnknownUpload,
    UnsupportedMedia,
    UploadsBusy,
    UploadUnfinished,
)
from core.domain.access.roles import Verb
from core.domain.submissions.uploads import ALGORITHMS, Checksum, Upload

blueprint = Blueprint("uploads", __name__, url_prefix=tus.PATH, description="Resumable uploads (tus 1.0).")

UPLOAD_SCHEMA = UploadSchema()
APPEND_ERRORS = (
    TusVersion,
    TooLarge,
    UnsupportedMedia,
    ChecksumMismatch,
    UploadsBusy,
    QuotaExceeded,
    StorageFull,
    OffsetMismatch,
    Gone,
)
OFFSET = header("Number of bytes received and stored.", type="integer")
EXPIRES = header("When the upload is deleted, unless more bytes arrive before.")
VERSION = header("Version of the tus protocol.")
PROGRESS_HEADERS = {"Tus-Resumable": VERSION, "Upload-Offset": OFFSET, "Upload-Expires": EXPIRES}
CAPABILITIES = Success(
    status=204,
    description="The supported version and extensions.",
    headers={
        "Tus-Resumable": VERSION,
        "Tus-Version": header("Supported versions of tus."),
        "Tus-Extension": header("Supported extensions of tus."),
        "Tus-Max-Size": header("Most bytes of an upload.", type="integer"),
        "Tus-Checksum-Algorithm": header("Supported checksum algorithms."),
    },
)


def as_json(upload: Upload) -> dict[str, Any]:
    """Return the JSON object of an upload."""
    state = "finished" if upload.finished else "unfinished"
    return {
        "id": upload.id,
        "state": state,
        "kind": upload.kind,
        "offset": upload.offset,
        "length": upload.length,
        "metadata": tus.metadata(upload.metadata),
        "created_at": upload.created_at,
        "expires_at": upload.expires_at,
    }


def progress_headers(upload: Upload) -> dict[str, str]:
    """Return the headers with the offset of an upload and, while it is unfinished, its expiry."""
    headers = {"Upload-Offset": str(upload.offset)}
    if not upload.finished:
        headers["Upload-Expires"] = http_date(upload.expires_at)
    return headers


def all_headers(upload: Upload) -> dict[str, str]:
    """Return all headers of an upload, as HEAD has them."""
    headers = progress_headers(upload) | {"Cache-Control": "no-store"}
    headers |= {"Upload-Length": str(upload.length)} if upload.length is not None else {"Upload-Defer-Length": "1"}
    if upload.metadata:
        headers["Upload-Metadata"] = upload.metadata
    if upload.kind != "whole":
        headers["Upload-Concat"] = "partial" if upload.kind == "partial" else f"final;{upload.sources}"
    return headers


def requires_tus(*headers: str, required: Sequence[str] = ()) -> Callable[[View], View]:
    """Document the tus headers of a view, and refuse requests without the supported version in Tus-Resumable."""

    def declare(view: View) -> View:
        @wraps(view)
        def check_version(*args: Any, **kwargs: Any) -> Any:
            if request.headers.get("Tus-Resumable") != tus.VERSION:
                return problem_response(TusVersion(), {"Tus-Version": tus.VERSION})
            return view(*args, **kwargs)

        return blueprint.doc(parameters=parameters(*headers, required=required))(check_version)  # type: ignore[no-any-return]

    return declare


def capabilities() -> Response:
    """Answer with the supported version and extensions of tus."""
    headers: Mapping[str, str] = {
        "Tus-Version": tus.VERSION,
        "Tus-Extension": ",".join(tus.EXTENSIONS),
        "Tus-Max-Size": str(services().uploads.largest),
        "Tus-Checksum-Algorithm": ",".join(ALGORITHMS),
    }
    return empty_response(204, headers)


def byte_count(name: str) -> int | None:
    """Return a request header with a number of bytes; None if it is missing."""
    return tus.number(name, request.headers.get(name))


def has_upload_bytes() -> bool:
    """Tell whether this request has bytes of an upload; raise UnsupportedMedia for a body of another media type."""
    if request.mimetype == tus.MEDIA_TYPE:
        return True
    if request.content_length or "Transfer-Encoding" in request.headers:
        raise UnsupportedMedia(f"Send the bytes of an upload with `Content-Type: {tus.MEDIA_TYPE}`.")
    return False


def append(id: str, offset: int, length: int | None, checksum: Checksum | None) -> Upload:
    """Append the body of this request to an upload, in chunks as they arrive, so that memory use is constant."""
    announced = request.content_length
    chunks = tus.received(request.environ["wsgi.input"], announced)
    return services().uploads.append(
        caller(), id, offset, chunks, announced=announced, length=length, checksum=checksum
    )


def create() -> Upload:
    """Create the upload that the headers of this request describe."""
    headers = request.headers
    length, deferred = byte_count("Upload-Length"), headers.get("Upload-Defer-Length")
    kind, sources = tus.concat(headers.get("Upload-Concat"))
    metadata = headers.get("Upload-Metadata", "").strip()
    tus.metadata(metadata)
    if deferred not in {None, "1"}:
        raise BadRequest("Upload-Defer-Length must be 1 if it is present.")
    if kind == "final":
        if length is not None or deferred is not None:
            raise Invalid("The length of a final upload is that of its partial uploads: leave out Upload-Length.")
        addresses = headers["Upload-Concat"].strip().removeprefix("final;").strip()
        return services().uploads.concatenate(caller(), sources, metadata, addresses)
    if (length is None) == (deferred is None):
        raise Invalid("Send Upload-Length, or `Upload-Defer-Length: 1` and the length in a later request.")
    return services().uploads.create(caller(), length, metadata, partial=kind == "partial")


@blueprint.operation("OPTIONS", CAPABILITIES)
def get_uploads_capabilities() -> Response:
    """Get the supported version and extensions of tus

    In headers, as the protocol tus 1.0 for resumable uploads wants it.
    """
    return capabilities()


@blueprint.operation(
    "GET", Success(schema=UploadPageSchema, description="A page of uploads, newest first.", headers=LINK)
)
@blueprint.takes(PageQuery)
def list_uploads(query: dict[str, Any]) -> Response:
    """List uploads

    The newest first, finished or not, until they expire.
    """
    uploads, following = services().uploads.list(caller(), **query)
    return page([as_json(upload) for upload in uploads], following, UPLOAD_SCHEMA)


@blueprint.operation(
    "POST",
    Success(
        status=201,
        description="The upload is created, with the bytes of the body.",
        headers=PROGRESS_HEADERS | {"Location": header("Address of the upload.")},
    ),
    body={tus.MEDIA_TYPE: BINARY},
    body_required=False,
    errors=(*APPEND_ERRORS, TooManyUploads, UploadUnfinished, Invalid),
    verb=Verb.UPLOAD,
)
@requires_tus("Upload-Length", "Upload-Defer-Length", "Upload-Metadata", "Upload-Concat", "Upload-Checksum")
def create_upload() -> Response:
    """Create an upload, or concatenate partial uploads

    The body may contain the first bytes.
    """
    checksum = tus.checksum(request.headers.get("Upload-Checksum"))
    has_bytes = has_upload_bytes()
    upload = create()
    if has_bytes:
        try:
            upload = append(upload.id, upload.offset, None, checksum)
        except PlatformError:
            services().uploads.delete(caller(), upload.id)  # its address has not been sent to the client
            raise
    return empty_response(201, {"Location": f"{tus.PATH}/{upload.id}", **progress_headers(upload)})


@blueprint.operation("OPTIONS /<id:upload>", CAPABILITIES)
def get_upload_capabilities(upload: str) -> Response:
    """Get the supported version and extensions of tus

    In headers, as the protocol tus 1.0 for resumable uploads wants it.
    """
    return capabilities()


@blueprint.operation(
    "HEAD /<id:upload>",
    Success(
        description="The upload's offset.",
        headers=PROGRESS_HEADERS
        | {
            "Upload-Length": header("Total number of bytes.", type="integer"),
            "Upload-Defer-Length": header("`1` while the length is not known."),
            "Upload-Metadata": header("Metadata from the client."),
            "Upload-Concat": header("Whether it is a partial or a final upload."),
        },
    ),
    errors=[UnknownUpload, Gone, TusVersion],
)
@requires_tus()
def head_upload(upload: str) -> Response:
    """Get the offset to continue from

    `Upload-Offset` is the number of bytes that are stored: a client continues from there after a break.
    """
    return empty_response(200, all_headers(services().uploads.settled(caller(), upload)))


@blueprint.operation(
    "GET /<id:upload>", Success(schema=UploadSchema, description="The upload."), errors=[UnknownUpload, Gone]
)
def get_upload(upload: str) -> dict[str, Any]:
    """Describe an upload

    As JSON: its state, its offset and when it expires. Clients of tus use the HEAD request instead.
    """
    return as_json(services().uploads.get(caller(), upload))


@blueprint.operation(
    "PATCH /<id:upload>",
    Success(status=204, description="The bytes are stored.", headers=PROGRESS_HEADERS),
    body={tus.MEDIA_TYPE: BINARY},
    errors=(*APPEND_ERRORS, UnknownUpload, FinalUpload, Invalid),
    verb=Verb.UPLOAD,
)
@requires_tus("Upload-Offset", "Upload-Length", "Upload-Checksum", required=["Upload-Offset"])
def append_upload(upload: str) -> Response:
    """Append bytes

    Bytes that arrive before the connection breaks are stored.
    """
    if not has_upload_bytes():
        raise UnsupportedMedia(f"Send the bytes of an upload with `Content-Type: {tus.MEDIA_TYPE}`.")
    offset = byte_count("Upload-Offset")
    if offset is None:
        raise BadRequest("Upload-Offset is missing; it is the position of the first byte in the body.")
    length = byte_count("Upload-Length")
    checksum = tus.checksum(request.headers.get("Upload-Checksum"))
    return empty_response(204, progress_headers(append(upload, offset, length, checksum)))


@blueprint.operation(
    "DELETE /<id:upload>",
    Success(status=204, description="The upload is deleted."),
    errors=[UnknownUpload, Gone, InUse, TusVersion],
    verb=Verb.CHANGE,
)
@requires_tus()
def delete_upload(upload: str) -> None:
    """Delete an upload, finished or not

    Its bytes are removed. A model or a dataset that was made from it stays.
    """
    services().uploads.delete(caller(), upload)
