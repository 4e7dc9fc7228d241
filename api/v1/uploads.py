"""/v1/uploads: resumable uploads (tus 1.0), and their list."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import wraps
from typing import Any

from flask import Response, request
from flask.views import MethodView
from werkzeug.http import http_date

from api import tus
from api.blueprint import BINARY, Blueprint, Success, View, empty_response, header
from api.context import services
from api.paging import LINK, page
from api.problem_responses import problem_response
from api.schemas.pages import PageQuery
from api.schemas.uploads import UploadPageSchema, UploadSchema, parameters
from core.domain.uploads import ALGORITHMS, Checksum, Upload
from errors import (
    BadRequest,
    ChecksumMismatch,
    FinalUpload,
    Gone,
    InUse,
    Invalid,
    OffsetMismatch,
    PlatformError,
    StorageFull,
    TooLarge,
    TooManyUploads,
    TusVersion,
    UnknownUpload,
    UnsupportedMedia,
    UploadsBusy,
    UploadUnfinished,
)

blueprint = Blueprint("uploads", __name__, url_prefix=tus.PATH, description="Resumable uploads (tus 1.0).")

ITEM = UploadSchema()
BROKEN = (TusVersion, TooLarge, UnsupportedMedia, ChecksumMismatch, UploadsBusy, StorageFull, OffsetMismatch, Gone)
OFFSET = header("Number of bytes received and stored.", type="integer")
EXPIRES = header("When the upload is deleted, unless more bytes arrive before.")
VERSION = header("Version of the tus protocol.")
STANDS = {"Tus-Resumable": VERSION, "Upload-Offset": OFFSET, "Upload-Expires": EXPIRES}
OPTIONS = {
    "Tus-Resumable": VERSION,
    "Tus-Version": header("Supported versions of tus."),
    "Tus-Extension": header("Supported extensions of tus."),
    "Tus-Max-Size": header("Most bytes of an upload.", type="integer"),
    "Tus-Checksum-Algorithm": header("Supported checksum algorithms."),
}


def described(upload: Upload) -> dict[str, Any]:
    """Put an upload into JSON's words."""
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


def standing(upload: Upload) -> dict[str, str]:
    """Say in headers how far an upload has come."""
    said = {"Upload-Offset": str(upload.offset)}
    if not upload.finished:
        said["Upload-Expires"] = http_date(upload.expires_at)
    return said


def known(upload: Upload) -> dict[str, str]:
    """Say in headers all there is to know of an upload."""
    said = standing(upload) | {"Cache-Control": "no-store"}
    said |= {"Upload-Length": str(upload.length)} if upload.length is not None else {"Upload-Defer-Length": "1"}
    if upload.metadata:
        said["Upload-Metadata"] = upload.metadata
    if upload.kind != "whole":
        said["Upload-Concat"] = "partial" if upload.kind == "partial" else f"final;{upload.sources}"
    return said


def speaks(*headers: str, required: Sequence[str] = ()) -> Callable[[View], View]:
    """Document which headers of tus a view reads, and let it answer only those who speak this version."""

    def declare(view: View) -> View:
        @wraps(view)
        def answer_speakers(*args: Any, **kwargs: Any) -> Any:
            if request.headers.get("Tus-Resumable") != tus.VERSION:
                return problem_response(TusVersion(), {"Tus-Version": tus.VERSION})
            return view(*args, **kwargs)

        return blueprint.doc(parameters=parameters(*headers, required=required))(answer_speakers)  # type: ignore[no-any-return]

    return declare


def capabilities() -> Response:
    """Say what is spoken here."""
    said: Mapping[str, str] = {
        "Tus-Version": tus.VERSION,
        "Tus-Extension": ",".join(tus.EXTENSIONS),
        "Tus-Max-Size": str(services().uploads.largest),
        "Tus-Checksum-Algorithm": ",".join(ALGORITHMS),
    }
    return empty_response(204, said)


def sent(name: str) -> int | None:
    """Read a header that holds bytes."""
    return tus.number(name, request.headers.get(name))


def arriving() -> bool:
    """Tell whether this request brings bytes of an upload; refuse a body of another kind."""
    if request.mimetype == tus.MEDIA_TYPE:
        return True
    if request.content_length or "Transfer-Encoding" in request.headers:
        raise UnsupportedMedia(f"Bytes of an upload come with `Content-Type: {tus.MEDIA_TYPE}`.")
    return False


def append(id: str, offset: int, length: int | None, checksum: Checksum | None) -> Upload:
    """Hand this request's body to the service as it comes; it never lies in memory as a whole."""
    announced = request.content_length
    with closing(tus.received(request.environ["wsgi.input"], announced)) as chunks:
        return services().uploads.append(id, offset, chunks, announced=announced, length=length, checksum=checksum)


def create() -> Upload:
    """Make the upload that this request's headers ask for."""
    headers = request.headers
    length, deferred = sent("Upload-Length"), headers.get("Upload-Defer-Length")
    kind, sources = tus.concat(headers.get("Upload-Concat"))
    metadata = headers.get("Upload-Metadata", "").strip()
    tus.metadata(metadata)
    if deferred not in {None, "1"}:
        raise BadRequest("Upload-Defer-Length is 1, or is not there.")
    if kind == "final":
        if length is not None or deferred is not None:
            raise Invalid("A final upload is as long as its parts: send no Upload-Length with it.")
        named = headers["Upload-Concat"].strip().removeprefix("final;").strip()
        return services().uploads.concatenate(sources, metadata, named)
    if (length is None) == (deferred is None):
        raise Invalid("Send Upload-Length, or `Upload-Defer-Length: 1` and the length with later bytes.")
    return services().uploads.create(length, metadata, partial=kind == "partial")


@blueprint.at("")
class UploadsView(MethodView):
    """All uploads."""

    @blueprint.takes(PageQuery)
    @blueprint.operation(
        "list_uploads", Success(schema=UploadPageSchema, description="A page of uploads, newest first.", headers=LINK)
    )
    def get(self, query: dict[str, Any]) -> Response:
        """List uploads"""
        found, following = services().uploads.list(**query)
        return page([described(one) for one in found], following, ITEM)

    @blueprint.operation(
        "create_upload",
        Success(
            status=201,
            description="The upload is created, with the bytes of the body.",
            headers=STANDS | {"Location": header("Address of the upload.")},
        ),
        body={tus.MEDIA_TYPE: BINARY},
        body_required=False,
        errors=(*BROKEN, TooManyUploads, UploadUnfinished, Invalid),
    )
    @speaks("Upload-Length", "Upload-Defer-Length", "Upload-Metadata", "Upload-Concat", "Upload-Checksum")
    def post(self) -> Response:
        """Create an upload, or concatenate partial uploads

        The body may contain the first bytes.
        """
        checksum = tus.checksum(request.headers.get("Upload-Checksum"))
        brings = arriving()
        upload = create()
        if brings:
            try:
                upload = append(upload.id, upload.offset, None, checksum)
            except PlatformError:
                services().uploads.delete(upload.id)  # nobody knows its address yet
                raise
        return empty_response(201, {"Location": f"{tus.PATH}/{upload.id}", **standing(upload)})

    @blueprint.operation(
        "get_uploads_capabilities",
        Success(status=204, description="The supported version and extensions.", headers=OPTIONS),
    )
    def options(self) -> Response:
        """Get the supported version and extensions of tus"""
        return capabilities()


@blueprint.at("/<id:upload>")
class UploadView(MethodView):
    """One upload."""

    @blueprint.operation(
        "get_upload", Success(schema=UploadSchema, description="The upload."), errors=[UnknownUpload, Gone]
    )
    def get(self, upload: str) -> dict[str, Any]:
        """Describe an upload"""
        return described(services().uploads.get(upload))

    @blueprint.operation(
        "head_upload",
        Success(
            description="The upload's offset.",
            headers=STANDS
            | {
                "Upload-Length": header("Total number of bytes.", type="integer"),
                "Upload-Defer-Length": header("`1` while the length is not known."),
                "Upload-Metadata": header("Metadata from the client."),
                "Upload-Concat": header("Whether it is a partial or a final upload."),
            },
        ),
        errors=[UnknownUpload, Gone, TusVersion],
    )
    @speaks()
    def head(self, upload: str) -> Response:
        """Get the offset to continue from"""
        return empty_response(200, known(services().uploads.settled(upload)))

    @blueprint.operation(
        "append_upload",
        Success(status=204, description="The bytes are stored.", headers=STANDS),
        body={tus.MEDIA_TYPE: BINARY},
        errors=(*BROKEN, UnknownUpload, FinalUpload, Invalid),
    )
    @speaks("Upload-Offset", "Upload-Length", "Upload-Checksum", required=["Upload-Offset"])
    def patch(self, upload: str) -> Response:
        """Append bytes

        Bytes that arrive before the connection breaks are stored.
        """
        if not arriving():
            raise UnsupportedMedia(f"Bytes of an upload come with `Content-Type: {tus.MEDIA_TYPE}`.")
        offset = sent("Upload-Offset")
        if offset is None:
            raise BadRequest("Say with Upload-Offset where these bytes begin.")
        length = sent("Upload-Length")
        checksum = tus.checksum(request.headers.get("Upload-Checksum"))
        return empty_response(204, standing(append(upload, offset, length, checksum)))

    @blueprint.operation(
        "delete_upload",
        Success(status=204, description="The upload is gone."),
        errors=[UnknownUpload, Gone, InUse, TusVersion],
    )
    @speaks()
    def delete(self, upload: str) -> None:
        """Delete an upload, finished or not"""
        services().uploads.delete(upload)

    @blueprint.operation(
        "get_upload_capabilities",
        Success(status=204, description="The supported version and extensions.", headers=OPTIONS),
    )
    def options(self, upload: str) -> Response:
        """Get the supported version and extensions of tus"""
        return capabilities()
