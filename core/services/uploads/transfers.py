"""Direct transfers: clients PUT large content to the object store through presigned URLs, under unguessable keys.

The content is then read, hashed and stored again like any upload, so that a second PUT to the same URL, which stays
valid for a while, cannot change content that was checked.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from common.errors import NoDirectTransfer, NotFound, TooLarge, UnknownTransfer
from datasets.objectstore.base import ObjectStore

FOLDER = "incoming"
#: Seconds for which a presigned URL is valid.
URL_TTL = 3600
#: Seconds after which unused content is deleted.
KEPT = 86_400
_KEY = re.compile(r"[0-9a-f]{10}-[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PresignedUpload:
    """A presigned URL for one PUT; ``key`` names the content in later requests."""

    key: str
    url: str
    expires_at: datetime
    method: str = "PUT"


class Transfers:
    """Presigns URLs and reads the content that was sent there."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def presign(self) -> PresignedUpload:
        """Return a presigned URL for a PUT. Raise NoDirectTransfer if the object store has none."""
        now = self._clock()
        key = f"{int(now):010x}-{secrets.token_hex(16)}"
        url = self._store.link(f"{FOLDER}/{key}", seconds=URL_TTL, verb="PUT")
        if url is None:
            raise NoDirectTransfer()
        self._sweep(now)
        return PresignedUpload(key=key, url=url, expires_at=datetime.fromtimestamp(int(now) + URL_TTL, UTC))

    def content(self, key: str, largest: int | None = None) -> Iterator[bytes]:
        """Yield the content. Raise UnknownTransfer if nothing was sent; TooLarge beyond ``largest`` bytes."""
        name = self._name(key)
        try:
            size = self._store.size(name)
        except NotFound:
            raise UnknownTransfer() from None
        if largest is not None and size > largest:
            self._store.delete(name)
            raise TooLarge(f"{size:,} bytes were sent; a model has at most {largest:,} (WINDTUNNEL_MAX_UPLOAD).")
        return self._store.get(name, 0, size)

    def delete(self, key: str) -> None:
        """Delete the content."""
        self._store.delete(self._name(key))

    @staticmethod
    def _name(key: str) -> str:
        if not _KEY.fullmatch(key):
            raise UnknownTransfer()
        return f"{FOLDER}/{key}"

    def _sweep(self, now: float) -> None:
        """Delete unused content; keys begin with their time, so the listing stops at the first recent key."""
        for name in self._store.list(f"{FOLDER}/"):
            begun = name.removeprefix(f"{FOLDER}/").partition("-")[0]
            if int(begun, 16) + KEPT > now:
                return
            self._store.delete(name)
