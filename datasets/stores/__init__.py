"""Object stores: the port and its adapters, chosen by URL."""

from urllib.parse import urlsplit

from datasets.stores.base import ObjectStore
from datasets.stores.filesystem import FilesystemStore

__all__ = ["ObjectStore", "open_store"]


def open_store(url: str) -> ObjectStore:
    """Open the store a URL names; ``file:///path`` is a folder."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FilesystemStore(parts.path)
    raise ValueError(f"no object store for {parts.scheme}:// URLs; use file:///path")
