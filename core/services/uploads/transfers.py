"""Transfers past the API: what is large goes straight into the object store, under a name that nobody can guess.

Nothing is believed of what was sent: it is read, hashed and stored again like any other upload, so that a second PUT
under the same address, which stays valid for a while, changes nothing that was looked at.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from datasets.objectstore.base import ObjectStore
from errors import NoDirectTransfer, NotFound, TooLarge, UnknownTransfer

FOLDER = "incoming"
#: Seconds in which a PUT must begin.
VALID = 3600
#: Seconds after which what was sent and never used is deleted.
KEPT = 86_400
_KEY = re.compile(r"[0-9a-f]{10}-[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Invitation:
    """Where to send bytes to, until when, and what to call them afterwards."""

    key: str
    url: str
    expires_at: datetime
    method: str = "PUT"


class Transfers:
    """Hands out addresses in the object store, and finds what was sent there."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def invite(self) -> Invitation:
        """Return an address to PUT to; raise NoDirectTransfer where the store has none."""
        now = self._clock()
        key = f"{int(now):010x}-{secrets.token_hex(16)}"
        url = self._store.link(f"{FOLDER}/{key}", seconds=VALID, verb="PUT")
        if url is None:
            raise NoDirectTransfer()
        self._sweep(now)
        return Invitation(key=key, url=url, expires_at=datetime.fromtimestamp(int(now) + VALID, UTC))

    def content(self, key: str, largest: int | None = None) -> Iterator[bytes]:
        """Yield what was sent; raise UnknownTransfer if nothing was, and TooLarge before the first byte."""
        name = self._name(key)
        try:
            size = self._store.size(name)
        except NotFound:
            raise UnknownTransfer() from None
        if largest is not None and size > largest:
            self._store.delete(name)
            raise TooLarge(f"{size} bytes were sent; a model has at most {largest}.")
        return self._store.get(name, 0, size)

    def forget(self, key: str) -> None:
        """Delete what was sent."""
        self._store.delete(self._name(key))

    @staticmethod
    def _name(key: str) -> str:
        if not _KEY.fullmatch(key):
            raise UnknownTransfer()
        return f"{FOLDER}/{key}"

    def _sweep(self, now: float) -> None:
        """Delete what nobody used; keys begin with their time, so the look ends at the first young one."""
        for name in self._store.list(f"{FOLDER}/"):
            begun = name.removeprefix(f"{FOLDER}/").partition("-")[0]
            if int(begun, 16) + KEPT > now:
                return
            self._store.delete(name)
