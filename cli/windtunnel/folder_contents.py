"""Folder of a dataset as it is sent: a manifest by digest, and an archive of those contents that the platform lacks.

The archive is never written: its bytes follow from the files and are read where they are needed, so that a folder of
terabytes needs no second copy, and an upload that broke continues at any offset.
"""

import hashlib
import json
import tarfile
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from windtunnel.errors import WindtunnelError
from windtunnel.folder_files import folder_files

BLOCK = 512
#: Most bytes of a file's path within a dataset, and of a part of it.
LONGEST_PATH, LONGEST_PART = 1024, 255


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file of a folder: its path there, its size in bytes, and the digest of its content."""

    path: str
    size: int
    digest: str


def scan(folder: Path, progress: Callable[[int, int], None] | None = None) -> list[FolderFile]:
    """Read the files of a folder, in the order of their paths; ``progress``: called with the bytes read and the total.

    See `folder_files` for what belongs to a folder.
    """
    paths = folder_files(folder)
    total, done, files = sum(path.stat().st_size for path in paths.values()), 0, []
    for name, path in paths.items():
        content, size = hashlib.sha256(), 0
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                content.update(piece)
                size += len(piece)
                if progress is not None:
                    progress(min(done + size, total), total)
        done += size
        files.append(FolderFile(name, size, f"sha256:{content.hexdigest()}"))
    return files


def manifest(files: Iterable[FolderFile]) -> list[dict[str, object]]:
    """Return the lines of a manifest."""
    return [{"path": file.path, "digest": file.digest, "size": file.size} for file in files]


def manifest_lines(files: Iterable[FolderFile]) -> bytes:
    """Return a manifest as NDJSON, for an upload."""
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in manifest(files))


class FolderArchive:
    """The tar archive of some files of a folder: each content once, under its digest. Bytes are read at any offset."""

    def __init__(self, folder: Path, files: Sequence[FolderFile], lacking: Collection[str]) -> None:
        """``lacking``: the digests of the contents that are sent."""
        chosen = {file.digest: file for file in files if file.digest in lacking}
        self.name = f"{folder.resolve().name}.tar"
        self.contents = len(chosen)
        self._parts: list[tuple[int, bytes | Path, int]] = []  # offset, bytes or file, length
        self.size = 0
        for file in chosen.values():
            entry = tarfile.TarInfo(file.digest.removeprefix("sha256:"))
            entry.size = file.size
            self._add(entry.tobuf(tarfile.GNU_FORMAT))
            if file.size:
                self._add(folder.resolve() / file.path, file.size)
                self._add(bytes(-file.size % BLOCK))
        self._add(bytes(2 * BLOCK))
        self._starts = [start for start, _, _ in self._parts]
        #: What identifies the archive: the files that are in it.
        self.fingerprint = hashlib.sha256("\n".join(chosen).encode()).hexdigest()

    def _add(self, part: bytes | Path, length: int | None = None) -> None:
        count = len(part) if isinstance(part, bytes) else length or 0
        if count:
            self._parts.append((self.size, part, count))
            self.size += count

    def read(self, offset: int, count: int) -> Iterator[bytes]:
        """Yield the bytes from ``offset`` to the end, in pieces of at most ``count``."""
        index = bisect_right(self._starts, offset) - 1
        for start, part, length in self._parts[index:]:
            skip = max(0, offset - start)
            if isinstance(part, bytes):
                yield part[skip:]
                continue
            left = length - skip
            with open(part, "rb") as file:
                file.seek(skip)
                while left:
                    piece = file.read(min(count, left))
                    if not piece:
                        raise WindtunnelError(f"{part} became shorter while it was sent; send the folder again.")
                    left -= len(piece)
                    yield piece


def safe_target(folder: Path, name: str) -> Path:
    """Return where a file of a dataset belongs in a folder; raise WindtunnelError if that is outside of it."""
    target = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise WindtunnelError(
            f"The dataset has a file {name!r}, which leads out of the folder; nothing more is written."
        )
    if not _is_possible(name):
        raise WindtunnelError(
            f"The dataset has a file {name!r:.200}, which is no name of a file here; nothing more is written."
        )
    if not target.resolve().is_relative_to(folder.resolve()):
        raise WindtunnelError(
            f"{target} leads out of {folder} by a link; remove the link, or pull into another folder."
        )
    return target


def _is_possible(name: str) -> bool:
    """Return whether files may have this path: UTF-8 without control characters, of a bounded length."""
    try:
        lengths = [len(part.encode()) for part in name.split("/")]
    except UnicodeEncodeError:
        return False
    control = any(ord(character) < 32 or ord(character) == 127 for character in name)
    return not control and max(lengths) <= LONGEST_PART and sum(lengths) <= LONGEST_PATH
