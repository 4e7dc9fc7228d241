"""Names in a model's zip: the directory's entries, checked without unpacking the archive.

The sandbox counts the bytes again when it unpacks the archive, because declared sizes may be wrong.
"""

from pathlib import Path

from common.errors import BadArchive
from common.zip_directory import check_ratio, read_directory

#: Unpacked bytes up to which the compression ratio is not checked.
SMALL = 16 << 20
#: Entries of a model's zip at most, as many as the sandbox unpacks; its directory is read by the API.
ENTRIES = 10_000
#: Longest path, and longest part of a path, in bytes.
PATH, PART = 1024, 255


def names(path: Path) -> list[str]:
    """Return the names of the zip's files and folders; raise BadArchive if one must not be unpacked."""
    with open(path, "rb") as file:

        def read(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        entries = read_directory(read, file.seek(0, 2), most=ENTRIES)
    decoded = [_decode_name(entry.name) for entry in entries]
    _check_conflicts(decoded)
    check_ratio(entries, unchecked=SMALL)
    return decoded


def _check_conflicts(names: list[str]) -> None:
    """Refuse names that are equal up to case, and a file's name that is also a folder's."""
    by_key: dict[str, str] = {}
    for name in names:
        folded = name.rstrip("/").casefold()
        if folded in by_key:
            raise BadArchive(f"The zip has both {by_key[folded]!r} and {name!r}. Rename one of them.")
        by_key[folded] = name
    for folded, name in by_key.items():
        above = folded.rpartition("/")[0]
        if above in by_key and not by_key[above].endswith("/"):
            raise BadArchive(f"The zip has {by_key[above]!r} as a file, and {name!r} in it.")


def _decode_name(raw: bytes) -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        name = raw.decode("cp437")
    parts = name.removesuffix("/").split("/")
    if (
        not name
        or name.startswith("/")
        or "\\" in name
        or ":" in parts[0]
        or any(part in {"", ".", ".."} for part in parts)
    ):
        raise BadArchive(f"The zip's entry {name[:100]!r} leads out of its folder. Pack it with relative names.")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        raise BadArchive("The zip has a name with control characters in it.")
    if len(raw) > PATH or any(len(part.encode()) > PART for part in parts):
        raise BadArchive(f"The zip has a name that is too long: {name[:60]!r}...")
    return name
