"""S3 client: the minio client over connection pools with time-outs and retries."""

from xml.etree.ElementTree import ParseError

from minio import Minio
from minio.error import MinioException
from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

from datasets.objectstore.connection_pools import LIMITS, connection_pools
from datasets.objectstore.connections import Connection, address

#: Codes of S3 errors that mean that an object or its bucket does not exist.
MISSING = frozenset({"NoSuchKey", "NoSuchBucket", "NoSuchObject", "ResourceNotFound"})
#: Errors of the client that are not responses of S3: transport, and responses that cannot be read.
CLIENT_ERRORS = (MinioException, HTTPError, ParseError, UnicodeError)


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
