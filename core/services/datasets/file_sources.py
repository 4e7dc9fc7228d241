"""Where the bytes of a dataset's files come from: the platform's own store, or buckets that operators connected."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from datasets.objectstore.base import ObjectStore
from datasets.objectstore.connections import Connection, check, find
from datasets.versions.manifest import ManifestEntry
from errors import Corrupt, Invalid, NotFound

if TYPE_CHECKING:
    from datasets.objectstore.s3 import BucketReader


@runtime_checkable
class HasBucket(Protocol):
    """A store that is itself a bucket."""

    connection: Connection
    bucket: str


class Sources:
    """Reads what manifests point at."""

    def __init__(self, store: ObjectStore, connections: Mapping[str, Connection]) -> None:
        self._store = store
        self._connections = connections
        self._readers: dict[str, BucketReader] = {}
        # What the platform itself keeps is read through rows, never through a connection.
        self._own = [(store.connection, store.bucket)] if isinstance(store, HasBucket) else []

    def connection(self, name: str | None, bucket: str) -> Connection:
        """Return the connection that leads to a bucket, checked; raise Invalid where none does, or several may."""
        known = self._connections
        if name is None:
            leading = [one for one in known.values() if not one.buckets or bucket in one.buckets]
            if len(leading) != 1:
                raise Invalid(f"Name the `connection` that leads to the bucket {bucket[:80]!r}.")
            found = leading[0]
        else:
            found = find(known, name)
        check(found, bucket, own=self._own)
        return found

    def read(self, entry: ManifestEntry, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Yield the bytes [start, stop) of a file."""
        stop = entry.size if stop is None else min(stop, entry.size)
        if stop <= start:
            return iter(())
        kind, _, place = entry.source.partition(":")
        if kind == "store":
            try:
                return self._store.get(place, entry.offset + start, stop - start)
            except NotFound:  # of which nobody who asks for a file should hear
                raise Corrupt(f"What is stored of {entry.path} is not there any more. Bring it again.") from None
        if kind != "s3":
            raise NotFound(f"The file {entry.path} lies nowhere that is known here.")
        name, bucket, key = place.split("/", 2)
        connection = self.connection(name, bucket)
        return self.reader(connection).read(bucket, key, entry.etag, entry.offset + start, stop - start)

    def reader(self, connection: Connection) -> "BucketReader":
        """Return what reads through a connection; it keeps its lines open."""
        from datasets.objectstore.s3 import BucketReader  # its client is large, and most have no bucket to read

        if (found := self._readers.get(connection.name)) is None:
            found = self._readers[connection.name] = BucketReader(connection)
        return found
