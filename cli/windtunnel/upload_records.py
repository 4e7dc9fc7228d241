"""Unfinished uploads that the client remembers, so that an interrupted upload goes on where it stopped."""

import json
from pathlib import Path

import msgspec

from windtunnel.contexts import write_privately

#: Uploads that are remembered; the platform deletes unfinished uploads after a day.
MOST = 100


class UploadRecords:
    """A file with the addresses of unfinished uploads, by platform and content.

    A file that cannot be read or written costs the resumption only, so it is ignored.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, server: str, content: str) -> str | None:
        """Return the address of the unfinished upload of a content, if there is one."""
        return self._read().get(f"{server} {content}")

    def put(self, server: str, content: str, url: str) -> None:
        """Remember an unfinished upload."""
        self._write({**self._read(), f"{server} {content}": url})

    def drop(self, server: str, content: str) -> None:
        """Forget an upload, because it is finished or gone."""
        uploads = self._read()
        if uploads.pop(f"{server} {content}", None):
            self._write(uploads)

    def _read(self) -> dict[str, str]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError):
            return {}

    def _write(self, uploads: dict[str, str]) -> None:
        try:
            write_privately(self._path, json.dumps(dict(list(uploads.items())[-MOST:])))
        except OSError:
            pass
