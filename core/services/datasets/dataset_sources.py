"""What a dataset is to be made of, as a request names it: checked, brought into one form, held until it is made."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from core.services.datasets.file_sources import Sources
from core.services.uploads.uploads import Uploads
from core.store import uploads as store
from core.store.database import Connection
from datasets.versions import file_names
from errors import Invalid, UnknownUpload

_S3 = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?", re.DOTALL)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: Files that a request may list itself.
MOST_FILES = 10_000
#: Seconds for which an upload is held that a dataset is to be made of; a job that is at it holds it again.
HELD = 3600.0


def normal(source: Mapping[str, Any], uploads: Uploads, sources: Sources) -> dict[str, Any]:
    """Return a source in the one form that is written down; raise Invalid for one that nothing can be made of."""
    kinds = [kind for kind in ("upload", "uploads", "s3", "manifest") if source.get(kind) is not None]
    if len(kinds) != 1:
        raise Invalid("`source` has one of `upload`, `uploads`, `s3` and `manifest`.")
    kind, given = kinds[0], source[kinds[0]]
    if source.get("connection") is not None and kind != "s3":
        raise Invalid("A `connection` goes with `s3` alone.")
    if kind == "upload":
        _finished(uploads, given)
        return {"upload": given}
    if kind == "uploads":
        for one in given:
            _finished(uploads, one["upload"])
        return {"uploads": [{"path": file_names.validated(one["path"]), "upload": one["upload"]} for one in given]}
    if kind == "manifest":
        return _normal_manifest(given, uploads)
    bucket, prefix = split(given)
    connection = sources.connection(source.get("connection"), bucket)
    return {"s3": f"s3://{bucket}/{prefix}", "connection": connection.name}


def _normal_manifest(given: Any, uploads: Uploads) -> dict[str, Any]:
    if isinstance(given, Mapping):
        _finished(uploads, given["upload"])
        return {"manifest": {"upload": given["upload"]}}
    if not 1 <= len(given) <= MOST_FILES:
        raise Invalid(f"A manifest in the request lists 1 to {MOST_FILES:,} files; a longer one is an upload.")
    for line in given:
        checked_line(line)
    return {"manifest": [dict(line) for line in given]}


def _finished(uploads: Uploads, id: str) -> None:
    upload = uploads.get(id)
    if upload.length is None or upload.offset != upload.length:
        raise Invalid(f"Upload {id} still waits for bytes; finish it first.")


def uploads_of(source: Mapping[str, Any]) -> list[str]:
    """Return the uploads that a normal source names, each once."""
    given = [source, *source.get("uploads", ())]
    given += [source["manifest"]] if isinstance(source.get("manifest"), Mapping) else []
    return list(dict.fromkeys(one["upload"] for one in given if "upload" in one))


def hold(c: Connection, ids: Sequence[str], now: float) -> None:
    """Keep what a version is to be made of, though its owner may delete it now, or its time be over."""
    for id in sorted(ids):  # two that hold the same wait for each other, and never crosswise
        if not store.hold(c, id, now + HELD):
            raise UnknownUpload(f"There is no upload {id} any more.")


def split(url: str) -> tuple[str, str]:
    """Return bucket and prefix of an ``s3://`` URL."""
    match = _S3.fullmatch(url)
    if match is None or len(url) > 2000 or not url.isprintable():
        raise Invalid(f"Not an address of the form s3://bucket/prefix: {url[:80]!r}.")
    return match["bucket"], match["prefix"] or ""


def checked_line(line: Mapping[str, Any]) -> tuple[str, str, int, str | None]:
    """Return path, digest, size and source of a manifest's line; raise Invalid for one that is none."""
    path, digest, size, source = (line.get(name) for name in ("path", "digest", "size", "source"))
    if not isinstance(path, str) or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise Invalid(f"A manifest's line has a path and a digest (sha256:<hex>); this has not: {str(line)[:200]}.")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**53:
        raise Invalid(f"The size of {file_names.printable(path)} is a whole number of bytes.")
    if line.keys() - {"path", "digest", "size", "source", "connection"}:
        raise Invalid(f"The manifest's line of {file_names.printable(path)} has members that are not known.")
    if not isinstance(line.get("connection"), str | None):
        raise Invalid(f"The connection of {file_names.printable(path)} is a name.")
    if source is not None:
        split(source) if isinstance(source, str) else split("")
    return file_names.validated(path), digest, size, source
