"""Files of a folder that is sent to the platform, packed as a model or by digest as a dataset."""

import os
from pathlib import Path

from windtunnel.errors import WindtunnelError
from windtunnel.tables import DRAFT_PREFIX, DRAFT_SUFFIX

#: Names of folders, or of the files in their place, that belong to tools; they are not sent.
TOOLS = frozenset(
    {".git", "__pycache__", ".venv", "venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules"}
)


def folder_files(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by their names in it, such as `sub/weights.bin`, in the order of the names' bytes.

    A link to a file of the folder is that file. Raise WindtunnelError for all that would be left out, or that would
    bring files from elsewhere: links to folders and out of the folder, pipes and devices, folders that cannot be read.
    """
    root = folder.resolve()
    if not root.is_dir():
        raise WindtunnelError(f"There is no folder {folder}.")
    files = {}
    for parent, folders, names in os.walk(root, onerror=_unreadable):
        folders[:] = [name for name in folders if name not in TOOLS]
        for path in (Path(parent, name) for name in folders):
            if path.is_symlink():
                raise WindtunnelError(f"{path} is a link to a folder; copy the folder there.")
        for path in (Path(parent, name) for name in names if name not in TOOLS and not _is_draft(name)):
            files[_name(path, root)] = path
    if not files:
        raise WindtunnelError(f"The folder {folder} has no files.")
    return dict(sorted(files.items(), key=lambda item: item[0].encode()))


def _name(path: Path, root: Path) -> str:
    name = path.relative_to(root).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise WindtunnelError(f"The name {name!r} is not UTF-8; rename the file.") from None
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise WindtunnelError(f"The name {name!r} has control characters; rename the file.")
    if not path.is_file():
        raise WindtunnelError(f"{path} is not a regular file; remove it from the folder.")
    if not path.resolve().is_relative_to(root):
        raise WindtunnelError(f"{path} is a link to a file outside of {root}; copy the file there.")
    return name


def _is_draft(name: str) -> bool:
    """Return whether a file is what a killed `windtunnel datasets pull` has left."""
    return name.startswith(DRAFT_PREFIX) and name.endswith(DRAFT_SUFFIX)


def _unreadable(error: OSError) -> None:
    raise WindtunnelError(f"{error.filename} cannot be read: {error.strerror}.")
