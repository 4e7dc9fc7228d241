"""S3 object store over the minio client: objects of a bucket under a prefix, multipart uploads, presigned URLs.

Errors of the server become StoreUnavailable. Their messages name only bucket and key: the client's own messages contain
hosts, and are dropped.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import BinaryIO, cast
from urllib.parse import quote

from minio.error import S3Error, ServerError

from common.errors import NotFound, PlatformError, StorageFull, StoreUnavailable
from datasets.objectstore.base import check_key
from datasets.objectstore.connection_pools import LIMITS, ConnectionLimits, connection_pools
from datasets.objectstore.connections import Connection
from datasets.objectstore.s3_body import ResponseBody, open_body, resuming
from datasets.objectstore.s3_client import CLIENT_ERRORS, MISSING, client

logger = logging.getLogger(__name__)

#: Bytes of a single-request upload; larger objects are multipart uploads with parts of this size (S3: at most 10,000).
PART = 16 << 20
#: Age after which an unfinished multipart upload is aborted: its parts cost money, and no listing shows them.
ABANDONED = timedelta(days=1)
#: Seconds between two sweeps for unfinished multipart uploads.
SWEEP_INTERVAL = 3600.0

_SAFE = "Nothing was lost; try again shortly."
_FULL = frozenset({"XMinioStorageFull", "StorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded"})


class S3Store:
    """Object store in a bucket, under a prefix. The bucket is created when the first object is put."""

    def __init__(
        self, connection: Connection, bucket: str, prefix: str = "", *, limits: ConnectionLimits = LIMITS
    ) -> None:
        self.connection = connection
        self.bucket = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self._limits = limits
        self._pools = connection_pools(limits)
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
            body = open_body(self._client, self.bucket, name, start, length)
        return self._chunks_of(key, body)

    def _chunks_of(self, key: str, body: ResponseBody) -> Iterator[bytes]:
        with self._translated(key):
            reopen = partial(open_body, self._client, self.bucket, self.prefix + key)
            yield from resuming(reopen, body, self._limits.resumptions)

    def size(self, key: str) -> int:
        """Return the size in bytes."""
        name = self.prefix + check_key(key)
        try:
            with self._translated(key):
                size = self._client.stat_object(self.bucket, name).size
        except NotFound:  # the answer to HEAD has no body that would tell a missing object from a missing bucket
            with self._translated(""):
                if self._client.bucket_exists(self.bucket):
                    raise
            raise self._no_bucket() from None
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
            try:
                for object in objects:
                    yield str(object.object_name).removeprefix(self.prefix)
            except S3Error as error:
                if error.code != "NoSuchBucket" or self._bucket_exists:  # before the first object is put
                    raise

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

    def create_bucket(self) -> None:
        """Create the bucket unless it exists. Raise ValueError if the server refuses name, keys or access."""
        try:
            self._create_bucket()
        except S3Error as error:
            raise ValueError(f"the bucket {self.bucket} cannot be used: the server answers {error.code}") from None
        except CLIENT_ERRORS as error:
            raise StoreUnavailable(f"The object store does not answer ({type(error).__name__}).") from None

    def _no_bucket(self) -> StoreUnavailable:
        logger.warning("object store: there is no bucket %s (OBJECT_STORE_URL)", self.bucket)
        return StoreUnavailable(f"The object store has no bucket {self.bucket} (OBJECT_STORE_URL).")

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
            if error.code == "NoSuchBucket":
                raise self._no_bucket() from None
            if error.code in MISSING:
                raise NotFound(f"There is no object {key}.") from None
            if error.code in _FULL:
                raise StorageFull() from None
            logger.warning("object store: error %s for %s", error.code, key or "its bucket")
            raise StoreUnavailable(f"The object store (OBJECT_STORE_URL) answers {error.code}. {_SAFE}") from None
        except CLIENT_ERRORS as error:
            if isinstance(error, ServerError) and error.status_code == 507:
                raise StorageFull() from None
            logger.warning("object store: %s for %s", type(error).__name__, key or "its bucket")
            raise StoreUnavailable(f"The object store (OBJECT_STORE_URL) does not answer. {_SAFE}") from None


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
