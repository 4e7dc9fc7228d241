"""Files whose names come from the platform: where they are written, and what of the user's they leave alone.

The uploader of a model or a dataset names its files, and a download is often written where the user is. So such a name
is a plain, visible one, and no file is replaced that the user has not named.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from windtunnel.errors import WindtunnelError
from windtunnel.visible_text import is_visible

#: Characters that a file's name cannot have on some system; names that Windows takes for devices.
_SPECIAL = re.compile(r'[<>:"|?*\x00-\x1f\x7f]')
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
#: Most bytes of a name, so that a draft beside the file can have a longer one.
LONGEST = 200
#: Files that an error names.
NAMED = 3


def name_of(*names: str | None) -> str:
    """Return the first name that is plain, of names that the platform has for a file; raise WindtunnelError for none.

    Of a path the last part counts. A hidden file, such as `.bashrc`, is none that a download makes.
    """
    for name in names:
        last = re.split(r"[/\\]", name or "")[-1]
        if _is_plain(last):
            return last
    raise WindtunnelError(f"The platform names the file {names[0]!r:.200}; name another by -o.")


def _is_plain(name: str) -> bool:
    if not name or name.startswith((".", "~", "-", " ")) or name.endswith((".", " ")) or not is_visible(name):
        return False
    if _SPECIAL.search(name) or _DEVICE.fullmatch(name):
        return False
    try:
        return len(name.encode()) <= LONGEST
    except UnicodeEncodeError:
        return False


def is_hidden(name: str) -> bool:
    """Return whether a path within a folder has a part that begins with a dot."""
    return any(part.startswith(".") for part in Path(name).parts)


def check_new(file: Path) -> Path:
    """Return a path at which nothing is, not even a link; raise WindtunnelError with the next step otherwise."""
    if file.exists() or file.is_symlink():
        raise WindtunnelError(f"{file} is there already, and is not replaced; name it, or another file, by -o.")
    return file


def refuse_replaced(folder: Path, names: Iterable[str]) -> None:
    """Raise WindtunnelError if there are any names: those of files that would be replaced, or hidden ones."""
    listed = sorted(names)
    if listed:
        shown = ", ".join(repr(name) for name in listed[:NAMED]) + (", ..." if len(listed) > NAMED else "")
        raise WindtunnelError(
            f"{len(listed)} of the files would replace others in {folder}, or are hidden ones in a folder that has"
            f" files: {shown}. Nothing was written; --replace (replace=True) writes them, or name an empty folder."
        )
