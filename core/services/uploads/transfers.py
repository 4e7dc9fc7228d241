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
from core.domain.access.scopes import DEFAULT_PROJECT, Scope
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

    def presign(self, scope: Scope) -> PresignedUpload:
        """Return a presigned URL for a PUT, whose content is the project's. Raise NoDirectTransfer if there is none."""
        now = self._clock()
        key = f"{int(now):010x}-{secrets.token_hex(16)}"
        url = self._store.link(_name(scope, key), seconds=URL_TTL, verb="PUT")
        if url is None:
            raise NoDirectTransfer()
        self._sweep(now)
        return PresignedUpload(key=key, url=url, expires_at=datetime.fromtimestamp(int(now) + URL_TTL, UTC))

    def content(self, scope: Scope, key: str, largest: int | None = None) -> Iterator[bytes]:
        """Yield the content. Raise UnknownTransfer if the project sent none; TooLarge beyond ``largest`` bytes."""
        name = _name(scope, key)
        try:
            size = self._store.size(name)
        except NotFound:
            raise UnknownTransfer() from None
        if largest is not None and size > largest:
            self._store.delete(name)
            raise TooLarge(f"{size:,} bytes were sent; a model has at most {largest:,} (WINDTUNNEL_MAX_UPLOAD).")
        return self._store.get(name, 0, size)

    def delete(self, scope: Scope, key: str) -> None:
        """Delete the content."""
        self._store.delete(_name(scope, key))

    def _sweep(self, now: float) -> None:
        """Delete unused content; keys begin with their time, so the listing stops at the first recent key."""
        for name in self._store.list(f"{FOLDER}/"):
            begun = name.removeprefix(f"{FOLDER}/").partition("-")[0]
            if int(begun, 16) + KEPT > now:
                return
            self._store.delete(name)


def _name(scope: Scope, key: str) -> str:
    """Return the name of the object, which only the project of the transfer has. Raise UnknownTransfer for no key."""
    if not _KEY.fullmatch(key):
        raise UnknownTransfer()
    # processes of an earlier version know the transfers of the first project alone
    return f"{FOLDER}/{key}" + (f".{scope.owner}" if scope.owner != DEFAULT_PROJECT else "")
