"""Unpacking of a model's zip: regular files and folders only, inside the target folder, with a size limit."""

import stat
import zipfile
from io import BytesIO
from pathlib import Path, PurePosixPath

from ..sandbox.allowances import SCRATCH_FILES
from .base import MAX_UNPACKED, Misfit

#: As many as runtimes/archives.py accepts.
MAX_ENTRIES = 10_000
#: About how many files and folders fit into a confined model's temporary folder.
FILES = SCRATCH_FILES
CHUNK = 1 << 20


def unpack(source: bytes, folder: Path, *, most: int = MAX_UNPACKED) -> None:
    """Write the zip's files below the folder, at most ``most`` bytes; raise Misfit at a forbidden entry."""
    entries: list[zipfile.ZipInfo] = []
    done = 0
    try:
        with zipfile.ZipFile(BytesIO(source)) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_ENTRIES:
                raise Misfit(f"the zip has {len(entries):,} entries; at most {MAX_ENTRIES:,} are unpacked")
            left = most
            for entry in entries:
                target = folder / _safe_path(entry)
                done += 1
                if entry.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as packed, open(target, "xb") as file:
                    while chunk := packed.read(CHUNK):  # the declared size may be wrong, so count unpacked bytes
                        left -= len(chunk)
                        if left < 0:
                            raise Misfit(f"the zip unpacks to more than {most >> 20} MB")
                        file.write(chunk)
    except OSError as error:
        raise Misfit(
            f"the zip cannot be unpacked further than {done - 1:,} of its {len(entries):,} entries: {error.strerror}"
            f" ({most >> 20} MB and about {FILES:,} files fit)"
        ) from None
    except Misfit:
        raise
    except Exception as error:  # of `zipfile` and its decompressors, which raise whatever a damaged field leads to
        raise Misfit(f"the zip cannot be unpacked: {str(error)[:300] or type(error).__name__}") from None


def _safe_path(entry: zipfile.ZipInfo) -> PurePosixPath:
    path = PurePosixPath(entry.filename)
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or "\\" in entry.filename or not path.parts:
        raise Misfit("the zip has an entry whose name leads out of its folder")
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise Misfit("the zip has an entry that is neither a file nor a folder")
    return path
