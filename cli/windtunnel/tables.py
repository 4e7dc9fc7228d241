"""Tables of results: formats of files, drafts that become files when they are complete, optional libraries."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from windtunnel.errors import WindtunnelError
from windtunnel.received_files import check_new

#: Formats of results by the suffix of a file.
FORMATS = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


#: Names of drafts begin and end so; one that a killed process has left belongs to nothing.
DRAFT_PREFIX, DRAFT_SUFFIX = ".windtunnel-", ".draft"


def format_of(file: Path) -> str:
    """Return the format of results by a file's suffix; raise WindtunnelError for another one."""
    try:
        return FORMATS[file.suffix.lower()]
    except KeyError:
        raise WindtunnelError(f"{file}: write results to a file that ends in {', '.join(FORMATS)}.") from None


def checked_target(file: Path) -> Path:
    """Return the file that is written for a path, which may be a link; raise WindtunnelError if it cannot be.

    Only a regular file is replaced by another: a device or a pipe would be removed.
    """
    target = file.resolve()
    if not target.parent.is_dir():
        raise WindtunnelError(f"There is no folder {file.parent}; make it, or name another file.")
    if target.exists() and not target.is_file():
        raise WindtunnelError(f"{file} is not a regular file; name another file.")
    if not os.access(target.parent, os.W_OK):
        raise WindtunnelError(f"Nothing can be written in {target.parent}; name a file in another folder.")
    return target


@contextmanager
def draft_of(file: Path, *, replace: bool = True) -> Iterator[IO[bytes]]:
    """Open a draft that becomes the file when the block ends without an error, and is deleted otherwise.

    Without ``replace``, a file that is there, or appears meanwhile, is an error.
    """
    if not replace:
        check_new(file)
    file = checked_target(file)
    descriptor, draft = tempfile.mkstemp(dir=file.parent, prefix=DRAFT_PREFIX, suffix=DRAFT_SUFFIX)
    try:
        with os.fdopen(descriptor, "w+b") as content:
            yield content
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(draft, 0o666 & ~umask)
        if not replace:
            check_new(file)
        os.replace(draft, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def rewind(draft: IO[bytes]) -> None:
    """Empty a draft, to write it from its beginning again."""
    draft.seek(0)
    draft.truncate()


def library(name: str, extra: str) -> Any:
    """Return an optional library; raise WindtunnelError with the command that installs it."""
    try:
        return import_module(name)
    except ImportError:
        raise WindtunnelError(f"This needs {name}: pip install 'windtunnel[{extra}]'") from None
