"""Spooling of forms: a form's files are written to disk while they arrive, and only above the floor of free disk."""

from collections.abc import Callable
from typing import Any, cast

from flask import request

from api import json_limits
from api.body import SpooledRequest, read_form
from api.context import file_services as services
from common.errors import TooLarge
from core.services.uploads.disk_floor import INTERVAL, DiskFloor

#: Most bytes of a form besides those of its files, which are held in memory: fields, and heads of parts.
MOST_FIELDS = 2 * json_limits.MOST_BYTES


class WatchedBody:
    """Body stream that raises StorageFull when the disk reaches the floor; smaller bodies than INTERVAL pass.

    Raises TooLarge when more than MOST_FIELDS bytes are not of a file. ``spooled``: the bytes that are.
    """

    def __init__(self, stream: Any, floor: DiskFloor, spooled: Callable[[], int]) -> None:
        self._stream = stream
        self._floor = floor
        self._spooled = spooled
        self._received = self._unchecked = 0

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes."""
        return self._counted(self._stream.read(size))

    def readline(self, size: int = -1) -> bytes:
        """Read a line of up to ``size`` bytes."""
        return self._counted(self._stream.readline(size))

    def _counted(self, data: bytes) -> bytes:
        if self._received - self._spooled() > MOST_FIELDS:
            raise TooLarge(f"The form's fields have more than {MOST_FIELDS:,} bytes together. Send bytes as a file.")
        self._received += len(data)
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
    form = cast(SpooledRequest, request)
    request.environ["wsgi.input"] = WatchedBody(request.environ["wsgi.input"], floor, lambda: form.spooled_bytes)
    read_form()
