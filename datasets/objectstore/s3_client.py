"""S3 client: the minio client over connection pools with time-outs and retries, guarded for operators' connections.

A guarded pool closes connections to forbidden addresses.
"""

import logging
from dataclasses import dataclass
from xml.etree.ElementTree import ParseError

from minio import Minio
from minio.error import MinioException
from urllib3 import PoolManager, Retry, Timeout
from urllib3.exceptions import HTTPError

from datasets.objectstore.connections import Connection, address, permitted
from datasets.objectstore.guarded_pools import guard

# urllib3 logs a warning per retry, with the host and bytes of the response; the caller logs the outcome.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

#: Codes of S3 errors that mean that an object or its bucket does not exist.
MISSING = frozenset({"NoSuchKey", "NoSuchBucket", "NoSuchObject", "ResourceNotFound"})
#: Errors of the client that are not responses of S3: transport, and responses that cannot be read.
CLIENT_ERRORS = (MinioException, HTTPError, ParseError, UnicodeError)


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


def connection_pools(limits: S3Limits, *, guarded: bool = False) -> PoolManager:
    """Create thread-safe connection pools with time-outs and retries, without redirects."""
    # `s3_body.resuming` resumes partially read bodies; urllib3 repeats only requests without a response.
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
    return guard(pools, permitted) if guarded else pools


def client(connection: Connection, pools: PoolManager | None = None) -> Minio:
    """Create a minio client over these connection pools."""
    parts = address(connection)
    return Minio(
        parts.netloc,
        connection.access_key or None,
        connection.secret_key or None,
        secure=parts.scheme == "https",
        region=connection.region,
        http_client=pools or connection_pools(LIMITS),
    )
