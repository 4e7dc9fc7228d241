"""Stream slots: streams and waits of a process, each of which has its slot before the status of its answer is sent.

A project has a share of them, and each of its users half of that share: neither takes the streams of others.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from flask import Flask, g

from common.errors import TooManyRequests, TooManyStreams

#: Name under which a request keeps its slot until its response has it, or the request has ended.
_KEPT = "stream_slot"
#: Seconds after which a refused stream is tried again: nobody knows when another one ends.
PAUSE = 5


@dataclass(frozen=True, slots=True)
class StreamOwner:
    """Whose a stream is. ``page``: a browser has it, by its session, and only the share of the project bounds it.

    Scripts of a user cannot take the streams of his page then.
    """

    project: str
    user: str
    page: bool = False


#: A project, and a user in it; no user: the project as a whole.
_Counted = tuple[str, str]


class StreamSlot:
    """An occupied slot. Releasing it twice is harmless."""

    def __init__(self, slots: "StreamSlots", counted: tuple[_Counted, ...] = ()) -> None:
        self._slots: StreamSlots | None = slots
        self._counted = counted

    def release(self) -> None:
        """Make the slot free."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.release(self._counted)


class StreamSlots:
    """The slots of a process: at most ``most`` are occupied, ``share`` of them by one project; None: as many."""

    def __init__(self, most: int, share: int | None = None) -> None:
        self._most = most
        self._share = share
        self._occupied = 0
        self._owned: Counter[_Counted] = Counter()
        self._lock = threading.Lock()

    def occupy(self, owner: StreamOwner | None = None) -> StreamSlot:
        """Occupy a slot; raise TooManyStreams if none is free, TooManyRequests if its owner has its share.

        ``owner``: None on a platform without accounts.
        """
        with self._lock:
            counted = self._keys_of(owner)
            if self._occupied >= self._most:
                raise TooManyStreams(retry_after=PAUSE)
            self._occupied += 1
            self._owned.update(counted)
        return StreamSlot(self, counted)

    def _keys_of(self, owner: StreamOwner | None) -> tuple[_Counted, ...]:
        """Return what a stream of an owner is counted for; raise TooManyRequests if one of them has its share."""
        if owner is None or self._share is None:
            return ()
        shares: dict[_Counted, int] = {(owner.project, ""): self._share} if owner.project else {}
        if not owner.page:
            shares[owner.project, owner.user] = max(1, self._share // 2)
        for (project, user), share in shares.items():
            if self._owned[project, user] >= share:
                whose = f"{user} has" if user else f"Project {project} has"
                raise TooManyRequests(
                    f"{whose} {share:,} streams and waits open, which is its share of this server's"
                    " (WINDTUNNEL_PROJECT_STREAMS). Close some, poll instead, or try again shortly.",
                    retry_after=PAUSE,
                )
        return tuple(shares)

    def release(self, counted: tuple[_Counted, ...] = ()) -> None:
        """Count a slot as free; called by the slot itself."""
        with self._lock:
            self._occupied -= 1
            for key in counted:
                self._owned[key] -= 1
                if not self._owned[key]:
                    del self._owned[key]


class HeldStream:
    """Chunks of a response that has a slot; both end when the response is closed."""

    def __init__(self, chunks: Iterable[bytes], slot: StreamSlot) -> None:
        self._chunks = chunks
        self._slot = slot

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._chunks)

    def close(self) -> None:
        """End the chunks, then release the slot."""
        try:
            with suppress(AttributeError):
                self._chunks.close()  # type: ignore[attr-defined]
        finally:
            self._slot.release()


def keep(slots: StreamSlots, owner: StreamOwner | None = None) -> None:
    """Occupy a slot for this request, once; it is released with the request unless its response takes it."""
    if _KEPT not in g:
        setattr(g, _KEPT, slots.occupy(owner))


def held(chunks: Iterable[bytes]) -> Iterable[bytes]:
    """Return the chunks of this request's response, which takes the slot of the request."""
    slot: StreamSlot | None = g.pop(_KEPT, None)
    return chunks if slot is None else HeldStream(chunks, slot)


def register(app: Flask) -> None:
    """Release the slots that requests keep at their end."""

    def release(error: BaseException | None) -> None:
        if (slot := g.pop(_KEPT, None)) is not None:
            slot.release()

    app.teardown_request(release)
