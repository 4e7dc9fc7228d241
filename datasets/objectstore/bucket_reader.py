"""Read-only access to the buckets of an operator's connection: sorted listings, and objects pinned to their ETag."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from minio.error import S3Error, ServerError
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ProtocolError
from urllib3.exceptions import TimeoutError as TimeoutError_

from common.errors import OriginChanged, OriginFailed, OriginRefused
from datasets.objectstore.connection_pools import LIMITS, connection_pools
from datasets.objectstore.connections import Connection, permitted
from datasets.objectstore.guarded_pools import ForbiddenAddress, guard
from datasets.objectstore.s3_body import ResponseBody, open_body, resuming
from datasets.objectstore.s3_client import CLIENT_ERRORS, MISSING, client

#: Codes of S3 errors that no later attempt changes.
REFUSALS = frozenset({"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"})


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object of a listed bucket. ``size`` in bytes."""

    key: str
    size: int
    etag: str


class BucketReader:
    """Lists and reads the buckets of a connection; thread-safe, create it once per connection and process."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._client = client(connection, guard(connection_pools(LIMITS), permitted))

    def listing(self, bucket: str, prefix: str) -> Iterator[ListedObject]:
        """Yield the objects under a prefix, sorted by key, page by page."""
        with self._translated(bucket, prefix):
            for object in self._client.list_objects(bucket, prefix=prefix, recursive=True):
                if object.object_name is not None and object.size is not None and not object.is_dir:
                    yield ListedObject(object.object_name, object.size, (object.etag or "").strip('"'))

    def find(self, bucket: str, key: str) -> ListedObject:
        """Return an object's size and ETag; raise OriginRefused if it does not exist or may not be read."""
        location = f"s3://{bucket}/{key} (connection {self.connection.name})"
        with self._translated(bucket, key):
            try:
                found = self._client.stat_object(bucket, key)
            except S3Error as error:
                if error.code not in REFUSALS:
                    raise
                raise OriginRefused(f"{location} may not be read: {error.code}.", bucket=bucket, key=key) from None
        return ListedObject(key, found.size or 0, (found.etag or "").strip('"'))

    def read(
        self, bucket: str, key: str, etag: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """Yield an object's bytes; raise OriginChanged if its ETag is not ``etag``. Resumes broken bodies."""
        with self._translated(bucket, key):
            body = open_body(self._client, bucket, key, start, length, etag)
        return self._chunks_of(bucket, key, body)

    def _chunks_of(self, bucket: str, key: str, body: ResponseBody) -> Iterator[bytes]:
        with self._translated(bucket, key):
            yield from resuming(partial(open_body, self._client, bucket, key), body, LIMITS.resumptions)

    @contextmanager
    def _translated(self, bucket: str, key: str) -> Iterator[None]:
        location = f"s3://{bucket}/{key} (connection {self.connection.name})"
        try:
            yield
        except S3Error as error:
            if error.code in MISSING:
                raise OriginRefused(f"There is no {location}.", bucket=bucket, key=key) from None
            if error.code == "PreconditionFailed":
                raise OriginChanged(
                    f"{location} was changed since it was registered.", bucket=bucket, key=key
                ) from None
            raise OriginFailed(f"{location} cannot be read: {error.code}.", bucket=bucket, key=key) from None
        except CLIENT_ERRORS as error:
            detail = f"{location} cannot be read: {_reason(error)}."
            raise OriginFailed(detail, bucket=bucket, key=key) from None


def _reason(error: Exception) -> str:
    """Describe a transport error without the client's message, which contains the host."""
    cause = getattr(error, "reason", None)
    if isinstance(cause, Exception):  # the last error of several retries
        return _reason(cause)
    if isinstance(error, ConnectTimeoutError | NewConnectionError | ForbiddenAddress):
        return "the connection failed"
    if isinstance(error, TimeoutError_):
        return "the request timed out"
    if isinstance(error, ServerError):
        return f"the server responded with status {error.status_code}"
    if isinstance(error, ProtocolError):
        return "the connection broke"
    return "the response is invalid"
