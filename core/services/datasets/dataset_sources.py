"""Dataset sources in requests: validated, normalized, and protected until the dataset is registered."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from common.errors import Invalid, UnknownUpload
from core.services.datasets.file_sources import Sources
from core.services.uploads.uploads import Uploads
from core.store import uploads as store
from core.store.database import Connection
from datasets.versions import file_names

_S3 = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?", re.DOTALL)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: Maximum of manifest lines in a request.
MAX_LINES = 10_000
#: Seconds for which the uploads of a source are protected; the registration renews that.
HELD = 3600.0


def normalized(source: Mapping[str, Any], uploads: Uploads, sources: Sources) -> dict[str, Any]:
    """Return a source in its stored form. Raise Invalid if it cannot be registered."""
    kinds = [kind for kind in ("upload", "uploads", "s3", "manifest") if source.get(kind) is not None]
    if len(kinds) != 1 and kinds != ["upload", "manifest"]:
        raise Invalid("`source` has one of `upload`, `uploads`, `s3` and `manifest`, or `manifest` and `upload`.")
    kind, value = kinds[-1], source[kinds[-1]]
    if source.get("connection") is not None and kind != "s3":
        raise Invalid("A `connection` is for `s3` only.")
    if kind == "upload":
        _check_finished(uploads, value)
        return {"upload": value}
    if kind == "uploads":
        for file in value:
            _check_finished(uploads, file["upload"])
        return {"uploads": [{"path": file_names.validated(file["path"]), "upload": file["upload"]} for file in value]}
    if kind == "manifest":
        if (contents := source.get("upload")) is None:
            return _normalized_manifest(value, uploads)
        _check_finished(uploads, contents)
        return {**_normalized_manifest(value, uploads), "upload": contents}
    bucket, prefix = split(value)
    connection = sources.connection(source.get("connection"), bucket)
    return {"s3": f"s3://{bucket}/{prefix}", "connection": connection.name}


def _normalized_manifest(value: Any, uploads: Uploads) -> dict[str, Any]:
    if isinstance(value, Mapping):
        _check_finished(uploads, value["upload"])
        return {"manifest": {"upload": value["upload"]}}
    if not 1 <= len(value) <= MAX_LINES:
        raise Invalid(f"A manifest in the request lists 1 to {MAX_LINES:,} files; a longer one is an upload.")
    for line in value:
        checked_line(line)
    return {"manifest": [dict(line) for line in value]}


def _check_finished(uploads: Uploads, id: str) -> None:
    upload = uploads.get(id)
    if upload.length is None or upload.offset != upload.length:
        raise Invalid(f"Upload {id} still waits for bytes; finish it first.")


def uploads_of(source: Mapping[str, Any]) -> list[str]:
    """Return the distinct uploads of a normalized source."""
    entries = [source, *source.get("uploads", ())]
    entries += [source["manifest"]] if isinstance(source.get("manifest"), Mapping) else []
    return list(dict.fromkeys(entry["upload"] for entry in entries if "upload" in entry))


def hold(c: Connection, ids: Sequence[str], now: float) -> None:
    """Protect a version's uploads from deletion and expiry for HELD seconds. Raise UnknownUpload."""
    for id in sorted(ids):  # in one order, so that two transactions cannot deadlock
        if not store.hold(c, id, now + HELD):
            raise UnknownUpload(f"Upload {id} has been deleted.")


def split(url: str) -> tuple[str, str]:
    """Return bucket and prefix of an ``s3://`` URL."""
    match = _S3.fullmatch(url)
    if match is None or len(url) > 2000 or not url.isprintable():
        raise Invalid(f"Not a URL of the form s3://bucket/prefix: {url[:80]!r}.")
    return match["bucket"], match["prefix"] or ""


def checked_line(line: Mapping[str, Any]) -> tuple[str, str, int, str | None]:
    """Return path, digest, size and source of a manifest line. Raise Invalid."""
    path, digest, size, source = (line.get(name) for name in ("path", "digest", "size", "source"))
    if not isinstance(path, str) or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise Invalid(f"A manifest line has a path and a digest (sha256:<hex>); this line has not: {str(line)[:200]}.")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**53:
        raise Invalid(f"The size of {file_names.printable(path)} is a whole number of bytes.")
    if line.keys() - {"path", "digest", "size", "source", "connection"}:
        raise Invalid(f"The manifest line of {file_names.printable(path)} has unknown members.")
    if not isinstance(line.get("connection"), str | None):
        raise Invalid(f"The connection of {file_names.printable(path)} must be a name.")
    if source is not None:
        split(source) if isinstance(source, str) else split("")
    return file_names.validated(path), digest, size, source
