"""Downloads: files as attachments, from this server or by redirect to the object store; their OpenAPI objects."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from flask import Response, request

from api.blueprint import empty_response, header
from api.byte_ranges import serve
from common.downloads import Download

#: A browser that shows a file from a user runs no script in it and loads no resource for it.
SANDBOXED = {"Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'"}
#: Types of files that a browser only shows, wherever a page names them. With the type of a script or of a style sheet,
#: a user's file would be one of the page's own origin, which the page's policy permits.
INERT = frozenset(
    {
        "application/json",
        "application/octet-stream",
        "application/pdf",
        "application/vnd.apache.parquet",
        "application/x-ndjson",
        "application/zip",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "text/csv",
        "text/plain",
    }
)
DOWNLOAD_HEADERS = {
    "ETag": header("Entity tag: contents with equal tags are equal."),
    "Accept-Ranges": header("`bytes`."),
}
PARTIAL_CONTENT = {
    "description": "The requested range.",
    "headers": {"Content-Range": header("Position of the range, and size of the content.")},
}
NOT_MODIFIED = {"description": "The client's copy with this ETag is current."}
REDIRECT = {
    "description": "Download from the object store, as `redirect` requests.",
    "headers": {"Location": header("Presigned URL of the object store, valid for some minutes.")},
}


def inert(media_type: str) -> str:
    """Return a media type if it is INERT, without parameters; else that of bytes."""
    plain = media_type.partition(";")[0].strip().lower()
    return plain if plain in INERT else "application/octet-stream"


def download(blob: Download, filename: str) -> Response:
    """Answer with a file as an attachment, which no page can use as a script, a style sheet or a document."""
    headers = {**SANDBOXED, "Content-Disposition": attachment(filename.rpartition("/")[2])}
    return serve(blob.read, size=blob.size, etag=blob.etag, media_type=inert(blob.media_type), headers=headers)


def attachment(name: str) -> str:
    """Return the Content-Disposition of a file (RFC 6266), with an ASCII name for clients such as `curl -J`."""
    ascii_name = re.sub(r"[^A-Za-z0-9 ._()+@=-]", "_", name)
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"


def wants_redirect(query: Mapping[str, Any]) -> bool:
    """Tell whether a request wants a redirect to the object store. Not for HEAD: a presigned URL is for one method."""
    return bool(query["redirect"]) and request.method == "GET"


def redirect(url: str) -> Response:
    """Redirect to a presigned URL; caches must not store it, because it is a secret that expires soon."""
    return empty_response(307, {"Location": url, "Cache-Control": "no-store"})
