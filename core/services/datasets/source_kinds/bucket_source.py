"""Bucket source: the objects below a prefix, which stay in the bucket."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ClassVar, Self

import msgspec

from core.domain.access.scopes import Caller
from core.services.datasets.bucket_objects import digest_of, is_unchanged, objects_within
from core.services.datasets.dataset_sources import split
from core.services.datasets.file_sources import Sources
from core.services.datasets.registration_progress import RegistrationProgress
from core.services.datasets.source_kinds.base import SourceAccess, SourceKind
from core.services.uploads.uploads import Uploads
from core.store import datasets as store
from datasets.versions import file_names, manifest_object
from datasets.versions.manifest import ManifestEntry

#: Objects of a bucket that are read concurrently, and that are listed ahead of them.
READERS, AHEAD = 8, 256


class BucketSource(SourceKind, frozen=True):
    """A prefix of a bucket, and the connection that it is read through."""

    beside: ClassVar[frozenset[str]] = frozenset({"connection"})
    in_bucket: ClassVar[bool] = True

    s3: str
    connection: str

    @classmethod
    def of_request(cls, caller: Caller, request: Mapping[str, object], uploads: Uploads, sources: Sources) -> Self:
        """Check the URL, and that a connection allows the bucket."""
        url, chosen = msgspec.convert((request["s3"], request.get("connection")), tuple[str, str | None])
        bucket, prefix = split(url)
        connection = sources.connection(chosen, bucket, caller.scope.owner)
        return cls(f"s3://{bucket}/{prefix}", connection.name)

    def entries(self, access: SourceAccess) -> Iterator[ManifestEntry]:
        """List a bucket and read the objects that changed since the previous version: a merge of two sorted streams."""
        bucket, prefix = split(self.s3)
        connection = access.sources.connection(self.connection, bucket, access.row.project)
        reader = access.sources.reader(connection)
        with access.version.database.read() as c:
            previous = store.before(c, access.row)
        known = (
            manifest_object.read(access.version.objects, previous.manifest_key) if previous is not None else iter(())
        )
        last = next(known, None)

        def read(path: str, key: str, size: int, etag: str | None) -> ManifestEntry:
            location = f"s3:{connection.name}/{bucket}/{key}"
            digest = digest_of(lambda: reader.read(bucket, key, etag), size, f"s3://{bucket}/{key}", etag)
            return ManifestEntry(path=path, size=size, digest=digest, source=location, offset=0, etag=etag)

        with ThreadPoolExecutor(READERS, "hash") as readers:
            pending: list[ManifestEntry | Future[ManifestEntry]] = []
            for path, listed in objects_within(reader, bucket, prefix):
                path = file_names.validated(path)
                while last is not None and last.path.encode() < path.encode():
                    last = next(known, None)
                if is_unchanged(last, path, listed):
                    assert last is not None
                    pending.append(last)
                else:
                    access.version.progress.located = True
                    pending.append(readers.submit(read, path, listed.key, listed.size, listed.etag))
                if len(pending) >= AHEAD:
                    yield from _results(pending[: AHEAD // 2], access.version.progress)
                    del pending[: AHEAD // 2]
            yield from _results(pending, access.version.progress)


def _results(
    pending: Iterable[ManifestEntry | Future[ManifestEntry]], progress: RegistrationProgress
) -> Iterator[ManifestEntry]:
    for item in pending:
        entry = item if isinstance(item, ManifestEntry) else item.result()
        progress.add(entry.size)
        yield entry
