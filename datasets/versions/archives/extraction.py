"""Extraction: the files of a model's archive or an FMU, written below a folder; the archive is untrusted."""

import os
import secrets
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from common.errors import BadArchive, TooLarge
from common.file_reading import refuse_unreadable
from common.printable import printable
from common.top_folder import is_clutter
from datasets.versions.archives import files_of, tar, zip
from datasets.versions.archives.decompression import CHUNK, ByteSource, decompressed, detect_format

#: Files of a model's archive at most; its folders count too where it is unpacked.
FILES = 50_000
#: Setting that limits the bytes of a model's files.
SETTING = "WINDTUNNEL_MAX_UNPACKED"


def source_of(archive: Path) -> ByteSource:
    """Return a file as the source of an archive's bytes."""

    def read(start: int, stop: int) -> Iterator[bytes]:
        with open(archive, "rb") as file:
            file.seek(start)
            while start < stop and (data := file.read(min(CHUNK, stop - start))):
                start += len(data)
                yield data

    return ByteSource(archive.stat().st_size, read)


def tar_names(archive: Path, *, largest: int) -> tuple[str, ...] | None:
    """Return the names of a tar's files, compressed or not; None if it is not a tar, such as a compressed pickle.

    Reads the whole archive, up to ``largest`` bytes of files. Raises BadArchive, BadName or TooLarge if it must not be
    unpacked.
    """
    source = source_of(archive)
    format = detect_format(source)
    if format is None or format == "zip" or not tar.begins(decompressed(source, format)):
        return None
    members = list(islice(files_of(source, largest=largest, limit=SETTING), FILES + 1))
    if len(members) > FILES:
        raise BadArchive(f"The archive has more than {FILES:,} files.")
    return tuple(member.path for member in members)


def check_size_of_files(archive: Path, *, largest: int) -> None:
    """Raise TooLarge if the files of a zip have more bytes than ``largest``, as its directory declares them."""
    source = source_of(archive)
    if detect_format(source) == "zip" and sum(entry.size for _, entry in zip.members(source)) > largest:
        raise TooLarge(f"The archive unpacks to more than {largest:,} bytes ({SETTING}).")


@refuse_unreadable("The archive", BadArchive)
def extract(
    archive: Path,
    folder: Path,
    *,
    largest: int,
    wanted: Callable[[str], bool] = lambda path: True,
    limit: str = SETTING,
) -> None:
    """Write the wanted files of a zip or tar below an empty folder: regular files, readable and executable by all.

    If they are all in one folder, it is entered: its files are at the top. ``largest``: bytes of all files together;
    ``limit`` names it. Raises BadArchive, BadName or TooLarge at a member that is not allowed; what was written until
    then is left.
    """
    left, count = largest, 0
    folders: set[Path] = set()
    for member in files_of(source_of(archive)):
        if is_clutter(member.path) or not wanted(member.path):
            continue
        path = folder / member.path
        count += 1
        for above in islice(path.parents, member.path.count("/")):
            if above in folders:
                break
            folders.add(above)
        if count + len(folders) > FILES:
            raise BadArchive(f"The archive has more than {FILES:,} files and folders.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o555), "wb")
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise BadArchive(f"The archive has {printable(member.path)} twice, or as a file and as a folder.") from None
        with file:
            for chunk in member.chunks:
                left -= len(chunk)
                if left < 0:
                    raise TooLarge(f"The archive unpacks to more than {largest:,} bytes ({limit}).")
                file.write(chunk)
        os.chmod(path, 0o555)  # whatever the umask
    _enter(folder)


def _enter(folder: Path) -> None:
    """Move the files of the one folder in a folder up into it (common/top_folder.py)."""
    with os.scandir(folder) as listed:
        entries = list(islice(listed, 2))
    if len(entries) == 1 and entries[0].is_dir(follow_symlinks=False):
        emptied = folder / secrets.token_hex(8)  # a file in it may have its name
        os.rename(entries[0], emptied)
        for entry in os.listdir(emptied):
            os.rename(emptied / entry, folder / entry)
        emptied.rmdir()
