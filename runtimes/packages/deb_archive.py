"""Deb archive: a Debian package's file, read as data: its files, and the links that its scripts would ask for.

An ar archive of two tars (deb(5)). Its scripts never run; of `postinst` the literal calls of `update-alternatives` are
read.
"""

import gzip
import io
import lzma
import re
import shlex
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from runtimes.environments import CannotPrepare

_MAGIC, _HEADER = b"!<arch>\n", 60
#: Most bytes of the control archive, unpacked.
LARGEST_CONTROL = 64 << 20


class BadPackage(CannotPrepare):
    """A package cannot be unpacked here, or must not be."""


@dataclass(frozen=True, slots=True)
class _DebMember:
    """A member of the ar archive."""

    name: str
    start: int
    size: int


class DebArchive:
    """A package's file. ``name``: of the package, for errors."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name

    def members(self) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
        """Yield its files, with the bytes of regular ones, in order; each is to be read before the next."""
        with open(self._path, "rb") as file:
            yield from self._entries(file, self._part(file, "data.tar"))

    def links(self) -> list[tuple[str, str, int]]:
        """Return path, target and priority of the links that its scripts ask `update-alternatives` for."""
        script = ""
        with open(self._path, "rb") as file:
            read = 0
            for member, content in self._entries(file, self._part(file, "control.tar")):
                read += member.size
                if read > LARGEST_CONTROL:
                    raise BadPackage(f"the package {self._name} has scripts of more than {LARGEST_CONTROL:,} bytes")
                if content is not None and member.name.removeprefix("./") == "postinst":
                    script = content.read().decode(errors="replace")
        return alternatives(script)

    def _part(self, file: IO[bytes], name: str) -> _DebMember:
        """Return the ar member with a tar, whatever it is compressed with."""
        if file.read(len(_MAGIC)) != _MAGIC:
            raise BadPackage(f"the file of {self._name} is not a Debian package")
        while len(header := file.read(_HEADER)) == _HEADER:
            part = _DebMember(
                header[:16].decode("ascii", "replace").strip().rstrip("/"), file.tell(), int(header[48:58])
            )
            if part.name.startswith(name):
                return part
            file.seek(part.size + part.size % 2, io.SEEK_CUR)
        raise BadPackage(f"the file of {self._name} has no {name}")

    def _entries(self, file: IO[bytes], part: _DebMember) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
        file.seek(part.start)
        suffix = part.name.rpartition(".")[2]
        openers: Mapping[str, Callable[[IO[bytes]], IO[bytes]]] = {
            "xz": lambda raw: cast(IO[bytes], lzma.LZMAFile(raw)),
            "gz": lambda raw: cast(IO[bytes], gzip.GzipFile(fileobj=raw)),
            "tar": lambda raw: raw,
        }
        if (opener := openers.get(suffix)) is None:
            raise BadPackage(f"the package {self._name} is compressed with {suffix}, which is not read here")
        stream = opener(cast(IO[bytes], _Window(file, part.size)))
        try:
            with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape") as tar:
                for member in tar:
                    yield member, tar.extractfile(member) if member.isreg() else None
        except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError) as error:
            raise BadPackage(f"the package {self._name} cannot be unpacked: {error}") from None


class _Window(io.RawIOBase):
    """The next bytes of a file, as a file of its own."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(min(len(buffer), self._left))
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)


def alternatives(script: str) -> list[tuple[str, str, int]]:
    """Return path, target and priority of the links in the literal `update-alternatives --install` calls of a script.

    Secondary links have the priority of their first one. A call with a variable of the shell is left out.
    """
    links: list[tuple[str, str, int]] = []
    for call in re.findall(r"update-alternatives\b[^\n;&|]*", script.replace("\\\n", " ")):
        try:
            words = shlex.split(call)
        except ValueError:
            continue
        if "$" in call or "`" in call or "--install" not in words:
            continue
        links += _links_of(words)
    return links


def _links_of(words: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    at = words.index("--install")
    if len(words) < at + 5 or not words[at + 4].lstrip("-").isdigit():
        return
    priority = int(words[at + 4])
    yield words[at + 1], words[at + 3], priority
    for place, word in enumerate(words):
        if word == "--slave" and len(words) > place + 3:
            yield words[place + 1], words[place + 3], priority
