"""Stream slots: streams and waits of a process, each of which has its slot before the status of its answer is sent."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress

from flask import Flask, g

from common.errors import TooManyStreams

#: Name under which a request keeps its slot until its response has it, or the request has ended.
_KEPT = "stream_slot"


class StreamSlot:
    """An occupied slot. Releasing it twice is harmless."""

    def __init__(self, slots: "StreamSlots") -> None:
        self._slots: StreamSlots | None = slots

    def release(self) -> None:
        """Make the slot free."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.release()


class StreamSlots:
    """The slots of a process: at most ``most`` are occupied."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._occupied = 0
        self._lock = threading.Lock()

    def occupy(self) -> StreamSlot:
        """Occupy a slot; raise TooManyStreams if none is free."""
        with self._lock:
            if self._occupied >= self._most:
                raise TooManyStreams(retry_after=5)
            self._occupied += 1
        return StreamSlot(self)

    def release(self) -> None:
        """Count a slot as free; called by the slot itself."""
        with self._lock:
            self._occupied -= 1


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


def keep(slots: StreamSlots) -> None:
    """Occupy a slot for this request, once; it is released with the request unless its response takes it."""
    if _KEPT not in g:
        setattr(g, _KEPT, slots.occupy())


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
