"""Kinds of source: each a file that the table below names by its member of a request."""

from collections.abc import Mapping

from common.errors import Invalid, UnreadableRow
from core.domain.access.scopes import Caller
from core.domain.submissions.stored_documents import decode_document
from core.services.datasets.file_sources import Sources
from core.services.datasets.source_kinds.archive_source import ArchiveSource
from core.services.datasets.source_kinds.artifact_source import ArtifactSource
from core.services.datasets.source_kinds.base import SourceKind
from core.services.datasets.source_kinds.bucket_source import BucketSource
from core.services.datasets.source_kinds.manifest_source import ManifestSource
from core.services.datasets.source_kinds.uploads_source import UploadsSource
from core.services.uploads.uploads import Uploads

#: Kinds by the member that has their name; in a source with two of these, the last is its kind.
KINDS: Mapping[str, type[SourceKind]] = {
    "upload": ArchiveSource,
    "uploads": UploadsSource,
    "s3": BucketSource,
    "manifest": ManifestSource,
}
#: Kinds that the platform itself makes, by a member that only they have.
_OWN_KINDS: Mapping[str, type[SourceKind]] = {"artifact": ArtifactSource}
#: Kinds whose files may stay in a bucket.
IN_BUCKETS = frozenset(name for name, kind in KINDS.items() if kind.in_bucket)


def source_of_request(caller: Caller, request: Mapping[str, object], uploads: Uploads, sources: Sources) -> SourceKind:
    """Return the source of a request. Raise Invalid if it cannot be registered."""
    names = [name for name in KINDS if request.get(name) is not None]
    if not names or not set(names[:-1]) <= KINDS[names[-1]].beside:
        *most, last = (f"`{name}`" for name in KINDS)
        pairs = (f", or `{name}` and `{other}`" for name, kind in KINDS.items() for other in kind.beside & KINDS.keys())
        raise Invalid(f"`source` has one of {', '.join(most)} and {last}{''.join(pairs)}.")
    kind = KINDS[names[-1]]
    if request.get("connection") is not None and "connection" not in kind.beside:
        raise Invalid("A `connection` is for `s3` only.")
    return kind.of_request(caller, request, uploads, sources)


def stored_source(text: str) -> SourceKind:
    """Return the source of a version, from its stored text. Raise UnreadableRow if no kind has written it."""
    document = decode_document(text, dict[str, object])
    kinds = [kind for name, kind in (*KINDS.items(), *_OWN_KINDS.items()) if name in document]
    if not kinds:
        raise UnreadableRow(f"The database has a source of a dataset of a kind that there is not: {text[:200]!r}.")
    return decode_document(text, kinds[-1])
