"""What a file of a dataset may be called, so that it can be kept as a tree on any machine and shown in any address."""

import unicodedata

from errors import BadName

#: Bytes of a path, and of each of its parts.
PATH, PART = 1024, 255


def checked(raw: str | bytes) -> str:
    """Return a path as it is kept: relative, NFC; raise BadName, saying why, for one that cannot be."""
    try:
        name = raw.decode() if isinstance(raw, bytes) else raw
        name = normal(name)
        size = len(name.encode())
    except UnicodeError:
        raise BadName(f"The name {shown(raw)} is not UTF-8.") from None
    if any(unicodedata.category(letter) in {"Cc", "Cs"} for letter in name):
        raise BadName(f"The name {shown(name)} has control characters in it.")
    parts = name.split("/")
    if size > PATH or any(len(part.encode()) > PART for part in parts):
        raise BadName(f"The name {shown(name)} is too long: {PATH} bytes at most, {PART} for each part.")
    if "\\" in name:
        raise BadName(f"The name {shown(name)} has a backslash in it; parts are separated by `/`.")
    if any(part in {"", ".", ".."} for part in parts):
        raise BadName(f"The name {shown(name)} leads out of its folder, or has an empty part.")
    return name


def check_folder(raw: bytes) -> None:
    """Refuse an archive's folder that leads out of it. Folders are not kept, but such a one betrays its archive."""
    name = raw.rstrip(b"/")
    if name not in {b"", b"."}:
        try:
            checked(name)
        except BadName as error:
            raise BadName(f"Of a folder: {error.detail}") from None


def normal(name: str) -> str:
    """Return a name as it is kept, whichever way its letters were put together."""
    return unicodedata.normalize("NFC", name).removeprefix("./")


def shown(name: str | bytes) -> str:
    """Return a name as it may stand in a message: short, and nothing in it that a terminal obeys."""
    return ascii(name[:60]).removeprefix("b") + ("..." if len(name) > 60 else "")


def folded(path: str) -> bytes:
    """Return the key under which paths that cannot lie side by side sort next to each other.

    Equal up to case: equal keys. One of them a folder of the other: the key and a byte 1 begin the other's key.
    """
    return unicodedata.normalize("NFC", path.casefold()).replace("/", "\x01").encode()


class Neighbours:
    """Looks at folded paths as they come sorted; refuses two that cannot lie side by side."""

    def __init__(self) -> None:
        self._key = b"\x00"
        self._path = ""

    def add(self, key: bytes, path: str) -> None:
        """Take the next; raise BadName where it clashes with the one before."""
        if key == self._key:
            raise BadName(f"There are both {shown(self._path)} and {shown(path)}; they differ in case alone, or not.")
        if key.startswith(self._key + b"\x01"):
            raise BadName(f"There is {shown(self._path)} as a file, and {shown(path)} in it.")
        self._key, self._path = key, path
