"""Object stores: the port and its adapters, selected by URL."""

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from datasets.objectstore.base import ObjectStore
from datasets.objectstore.bucket_names import check_bucket_name
from datasets.objectstore.connections import Connection
from datasets.objectstore.filesystem import FilesystemStore

if TYPE_CHECKING:
    from datasets.objectstore.s3 import S3Store

__all__ = ["ObjectStore", "check_url", "open_store", "prepare_store"]

AMAZON = "https://s3.amazonaws.com"


def check_url(url: str) -> None:
    """Raise ValueError, with a sentence for the operator, if a URL cannot name a store."""
    parts = urlsplit(url)
    if parts.scheme not in {"file", "s3"}:
        raise ValueError(f"unsupported object store URL scheme {parts.scheme}://; use file:///path or s3://bucket")
    if parts.scheme == "s3":
        if unknown := sorted(set(parse_qs(parts.query)) - {"endpoint", "region"}):
            raise ValueError(
                f"unknown options in the object store URL: {', '.join(unknown)}; allowed are endpoint and region"
            )
        if parts.username or parts.password or parts.port:
            raise ValueError("an object store URL is s3://bucket/prefix; its credentials are separate settings")
        check_bucket_name(parts.netloc)


def open_store(url: str, credentials: tuple[str, str] = ("", "")) -> "FilesystemStore | S3Store":
    """Open the store of a URL: ``file:///path``, or ``s3://bucket/prefix?endpoint=https://host&region=name``.

    ``credentials``: access key and secret key. A URL must not contain them, because URLs are logged. Raise ValueError.
    """
    check_url(url)
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FilesystemStore(parts.path)
    from datasets.objectstore.s3 import S3Store  # its client takes a quarter of a second to import

    options = parse_qs(parts.query)
    connection = Connection(
        name="objects",
        endpoint=options.get("endpoint", [AMAZON])[0],
        region=options.get("region", ["us-east-1"])[0],
        access_key=credentials[0],
        secret_key=credentials[1],
    )
    return S3Store(connection, parts.netloc, parts.path.strip("/"))


def prepare_store(url: str, credentials: tuple[str, str] = ("", "")) -> None:
    """Create the bucket of a URL unless it exists. Raise ValueError if it can never be used, else StoreUnavailable."""
    store = open_store(url, credentials)
    if not isinstance(store, FilesystemStore):
        store.create_bucket()
