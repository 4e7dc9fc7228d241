"""File names of a dataset, validated so that the files can be stored as a tree on any machine and named in a URL."""

import unicodedata

from common.errors import BadName
from common.printable import printable as printable

#: Bytes of a path, and of each of its parts.
PATH, PART = 1024, 255


def validated(raw: str | bytes) -> str:
    """Return a path in its stored form (relative, NFC); raise BadName with the reason if it is not allowed."""
    try:
        name = raw.decode() if isinstance(raw, bytes) else raw
        name = normalized(name)
        size = len(name.encode())
    except UnicodeError:
        raise BadName(f"The name {printable(raw)} is not UTF-8.") from None
    if any(unicodedata.category(letter) in {"Cc", "Cs"} for letter in name):
        raise BadName(f"The name {printable(name)} has control characters in it.")
    parts = name.split("/")
    if size > PATH or any(len(part.encode()) > PART for part in parts):
        raise BadName(f"The name {printable(name)} is too long: {PATH} bytes at most, {PART} for each part.")
    if "\\" in name:
        raise BadName(f"The name {printable(name)} has a backslash in it; parts are separated by `/`.")
    if any(part in {"", ".", ".."} for part in parts):
        raise BadName(f"The name {printable(name)} leads out of its folder, or has an empty part.")
    return name


def check_folder(raw: bytes) -> None:
    """Refuse an archive member that is a folder outside the archive. Folders are not stored; this one is an attack."""
    name = raw.rstrip(b"/")
    if name not in {b"", b"."}:
        try:
            validated(name)
        except BadName as error:
            raise BadName(f"Folder: {error.detail}") from None


def normalized(name: str) -> str:
    """Return a name in its stored form: Unicode NFC, without a leading ``./``."""
    return unicodedata.normalize("NFC", name).removeprefix("./")


def folded(path: str) -> bytes:
    """Return a sort key that places conflicting paths next to each other.

    Paths that are equal up to case have equal keys. If one path is a folder of the other, the other's key begins with
    its key and a byte 1.
    """
    return unicodedata.normalize("NFC", path.casefold()).replace("/", "\x01").encode()


class ConflictChecker:
    """Checks paths sorted by their folded key, and refuses two that cannot exist side by side."""

    def __init__(self) -> None:
        self._key = b"\x00"
        self._path = ""

    def add(self, key: bytes, path: str) -> None:
        """Check the next path; raise BadName if it conflicts with the previous path."""
        if key == self._key:
            raise BadName(
                f"There are both {printable(self._path)} and {printable(path)}; they are equal, or differ only in case."
            )
        if key.startswith(self._key + b"\x01"):
            raise BadName(f"There is {printable(self._path)} as a file, and {printable(path)} in it.")
        self._key, self._path = key, path
