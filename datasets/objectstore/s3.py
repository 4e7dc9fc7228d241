"""Objects in an S3 bucket, through the minio client; and the buckets of others, listed and read.

What goes wrong at the far end becomes StoreUnavailable (ours) or OriginFailed (an operator's connection). Neither says
more than bucket and key: the client's own messages hold hosts, and are dropped.
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
# It warns at each retry, with the host and with whatever bytes a broken server sent; what comes of them is said here.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

CHUNK = 1 << 20
#: What goes up in one request; larger objects go up in parts of this size, of which S3 takes 10,000.
PART = 16 << 20
#: Parts of uploads that nobody finished cost money and are listed nowhere.
ABANDONED = timedelta(days=1)
#: Seconds between two looks for them.
SWEEPS = 3600.0

_MISSING = frozenset({"NoSuchKey", "NoSuchBucket", "NoSuchObject", "ResourceNotFound"})
_FULL = frozenset({"XMinioStorageFull", "StorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded"})
_STRANGE = (MinioException, HTTPError, ParseError, UnicodeError)


@dataclass(frozen=True, slots=True)
class S3Limits:
    """Limits of the requests to an S3 server."""

    #: Seconds until a connection is open.
    connect: float = 3.0
    #: Seconds between two reads that bring bytes.
    read: float = 30.0
    #: Times that a broken download is resumed in a row without a byte of progress.
    resumptions: int = 5


LIMITS = S3Limits()


class S3Store:
    """An object store in a bucket, under a prefix. The bucket is made when the first object is put."""

    def __init__(self, connection: Connection, bucket: str, prefix: str = "", *, limits: S3Limits = LIMITS) -> None:
        self.connection = connection
        self.bucket = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self._limits = limits
        self._pools = _pools(limits)
        self._client = client(connection, self._pools)
        self._there = False
        self._swept = 0.0

    def put(self, key: str, chunks: Iterable[bytes]) -> int:
        """Store an object: one request up to ``PART`` bytes, parts of a multipart upload beyond."""
        name = self.prefix + check_key(key)
        source = _Source(chunks)
        try:
            with self._translated(key):
                self._make_bucket()
                stream = cast(BinaryIO, source)
                # One part at a time: the client's parallel uploads leave their threads behind when a source breaks.
                self._client.put_object(self.bucket, name, stream, -1, part_size=PART, num_parallel_uploads=1)
        except PlatformError:
            if source.failure is not None:  # what went wrong first; giving up the upload may have gone wrong as well
                raise source.failure from None
            raise
        if source.size > PART:
            self._sweep()
        return source.size

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Ask at once, so that a missing object is known before the first chunk; go on where a body breaks off."""
        name = self.prefix + check_key(key)
        if length is not None and length <= 0:
            self.size(key)
            return iter(())
        with self._translated(key):
            opened = _open(self._client, self.bucket, name, start, length)
        return self._rest(key, opened)

    def _rest(self, key: str, opened: "_Opened") -> Iterator[bytes]:
        with self._translated(key):
            again = partial(_open, self._client, self.bucket, self.prefix + key)
            yield from _pour(again, opened, self._limits.resumptions)

    def size(self, key: str) -> int:
        """Return the size in bytes."""
        with self._translated(key):
            found = self._client.stat_object(self.bucket, self.prefix + check_key(key)).size
        if found is None:
            raise StoreUnavailable(f"The object store does not say how large {key} is.")
        return found

    def delete(self, key: str) -> None:
        """Remove an object."""
        with suppress(NotFound), self._translated(key):
            self._client.remove_object(self.bucket, self.prefix + check_key(key))

    def list(self, prefix: str) -> Iterator[str]:
        """Yield keys page by page."""
        found = self._client.list_objects(self.bucket, prefix=self.prefix + prefix, recursive=True)
        with suppress(NotFound), self._translated(prefix):
            for one in found:
                yield str(one.object_name).removeprefix(self.prefix)

    def link(self, key: str, *, seconds: int, verb: str = "GET", filename: str | None = None) -> str | None:
        """Return a presigned URL; to make one asks nobody."""
        name = self.prefix + check_key(key)
        told: dict[str, str | list[str] | tuple[str]] = {}
        if filename is not None:
            told["response-content-disposition"] = f"attachment; filename*=UTF-8''{quote(filename, safe='')}"
            told["response-content-type"] = "application/octet-stream"
        with self._translated(key):
            if verb != "GET":
                self._make_bucket()
            return self._client.get_presigned_url(
                verb, self.bucket, name, timedelta(seconds=seconds), response_headers=told
            )

    def close(self) -> None:
        """Close the connections that no request uses."""
        for key in self._pools.pools.keys():
            self._pools.pools[key].close()

    # -- the bucket

    def _make_bucket(self) -> None:
        if self._there:
            return
        if not self._client.bucket_exists(self.bucket):
            try:
                self._client.make_bucket(self.bucket)
            except S3Error as error:
                if error.code not in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}:
                    raise
        self._there = True

    def _sweep(self) -> None:
        """Give up uploads in parts that were begun long ago; now and then, after a large object."""
        if self._swept and time.monotonic() - self._swept < SWEEPS:
            return
        self._swept = time.monotonic()
        try:
            with self._translated(""):
                self.sweep(datetime.now(UTC) - ABANDONED)
        except PlatformError:
            logger.warning("abandoned uploads in parts were not swept")

    def sweep(self, before: datetime) -> int:
        """Give up the uploads in parts that were begun before a time, and return how many there were."""
        # The client has these two requests, under names with an underscore.
        found = self._client._list_multipart_uploads(self.bucket, prefix=self.prefix)
        old = [one for one in found.uploads if one.initiated_time and one.initiated_time < before]
        for one in old:
            with suppress(S3Error):  # finished or given up meanwhile
                self._client._abort_multipart_upload(self.bucket, str(one.object_name), str(one.upload_id))
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
            logger.warning("the object store answered %s about %s", error.code, key or "its bucket")
            raise StoreUnavailable() from None
        except _STRANGE as error:
            if isinstance(error, ServerError) and error.status_code == 507:
                raise StorageFull() from None
            logger.warning("the object store failed with %s about %s", type(error).__name__, key or "its bucket")
            raise StoreUnavailable() from None


# -- buckets of others


@dataclass(frozen=True, slots=True)
class Listed:
    """An object of somebody's bucket. ``size`` in bytes."""

    key: str
    size: int
    etag: str


class Reader:
    """Lists and reads the buckets that a connection leads to; one for a connection and process, for any thread."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._client = client(connection, _pools(LIMITS, guarded=True))

    def listing(self, bucket: str, prefix: str) -> Iterator[Listed]:
        """Yield the objects under a prefix, sorted by key, a page at a time."""
        with self._translated(bucket, prefix):
            for one in self._client.list_objects(bucket, prefix=prefix, recursive=True):
                if one.object_name is not None and one.size is not None and not one.is_dir:
                    yield Listed(one.object_name, one.size, (one.etag or "").strip('"'))

    def read(
        self, bucket: str, key: str, etag: str | None = None, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """Yield an object's bytes, as long as it is the one with this ``etag``; taken up again where it breaks off."""

        with self._translated(bucket, key):
            opened = _open(self._client, bucket, key, start, length, etag)
        return self._rest(bucket, key, opened)

    def _rest(self, bucket: str, key: str, opened: "_Opened") -> Iterator[bytes]:
        with self._translated(bucket, key):
            yield from _pour(partial(_open, self._client, bucket, key), opened, LIMITS.resumptions)

    @contextmanager
    def _translated(self, bucket: str, key: str) -> Iterator[None]:
        place = f"s3://{bucket}/{key} (connection {self.connection.name})"
        try:
            yield
        except S3Error as error:
            if error.code in _MISSING:
                raise OriginFailed(f"There is no {place}.", bucket=bucket, key=key) from None
            if error.code == "PreconditionFailed":
                raise OriginChanged(f"{place} was changed since it was registered.", bucket=bucket, key=key) from None
            raise OriginFailed(f"{place} cannot be read: {error.code}.", bucket=bucket, key=key) from None
        except _STRANGE as error:
            detail = f"{place} cannot be read: {_why(error)}."
            raise OriginFailed(detail, bucket=bucket, key=key) from None


def _why(error: Exception) -> str:
    """Say in words what went wrong on the line; the client's own hold hosts."""
    cause = getattr(error, "reason", None)
    if isinstance(cause, Exception):  # of what was tried several times
        return _why(cause)
    if isinstance(error, ConnectTimeoutError | NewConnectionError):
        return "it cannot be reached"
    if isinstance(error, TimeoutError_):
        return "it does not answer"
    if isinstance(error, ServerError):
        return f"it answers {error.status_code}"
    if isinstance(error, ProtocolError):
        return "the connection broke"
    return "its answers make no sense"


def listing(connection: Connection, bucket: str, prefix: str) -> Iterator[Listed]:
    """Yield the objects under a prefix of somebody's bucket, sorted by key, in constant memory."""
    return Reader(connection).listing(bucket, prefix)


def read(connection: Connection, bucket: str, key: str, etag: str | None = None) -> Iterator[bytes]:
    """Yield an object of somebody's bucket; for more than one, keep a Reader."""
    return Reader(connection).read(bucket, key, etag)


# -- the client


class _GuardedHTTP(HTTPConnection):
    """Hangs up where the name led to an address that may not be asked, whatever it resolved to before."""

    def _new_conn(self) -> Any:
        return _permitted(self, super()._new_conn())


class _GuardedHTTPS(HTTPSConnection):
    def _new_conn(self) -> Any:
        return _permitted(self, super()._new_conn())


class _GuardedPool(HTTPConnectionPool):
    ConnectionCls = _GuardedHTTP


class _GuardedTLSPool(HTTPSConnectionPool):
    ConnectionCls = _GuardedHTTPS


def _permitted(connection: HTTPConnection, end: Any) -> Any:
    if not permitted(end.getpeername()[0]):
        end.close()
        raise NewConnectionError(connection, "this address may not be asked")
    return end


def _pools(limits: S3Limits, *, guarded: bool = False) -> PoolManager:
    """Make pools of connections that wait and retry for a while, and follow no redirect; for many threads."""
    # A body that was read in part is taken up again by `_pour`; here only requests without an answer are repeated.
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
    """Make a client over these pools of connections."""
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


class _Source:
    """Chunks as a file to be read once. Keeps what its source failed with, and how much came."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._held: list[bytes] = []
        self._length = 0
        self.size = 0
        self.failure: BaseException | None = None

    def read(self, size: int) -> bytes:
        """Return exactly so many bytes, fewer only at the end."""
        while self._length < size and (chunk := self._next()) is not None:
            self._held.append(chunk)
            self._length += len(chunk)
        whole = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        found, rest = (whole, b"") if len(whole) <= size else (whole[:size], whole[size:])
        self._held, self._length = [rest] if rest else [], len(rest)
        self.size += len(found)
        return found

    def _next(self) -> bytes | None:
        try:
            chunk = next(self._chunks, None)
        except BaseException as failure:
            self.failure = failure
            raise
        return chunk if chunk is None or isinstance(chunk, bytes) else bytes(chunk)


@dataclass(slots=True)
class _Opened:
    """A body that has begun: where it stands in the object, how much of it is to come, and of which version."""

    response: BaseHTTPResponse | None
    at: int
    left: int
    etag: str | None

    def close(self) -> None:
        if self.response is not None:
            self.response.close()  # what is left unread makes the connection useless
            self.response.release_conn()
            self.response = None


class _Strange(HTTPError):
    """The answer cannot be true."""


def _open(
    client: Minio, bucket: str, name: str, start: int, length: int | None = None, etag: str | None = None
) -> _Opened:
    """Ask for a part of an object, and see that what is announced is what was asked for."""
    # A range also for the whole: the answer to one tells the size of the object beside the length of the body.
    end = "" if length is None else str(start + length - 1)
    wanted: dict[str, str | list[str] | tuple[str]] = {"Range": f"bytes={start}-{end}"}
    if etag:
        wanted["If-Match"] = f'"{etag}"'
    try:
        response = client.get_object(bucket, name, request_headers=wanted)
    except S3Error as error:
        if error.code != "InvalidRange":
            raise
        client.stat_object(bucket, name)
        return _Opened(None, start, 0, etag)
    opened = _Opened(response, start, 0, (response.headers.get("ETag") or "").strip('"') or etag)
    try:
        announced = int(response.headers["Content-Length"])
        first, last, total = _range(response)
        stop = total if length is None else min(start + length, total)
        if (first, last + 1, announced) != (start, stop, stop - start):
            raise _Strange("another range than was asked for")
        opened.left = announced
    except (KeyError, ValueError, _Strange):
        opened.close()
        raise _Strange("an answer that cannot be true") from None
    return opened


def _range(response: BaseHTTPResponse) -> tuple[int, int, int]:
    if response.status != 206:
        raise _Strange("the whole for a part")
    unit, _, rest = response.headers["Content-Range"].partition(" ")
    span, _, total = rest.partition("/")
    first, _, last = span.partition("-")
    if unit != "bytes":
        raise _Strange("a range of no bytes")
    return int(first), int(last), int(total)


def _pour(again: Callable[..., _Opened], opened: _Opened, resumptions: int) -> Iterator[bytes]:
    """Yield a body; where it breaks off, ask for the rest of the same version, a few times, waiting ever longer."""
    fruitless = 0
    try:
        while opened.left:
            try:
                if opened.response is None:
                    opened = again(opened.at, opened.left, opened.etag)
                chunk = cast(BaseHTTPResponse, opened.response).read(min(CHUNK, opened.left))
                if not chunk:
                    raise _Strange("the end before its time")
            except (HTTPError, ServerError):
                fruitless += 1
                if fruitless > resumptions:
                    raise
                opened.close()
                time.sleep(random.uniform(0.5, 1.0) * 0.1 * 2**fruitless)
                continue
            fruitless = 0
            opened.at += len(chunk)
            opened.left -= len(chunk)
            yield chunk
    finally:
        opened.close()
