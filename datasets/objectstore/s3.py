"""S3 object store over the minio client, and read-only access to the buckets of operators' connections.

Errors of the server become StoreUnavailable (the platform's store) or OriginFailed (an operator's connection). Their
messages name only bucket and key: the client's own messages contain hosts, and are dropped.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, BinaryIO, cast
from urllib.parse import quote
from xml.etree.ElementTree import ParseError

from minio import Minio
from minio.error import MinioException, S3Error, ServerError
from urllib3 import BaseHTTPResponse, PoolManager, Retry, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ProtocolError
from urllib3.exceptions import TimeoutError as TimeoutError_

from datasets.objectstore.base import check_key
from datasets.objectstore.connections import Connection, address, permitted
from errors import NotFound, OriginChanged, OriginFailed, PlatformError, StorageFull, StoreUnavailable

logger = logging.getLogger(__name__)
# urllib3 logs a warning per retry, with the host and bytes of the response; the outcome is logged by this module.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

CHUNK = 1 << 20
#: Bytes of a single-request upload; larger objects are multipart uploads with parts of this size (S3: at most 10,000).
PART = 16 << 20
#: Age after which an unfinished multipart upload is aborted: its parts cost money, and no listing shows them.
ABANDONED = timedelta(days=1)
#: Seconds between two sweeps for unfinished multipart uploads.
SWEEP_INTERVAL = 3600.0

_MISSING = frozenset({"NoSuchKey", "NoSuchBucket", "NoSuchObject", "ResourceNotFound"})
_FULL = frozenset({"XMinioStorageFull", "StorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded"})
_CLIENT_ERRORS = (MinioException, HTTPError, ParseError, UnicodeError)


@dataclass(frozen=True, slots=True)
class S3Limits:
    """Time-outs and retries of requests to an S3 server."""

    #: Connect time-out in seconds.
    connect: float = 3.0
    #: Read time-out in seconds.
    read: float = 30.0
    #: Resumptions of an interrupted download in a row without a byte of progress.
    resumptions: int = 5


LIMITS = S3Limits()


class S3Store:
    """Object store in a bucket, under a prefix. The bucket is created when the first object is put."""

    def __init__(self, connection: Connection, bucket: str, prefix: str = "", *, limits: S3Limits = LIMITS) -> None:
        self.connection = connection
        self.bucket = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self._limits = limits
        self._pools = _pools(limits)
        self._client = client(connection, self._pools)
        self._bucket_exists = False
        self._swept_at = 0.0

    def put(self, key: str, chunks: Iterable[bytes]) -> int:
        """Store an object: one request up to ``PART`` bytes, a multipart upload beyond."""
        name = self.prefix + check_key(key)
        source = _ChunkFile(chunks)
        try:
            with self._translated(key):
                self._create_bucket()
                stream = cast(BinaryIO, source)
                # One part at a time: the client's parallel uploads leak their threads when the source raises.
                self._client.put_object(self.bucket, name, stream, -1, part_size=PART, num_parallel_uploads=1)
        except PlatformError:
            if source.failure is not None:  # the first error; aborting the upload may have failed as well
                raise source.failure from None
            raise
        if source.size > PART:
            self._sweep()
        return source.size

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield the bytes, resuming broken bodies. The request is sent at once, so NotFound is raised here."""
        name = self.prefix + check_key(key)
        if length is not None and length <= 0:
            self.size(key)
            return iter(())
        with self._translated(key):
            body = _open(self._client, self.bucket, name, start, length)
        return self._chunks_of(key, body)

    def _chunks_of(self, key: str, body: "_ResponseBody") -> Iterator[bytes]:
        with self._translated(key):
            reopen = partial(_open, self._client, self.bucket, self.prefix + key)
            yield from _resuming(reopen, body, self._limits.resumptions)

    def size(self, key: str) -> int:
        """Return the size in bytes."""
        with self._translated(key):
            size = self._client.stat_object(self.bucket, self.prefix + check_key(key)).size
        if size is None:
            raise StoreUnavailable(f"The object store did not return the size of {key}.")
        return size

    def delete(self, key: str) -> None:
        """Remove an object."""
        with suppress(NotFound), self._translated(key):
            self._client.remove_object(self.bucket, self.prefix + check_key(key))

    def list(self, prefix: str) -> Iterator[str]:
        """Yield keys page by page."""
        objects = self._client.list_objects(self.bucket, prefix=self.prefix + prefix, recursive=True)
        with suppress(NotFound), self._translated(prefix):
            for object in objects:
                yield str(object.object_name).removeprefix(self.prefix)

    def link(self, key: str, *, seconds: int, verb: str = "GET", filename: str | None = None) -> str | None:
        """Return a presigned URL; for GET, no request is sent."""
        name = self.prefix + check_key(key)
        response_headers: dict[str, str | list[str] | tuple[str]] = {}
        if filename is not None:
            response_headers["response-content-disposition"] = (
                f"attachment; filename*=UTF-8''{quote(filename, safe='')}"
            )
            response_headers["response-content-type"] = "application/octet-stream"
        with self._translated(key):
            if verb != "GET":
                self._create_bucket()
            return self._client.get_presigned_url(
                verb, self.bucket, name, timedelta(seconds=seconds), response_headers=response_headers
            )

    def close(self) -> None:
        """Close the idle connections."""
        for key in self._pools.pools.keys():
            self._pools.pools[key].close()

    # -- the bucket

    def _create_bucket(self) -> None:
        if self._bucket_exists:
            return
        if not self._client.bucket_exists(self.bucket):
            try:
                self._client.make_bucket(self.bucket)
            except S3Error as error:
                if error.code not in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}:
                    raise
        self._bucket_exists = True

    def _sweep(self) -> None:
        """Abort abandoned multipart uploads; called after large objects, at most once per SWEEP_INTERVAL."""
        if self._swept_at and time.monotonic() - self._swept_at < SWEEP_INTERVAL:
            return
        self._swept_at = time.monotonic()
        try:
            with self._translated(""):
                self.sweep(datetime.now(UTC) - ABANDONED)
        except PlatformError:
            logger.warning("object store: abandoned multipart uploads could not be aborted")

    def sweep(self, before: datetime) -> int:
        """Abort the multipart uploads that were started before a time, and return their number."""
        # The client has these two requests only as private methods.
        listing = self._client._list_multipart_uploads(self.bucket, prefix=self.prefix)
        old = [upload for upload in listing.uploads if upload.initiated_time and upload.initiated_time < before]
        for upload in old:
            with suppress(S3Error):  # completed or aborted meanwhile
                self._client._abort_multipart_upload(self.bucket, str(upload.object_name), str(upload.upload_id))
        return len(old)

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except S3Error as error:
            if error.code in _MISSING:
                raise NotFound(f"There is no object {key}.") from None
            if error.code in _FULL:
                raise StorageFull() from None
            logger.warning("object store: error %s for %s", error.code, key or "its bucket")
            raise StoreUnavailable() from None
        except _CLIENT_ERRORS as error:
            if isinstance(error, ServerError) and error.status_code == 507:
                raise StorageFull() from None
            logger.warning("object store: %s for %s", type(error).__name__, key or "its bucket")
            raise StoreUnavailable() from None


# -- buckets of connections


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
        self._client = client(connection, _pools(LIMITS, guarded=True))

    def listing(self, bucket: str, prefix: str) -> Iterator[ListedObject]:
        """Yield the objects under a prefix, sorted by key, page by page."""
        with self._translated(bucket, prefix):
            for object in self._client.list_objects(bucket, prefix=prefix, recursive=True):
                if object.object_name is not None and object.size is not None and not object.is_dir:
                    yield ListedObject(object.object_name, object.size, (object.etag or "").strip('"'))

    def read(
        self, bucket: str, key: str, etag: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """Yield an object's bytes; raise OriginChanged if its ETag is not ``etag``. Resumes broken bodies."""
        with self._translated(bucket, key):
            body = _open(self._client, bucket, key, start, length, etag)
        return self._chunks_of(bucket, key, body)

    def _chunks_of(self, bucket: str, key: str, body: "_ResponseBody") -> Iterator[bytes]:
        with self._translated(bucket, key):
            yield from _resuming(partial(_open, self._client, bucket, key), body, LIMITS.resumptions)

    @contextmanager
    def _translated(self, bucket: str, key: str) -> Iterator[None]:
        location = f"s3://{bucket}/{key} (connection {self.connection.name})"
        try:
            yield
        except S3Error as error:
            if error.code in _MISSING:
                raise OriginFailed(f"There is no {location}.", bucket=bucket, key=key) from None
            if error.code == "PreconditionFailed":
                raise OriginChanged(
                    f"{location} was changed since it was registered.", bucket=bucket, key=key
                ) from None
            raise OriginFailed(f"{location} cannot be read: {error.code}.", bucket=bucket, key=key) from None
        except _CLIENT_ERRORS as error:
            detail = f"{location} cannot be read: {_reason(error)}."
            raise OriginFailed(detail, bucket=bucket, key=key) from None


def _reason(error: Exception) -> str:
    """Describe a transport error without the client's message, which contains the host."""
    cause = getattr(error, "reason", None)
    if isinstance(cause, Exception):  # the last error of several retries
        return _reason(cause)
    if isinstance(error, ConnectTimeoutError | NewConnectionError):
        return "the connection failed"
    if isinstance(error, TimeoutError_):
        return "the request timed out"
    if isinstance(error, ServerError):
        return f"the server responded with status {error.status_code}"
    if isinstance(error, ProtocolError):
        return "the connection broke"
    return "the response is invalid"


def listing(connection: Connection, bucket: str, prefix: str) -> Iterator[ListedObject]:
    """Yield the objects under a prefix of a connection's bucket, sorted by key, in constant memory."""
    return BucketReader(connection).listing(bucket, prefix)


def read(connection: Connection, bucket: str, key: str, etag: str | None = None) -> Iterator[bytes]:
    """Yield the bytes of an object in a connection's bucket; for several objects, keep a BucketReader."""
    return BucketReader(connection).read(bucket, key, etag)


# -- the client


class _GuardedHTTP(HTTPConnection):
    """Closes a connection to a forbidden address, whatever the host name resolved to before (DNS rebinding)."""

    def _new_conn(self) -> Any:
        return _permitted(self, super()._new_conn())


class _GuardedHTTPS(HTTPSConnection):
    def _new_conn(self) -> Any:
        return _permitted(self, super()._new_conn())


class _GuardedPool(HTTPConnectionPool):
    ConnectionCls = _GuardedHTTP


class _GuardedTLSPool(HTTPSConnectionPool):
    ConnectionCls = _GuardedHTTPS


def _permitted(connection: HTTPConnection, sock: Any) -> Any:
    if not permitted(sock.getpeername()[0]):
        sock.close()
        raise NewConnectionError(connection, "the address is forbidden")
    return sock


def _pools(limits: S3Limits, *, guarded: bool = False) -> PoolManager:
    """Create thread-safe connection pools with time-outs and retries, without redirects."""
    # `_resuming` resumes partially read bodies; urllib3 repeats only requests without a response.
    retries = Retry(
        total=3,
        read=1,
        redirect=False,
        backoff_factor=0.1,
        backoff_jitter=0.2,
        status_forcelist=(500, 502, 503, 504),
        raise_on_status=False,
        respect_retry_after_header=False,
    )
    pools = PoolManager(maxsize=64, timeout=Timeout(connect=limits.connect, read=limits.read), retries=retries)
    if guarded:
        pools.pool_classes_by_scheme = {"http": _GuardedPool, "https": _GuardedTLSPool}
    return pools


def client(connection: Connection, pools: PoolManager | None = None) -> Minio:
    """Create a minio client over these connection pools."""
    parts = address(connection)
    return Minio(
        parts.netloc,
        connection.access_key or None,
        connection.secret_key or None,
        secure=parts.scheme == "https",
        region=connection.region,
        http_client=pools or _pools(LIMITS),
    )


# -- bodies


class _ChunkFile:
    """Chunks as a file object that is read once. Keeps the error that the source raised, and the bytes read."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._buffer: list[bytes] = []
        self._length = 0
        self.size = 0
        self.failure: BaseException | None = None

    def read(self, size: int) -> bytes:
        """Return exactly ``size`` bytes, fewer only at the end."""
        while self._length < size and (chunk := self._next()) is not None:
            self._buffer.append(chunk)
            self._length += len(chunk)
        whole = self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer)
        data, rest = (whole, b"") if len(whole) <= size else (whole[:size], whole[size:])
        self._buffer, self._length = [rest] if rest else [], len(rest)
        self.size += len(data)
        return data

    def _next(self) -> bytes | None:
        try:
            chunk = next(self._chunks, None)
        except BaseException as failure:
            self.failure = failure
            raise
        return chunk if chunk is None or isinstance(chunk, bytes) else bytes(chunk)


@dataclass(slots=True)
class _ResponseBody:
    """A response body being read: the next offset, the remaining bytes, and the object's ETag."""

    response: BaseHTTPResponse | None
    offset: int
    remaining: int
    etag: str | None

    def close(self) -> None:
        if self.response is not None:
            self.response.close()  # a connection with unread data cannot be reused
            self.response.release_conn()
            self.response = None


class _InconsistentResponse(HTTPError):
    """The response contradicts the request or itself."""


def _open(
    client: Minio, bucket: str, name: str, start: int, length: int | None = None, etag: str | None = None
) -> _ResponseBody:
    """Request a part of an object, and check that the response headers match the requested range."""
    # Also the whole object is requested as a range: the response then declares the size of the object, too.
    end = "" if length is None else str(start + length - 1)
    headers: dict[str, str | list[str] | tuple[str]] = {"Range": f"bytes={start}-{end}"}
    if etag:
        headers["If-Match"] = f'"{etag}"'
    try:
        response = client.get_object(bucket, name, request_headers=headers)
    except S3Error as error:
        if error.code != "InvalidRange":
            raise
        client.stat_object(bucket, name)
        return _ResponseBody(None, start, 0, etag)
    body = _ResponseBody(response, start, 0, (response.headers.get("ETag") or "").strip('"') or etag)
    try:
        declared = int(response.headers["Content-Length"])
        first, last, total = _range(response)
        stop = total if length is None else min(start + length, total)
        if (first, last + 1, declared) != (start, stop, stop - start):
            raise _InconsistentResponse("a range that was not requested")
        body.remaining = declared
    except (KeyError, ValueError, _InconsistentResponse):
        body.close()
        raise _InconsistentResponse("an inconsistent response") from None
    return body


def _range(response: BaseHTTPResponse) -> tuple[int, int, int]:
    if response.status != 206:
        raise _InconsistentResponse("no partial content")
    unit, _, rest = response.headers["Content-Range"].partition(" ")
    span, _, total = rest.partition("/")
    first, _, last = span.partition("-")
    if unit != "bytes":
        raise _InconsistentResponse("a range unit other than bytes")
    return int(first), int(last), int(total)


def _resuming(reopen: Callable[..., _ResponseBody], body: _ResponseBody, resumptions: int) -> Iterator[bytes]:
    """Yield a body; if it breaks off, request the rest of the same version (ETag), with exponential back-off."""
    failures = 0
    try:
        while body.remaining:
            try:
                if body.response is None:
                    body = reopen(body.offset, body.remaining, body.etag)
                chunk = cast(BaseHTTPResponse, body.response).read(min(CHUNK, body.remaining))
                if not chunk:
                    raise _InconsistentResponse("a truncated body")
            except (HTTPError, ServerError):
                failures += 1
                if failures > resumptions:
                    raise
                body.close()
                time.sleep(random.uniform(0.5, 1.0) * 0.1 * 2**failures)
                continue
            failures = 0
            body.offset += len(chunk)
            body.remaining -= len(chunk)
            yield chunk
    finally:
        body.close()
