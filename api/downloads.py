"""Files as attachments, given by us or by the object store itself; and how that is documented."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from flask import Response, request

from api.blueprint import empty_response, header
from api.byte_ranges import serve
from core.domain.downloads import Download

#: What a stranger's file may do in a browser: nothing.
HARMLESS = {"Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'"}
TAGGED = {"ETag": header("Equal tags, equal bytes."), "Accept-Ranges": header("`bytes`.")}
PART = {
    "description": "The part that was asked for.",
    "headers": {"Content-Range": header("Which part of how much.")},
}
UNCHANGED = {"description": "Unchanged since the ETag."}
MOVED = {
    "description": "The object store gives it, there; asked for with `redirect`.",
    "headers": {"Location": header("An address in the object store, valid for some minutes.")},
}


def download(blob: Download, filename: str) -> Response:
    """Give a file as an attachment."""
    headers = {**HARMLESS, "Content-Disposition": attachment(filename.rpartition("/")[2])}
    return serve(blob.read, size=blob.size, etag=blob.etag, media_type=blob.media_type, headers=headers)


def attachment(name: str) -> str:
    """Say what a file is to be called, also to those who read the old form alone, as `curl -J` does (RFC 6266)."""
    plain = re.sub(r"[^A-Za-z0-9 ._()+@=-]", "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def elsewhere(query: Mapping[str, Any]) -> bool:
    """Tell whether a client asks to be sent to the object store; a HEAD cannot be, for a link is for one verb."""
    return bool(query["redirect"]) and request.method == "GET"


def moved(link: str) -> Response:
    """Send a client on to the object store; the address is a secret and soon stale, so nobody keeps it."""
    return empty_response(307, {"Location": link, "Cache-Control": "no-store"})
