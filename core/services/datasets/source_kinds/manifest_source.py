"""Manifest source: a list of files by digest, whose contents are in an archive, in other versions, or in buckets."""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import ClassVar, Self

import msgspec

from common.errors import Invalid
from core.domain.access.scopes import Caller, Scope
from core.services.datasets.bucket_objects import digest_of
from core.services.datasets.dataset_sources import check_finished, split
from core.services.datasets.file_sources import Sources
from core.services.datasets.manifest_index import ManifestIndex
from core.services.datasets.source_kinds.base import SourceAccess, SourceKind
from core.services.uploads.uploads import Uploads
from core.store import datasets as store
from datasets.versions import file_names, manifest_object
from datasets.versions.archives import files_of
from datasets.versions.manifest import ManifestEntry, lines

#: Members of a line.
_LINE_MEMBERS = "path", "digest", "size", "source", "connection"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: Maximum of manifest lines in a request.
MAX_LINES = 10_000
#: Maximum bytes of a line of an uploaded manifest.
LINE = 8 << 10


class UploadedManifest(msgspec.Struct, frozen=True):
    """A manifest that is an upload, a line of JSON for each file."""

    upload: str


class ManifestSource(SourceKind, frozen=True, omit_defaults=True):
    """A manifest. ``upload``: an archive with contents that no version has; its paths do not matter."""

    beside: ClassVar[frozenset[str]] = frozenset({"upload"})
    in_bucket: ClassVar[bool] = True

    manifest: list[dict[str, object]] | UploadedManifest
    upload: str | None = None

    @classmethod
    def of_request(cls, caller: Caller, request: Mapping[str, object], uploads: Uploads, sources: Sources) -> Self:
        """Check the lines, unless they are an upload, and that the uploads are finished."""
        source = msgspec.convert(request, cls)
        if source.upload is not None:
            check_finished(caller, uploads, source.upload)
        if isinstance(source.manifest, UploadedManifest):
            check_finished(caller, uploads, source.manifest.upload)
            return source
        if not 1 <= len(source.manifest) <= MAX_LINES:
            raise Invalid(f"A manifest in the request lists 1 to {MAX_LINES:,} files; a longer one is an upload.")
        for line in source.manifest:
            checked_line(line)
        return source

    @property
    def has_archive(self) -> bool:
        """Whether it has one beside it."""
        return self.upload is not None

    def upload_ids(self) -> Sequence[str]:
        """Return those of the archive and of the manifest, each once."""
        manifest = self.manifest.upload if isinstance(self.manifest, UploadedManifest) else None
        return list(dict.fromkeys(upload for upload in (self.upload, manifest) if upload is not None))

    def entries(self, access: SourceAccess) -> Iterator[ManifestEntry]:
        """Locate the content of each line in the archive, in other versions, or in the bucket that it names."""
        with (
            tempfile.TemporaryDirectory(dir=access.scratch) as folder,
            closing(ManifestIndex(Path(folder))) as index,
        ):
            for line in self._lines(access):
                index.add(*checked_line(line))
            index.added()
            if self.upload is not None:
                for packed in access.version.packed(files_of(access.content(self.upload))):
                    index.settle([packed])
                access.version.progress.restart()
            with access.version.database.read() as c:
                others = store.ready(c, Scope(access.row.project))
            for other in others:
                if not index.missing():
                    break
                _inherit(other, index, access)
            if missing := index.missing():
                raise Invalid(f"No dataset has the content {missing}; upload it, or name its `source`.")
            for path, digest, size, source, connection, offset, etag in index.located():
                access.version.progress.add(size)
                if source.startswith("s3://"):
                    yield _located_entry(path, digest, size, source, connection, access)
                else:
                    yield ManifestEntry(path=path, size=size, digest=digest, source=source, offset=offset, etag=etag)

    def _lines(self, access: SourceAccess) -> Iterator[dict[str, object]]:
        if isinstance(self.manifest, list):
            yield from self.manifest
            return
        content = access.content(self.manifest.upload)
        for number, line in enumerate(lines(content.read(0, content.size), LINE), 1):
            if len(line) > LINE:
                raise Invalid(f"Line {number} of the manifest has more than {LINE} bytes.")
            if line.strip():
                try:
                    yield msgspec.json.decode(line, type=dict[str, object])
                except (msgspec.MsgspecError, RecursionError) as error:
                    raise Invalid(f"Line {number} of the manifest cannot be read: {error}.") from None


def checked_line(line: Mapping[str, object]) -> tuple[str, str, int, str | None, str | None]:
    """Return path, digest, size, source and connection of a manifest line. Raise Invalid."""
    path, digest, size, source, connection = (line.get(name) for name in _LINE_MEMBERS)
    if not isinstance(path, str) or not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise Invalid(f"A manifest line has a path and a digest (sha256:<hex>); this line has not: {str(line)[:200]}.")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**53:
        raise Invalid(f"The size of {file_names.printable(path)} is a whole number of bytes.")
    if line.keys() - set(_LINE_MEMBERS):
        raise Invalid(f"The manifest line of {file_names.printable(path)} has unknown members.")
    if not isinstance(connection, str | None):
        raise Invalid(f"The connection of {file_names.printable(path)} must be a name.")
    if not isinstance(source, str | None):
        source = ""  # which is not a URL either
    if source is not None:
        split(source)
    return file_names.validated(path), digest, size, source, connection


def _inherit(other: store.DatasetVersionRow, index: ManifestIndex, access: SourceAccess) -> None:
    """Locate contents in another version; references to its objects are inserted before they are used."""
    entries: list[ManifestEntry] = []
    for entry in chain(manifest_object.read(access.version.objects, other.manifest_key), [None]):
        if entry is not None and index.misses(entry.digest):
            entries.append(entry)
        if entries and (entry is None or len(entries) >= 10_000):
            if not access.version.borrowed(other.id, entries):
                return  # another may have the same content
            index.settle(entries)
            entries = []


def _located_entry(
    path: str, digest: str, size: int, source: str, connection: str | None, access: SourceAccess
) -> ManifestEntry:
    """Return the entry of a file in a bucket. Raise Invalid unless size and digest are as in the manifest."""
    bucket, key = split(source)
    source_connection = access.sources.connection(connection, bucket, access.row.project)
    reader = access.sources.reader(source_connection)
    listed = next(reader.listing(bucket, key), None)  # the first key with this prefix is the key itself
    if listed is None or (listed.key, listed.size) != (key, size):
        raise Invalid(f"There is no object of {size} bytes at {source[:200]}.")
    if digest_of(lambda: reader.read(bucket, key, listed.etag), size, source, listed.etag) != digest:
        raise Invalid(f"The object {source[:200]} does not have the digest {digest}.")
    access.version.progress.located = True
    return ManifestEntry(
        path=path,
        size=size,
        digest=digest,
        source=f"s3:{source_connection.name}/{bucket}/{key}",
        offset=0,
        etag=listed.etag,
    )
