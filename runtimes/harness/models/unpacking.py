"""Unpacking a model's zip into its own folder: plain files only, inside it, and not more than fits."""

import stat
import zipfile
import zlib
from io import BytesIO
from pathlib import Path, PurePosixPath

from .base import UNPACKED, Misfit

ENTRIES = 10_000
#: For how many files and folders a confined model's temporary folder has room.
FILES = 1000
PIECE = 1 << 20


def is_zip(source: bytes) -> bool:
    """Tell by its first bytes."""
    return source[:4] == b"PK\x03\x04"


def unpack(source: bytes, folder: Path, *, most: int = UNPACKED) -> None:
    """Write every file of the zip below the folder; raise Misfit at the first entry that is anything else."""
    entries: list[zipfile.ZipInfo] = []
    done = 0
    try:
        with zipfile.ZipFile(BytesIO(source)) as archive:
            entries = archive.infolist()
            if len(entries) > ENTRIES:
                raise Misfit(f"the zip has {len(entries):,} entries; at most {ENTRIES:,} are unpacked")
            left = most
            for entry in entries:
                target = folder / _safe(entry)
                done += 1
                if entry.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as packed, open(target, "xb") as file:
                    while piece := packed.read(PIECE):  # what comes out is counted, not what was announced
                        left -= len(piece)
                        if left < 0:
                            raise Misfit(f"the zip unpacks to more than {most >> 20} MB")
                        file.write(piece)
    except OSError as error:
        raise Misfit(
            f"the zip cannot be unpacked further than {done - 1:,} of its {len(entries):,} entries: {error.strerror}"
            f" ({most >> 20} MB and about {FILES:,} files have room)"
        ) from None
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, ValueError, zlib.error) as error:
        raise Misfit(f"the zip cannot be unpacked: {str(error)[:300] or type(error).__name__}") from None


def _safe(entry: zipfile.ZipInfo) -> PurePosixPath:
    path = PurePosixPath(entry.filename)
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or "\\" in entry.filename or not path.parts:
        raise Misfit("the zip has an entry whose name leads out of its folder")
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise Misfit("the zip has an entry that is neither a file nor a folder")
    return path
