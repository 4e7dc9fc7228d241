"""Spooling of forms: a form's files are written to disk while they arrive, and only above the floor of free disk."""

from typing import Any

from flask import request

from api.body import read_form
from api.context import services
from core.services.uploads.disk_floor import INTERVAL, DiskFloor


class WatchedBody:
    """Body stream that raises StorageFull when the disk reaches the floor; smaller bodies than INTERVAL pass."""

    def __init__(self, stream: Any, floor: DiskFloor) -> None:
        self._stream = stream
        self._floor = floor
        self._unchecked = 0

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes."""
        return self._counted(self._stream.read(size))

    def readline(self, size: int = -1) -> bytes:
        """Read a line of up to ``size`` bytes."""
        return self._counted(self._stream.readline(size))

    def _counted(self, data: bytes) -> bytes:
        self._unchecked += len(data)
        if self._unchecked >= INTERVAL:
            self._floor.check()
            self._unchecked = 0
        return data


def spool_form() -> None:
    """Parse this request's multipart form, spooling its files; raise StorageFull below the floor of free disk."""
    floor = services().disk_floor
    if (request.content_length or 0) >= INTERVAL:
        floor.check()
    request.environ["wsgi.input"] = WatchedBody(request.environ["wsgi.input"], floor)
    read_form()
