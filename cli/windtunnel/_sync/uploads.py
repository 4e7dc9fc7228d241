# Generated from windtunnel/_async/uploads.py by scripts/sync_client.py; change that file.
"""Resumable uploads by tus 1.0 (https://tus.io/protocols/resumable-upload): creation, offsets, resumption."""

import base64
from collections.abc import Callable, Iterator

import httpx

from windtunnel import retries
from windtunnel._sync.transport import Attempts, Transport, path, refused
from windtunnel.contents import Content
from windtunnel.errors import Refused, WindtunnelError
from windtunnel.upload_records import UploadRecords

TUS = {"Tus-Resumable": "1.0.0"}
#: Bytes that are read and sent at once.
PIECE = 256 << 10
#: Statuses after which the offset is asked for and the upload goes on: a lost race or connection, a busy platform.
CONTINUED = frozenset({408, 409, 423, 429, 460, *retries.TEMPORARY})

Progress = Callable[[int, int], None]


class Uploads:
    """Uploads of files to one platform; ``records`` remembers unfinished ones over the end of this process."""

    def __init__(self, transport: Transport, records: UploadRecords | None = None) -> None:
        self._transport = transport
        self._records = records

    def send(self, content: Content, *, progress: Progress | None = None) -> str:
        """Upload a content and return the id of the finished upload.

        ``progress`` is called with the bytes sent and the total. After a break, only the bytes that the platform does
        not have are sent again; the upload is given up when none arrived within the transport's patience.
        """
        server, size = self._transport.server.url, content.size
        records = self._records if content.fingerprint else None
        url = records.get(server, content.fingerprint) if records else None
        offset = self._offset(url) if url else None
        if url is None or offset is None:
            url, offset = self._create(content.name, size), 0
            if records:
                records.put(server, content.fingerprint, url)
        attempts = Attempts(self._transport)
        while offset < size:
            try:
                arrived: int | None = self._append(url, content, offset, progress)
            except (httpx.TransportError, Refused) as error:
                attempts.failed(error, temporary=isinstance(error, Refused) and error.status in CONTINUED)
                arrived = self._offset(url)
            if arrived is None:
                raise WindtunnelError(f"The upload of {content.name} has expired on the platform; start it again.")
            if arrived > offset:
                attempts.succeeded()
            offset = arrived
        if progress is not None:
            progress(size, size)
        if records:
            records.drop(server, content.fingerprint)
        return url.rpartition("/")[2]

    def _create(self, name: str, size: int) -> str:
        metadata = f"filename {base64.b64encode(name.encode(errors='surrogateescape')).decode()}"
        response = self._transport.request(
            "POST",
            "/v1/uploads",
            headers={**TUS, "Upload-Length": str(size), "Upload-Metadata": metadata},
            repeatable=True,  # an upload that was created twice is empty and expires
        )
        # The path alone: behind a proxy the platform may have another host name, and the token is for this one.
        return path("uploads", response.headers["Location"].rpartition("/")[2])

    def _offset(self, url: str) -> int | None:
        """Return how many bytes of an upload have arrived; None if there is no such upload any more."""
        try:
            response = self._transport.request("HEAD", url, headers=TUS)
        except Refused as error:
            if error.status in {403, 404, 410}:
                return None
            raise
        return int(response.headers["Upload-Offset"])

    def _append(self, url: str, content: Content, offset: int, progress: Progress | None) -> int:
        """Send the bytes from ``offset`` on and return the new offset."""
        headers = {
            **TUS,
            "Upload-Offset": str(offset),
            "Content-Type": "application/offset+octet-stream",
            "Content-Length": str(content.size - offset),
        }
        pieces = _pieces(content, offset, progress)
        response = self._transport.send("PATCH", url, headers=headers, content=pieces)
        if response.status_code != 204:
            raise refused(response)
        return int(response.headers["Upload-Offset"])


def _pieces(content: Content, offset: int, progress: Progress | None) -> Iterator[bytes]:
    for piece in content.read(offset, PIECE):
        offset += len(piece)
        yield piece
        if progress is not None:
            progress(offset, content.size)
