"""Object stores: the port and its adapters, chosen by URL."""

from urllib.parse import parse_qs, urlsplit

from datasets.objectstore.base import ObjectStore
from datasets.objectstore.connections import Connection
from datasets.objectstore.filesystem import FilesystemStore

__all__ = ["ObjectStore", "open_store"]

AMAZON = "https://s3.amazonaws.com"


def open_store(url: str, credentials: tuple[str, str] = ("", "")) -> ObjectStore:
    """Open the store a URL names: ``file:///path``, or ``s3://bucket/prefix?endpoint=https://host&region=name``.

    ``credentials`` are the access key and the secret key; a URL has none, for URLs are printed.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FilesystemStore(parts.path)
    if parts.scheme == "s3":
        from datasets.objectstore.s3 import S3Store  # its client takes a quarter of a second to import

        asked = parse_qs(parts.query)
        if unknown := sorted(set(asked) - {"endpoint", "region"}):
            raise ValueError(f"an object store's URL says nothing of {', '.join(unknown)}; endpoint and region it may")
        if parts.username or parts.password or parts.port:
            raise ValueError("an object store's URL is s3://bucket/prefix; its credentials are settings of their own")
        connection = Connection(
            name="objects",
            endpoint=asked.get("endpoint", [AMAZON])[0],
            region=asked.get("region", ["us-east-1"])[0],
            access_key=credentials[0],
            secret_key=credentials[1],
        )
        return S3Store(connection, parts.netloc, parts.path.strip("/"))
    raise ValueError(f"no object store for {parts.scheme}:// URLs; use file:///path or s3://bucket")
