"""Contents of uploads: a file, or bytes, that are read from any offset, so that a broken upload continues."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from windtunnel.errors import WindtunnelError


class Content(Protocol):
    """Content of an upload: its name, its size in bytes, and what identifies it in the record of unfinished uploads."""

    name: str
    size: int
    fingerprint: str

    def read(self, offset: int, count: int) -> Iterator[bytes]:
        """Yield the bytes from ``offset`` to the end, in pieces of at most ``count``."""
        ...


class FileContent:
    """A file: identified by its path, its size and the time of its last change, unless by its digest."""

    def __init__(self, file: Path, *, fingerprint: str | None = None) -> None:
        status = file.stat()
        self._file = file
        self.name = file.name
        self.size = status.st_size
        self.fingerprint = fingerprint or f"{file.resolve()} {status.st_size} {status.st_mtime_ns}"

    def read(self, offset: int, count: int) -> Iterator[bytes]:
        """Yield the bytes from ``offset`` to the end."""
        with open(self._file, "rb") as content:
            content.seek(offset)
            while offset < self.size:
                piece = content.read(min(count, self.size - offset))
                if not piece:
                    raise WindtunnelError(f"{self._file} became shorter while it was uploaded; upload it again.")
                offset += len(piece)
                yield piece


class BytesContent:
    """Bytes in memory."""

    def __init__(self, name: str, content: bytes) -> None:
        self._content = content
        self.name = name
        self.size = len(content)
        self.fingerprint = ""  # sent at once, so that there is nothing to remember

    def read(self, offset: int, count: int) -> Iterator[bytes]:
        """Yield the bytes from ``offset`` to the end."""
        for start in range(offset, self.size, count):
            yield self._content[start : start + count]
