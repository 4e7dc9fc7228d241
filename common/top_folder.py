"""Top folder: the one folder that all files of an archive are in, as macOS and GitHub pack them; it is entered.

Files that file managers add on their own (resource forks, settings of windows) are not files of the archive.
"""

from collections.abc import Iterable

#: Resource forks that macOS adds: their folder, and how their names begin. Files that file managers write.
FORKS, FORK = "__MACOSX/", "._"
WRITTEN = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})


def is_clutter(path: str) -> bool:
    """Return whether a file manager has added this file on its own."""
    name = path.rpartition("/")[2]
    return path.startswith(FORKS) or name in WRITTEN or name.startswith(FORK)


def top_folder(paths: Iterable[str]) -> str:
    """Return the one folder of these files, with its slash; empty if there is none. Names of folders do not count."""
    tops = set()
    for path in paths:
        if path.endswith("/") or is_clutter(path):
            continue
        top, slash, _ = path.partition("/")
        tops.add(top + slash)
        if not slash or len(tops) > 1:
            return ""
    return tops.pop() if tops else ""
