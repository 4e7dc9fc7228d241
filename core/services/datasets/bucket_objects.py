"""Objects of a bucket as files of a dataset: their paths, whether they changed since a version, and their digests."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from common.errors import StoreUnavailable
from datasets.versions.manifest import ManifestEntry

if TYPE_CHECKING:
    from datasets.objectstore.bucket_reader import BucketReader, ListedObject

#: Maximum of times that an object is read whose ETag does not match its bytes.
READINGS = 4
_MD5 = re.compile("[0-9a-f]{32}")


def objects_within(reader: "BucketReader", bucket: str, prefix: str) -> Iterator[tuple[str, "ListedObject"]]:
    """Yield (relative path, object) of a folder's objects; if it has none, the object with that key."""
    folder = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
    empty = True
    for listed in reader.listing(bucket, folder):
        path = listed.key.removeprefix(folder).lstrip("/")
        if path and not path.endswith("/"):  # keys with a final slash are folder markers of web consoles
            empty = False
            yield path, listed
    if empty and folder != prefix:
        single = next(reader.listing(bucket, prefix), None)
        if single is not None and single.key == prefix:
            yield prefix.rpartition("/")[2], single


def is_unchanged(last: ManifestEntry | None, path: str, listed: "ListedObject") -> bool:
    """Tell whether a listed object is the one of the previous version's entry, by path, key, ETag and size."""
    return (
        last is not None
        and last.path == path
        and last.etag is not None
        and (last.etag, last.size) == (listed.etag, listed.size)
        and last.source.endswith(f"/{listed.key}")
    )


def digest_of(read: Callable[[], Iterable[bytes]], size: int, where: str, etag: str | None) -> str:
    """Return the SHA-256 digest of an object of ``size`` bytes. Raise StoreUnavailable for another size.

    Most ETags are the MD5 of an object's bytes. If an ETag looks like an MD5 but does not match, it may be something
    else, or a bit was flipped in transit: the object is then read until two readings agree.
    """
    seen: set[str] = set()
    while True:
        sha256, md5 = hashlib.sha256(), _md5() if etag is not None and _MD5.fullmatch(etag) else None
        length = 0
        for chunk in read():
            sha256.update(chunk)
            if md5 is not None:
                md5.update(chunk)
            length += len(chunk)
        if length != size:
            raise StoreUnavailable(f"{where} has {length} bytes, not {size} as listed: it changed, or was truncated.")
        digest = "sha256:" + sha256.hexdigest()
        if md5 is None or md5.hexdigest() == etag or digest in seen:
            return digest
        seen.add(digest)
        if len(seen) == READINGS:
            raise StoreUnavailable(f"{where} was read {READINGS} times, with different bytes each time.")


def _md5() -> "hashlib._Hash":
    return hashlib.md5(usedforsecurity=False)
