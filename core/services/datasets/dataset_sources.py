"""Dataset sources: URLs of buckets, and the uploads of a source, protected until its dataset is registered."""

import re
from collections.abc import Sequence

from common.errors import Invalid, UnknownUpload
from core.domain.access.scopes import Caller, Scope
from core.services.uploads.uploads import Uploads
from core.store import uploads as store
from core.store.database import Connection

_S3 = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?", re.DOTALL)
#: Seconds for which the uploads of a source are protected; the registration renews that.
HELD = 3600.0


def check_finished(caller: Caller, uploads: Uploads, id: str) -> None:
    """Raise Invalid if an upload still waits for bytes."""
    upload = uploads.get(caller, id)
    if upload.length is None or upload.offset != upload.length:
        raise Invalid(f"Upload {id} still waits for bytes; finish it first.")


def hold(c: Connection, scope: Scope, ids: Sequence[str], now: float) -> None:
    """Protect a version's uploads from deletion and expiry for HELD seconds. Raise UnknownUpload."""
    for id in sorted(ids):  # in one order, so that two transactions cannot deadlock
        if not store.hold(c, scope, id, now + HELD):
            raise UnknownUpload(f"Upload {id} has been deleted.")


def split(url: str) -> tuple[str, str]:
    """Return bucket and prefix of an ``s3://`` URL."""
    match = _S3.fullmatch(url)
    if match is None or len(url) > 2000 or not url.isprintable():
        raise Invalid(f"Not a URL of the form s3://bucket/prefix: {url[:80]!r}.")
    return match["bucket"], match["prefix"] or ""
