"""Equal files of environments are one file with several names: on disk, in memory and in the caches of a processor.

An evaluator and a model server take turns on one core, each with libraries of its own environment. Those that both
have, such as numpy's, stay in the processor's caches if they are the same file.
"""

import filecmp
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

_log = logging.getLogger(__name__)

#: Bytes of the smallest file that is looked at: libraries, not the thousands of modules.
SMALLEST = 64 << 10


def link_equal_files(folder: Path, others: Iterable[Path]) -> int:
    """Replace files of ``folder`` by links to equal ones at the same paths in ``others``; return the bytes saved.

    Only files that none may write to and that agree in mode and owner. A file system that cannot link keeps copies.
    """
    others, saved = list(others), 0
    for relative, status in _large_files(folder):
        path = folder / relative
        for other in others:
            if _equal(path, status, other / relative):
                try:
                    _replace(path, other / relative)
                except OSError as error:  # it has no hard links, or the file has too many
                    _log.debug("%s stays a copy: %s", path, error)
                    continue
                saved += status.st_size
                break
    return saved


def _large_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for parent, _, names in os.walk(folder):
        for name in names:
            status = os.lstat(os.path.join(parent, name))
            if stat.S_ISREG(status.st_mode) and status.st_size >= SMALLEST:
                yield Path(parent, name).relative_to(folder), status


def _equal(path: Path, status: os.stat_result, other: Path) -> bool:
    try:
        kept = os.lstat(other)
        writable = stat.S_IMODE(status.st_mode) & 0o222
        same = (status.st_mode, status.st_uid, status.st_size) == (kept.st_mode, kept.st_uid, kept.st_size)
        return same and not writable and filecmp.cmp(path, other, shallow=False)
    except OSError:
        return False


def _replace(path: Path, other: Path) -> None:
    """Replace a file by a link, so that at each moment the path has a whole file."""
    draft = path.with_name(f".{path.name}.link")
    os.link(other, draft)
    draft.replace(path)
