"""Readers of dataset files: from the platform's object store, or from connected buckets."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from common.errors import Corrupt, Invalid, NotFound
from datasets.objectstore.base import ObjectStore
from datasets.objectstore.connections import Connection, check, find, serves
from datasets.versions.manifest import ManifestEntry

if TYPE_CHECKING:
    from datasets.objectstore.bucket_reader import BucketReader


@runtime_checkable
class HasBucket(Protocol):
    """An object store that is an S3 bucket."""

    connection: Connection
    bucket: str


class Sources:
    """Reads the files that manifests refer to."""

    def __init__(self, store: ObjectStore, connections: Mapping[str, Connection]) -> None:
        self._store = store
        self._connections = connections
        self._readers: dict[str, BucketReader] = {}
        # Objects of the platform itself must not be reachable through a connection.
        self._own = [(store.connection, store.bucket)] if isinstance(store, HasBucket) else []

    def connection(self, name: str | None, bucket: str, project: str) -> Connection:
        """Return the connection for a bucket that a project may read.

        Raise Invalid if it is not allowed, or unnamed and ambiguous; a connection of other projects does not exist.
        """
        known = {name: each for name, each in self._connections.items() if serves(each.projects, project)}
        if name is None:
            candidates = [item for item in known.values() if not item.buckets or bucket in item.buckets]
            if len(candidates) != 1:
                raise Invalid(f"Name the `connection` for the bucket {bucket[:80]!r}.")
            connection = candidates[0]
        else:
            connection = find(known, name)
        check(connection, bucket, own=self._own)
        return connection

    def read(self, entry: ManifestEntry, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Yield the bytes [start, stop) of a file."""
        stop = entry.size if stop is None else min(stop, entry.size)
        if stop <= start:
            return iter(())
        kind, _, location = entry.source.partition(":")
        if kind == "store":
            try:
                return self._store.get(location, entry.offset + start, stop - start)
            except NotFound:  # a client asked for a file, not for this object
                raise Corrupt(f"The stored bytes of {entry.path} are missing. Upload it again.") from None
        if kind != "s3":
            raise NotFound(f"The location of the file {entry.path} is unknown.")
        name, bucket, key = location.split("/", 2)
        connection = find(self._connections, name)  # what a project has registered it reads, and shares
        check(connection, bucket, own=self._own)
        return self.reader(connection).read(bucket, key, entry.etag, entry.offset + start, stop - start)

    def reader(self, connection: Connection) -> "BucketReader":
        """Return the reader of a connection, which keeps its HTTP connections open."""
        # Imported here, because the import is costly and most installations have no connections.
        from datasets.objectstore.bucket_reader import BucketReader

        if (reader := self._readers.get(connection.name)) is None:
            reader = self._readers[connection.name] = BucketReader(connection)
        return reader
